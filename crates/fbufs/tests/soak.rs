//! The soak: processes that allocate, pass and free buffers are killed at random, and the others go on.
//!
//! How: the test is a member of a group and conducts three *workers*, each this binary run once more. A worker allocates
//! buffers of random lengths, stamps each page, passes buffers to the next worker, gets others from the one before, and frees
//! them; whenever it lets a buffer go it looks for its stamps, which are gone if anybody else was given the same page. The
//! test kills a worker, sees that the others get on, and starts a successor; now and then it stops one for a while instead,
//! or kills all, and then nothing may be left of them.
//! Limits: `GENIE_FBUFS_SOAK_SECONDS` says how long it runs (3); a pool of 32 MiB. `GENIE_FBUFS_SOAK_SEED` repeats the
//! choices, but not what the kernel makes of them.

#[path = "../../channel/tests/soak/random.rs"]
#[allow(dead_code, reason = "another soak uses the rest")]
mod random;
#[path = "soak/worker.rs"]
mod worker;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use genie_fbufs::{Config, Pool};
use random::Random;
use rustix::process::{Pid, Signal};

const WORKERS: usize = 3;
const LIMIT: usize = 32 << 20;
/// Far longer than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn config() -> Config {
    // Tests what is given back to the kernel, too.
    Config { limit: LIMIT, keep: LIMIT / 2, ..Config::default() }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// One worker, and what it says of its progress.
struct Cast<'t> {
    children: Vec<Child>,
    directory: &'t Path,
    pool: &'t Pool,
    random: Random,
}

impl Cast<'_> {
    fn start(&mut self, index: usize) {
        let mut program = Command::new(std::env::current_exe().expect("the test's own path"));
        let descriptor: OwnedFd = self.pool.descriptor().unwrap();
        program
            .args(["--exact", "worker::work_until_killed", "--ignored", "--nocapture"])
            .stdin(Stdio::from(descriptor));
        program.env("WORKER", index.to_string()).env("WORKERS_DIRECTORY", self.directory);
        program.env("WORKER_SEED", self.random.next().to_string()).stdout(Stdio::null());
        let child = program.spawn().unwrap();
        if index == self.children.len() {
            self.children.push(child);
        } else {
            self.children[index] = child;
        }
    }

    fn pid(&self, index: usize) -> Pid {
        Pid::from_child(&self.children[index])
    }

    fn kill(&mut self, index: usize) {
        assert!(
            self.children[index].try_wait().unwrap().is_none(),
            "worker {index} has ended by itself: see above"
        );
        self.children[index].kill().unwrap();
        self.children[index].wait().unwrap();
    }

    /// How many steps a worker has taken, and how many buffers it has got from the one before.
    fn progress(&self, index: usize) -> [u64; 2] {
        let text = std::fs::read_to_string(self.directory.join(format!("{index}.done"))).unwrap_or_default();
        let mut numbers = text.split(' ').map(|number| number.parse().unwrap_or(0));
        [(); 2].map(|()| numbers.next().unwrap_or(0))
    }

    /// Waits until all workers but one have done something.
    fn see_progress(&mut self, except: Option<usize>) {
        let before: Vec<_> = (0..WORKERS).map(|index| self.progress(index)).collect();
        let deadline = Instant::now() + PATIENCE;
        for index in (0..WORKERS).filter(|index| Some(*index) != except) {
            while self.progress(index) == before[index] {
                assert!(
                    self.children[index].try_wait().unwrap().is_none(),
                    "worker {index} has ended: see above"
                );
                assert!(Instant::now() < deadline, "worker {index} gets on no more");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Kills all at once, and looks at what is left.
    fn rest(&mut self) {
        (0..WORKERS).for_each(|index| self.kill(index));
        self.pool.sweep().unwrap();
        assert_eq!(self.pool.check().unwrap(), LIMIT, "bytes that are free when all workers are dead");
        assert_eq!(self.pool.members(), [std::process::id() as i32]);
    }
}

impl Drop for Cast<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn survivors_are_served_and_nothing_is_lost() {
    let seconds = number("GENIE_FBUFS_SOAK_SECONDS").unwrap_or(3);
    let seed = number("GENIE_FBUFS_SOAK_SEED").unwrap_or_else(Random::fresh_seed);
    println!("soak: {seconds} s; to repeat: GENIE_FBUFS_SOAK_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::new(config()).unwrap();
    let mut cast =
        Cast { children: Vec::new(), directory: directory.path(), pool: &pool, random: Random::new(seed) };
    (0..WORKERS).for_each(|index| cast.start(index));
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut kills, mut stops, mut rests) = (0, 0, 0);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(cast.random.below(60) as u64));
        let victim = cast.random.below(WORKERS);
        match cast.random.below(20) {
            0 => {
                cast.rest();
                (0..WORKERS).for_each(|index| cast.start(index));
                rests += 1;
            }
            1..5 => {
                rustix::process::kill_process(cast.pid(victim), Signal::STOP).unwrap();
                cast.see_progress(Some(victim));
                rustix::process::kill_process(cast.pid(victim), Signal::CONT).unwrap();
                stops += 1;
            }
            _ => {
                cast.kill(victim);
                cast.see_progress(Some(victim));
                cast.start(victim);
                kills += 1;
            }
        }
    }
    while !(0..WORKERS).all(|index| cast.progress(index)[1] > 0) {
        cast.see_progress(None);
    }
    let progress: Vec<_> = (0..WORKERS).map(|index| cast.progress(index)).collect();
    cast.rest();
    println!(
        "soak: {kills} kills, {stops} stops, {rests} times all killed; the last workers' steps, and buffers got: {progress:?}"
    );
}
