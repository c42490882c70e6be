//! Runs experiments: all sittings, step by step, keeping each step's outcome when it is over.
//!
//! Why: a run that takes a quarter of an hour will sometimes be interrupted, and a failure in one place should not spoil the
//! rest.
//! How: the first sittings of all experiments come first, then all second sittings, and so on. So a drift in the course of a
//! run shows as disagreement between the sittings of each experiment, instead of being the same in all of them.
//! A step that failed closes its sitting; the next step opens the sitting anew. The same holds for a step during which this
//! process was stopped and went on; that step is also measured again, since a pause would count in its samples, and parties
//! that are still there may have given each other up.
//! Invariants: a step is measured once, however often the run is interrupted; one that failed is tried again on resumption.

pub mod noise;
pub mod outlook;
pub mod plan;
pub mod steal;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::experiment::{Experiment, Sitting, Step};
use crate::measurement::StepResult;
use crate::placement::Placement;
use crate::probe::Probe;
use crate::store::{Entry, Failed, Run};
use outlook::Outlook;
use steal::CpuTimes;

/// How often the CPUs must be found far apart before that is believed.
const PROBES: usize = 16;

/// Receives news of the progress of a run.
pub trait Watcher {
    /// A step begins.
    fn begin(&mut self, doing: &Doing<'_>);
    /// The step is over: it failed with `failure`, or it did not fail.
    fn end(&mut self, doing: &Doing<'_>, failure: Option<&str>);
}

/// The step under way.
#[derive(Debug, Clone, Copy)]
pub struct Doing<'d> {
    /// The experiment.
    pub experiment: &'d str,
    /// The step's name.
    pub step: &'d str,
    /// Which sitting, from 0.
    pub sitting: usize,
    /// How many sittings there are.
    pub sittings: usize,
    /// Steps that were over before, of this and earlier attempts at the run.
    pub done: usize,
    /// Steps in all.
    pub steps: usize,
    /// The time that the rest takes, this step included, as far as one can tell.
    pub left: Duration,
}

/// News from outside while a run is made, set by the code that handles signals.
#[derive(Debug, Default)]
pub struct Interruptions {
    /// When set, the run ends after the step under way.
    pub stop: Arc<AtomicBool>,
    /// Set when this process goes on after it was stopped, before it does anything else.
    pub went_on: Arc<AtomicBool>,
}

/// How a run ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Steps that were measured, of this and earlier attempts.
    pub measured: usize,
    /// Steps in all.
    pub steps: usize,
    /// Steps that failed.
    pub failed: Vec<Failed>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// Makes the measurements that a run still lacks, until it is done or told to stop.
///
/// # Errors
/// Results cannot be stored, or cannot be read. Failures of steps are in the outcome.
pub fn go_on(
    run: &Run,
    experiments: &[&dyn Experiment],
    interruptions: &Interruptions,
    watcher: &mut dyn Watcher,
) -> Result<Outcome> {
    let mut work = Work::new(run, experiments, interruptions, watcher)?;
    for sitting in 0..run.record.sittings {
        for (index, experiment) in experiments.iter().enumerate() {
            work.sitting(*experiment, index, sitting)?;
        }
    }
    Ok(work.outcome)
}

/// A run under way.
struct Work<'w> {
    run: &'w Run,
    interruptions: &'w Interruptions,
    watcher: &'w mut dyn Watcher,
    /// The steps of each experiment.
    steps: Vec<Vec<Step>>,
    /// The steps that were measured before, by experiment, sitting and name.
    over: BTreeSet<(usize, usize, String)>,
    outlook: Outlook,
    outcome: Outcome,
}

impl<'w> Work<'w> {
    fn new(
        run: &'w Run,
        experiments: &[&dyn Experiment],
        interruptions: &'w Interruptions,
        watcher: &'w mut dyn Watcher,
    ) -> Result<Self> {
        let options = &run.record.options;
        let steps: Vec<_> = experiments.iter().map(|experiment| experiment.steps(options)).collect();
        let mut over = BTreeSet::new();
        for (index, experiment) in experiments.iter().enumerate() {
            let entries = run.entries(experiment.declaration().id)?;
            let measured = entries.iter().filter(|entry| matches!(entry, Entry::Measured(_)));
            over.extend(measured.map(|entry| (index, entry.step().0, entry.step().1.to_owned())));
        }
        let mut work = Self {
            run,
            interruptions,
            watcher,
            steps,
            over,
            outlook: Outlook::default(),
            outcome: Outcome::default(),
        };
        work.look_ahead();
        Ok(work)
    }

    /// Counts the steps that are done, and those that are to be done.
    fn look_ahead(&mut self) {
        for sitting in 0..self.run.record.sittings {
            for (index, steps) in self.steps.iter().enumerate() {
                self.outcome.steps += steps.len();
                for step in steps {
                    if self.is_over(index, sitting, step) {
                        self.outcome.measured += 1;
                    } else {
                        self.outlook.expect(step.seconds);
                    }
                }
            }
        }
    }

    fn is_over(&self, experiment: usize, sitting: usize, step: &Step) -> bool {
        self.over.contains(&(experiment, sitting, step.name.clone()))
    }

    fn is_stopping(&self) -> bool {
        self.interruptions.stop.load(Ordering::Relaxed)
    }

    /// Makes the measurements that one sitting of an experiment still lacks.
    fn sitting(&mut self, experiment: &dyn Experiment, index: usize, sitting: usize) -> Result<()> {
        let mut open: Option<Box<dyn Sitting + '_>> = None;
        for step in self.steps[index].clone() {
            if self.is_over(index, sitting, &step) {
                continue;
            }
            if self.is_stopping() {
                self.outcome.interrupted = true;
                return Ok(());
            }
            self.step(experiment, sitting, &step, &mut open)?;
        }
        Ok(())
    }

    fn step<'e>(
        &mut self,
        experiment: &'e dyn Experiment,
        sitting: usize,
        step: &Step,
        open: &mut Option<Box<dyn Sitting + 'e>>,
    ) -> Result<()>
    where
        'w: 'e,
    {
        let run = self.run;
        let id = experiment.declaration().id;
        let doing = Doing {
            experiment: id,
            step: &step.name,
            sitting,
            sittings: run.record.sittings,
            done: self.outcome.measured + self.outcome.failed.len(),
            steps: self.outcome.steps,
            left: self.outlook.left(),
        };
        self.watcher.begin(&doing);
        let outcome = loop {
            // A stop before this moment affects no sample.
            self.interruptions.went_on.store(false, Ordering::Relaxed);
            let began = Instant::now();
            let outcome = measure(run, experiment, sitting, step, open);
            if !self.interruptions.went_on.load(Ordering::Relaxed) {
                self.outlook.spent(step.seconds, began.elapsed());
                break outcome;
            }
            *open = None;
        };
        let interrupted = outcome.is_err() && self.is_stopping();
        self.watcher.end(&doing, outcome.as_ref().err().map(String::as_str).filter(|_| !interrupted));
        match outcome {
            Ok(result) => {
                run.append(id, &Entry::Measured(result))?;
                self.outcome.measured += 1;
            }
            // The user may have interrupted a party as well: a step that fails then is to be measured again.
            Err(_) if interrupted => {
                *open = None;
                self.outcome.interrupted = true;
            }
            Err(error) => {
                *open = None;
                let failed = Failed { experiment: id.to_owned(), step: step.name.clone(), sitting, error };
                run.append(id, &Entry::Failed(failed.clone()))?;
                self.outcome.failed.push(failed);
            }
        }
        Ok(())
    }
}

/// Measures a step, opening the sitting if it is not open, and notes the circumstances.
fn measure<'e>(
    run: &'e Run,
    experiment: &'e dyn Experiment,
    sitting: usize,
    step: &Step,
    open: &mut Option<Box<dyn Sitting + 'e>>,
) -> std::result::Result<StepResult, String> {
    let placement = placement();
    let opened = match open {
        Some(opened) => opened,
        None => open.insert(experiment.sit(&run.record.options).map_err(|error| error.to_string())?),
    };
    let before = CpuTimes::read();
    let measured = opened.measure(step).map_err(|error| error.to_string())?;
    let steal = before.zip(CpuTimes::read()).and_then(|(before, after)| before.steal_until(after));
    Ok(StepResult {
        experiment: experiment.declaration().id.to_owned(),
        step: step.name.clone(),
        sitting,
        placement,
        steal,
        measured,
    })
}

/// How near two of the CPUs are now. Other running programs can make the CPUs look far apart, but never near. This thread
/// may still run on all CPUs afterwards.
fn placement() -> Option<Placement> {
    let probe = Probe::pin().ok()?;
    let mut seen = (0..PROBES).filter_map(|_| probe.round_trip()).map(Placement::of).peekable();
    let first = seen.peek().copied()?;
    Some(seen.find(|placement| *placement == Placement::Near).unwrap_or(first))
}
