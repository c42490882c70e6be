//! Sittings in which one thread measures alone, without parties, pinned to a CPU.

use std::time::Duration;

use crate::error::Result;
use crate::experiment::{Sitting, Step};
use crate::measurement::{Measured, Quantity};
use crate::probe::Probe;
use crate::samples::nanoseconds;

/// A sitting of one step.
pub(super) struct Alone<Measure> {
    measure: Measure,
    _probe: Probe,
}

impl<Measure: Fn() -> Vec<Measured>> Alone<Measure> {
    /// Pins this thread to a CPU for as long as the sitting lasts.
    ///
    /// # Errors
    /// There is no CPU.
    pub(super) fn sit<'m>(measure: Measure) -> Result<Box<dyn Sitting + 'm>>
    where
        Measure: 'm,
    {
        Ok(Box::new(Self { measure, _probe: Probe::pin()? }))
    }
}

impl<Measure: Fn() -> Vec<Measured>> Sitting for Alone<Measure> {
    fn measure(&mut self, _step: &Step) -> Result<Vec<Measured>> {
        Ok((self.measure)())
    }
}

/// Times something once to warm up, and then once for each sample.
pub(super) fn timed(
    series: &str,
    length: usize,
    samples: usize,
    mut once: impl FnMut() -> Duration,
) -> Measured {
    once();
    let samples = (0..samples).map(|_| nanoseconds(once())).collect();
    Measured::new("", series, length, Quantity::OperationTime, samples)
}
