//! Signals of a terminal to a run: its processes stop and go on together, and an interruption reaches none of its peers.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use crate::running::genie;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long processes may take to stop that were told to.
const STOPPING: Duration = Duration::from_secs(10);
/// How many runs may be elsewhere than in the middle of a sitting when a signal comes, which says nothing.
const TRIES: usize = 10;
/// How long the run is stopped: longer than any of its operations takes.
const PAUSE: Duration = Duration::from_secs(3);
/// The sender, the device and the receiver.
const PARTIES: usize = 3;
const SITTINGS: &str = "3";

/// A run in a process group of its own, as a shell with job control makes it.
struct Job {
    child: Child,
    scratch: TempDir,
}

impl Job {
    /// Begins, and waits until it is in the middle of a sitting, or over.
    fn begin() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let runs = scratch.path().join("runs");
        let args = ["lab", "run", "latency", "--smoke", "--sittings", SITTINGS, "--granule", "4k", "--json"];
        let mut command = genie(&args);
        command.arg("--dir").arg(&runs).process_group(0);
        let said = |name: &str| Stdio::from(File::create(scratch.path().join(name)).unwrap());
        let child = command.stdout(said("stdout")).stderr(said("stderr")).spawn().unwrap();
        let mut job = Self { child, scratch };
        job.comes_to(PATIENCE, |job| !job.journal().is_empty() && job.states().len() == PARTIES);
        job
    }

    /// One that was stopped in the middle of a sitting, with all its processes.
    fn stopped() -> Self {
        let stopped = |_| {
            let mut job = Self::begin();
            job.signal(Signal::TSTP);
            let all_stop = job.comes_to(STOPPING, |job| job.states().iter().all(|state| state == "T"));
            (all_stop && job.states().len() == PARTIES).then_some(job)
        };
        (0..TRIES).find_map(stopped).expect("a run that is stopped in the middle of a sitting")
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        kill_process_group(self.group(), signal).unwrap();
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.scratch.path().join(name)).unwrap()
    }

    /// The states of the processes of its group, as the kernel abbreviates them.
    fn states(&self) -> Vec<String> {
        let group = self.group().as_raw_nonzero().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let stats = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        // Before them stands a name in parentheses, which may hold anything.
        let fields = stats.filter_map(|stat| {
            let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect();
            Some([fields.first()?.clone(), fields.get(2)?.clone()])
        });
        fields.filter(|[_, of]| *of == group).map(|[state, _]| state).collect()
    }

    /// What became of its steps so far.
    fn journal(&self) -> Vec<Value> {
        let run = std::fs::read_dir(self.scratch.path().join("runs")).ok().and_then(|mut runs| runs.next());
        let Some(Ok(run)) = run else { return Vec::new() };
        let text = std::fs::read_to_string(run.path().join("measurements/latency.jsonl")).unwrap_or_default();
        // The last line may be being written.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until something is so; returns whether it was, before the run was over and in time.
    fn comes_to(&mut self, patience: Duration, mut is_so: impl FnMut(&mut Self) -> bool) -> bool {
        let begun = Instant::now();
        while !is_so(self) {
            if self.child.try_wait().unwrap().is_some() || begun.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    fn end(&mut self) -> ExitStatus {
        self.comes_to(PATIENCE, |_| false);
        self.child.try_wait().unwrap().expect("the run ends")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // What has ended already needs no killing.
        let _ = kill_process_group(self.group(), Signal::KILL);
        let _ = self.child.wait();
    }
}

#[test]
fn a_run_that_is_stopped_takes_its_parties_along_and_no_sample_holds_the_pause() {
    let mut job = Job::stopped();
    let steps = job.journal().len();
    std::thread::sleep(PAUSE);
    assert_eq!((job.states().len(), job.journal().len()), (PARTIES, steps));
    job.signal(Signal::CONT);
    assert!(job.end().success(), "{}", job.said("stderr"));
    let document: Value = serde_json::from_str(&job.said("stdout")).unwrap();
    assert_eq!(document["complete"], true);
    for step in job.journal() {
        for measured in step["measured"]["measured"].as_array().unwrap() {
            let samples = measured["samples"].as_array().unwrap().iter();
            let longest = samples.map(|sample| sample.as_u64().unwrap()).max().unwrap();
            assert!(u128::from(longest) < PAUSE.as_nanos(), "{step}");
        }
    }
}

#[test]
fn an_interruption_by_the_terminal_lets_the_parties_finish_the_step_under_way() {
    let interrupted = |_| {
        let mut job = Job::begin();
        job.signal(Signal::INT);
        (!job.end().success()).then_some(job)
    };
    let mut job = (0..TRIES).find_map(interrupted).expect("a run that is interrupted before it is over");
    assert_eq!(job.end().code(), Some(1));
    let error = job.said("stderr");
    assert!(error.contains("interrupted when ") && error.contains("genie lab run --resume"), "{error}");
    assert!(job.journal().iter().all(|step| step.get("measured").is_some()), "{error}");
}
