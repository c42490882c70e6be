//! Other processes of a test, and the servers by which they reach each other.
//!
//! How: the test binary is run once more, with the name of the one test that is the other process; it says what it found in lines.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs::read_to_string;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions};
use genie_io::{Interface, ServerHandle};
use rustix::process::{Pid, Signal, kill_process};

/// Tells the other process where the servers are, and what it is to do.
const PLACE: &str = "GENIE_TEST_DATAGRAM";
const TASK: &str = "GENIE_TEST_DATAGRAM_TASK";
/// What it says begins with this.
const SAYS: &str = "the peer: ";
/// A process that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(100);

/// Another process; dropping it kills it.
pub(crate) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
    task: String,
}

impl Peer {
    pub(crate) fn start(place: &Path, task: &str) -> Self {
        let mut program = Command::new(std::env::current_exe().expect("the test's own path"));
        program.args(["peer::plays_its_part", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        program.env(PLACE, place).env(TASK, task).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut lines =
            lines.map_while(Result::ok).filter_map(|line| Some(line.split_once(SAYS)?.1.to_owned()));
        let (sender, said) = channel();
        std::thread::spawn(move || lines.try_for_each(|line| sender.send(line)));
        Self { input: child.stdin.take(), child, said, task: task.to_owned() }
    }

    /// What it says next.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> String {
        self.said.recv_timeout(PATIENCE).unwrap_or_else(|silence| {
            panic!("the peer that is to {} says nothing: {silence}\n{}", self.task, self.threads())
        })
    }

    #[track_caller]
    pub(crate) fn says(&mut self, what: &str) {
        assert_eq!(self.hear(), what);
    }

    /// Asks for what it says next.
    pub(crate) fn ask(&mut self) -> String {
        self.told("")
    }

    /// Tells it something; returns its answer.
    #[track_caller]
    pub(crate) fn told(&mut self, what: &str) -> String {
        writeln!(self.input.as_mut().expect("it is there"), "{what}").expect("it listens");
        self.hear()
    }

    /// Has it end, as one that was told all.
    pub(crate) fn ends(mut self) {
        drop(self.input.take());
        self.says("done");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a number");
        kill_process(pid, signal).expect("a child that was not waited for");
    }

    /// Where each of its threads is.
    fn threads(&self) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let all = tasks.flat_map(|task| {
            ["comm", "wchan", "syscall", "stack"].map(|name| read_to_string(task.path().join(name)))
        });
        all.filter_map(Result::ok).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "it is the other process of tests that need one"]
fn plays_its_part() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let task = std::env::var(TASK).expect("a task");
    crate::play(&place, &task.split_whitespace().collect::<Vec<_>>());
}

pub(crate) fn say(what: impl std::fmt::Display) {
    println!("\n{SAYS}{what}");
}

/// What the test says next; none when it is over.
pub(crate) fn next_word() -> Option<String> {
    let mut word = String::new();
    let len = std::io::stdin().read_line(&mut word).expect("a parent");
    (len > 0).then(|| word.trim().to_owned())
}

pub(crate) fn directory(place: &Path) -> Directory {
    Directory::at(place.join("run")).expect("a run-time directory")
}

pub(crate) fn connect(genie: &Interface, place: &Path, name: &str) -> ServerHandle {
    connect_with(genie, place, name, ConnectOptions::default())
}

pub(crate) fn connect_with(
    genie: &Interface,
    place: &Path,
    name: &str,
    options: ConnectOptions,
) -> ServerHandle {
    let options = ConnectOptions { wait: Duration::from_secs(60), ..options };
    genie.connect_with(&directory(place), name, &options).expect("a connection")
}

pub(crate) fn bind(place: &Path, name: &str, server: impl genie_io::Server) -> Running {
    let options = ServeOptions { pool: 2 << 20, ..ServeOptions::default() };
    let serving = Listener::bind_in(&directory(place), name, server, options).expect("a listener");
    serving.start().expect("threads")
}
