//! The experiment's own step: the machine's figures, as in table 8.1.

use crate::error::Result;
use crate::experiment::{Options, Sitting, Step};
use crate::experiments::alone::{Alone, timed};
use crate::experiments::model::ID;
use crate::measurement::{Measured, Measurements, Quantity};
use crate::model::scaling::Figures;
use crate::yardsticks::{self, Copying};

const INTEGER: &str = "integer program";
const CACHED: &str = "copy within the cache";
const UNCACHED: &str = "copy in memory";

/// How many bytes are copied when it only matters that copying works.
const UNCACHED_SMOKE: usize = 1 << 20;

pub(super) fn steps(options: &Options) -> Vec<Step> {
    let seconds = if options.smoke { 0.2 } else { 1.5 };
    vec![Step { name: "the machine's own figures".to_owned(), seconds }]
}

pub(super) fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    let (samples, uncached) = if options.smoke { (2, UNCACHED_SMOKE) } else { (15, yardsticks::UNCACHED) };
    Alone::sit(move || measure(samples, uncached))
}

fn measure(samples: usize, uncached: usize) -> Vec<Measured> {
    let (mut within_the_cache, mut in_memory) = (Copying::new(yardsticks::CACHED), Copying::new(uncached));
    vec![
        timed(INTEGER, 0, samples, yardsticks::integer_program),
        timed(CACHED, yardsticks::CACHED, samples, || within_the_cache.copy()),
        timed(UNCACHED, uncached, samples, || in_memory.copy()),
    ]
}

/// The figures of the machine that a run was made on: integer programs per microsecond, and rates in bytes per microsecond;
/// none where the run did not measure these.
pub fn figures(measurements: &Measurements) -> Option<Figures> {
    let last = |series| measurements.medians(ID, "", series, Quantity::OperationTime).pop();
    let rate =
        |series| last(series).filter(|(_, time)| *time > 0.0).map(|(length, time)| length as f64 / time);
    let (_, integer) = last(INTEGER).filter(|(_, time)| *time > 0.0)?;
    Some(Figures {
        integer: 1.0 / integer,
        integer_is_bound: false,
        cache: rate(CACHED)?,
        memory: rate(UNCACHED)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::synthetic;
    use crate::interface::Granule;

    #[test]
    fn a_sitting_measures_every_figure_of_the_machine() {
        let options = Options { smoke: true, granule: Granule::Base, seed: 1 };
        let step = &steps(&options)[0];
        let measured = sit(&options).unwrap().measure(step).unwrap();
        let run = Measurements { steps: vec![synthetic::step(ID, measured)], ..Measurements::default() };
        let figures = figures(&run).unwrap();
        assert!(figures.integer > 0.0 && figures.cache > 0.0 && figures.memory > 0.0, "{figures:?}");
    }

    #[test]
    fn a_run_without_this_step_has_no_figures() {
        assert_eq!(figures(&Measurements::default()), None);
    }
}
