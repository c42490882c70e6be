//! Groups whose members are killed at random, their keepers among them: whoever lives is in one pool.
//!
//! How: each member is this binary run once more. It joins the group, says which memory object it got, and waits. The test
//! starts some and kills some in each round, and compares what the living have said. Only the test kills, so it knows who
//! lives.
//! Limits: `GENIE_FBUFS_SOAK_SEED` repeats the choices, but not what the kernel makes of them.

#[path = "../../channel/tests/soak/random.rs"]
#[allow(dead_code, reason = "another soak uses the rest")]
mod random;
#[path = "../../sys/tests/seccomp/mod.rs"]
mod seccomp;
#[path = "../../sys/tests/skip/mod.rs"]
mod skip;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use genie_fbufs::{Config, Group};
use genie_sys::Errno;
use random::Random;

const ROUNDS: usize = 60;
const SAYS: &str = "pool ";

#[test]
#[ignore = "run by the test below, in processes of its own"]
fn join_and_wait() {
    if std::env::var_os("GROUP_MEMBER").is_none() {
        return;
    }
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let group = Group::join("storm", Config { limit: 4 << 20, ..Config::default() }).unwrap();
    let inode = rustix::fs::fstat(group.pool().descriptor().unwrap()).unwrap().st_ino;
    println!("\n{SAYS}{inode}");
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn join_without_threads() {
    if std::env::var_os("GROUP_MEMBER").is_none() {
        return;
    }
    seccomp::refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
    let error = Group::join("threadless", Config { limit: 4 << 20, ..Config::default() }).unwrap_err();
    assert_eq!(error.errno(), Errno::AGAIN, "{error}");
    assert!(error.to_string().contains("`ulimit -u`"), "{error}");
}

/// Once, the group's name was said to be at fault.
#[test]
fn a_process_that_may_have_no_thread_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "join_without_threads", "--ignored", "--nocapture"]).env("GROUP_MEMBER", "1");
    let status = program.env("GENIE_RUNTIME_DIR", directory.path()).status();
    assert!(status.unwrap().success());
}

/// A living member, and what it has said.
struct Member {
    child: Child,
    inode: Option<String>,
}

impl Member {
    fn start(directory: &std::path::Path) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), directory)
    }

    /// Starts it in a PID namespace of its own, from where it sees none of the others.
    fn start_unseen(directory: &std::path::Path) -> Self {
        let mut program = in_a_namespace();
        program.arg(std::env::current_exe().unwrap());
        Self::start_by(program, directory)
    }

    fn start_by(mut program: Command, directory: &std::path::Path) -> Self {
        let child = program
            .args(["--exact", "join_and_wait", "--ignored", "--nocapture"])
            .env("GROUP_MEMBER", "1")
            .env("GENIE_RUNTIME_DIR", directory)
            .stdout(Stdio::piped())
            .spawn();
        Self { child: child.unwrap(), inode: None }
    }

    /// Waits until it has joined; returns which object it got.
    fn inode(&mut self) -> &str {
        let stdout = &mut self.child.stdout;
        self.inode.get_or_insert_with(|| {
            let lines = BufReader::new(stdout.as_mut().unwrap()).lines();
            let mut said =
                lines.map_while(Result::ok).filter_map(|line| Some(line.strip_prefix(SAYS)?.to_owned()));
            said.next().expect("a member that was not killed joins: see above")
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program in a PID namespace, with which it ends.
fn in_a_namespace() -> Command {
    let mut program = Command::new("unshare");
    program.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
    program
}

/// Once, a process in another PID namespace waited for 10 s, and then said that the members, which it did not see, should be ended.
#[test]
fn processes_that_do_not_see_each_other_are_in_one_pool() {
    let can = in_a_namespace().arg("true").stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        let reason = "this user may not make PID namespaces (unshare --user --pid)";
        return skip::skip("processes_that_do_not_see_each_other_are_in_one_pool", reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let mut founder = Member::start(directory.path());
    let pool = founder.inode().to_owned();
    let mut unseen = Member::start_unseen(directory.path());
    assert_eq!(unseen.inode(), pool, "its keeper cannot be seen");
    // The one that does not see it learns that the keeper is gone, and is the keeper that the next ones ask.
    drop(founder);
    let mut members = [Member::start(directory.path()), Member::start_unseen(directory.path())];
    assert_eq!(members.each_mut().map(|member| member.inode().to_owned()), [pool.clone(), pool]);
}

#[test]
fn whoever_lives_is_in_one_pool() {
    let seed = std::env::var("GENIE_FBUFS_SOAK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(Random::fresh_seed);
    println!("to repeat: GENIE_FBUFS_SOAK_SEED={seed}");
    let (mut random, directory) = (Random::new(seed), tempfile::tempdir().unwrap());
    let mut members: Vec<Member> = Vec::new();
    let (mut pools, mut kills) = (std::collections::BTreeSet::new(), 0);
    for round in 0..ROUNDS {
        members.extend((0..1 + random.below(3)).map(|_| Member::start(directory.path())));
        std::thread::sleep(std::time::Duration::from_micros(random.below(8_000) as u64));
        // The first is the keeper, if it has not been killed; now and then all that have joined are.
        let count = if round % 8 == 7 { members.len() - 1 } else { random.below(members.len().min(4)) };
        kills += count;
        for turn in 0..count {
            let victim = if turn == 0 || round % 8 == 7 { 0 } else { random.below(members.len()) };
            drop(members.remove(victim));
        }
        let found: Vec<String> = members.iter_mut().map(|member| member.inode().to_owned()).collect();
        assert!(found.iter().all(|inode| *inode == found[0]), "round {round}: {found:?}");
        pools.extend(found);
    }
    println!("{kills} members killed; {} pools, one after the other", pools.len());
}
