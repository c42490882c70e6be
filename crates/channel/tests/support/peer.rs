//! Peers: processes in which servers, or clients, of the tests live.
//!
//! How: the test binary is run once more, with the name of the one test that serves until its parent hangs up. A test opens
//! servers there over a socket of its own, a [`Link`], and tells them what to do; they are closed when the test hangs up.
//! Most tests share one process; those that kill, stop or look at a whole process have their own.
//! Limits: no peer outlives its parent: a shared peer exits when its standard input ends, and the kernel kills the others.

mod message;
mod serve;

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_sys::lock::Mutex;
use genie_sys::process::Pid;
use rustix::process::{Signal, kill_process};

pub(crate) use message::{Ask, Kind, Opening, Pooled, Told};

/// Where the peer finds out that it is one, and where its sockets are to be.
const DIRECTORY: &str = "GENIE_TEST_PEER";
/// Set for a peer that is to die with the thread that started it.
const OWNED: &str = "GENIE_TEST_PEER_OWNED";
/// The socket that tests connect to.
const CONTROL: &str = "control";
/// The run-time directory of the peer's servers.
const RUN: &str = "run";

/// A process in which tests open servers.
pub(crate) struct Peer {
    child: Mutex<Child>,
    directory: PathBuf,
}

/// One test's way to a peer.
pub(crate) struct Link {
    stream: Mutex<UnixStream>,
}

impl Peer {
    /// The peer that tests share, if they do not harm it.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Peer> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(false))
    }

    /// One of the test's own; dropping it kills it.
    pub(crate) fn own() -> Self {
        Self::start(true)
    }

    fn start(is_owned: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory").keep();
        let mut program = Program::new(std::env::current_exe().expect("the test's own path"));
        program.args([serve::TEST, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        program.env(DIRECTORY, &directory).stdin(Stdio::piped()).stdout(Stdio::null());
        if is_owned {
            program.env(OWNED, "1");
        }
        let child = program.spawn().expect("a process");
        let peer = Self { child: Mutex::new(child), directory };
        // The peer listens as soon as it can be asked.
        drop(peer.link());
        peer
    }

    /// Connects to it.
    pub(crate) fn link(&self) -> Link {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match UnixStream::connect(self.directory.join(CONTROL)) {
                Ok(stream) => return Link { stream: Mutex::new(stream) },
                Err(error) => assert!(Instant::now() < deadline, "no peer: {error}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The same, for as long as this process lives: what is opened there is never closed.
    pub(crate) fn link_for_good(&self) -> &'static Link {
        Box::leak(Box::new(self.link()))
    }

    /// Where its servers are found.
    pub(crate) fn directory(&self) -> Directory {
        Directory::at(self.directory.join(RUN)).expect("a run-time directory")
    }

    /// The same, as a path for other peers.
    pub(crate) fn run(&self) -> PathBuf {
        self.directory.join(RUN)
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.lock().id()
    }

    /// Stops it, and waits until each of its threads has stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        let is_running = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|state| !state.starts_with('T'))
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::read_dir(&tasks).expect("a process").filter_map(Result::ok).any(is_running) {
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has it go on after [`Peer::stop`].
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        let mut child = self.child.lock();
        child.wait().expect("a child that was not waited for");
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.lock();
        let pid = Pid::from_raw(child.id() as i32).expect("a child's number");
        kill_process(pid, signal).expect("a child that is there");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        // It may have been killed and waited for before.
        let _ = child.kill();
        let _ = child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Link {
    /// Asks, and waits for what the peer tells.
    pub(crate) fn ask(&self, ask: Ask) -> Told {
        let mut stream = self.stream.lock();
        message::send(&mut *stream, ask).expect("a peer that listens");
        message::receive(&mut *stream).expect("a peer that answers").expect("a peer that is there")
    }

    /// Asks for something that has to succeed.
    #[track_caller]
    pub(crate) fn done(&self, ask: Ask) {
        let told = self.ask(ask);
        assert!(matches!(told, Told::Done), "{told:?}");
    }
}

/// A name for a server that no other one of this process's peers has.
pub(crate) fn fresh_name(kind: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{kind}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The run-time directory in a peer's own directory.
fn run_of(directory: &Path) -> Directory {
    Directory::at(directory.join(RUN)).expect("a run-time directory")
}
