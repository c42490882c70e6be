//! Attackers: processes that play a role against a victim in the test's process.
//!
//! How: the test binary is run once more, with the one test that plays a role; the role's name is in the environment. Test
//! and attacker talk by lines: the attacker's lines are marked in its output, and the test's lines are its input.
//! Limits: no attacker outlives the test: the kernel kills it with the thread that started it.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_sys::process::Pid;
use rustix::process::{Signal, WaitOptions, kill_process, waitpid};

use crate::scene::HONEST;
use crate::{
    descriptors, floods, fuse, kept, losses, memory, records, replies, shown, shown::failover, silence,
    untrusted, welcomes,
};

const ROLE: &str = "GENIE_TEST_ROLE";
const RUN: &str = "GENIE_TEST_RUN";
/// What marks a line for the test.
const MARK: char = '\u{1}';
/// No attack takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A role, played in the attacker's process.
type Role = fn(&mut Ground);

/// A process that attacks.
pub(crate) struct Attacker {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
}

/// What an attacker knows of its test.
pub(crate) struct Ground {
    pub(crate) directory: Directory,
    /// The server that it attacks.
    pub(crate) server: &'static str,
    lines: std::io::Lines<std::io::StdinLock<'static>>,
}

/// All roles, by name.
fn role(name: &str) -> Role {
    let all = [
        descriptors::ROLES,
        failover::ROLES,
        floods::ROLES,
        fuse::ROLES,
        kept::ROLES,
        losses::ROLES,
        memory::ROLES,
        records::ROLES,
        replies::ROLES,
        shown::ROLES,
        silence::ROLES,
        untrusted::ROLES,
        welcomes::ROLES,
    ];
    let found = all.into_iter().flatten().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no attacker plays {name}")).1
}

/// A module's roles.
#[macro_export]
macro_rules! roles {
    ($($role:ident),* $(,)?) => {
        /// What attackers can play of this module.
        pub(crate) const ROLES: &[(&str, fn(&mut $crate::attacker::Ground))] =
            &[$((concat!(module_path!(), "::", stringify!($role)), $role)),*];
    };
}

/// Starts an attacker that plays a role of the same module.
#[macro_export]
macro_rules! attacker {
    ($directory:expr, $role:ident) => {
        $crate::attacker::Attacker::start($directory, concat!(module_path!(), "::", stringify!($role)))
    };
}

/// Opens a scene, with options of the server under attack if there are some, and starts an attacker that plays a role of the same
/// module in it.
#[macro_export]
macro_rules! attack {
    ($role:ident) => {
        $crate::attack!($role, genie_channel::ServeOptions::default())
    };
    ($role:ident, $options:expr) => {{
        let scene = $crate::scene::Scene::open_with($options);
        let attacker = $crate::attacker!(&scene.directory, $role);
        (scene, attacker)
    }};
}

/// The same with an attacker that is a server, and listens.
#[macro_export]
macro_rules! hostile_server {
    ($role:ident) => {{
        let (scene, attacker) = $crate::attack!($role);
        attacker.says_that("listening");
        (scene, attacker)
    }};
}

#[test]
#[ignore = "it is the other process of tests that need one"]
fn plays_a_role() {
    let Ok(name) = std::env::var(ROLE) else { return };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("a parent");
    let run = PathBuf::from(std::env::var_os(RUN).expect("a run-time directory"));
    let directory = Directory::at(run).expect("a run-time directory");
    let mut ground = Ground { directory, server: HONEST, lines: std::io::stdin().lines() };
    role(&name)(&mut ground);
}

impl Ground {
    /// Tells the test.
    pub(crate) fn say(&self, what: impl std::fmt::Display) {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{MARK}{what}").and_then(|()| out.flush()).expect("a test that listens");
    }

    /// Waits for the test to say something; it is over when it hangs up.
    pub(crate) fn hear(&mut self) -> String {
        match self.lines.next() {
            Some(Ok(line)) => line,
            _ => std::process::exit(0),
        }
    }

    /// Stays until the test is done.
    pub(crate) fn stay(&mut self) -> ! {
        loop {
            self.hear();
        }
    }
}

impl Attacker {
    pub(crate) fn start(directory: &Directory, role: &str) -> Self {
        let mut program = Command::new(std::env::current_exe().expect("the test's own path"));
        program.args(["attacker::plays_a_role", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        program.env(ROLE, role).env(RUN, directory.path());
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().expect("a process");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((_, marked)) = line.split_once(MARK)
                    && sender.send(marked.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self { child, input, said }
    }

    /// Waits for it to say something.
    #[track_caller]
    pub(crate) fn says(&self) -> String {
        self.said.recv_timeout(PATIENCE).expect("an attacker that gets on with it")
    }

    #[track_caller]
    pub(crate) fn says_that(&self, expected: &str) {
        assert_eq!(self.says(), expected);
    }

    /// Says something to it.
    pub(crate) fn tell(&mut self, what: &str) {
        let input = self.input.as_mut().expect("a pipe");
        writeln!(input, "{what}").expect("an attacker that is there");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stop(&self) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a child's number");
        kill_process(pid, Signal::STOP).expect("a child that is there");
        waitpid(Some(pid), WaitOptions::UNTRACED).expect("a child that stops");
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.input = None;
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What was said is over when the reader is.
        while self.said.recv_timeout(PATIENCE).is_ok() {}
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.end();
    }
}
