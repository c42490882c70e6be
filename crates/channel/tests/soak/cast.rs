//! The cast: the processes of the soak, as the conductor holds them and as they begin.
//!
//! How: a process is this binary run once more with the name of the one test that plays a part. Its standard input is a
//! socket: by lines of JSON, the conductor tells the process what to do, and the process tells what it has done.
//! Limits: no process outlives the thread that started it: the kernel kills it.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_sys::process::Pid;
use rustix::process::{Signal, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::tally::Tally;
use crate::{client, hoarder, leaf, pair, panics, relay};

/// The name of the test that plays a part.
const PLAYER: &str = "cast::plays_a_part";
/// The environment variable that says which part this process plays.
const PLAYS: &str = "GENIE_SOAK_PLAYS";

/// What a process is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    /// A server at the end of each way.
    Leaf { is_transient: bool, has_small_rings: bool },
    /// A server that forwards requests to others, which have these names.
    Relay { to: Vec<String> },
    /// A client of all.
    Client(Kind),
    /// Two clients in one process, with one server in that process, too.
    Pair,
    /// Takes the free huge pages, but at most this many, and gives them back.
    Hoarder { most: usize },
}

/// How a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kind {
    pub(crate) is_huge: bool,
    pub(crate) is_untrusted: bool,
    /// Bytes of memory that it may have.
    pub(crate) limit: usize,
}

/// Everything that a process is told before it begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) part: Part,
    pub(crate) seed: u64,
    /// The run-time directory.
    pub(crate) run: PathBuf,
}

/// What the conductor tells.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Cue {
    Begin(Script),
    /// Let go of everything that belongs to other processes, and make sure that nothing is left.
    Rest,
    Go,
    /// Let go in the same way, and end.
    End,
}

/// What a process tells.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Word {
    Ready,
    Done(Tally),
    Rested,
}

/// A process, as the conductor holds it; dropping it kills it.
pub(crate) struct Player {
    pub(crate) script: Script,
    child: Child,
    words: BufReader<UnixStream>,
    line: String,
    pub(crate) is_ready: bool,
    pub(crate) is_stopped: bool,
}

impl Player {
    pub(crate) fn start(script: Script) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        let mut program = Command::new(std::env::current_exe().expect("the test's own path"));
        program.args([PLAYER, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        // Each of the allocator's arenas takes addresses, which are looked at.
        program.env(PLAYS, "1").env("MALLOC_ARENA_MAX", "2").env("GENIE_RUNTIME_DIR", &script.run);
        program.stdin(std::os::fd::OwnedFd::from(theirs)).stdout(Stdio::null());
        let child = program.spawn().expect("a process");
        ours.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
        let (words, line) = (BufReader::new(ours), String::new());
        let mut player = Self { script, child, words, line, is_ready: false, is_stopped: false };
        player.tell(&Cue::Begin(player.script.clone()));
        player
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the process a cue. If the process is gone, that shows elsewhere.
    pub(crate) fn tell(&mut self, cue: &Cue) {
        let line = serde_json::to_string(cue).expect("text") + "\n";
        let _ = self.words.get_mut().write_all(line.as_bytes());
    }

    /// Takes the lines that it has sent; returns whether it has rested.
    pub(crate) fn hear(&mut self, tally: &mut Tally) -> bool {
        let mut has_rested = false;
        loop {
            match self.words.read_line(&mut self.line) {
                Ok(0) => return has_rested,
                // The process has ended and not taken a cue.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return has_rested,
                // An incomplete line is its last one.
                Ok(_) if !self.line.ends_with('\n') => {}
                Ok(_) => {
                    match serde_json::from_str(&self.line).expect("a word") {
                        Word::Ready => self.is_ready = true,
                        Word::Done(done) => tally.join(&done),
                        Word::Rested => has_rested = true,
                    }
                    self.line.clear();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return has_rested;
                }
                Err(error) => panic!("{}: {error}", self.script.name),
            }
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    pub(crate) fn stop(&mut self) {
        self.signal(Signal::STOP);
        self.is_stopped = true;
    }

    pub(crate) fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.is_stopped = false;
    }

    /// Kills it.
    ///
    /// # Panics
    /// When it had ended of its own accord: it has found something wrong.
    pub(crate) fn kill(mut self, tally: &mut Tally) -> Script {
        self.child.kill().expect("a child that was not waited for");
        let status = self.child.wait().expect("a child");
        assert_eq!(status.signal(), Some(9), "{} ended by itself: {status}", self.script.name);
        self.hear(tally);
        self.script.clone()
    }

    /// Waits until it has ended well.
    pub(crate) fn wait(mut self, patience: Duration, tally: &mut Tally) {
        let deadline = Instant::now() + patience;
        loop {
            // The process must not end before its report has been read.
            self.hear(tally);
            if let Some(status) = self.ended() {
                assert!(status.success(), "{} ended: {status}", self.script.name);
                return;
            }
            assert!(Instant::now() < deadline, "{} does not end", self.script.name);
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a child's number");
        kill_process(pid, signal).expect("a child that was not waited for");
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process's connection to the conductor.
pub(crate) struct ConductorLink {
    pub(crate) script: Script,
    cues: Receiver<Cue>,
    voice: UnixStream,
}

impl ConductorLink {
    fn open() -> Self {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
        let voice = UnixStream::from(stdin);
        let mut lines = BufReader::new(voice.try_clone().expect("a descriptor")).lines();
        let mut next = move || {
            let line = lines.next()?.ok()?;
            Some(serde_json::from_str(&line).expect("a cue"))
        };
        let Some(Cue::Begin(script)) = next() else { panic!("no script") };
        let (sender, cues) = channel();
        std::thread::spawn(move || std::iter::from_fn(next).try_for_each(|cue| sender.send(cue)));
        Self { script, cues, voice }
    }

    pub(crate) fn tell(&mut self, word: &Word) {
        let line = serde_json::to_string(word).expect("text") + "\n";
        self.voice.write_all(line.as_bytes()).expect("a conductor");
    }

    /// The next cue, if there is one.
    pub(crate) fn cue(&self) -> Option<Cue> {
        match self.cues.try_recv() {
            Ok(cue) => Some(cue),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the conductor is gone"),
        }
    }

    /// Waits for the next cue, but not longer than this.
    pub(crate) fn wait(&self, patience: Duration) -> Option<Cue> {
        match self.cues.recv_timeout(patience) {
            Ok(cue) => Some(cue),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("the conductor is gone"),
        }
    }

    /// Tells that it rests, and waits; returns whether it is to go on.
    pub(crate) fn rest(&mut self) -> bool {
        self.tell(&Word::Rested);
        match self.cues.recv() {
            Ok(Cue::Go) => true,
            Ok(Cue::End) => false,
            other => panic!("{other:?} while resting"),
        }
    }

    pub(crate) fn directory(&self) -> Directory {
        Directory::at(&self.script.run).expect("a run-time directory")
    }
}

#[test]
#[ignore = "it is one of the processes that the soak starts"]
fn plays_a_part() {
    if std::env::var_os(PLAYS).is_none() {
        return;
    }
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a parent");
    let link = ConductorLink::open();
    let name = link.script.name.clone();
    let hook = std::panic::take_hook();
    // Any thread that finds something wrong ends the process, which the conductor notices.
    std::panic::set_hook(Box::new(move |info| {
        if panics::is_ordered(info) {
            return;
        }
        eprintln!("{name}, process {}:", std::process::id());
        hook(info);
        std::process::exit(101);
    }));
    match link.script.part.clone() {
        Part::Leaf { is_transient, has_small_rings } => leaf::play(link, is_transient, has_small_rings),
        Part::Relay { to } => relay::play(link, &to),
        Part::Client(kind) => client::play(link, kind),
        Part::Pair => pair::play(link),
        Part::Hoarder { most } => hoarder::play(link, most),
    }
    std::process::exit(0);
}
