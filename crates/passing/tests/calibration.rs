//! Calibration on this machine, and what an engine makes of its results.

use std::collections::BTreeSet;

use genie_memory::{Config, Faults, Granularity, GranuleKind, Recycling, Space};
use genie_passing::calibration::{self, Effort};
use genie_passing::{Costs, Passing, Scheme, Source};
use genie_sys::machine;

fn space() -> Space {
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit: 64 << 20,
        faults: Faults::Never,
        kernel_never_stores: false,
        pool: 16 << 20,
    };
    Space::new(&config).expect("a space")
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn a_quick_calibration_measures_zeroing_and_what_two_cpus_show_where_there_are_two() {
    let costs = calibration::measure(&space(), Effort::Quick).expect("costs").costs;
    assert!(costs.zero.at(1 << 20) > 0.0);
    let cpus = machine::allowed_cpus().expect("a list of CPUs").len();
    assert_eq!(costs.wake.at(1) > 0.0, cpus > 1, "{:?}", costs.wake);
    for cost in [&costs.copyin_between, &costs.copyout_between] {
        assert_eq!(cost.points.is_empty(), cpus == 1, "{cost:?}");
    }
    // Zero is a length for which a busy machine left no time.
    let tried: &[u16] = if cpus > 1 { &[0, 1, 4, 16, 64] } else { &[0] };
    assert!(costs.rotation.iter().all(|count| tried.contains(count)), "{:?}", costs.rotation);
    let text = serde_json::to_string(&costs).expect("JSON");
    let read: Costs = serde_json::from_str(&text).expect("costs");
    assert_eq!((read.rotation, read.zero.points.len()), (costs.rotation, costs.zero.points.len()));
}

/// The addresses at which a server finds the data of outputs that come one after the other.
fn places(costs: Costs, len: usize) -> BTreeSet<usize> {
    let passing = Passing::new(space(), costs);
    let data = vec![1; len];
    (0..20)
        .map(|_| {
            let output = passing.output(Scheme::Copy, Source::Native(&data)).expect("an output");
            output.segments()[0].addr()
        })
        .collect()
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn system_buffers_are_reused_in_the_order_that_was_found_best() {
    for len in [4 << 10, 64 << 10] {
        assert_eq!(places(Costs::default(), len).len(), 1, "{len}: the one that was freed last");
        let mut costs = Costs::default();
        costs.rotation[Recycling::class(len)] = 4;
        assert_eq!(places(costs, len).len(), 4, "{len}: four in turn");
    }
}
