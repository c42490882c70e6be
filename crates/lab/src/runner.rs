//! Runs experiments: all sittings, step by step, keeping each step's outcome when it is over.
//!
//! Why: what takes a quarter of an hour gets interrupted, and what fails in one place should not take the rest with it.
//! How: the first sittings of all experiments come first, then all second ones, and so on: what drifts in the course of a
//! run then shows as disagreement between the sittings of each experiment, instead of being the same in all of them.
//! A step that failed closes its sitting; the next step opens it anew. So does one during which this process was stopped and
//! went on, and it is measured again: a pause among its samples would count as what was measured, and parties that are still
//! there may have given each other up.
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

/// How often the CPUs are seen far apart before that is believed.
const PROBES: usize = 16;

/// Who is told how a run goes on.
pub trait Watcher {
    /// A step begins.
    fn begin(&mut self, doing: &Doing<'_>);
    /// It is over: it failed with this, or it did not.
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
    /// Of how many.
    pub sittings: usize,
    /// Steps that were over before, of this and earlier attempts at the run.
    pub done: usize,
    /// Steps in all.
    pub steps: usize,
    /// The time that the rest takes, this step included, as far as one can tell.
    pub left: Duration,
}

/// What comes from outside while a run is made, from the code that handles signals.
#[derive(Debug, Default)]
pub struct Interruptions {
    /// Set to have the run end after the step under way.
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
    /// Those that failed.
    pub failed: Vec<Failed>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// Measures what a run still lacks, until it is done or told to stop.
///
/// # Errors
/// Results that cannot be kept, or read. What fails in a step is among the outcome.
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
    /// Those that were measured before, by experiment, sitting and name.
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

    /// Counts what is done, and what is to be done.
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

    /// Makes what one sitting of an experiment still lacks.
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
            // What happened before concerns no sample.
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

/// Measures a step, in a sitting that is opened where it is not open, and notes the circumstances.
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

/// How near two of the CPUs are now. What else runs can make them look far apart, and never near. This thread stays free to
/// run on all of them.
fn placement() -> Option<Placement> {
    let probe = Probe::pin().ok()?;
    let mut seen = (0..PROBES).filter_map(|_| probe.round_trip()).map(Placement::of).peekable();
    let first = seen.peek().copied()?;
    Some(seen.find(|placement| *placement == Placement::Near).unwrap_or(first))
}
