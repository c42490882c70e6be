//! The conductor: it kills, stops and replaces processes, and checks what is left of them.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use genie_sys::inspect;
use genie_sys::socket::Socket;

use crate::cast::{Cue, Kind, Part, Player, Script};
use crate::client::{LIMIT, SERVERS};
use crate::number;
use crate::random::Random;
use crate::support::machine::skip;
use crate::tally::Tally;

/// Kills between two rests.
const SPELL: u64 = 50;
/// Milliseconds between two kills, at most.
const PAUSE: usize = 140;
/// Milliseconds for which a process is stopped, at most: as a rule, or longer than any request's timeout, or longer than a
/// server may take to answer on its control socket.
const STOPS: [usize; 3] = [400, 2500, 7000];
/// Bytes of memory that one client may have: too few for many a request.
const TINY: usize = 5 << 20;
/// Milliseconds until a process that was killed is replaced, at most.
const VACANCY: usize = 60;
/// One process of each kind is spared this many times in a hundred, so that it sees many others go.
const SPARED: usize = 90;
const VETERANS: [&str; 3] = ["alpha", "gamma", "third"];
/// How long a process may take to begin, to rest or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the last lines count, and its name in the tally.
const HAZARDS: [(&str, &str); 8] = [
    ("stops", "stops"),
    ("channels that served again after a timeout", "channels that serve again"),
    ("panics of servers", "panics"),
    ("forks", "forks"),
    ("hoards of huge pages", "hoards"),
    ("buffers refused", "no buffer"),
    ("rounds short of descriptors", "rounds with hardly any"),
    ("rounds of two interfaces at one server", "rounds of two"),
];

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

/// A part of the cast, and the process that plays it.
struct Place {
    script: Script,
    player: Option<Player>,
    /// If the player is stopped, the time when it is resumed; if there is no player, the time when the next one starts.
    until: Instant,
    /// Whether it is stopped for long, and is to be resumed rather than killed.
    is_spared: bool,
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
            conductor.add(name, Part::Client(Kind { is_huge, is_untrusted, limit: LIMIT }));
        }
        let tiny = Kind { is_huge: false, is_untrusted: false, limit: TINY };
        conductor.add("tiny", Part::Client(tiny));
        conductor.add("pair", Part::Pair);
        if let Some(most) = number("GENIE_SOAK_HOARD").filter(|_| has_huge_pages) {
            conductor.add("hoarder", Part::Hoarder { most: most as usize });
        }
        conductor
    }

    fn add(&mut self, name: &str, part: Part) {
        let run = self.run.path().join("run");
        let script = Script { name: name.to_owned(), part, seed: 0, run };
        self.cast.push(Place { script, player: None, until: Instant::now(), is_spared: false });
    }

    /// Kills at least this many processes, for at least this long, and checks that nothing is left.
    pub(crate) fn run(mut self, kills: u64, duration: Duration) {
        self.await_all();
        let mut killed = 0;
        loop {
            self.pause();
            self.kill();
            killed += 1;
            if killed >= kills && self.began.elapsed() >= duration {
                break;
            }
            if killed % SPELL == 0 {
                self.rest();
                self.tell_all(&Cue::Go);
            }
        }
        self.rest();
        self.end();
        self.report(killed);
    }

    /// Prints what has happened.
    fn report(&self, kills: u64) {
        let (took, done) = (self.began.elapsed().as_secs_f64(), self.tally.sum("done"));
        let failed = self.tally.sum("failed");
        println!("soak: {kills} kills in {took:.1} s, {done} requests done, {failed} failed");
        let hazards = HAZARDS.map(|(name, prefix)| format!("{} {name}", self.tally.sum(prefix)));
        println!("soak: {}\n{}", hazards.join(", "), self.tally);
        assert!(done > kills, "hardly anything was done between the kills");
    }

    /// Lets them work for a while, resumes and replaces meanwhile, and sometimes stops one.
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

    /// Replaces killed processes and resumes stopped ones, at once if `at_once`; reads what the others tell.
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

    /// Stops a process for a while.
    fn stop(&mut self) {
        let place = self.random.below(self.cast.len());
        let length = [0, 1, 2][(self.random.once_in(6) as usize) + (self.random.once_in(40) as usize)];
        let millis = STOPS[length] / 4 * 3 * usize::from(length > 0);
        let millis = millis + self.random.below(STOPS[length] - millis);
        let place = &mut self.cast[place];
        if let Some(player) = place.player.as_mut().filter(|player| !player.is_stopped) {
            player.stop();
            place.until = Instant::now() + Duration::from_millis(millis as u64);
            place.is_spared = length > 0;
            let how = ["for a moment", "for longer than any timeout", "for longer than any answer may take"];
            self.tally.count(&format!("stops: {}, {}", place.script.part.name(), how[length]));
        }
    }

    /// Kills a process, whatever it is doing.
    fn kill(&mut self) {
        loop {
            let vacancy = Duration::from_millis(self.random.below(VACANCY) as u64);
            let mut place = self.random.below(self.cast.len());
            let is_spared = self.random.below(100) < SPARED;
            if self.random.once_in(3) {
                // A process is stopped for a short while only.
                let is_next = |place: &Place| place.is_stopped() && !place.is_stopped_for_long();
                place = self.cast.iter().position(is_next).unwrap_or(place);
            }
            let place = &mut self.cast[place];
            if is_spared && VETERANS.contains(&place.script.name.as_str()) || place.is_stopped_for_long() {
                self.attend(false);
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

    /// Has all processes, the clients first, let go of what they have of others, and look at what is left.
    fn rest(&mut self) {
        while self.cast.iter().any(Place::is_stopped_for_long) {
            self.attend(false);
            std::thread::sleep(Duration::from_millis(3));
        }
        self.await_all();
        for kind in ["hoarder", "client", "relay", "leaf"] {
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

    /// Has all processes end, and checks that neither files nor huge pages are left.
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

    /// Whether it is to be resumed rather than killed.
    fn is_stopped_for_long(&self) -> bool {
        self.is_stopped() && self.is_spared
    }

    /// Verifies that of a server that was killed no file is left: its successor has the name, and listens under it.
    fn assert_replaced(&self) {
        let Some(player) = &self.player else { return };
        if ["client", "hoarder"].contains(&self.script.part.name()) {
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
            Self::Client(_) | Self::Pair => "client",
            Self::Hoarder { .. } => "hoarder",
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
