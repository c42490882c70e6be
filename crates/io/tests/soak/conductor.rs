//! The conductor: kills, stops and replaces, and looks at what is left.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use genie_sys::inspect;
use genie_sys::socket::Socket;

use crate::cast::{Cue, Part, Player, Script};
use crate::client::SERVERS;
use crate::random::Random;
use crate::support::machine::skip;
use crate::tally::Tally;

/// Kills between two rests.
const SPELL: u64 = 50;
/// Milliseconds between two kills, at most.
const PAUSE: usize = 140;
/// Milliseconds for which a process is stopped, at most.
const STOP: usize = 400;
/// Milliseconds until somebody who was killed is replaced, at most.
const VACANCY: usize = 60;
/// One of each kind is spared so many times in a hundred, so that somebody sees many others go.
const SPARED: usize = 90;
const VETERANS: [&str; 3] = ["alpha", "gamma", "third"];
/// How long a process may take to begin, to rest or to end.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Conductor {
    test: &'static str,
    random: Random,
    run: tempfile::TempDir,
    cast: Vec<Place>,
    tally: Tally,
    /// Huge pages that were free before.
    huge_pages: usize,
    began: Instant,
}

/// A part of the cast, and who plays it.
struct Place {
    script: Script,
    player: Option<Player>,
    /// When a player is stopped, until when; when there is none, when there will be.
    until: Instant,
}

impl Conductor {
    pub(crate) fn open(test: &'static str, seed: u64, has_huge_pages: bool) -> Self {
        let run = tempfile::tempdir().expect("a directory");
        let huge_pages = inspect::huge_pages().expect("/proc/meminfo is readable").free;
        let mut conductor = Self {
            test,
            random: Random::new(seed),
            run,
            cast: Vec::new(),
            tally: Tally::default(),
            huge_pages,
            began: Instant::now(),
        };
        let [alpha, beta, gamma, delta] = SERVERS;
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        conductor.add(alpha, Part::Leaf { is_transient: false, has_small_rings: false });
        conductor.add(beta, Part::Leaf { is_transient: true, has_small_rings: true });
        conductor.add(gamma, Part::Relay { to: names(&[alpha, beta]) });
        conductor.add(delta, Part::Relay { to: names(&[alpha, beta, gamma]) });
        for (name, is_huge, is_untrusted) in [
            ("first", has_huge_pages, false),
            ("second", has_huge_pages, false),
            ("third", false, false),
            ("fourth", false, true),
        ] {
            conductor.add(name, Part::Client { is_huge, is_untrusted });
        }
        conductor
    }

    fn add(&mut self, name: &str, part: Part) {
        let run = self.run.path().join("run");
        let script = Script { name: name.to_owned(), part, seed: 0, run };
        self.cast.push(Place { script, player: None, until: Instant::now() });
    }

    /// Kills so many, and sees that nothing is left.
    pub(crate) fn run(mut self, kills: u64) {
        self.await_all();
        for kill in 1..=kills {
            self.pause();
            self.kill();
            if kill % SPELL == 0 && kill < kills {
                self.rest();
                self.tell_all(&Cue::Go);
            }
        }
        self.rest();
        self.end();
        let (took, done) = (self.began.elapsed().as_secs_f64(), self.tally.sum("done"));
        let failed = self.tally.sum("failed");
        println!("soak: {kills} kills in {took:.1} s, {done} requests done, {failed} failed\n{}", self.tally);
        assert!(done > kills, "hardly anything was done between the kills");
    }

    /// Lets them work for a while, resumes and replaces meanwhile, and sometimes stops somebody.
    fn pause(&mut self) {
        let pause = Duration::from_millis((10 + self.random.below(PAUSE - 10)) as u64);
        let until = Instant::now() + pause;
        if self.random.once_in(4) {
            self.stop();
        }
        while Instant::now() < until {
            self.attend(false);
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Replaces who was killed and resumes who was stopped, at once if `at_once`; hears what the others have to tell.
    fn attend(&mut self, at_once: bool) {
        let now = Instant::now();
        for place in &mut self.cast {
            let is_due = at_once || place.until <= now;
            match &mut place.player {
                Some(player) if player.is_stopped && is_due => player.resume(),
                Some(player) if player.is_stopped => {}
                Some(player) => {
                    player.hear(&mut self.tally);
                    if let Some(status) = player.ended() {
                        panic!("{} has found something wrong: {status}", place.script.name);
                    }
                }
                None if is_due => {
                    place.script.seed = self.random.next();
                    place.player = Some(Player::start(place.script.clone()));
                }
                None => {}
            }
        }
    }

    /// Stops somebody for a while.
    fn stop(&mut self) {
        let place = self.random.below(self.cast.len());
        let duration = Duration::from_millis(self.random.below(STOP) as u64);
        let place = &mut self.cast[place];
        if let Some(player) = place.player.as_mut().filter(|player| !player.is_stopped) {
            player.stop();
            place.until = Instant::now() + duration;
            self.tally.count(&format!("stops: {}", place.script.part.name()));
        }
    }

    /// Kills somebody, whatever they are doing.
    fn kill(&mut self) {
        loop {
            let vacancy = Duration::from_millis(self.random.below(VACANCY) as u64);
            let mut place = self.random.below(self.cast.len());
            let is_spared = self.random.below(100) < SPARED;
            if self.random.once_in(3) {
                // Who is stopped is there for a short while only.
                place = self.cast.iter().position(Place::is_stopped).unwrap_or(place);
            }
            let place = &mut self.cast[place];
            if is_spared && VETERANS.contains(&place.script.name.as_str()) {
                continue;
            }
            let Some(player) = place.player.take() else {
                self.attend(false);
                continue;
            };
            let how = match (player.is_ready, player.is_stopped) {
                (false, _) => "at its beginning",
                (true, false) => "at work",
                (true, true) => "while stopped",
            };
            self.tally.count(&format!("kills: {}, {how}", place.script.part.name()));
            player.kill(&mut self.tally);
            place.until = Instant::now() + vacancy;
            return;
        }
    }

    /// Waits until every part is played.
    fn await_all(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.attend(true);
            let late = self.cast.iter().find(|place| !place.player.as_ref().is_some_and(|p| p.is_ready));
            let Some(late) = late else { break };
            assert!(Instant::now() < deadline, "{} does not begin", late.script.name);
            std::thread::sleep(Duration::from_millis(2));
        }
        self.cast.iter().for_each(Place::assert_replaced);
    }

    /// Has everybody let go what they have of others, the clients first, and look at what is left.
    fn rest(&mut self) {
        self.await_all();
        for kind in ["client", "relay", "leaf"] {
            let resting: Vec<usize> =
                (0..self.cast.len()).filter(|place| self.cast[*place].script.part.name() == kind).collect();
            for place in &resting {
                self.player(*place).tell(&Cue::Rest);
            }
            for place in resting {
                self.await_rest(place);
            }
        }
        self.tally.count("rests: of everybody, with nothing left");
    }

    fn await_rest(&mut self, place: usize) {
        let deadline = Instant::now() + PATIENCE;
        let mut tally = Tally::default();
        while !self.player(place).hear(&mut tally) {
            self.assert_well(place);
            assert!(Instant::now() < deadline, "{} does not rest", self.cast[place].script.name);
        }
        self.tally.join(&tally);
    }

    fn assert_well(&mut self, place: usize) {
        if let Some(status) = self.player(place).ended() {
            panic!("{} has found something wrong: {status}", self.cast[place].script.name);
        }
    }

    fn player(&mut self, place: usize) -> &mut Player {
        self.cast[place].player.as_mut().expect("every part is played")
    }

    fn tell_all(&mut self, cue: &Cue) {
        (0..self.cast.len()).for_each(|place| self.player(place).tell(cue));
    }

    /// Has everybody end, and sees that neither files nor huge pages are left.
    fn end(&mut self) {
        self.tell_all(&Cue::End);
        for place in std::mem::take(&mut self.cast) {
            place.player.expect("every part is played").wait(PATIENCE, &mut self.tally);
        }
        let left: Vec<_> =
            fs::read_dir(self.run.path().join("run")).expect("a directory").flatten().collect();
        assert!(left.is_empty(), "files are left: {left:?}");
        self.assert_huge_pages();
    }

    /// Verifies that as many huge pages are free as before.
    fn assert_huge_pages(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let free = || inspect::huge_pages().expect("/proc/meminfo is readable").free;
        while free() < self.huge_pages {
            if Instant::now() >= deadline {
                let others = holders_of_huge_pages();
                assert!(!others.is_empty(), "{} huge pages are free, {} were", free(), self.huge_pages);
                return skip(
                    &format!("{}, whether all huge pages are free again", self.test),
                    &format!("processes {others:?}, which are none of this test's, have some"),
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Place {
    fn is_stopped(&self) -> bool {
        self.player.as_ref().is_some_and(|player| player.is_stopped)
    }

    /// Verifies that of a server that was killed no file is left: its successor has the name, and listens under it.
    fn assert_replaced(&self) {
        let Some(player) = &self.player else { return };
        if self.script.part.name() == "client" {
            return;
        }
        let owner = fs::read_to_string(self.script.path(".lock")).expect("a lock file");
        assert_eq!(owner.trim(), player.pid().to_string(), "who has the name {}", self.script.name);
        let socket = Socket::connect(&self.script.path("")).expect("a server that listens");
        let listens = socket.peer().expect("a peer").pid;
        assert_eq!(listens, player.pid() as i32, "who listens under the name {}", self.script.name);
    }
}

impl Script {
    fn path(&self, suffix: &str) -> PathBuf {
        self.run.join(format!("{}{suffix}", self.name))
    }
}

impl Part {
    fn name(&self) -> &'static str {
        match self {
            Self::Leaf { .. } => "leaf",
            Self::Relay { .. } => "relay",
            Self::Client { .. } => "client",
        }
    }
}

/// Other processes that have huge pages mapped.
fn holders_of_huge_pages() -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_pages = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("HugetlbPages:"));
        line.is_some_and(|pages| pages.trim() != "0 kB")
    };
    pids.filter(has_pages).collect()
}
