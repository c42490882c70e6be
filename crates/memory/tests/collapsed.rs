//! Collapsed pages: that windows and aliases show them as huge ones whatever becomes of a buffer, which smaps proves.

use std::ops::Range;

use genie_memory::{Direction, GranuleKind, MadeOf, Space};

use crate::machine::{self, Machine, checked, output, proc, scatter, seen};

const MIB: usize = 1 << 20;

/// A space of which all memory is collapsed; without one the test is skipped.
fn collapsed(machine: &Machine, adapt: impl FnOnce(&mut genie_memory::Config)) -> Option<Space> {
    let space = machine.space_with(16, adapt);
    // It grows to its limit.
    drop(space.allocate(16 * machine.granule()).unwrap());
    let made_of = space.made_of();
    assert_eq!((made_of.reserved, made_of.collapsed + made_of.small), (0, 32 * MIB));
    if made_of.small > 0 {
        machine.skip(&format!("the kernel collapses no pages of shared memory, or not now: {made_of}"));
        return None;
    }
    Some(space)
}

/// How many bytes at these addresses, which are whole mappings, are shown as huge pages.
fn shown_huge(addresses: Range<usize>) -> usize {
    let (mut at, mut huge) = (addresses.start, 0);
    while at < addresses.end {
        let mapping = proc::mapping_at(at).unwrap();
        huge += mapping.kib("ShmemPmdMapped:") << 10;
        at = mapping.end;
    }
    huge
}

macro_rules! on_collapsed_pages {
    ($($test:ident),* $(,)?) => {$(
        #[test]
        fn $test() {
            machine::run(GranuleKind::Collapsed, stringify!($test), promise::$test);
        }
    )*};
}

on_collapsed_pages!(
    a_buffer_shows_huge_pages_from_the_first,
    a_buffer_shows_huge_pages_after_a_swap,
    a_buffer_shows_huge_pages_again_when_output_has_completed,
    a_hidden_region_stays_hidden_when_output_has_completed,
);

mod promise {
    use super::*;

    pub(super) fn a_buffer_shows_huge_pages_from_the_first(machine: Machine) {
        let Some(space) = collapsed(&machine, |_| ()) else { return };
        let buffer = space.allocate(6 * MIB).unwrap();
        assert_eq!(shown_huge(buffer.addresses()), 6 * MIB);
        let reference = space.reference(buffer.addresses().start, 6 * MIB, Direction::Out).unwrap();
        let alias = reference.segments()[0].addr();
        assert!(shown_huge(alias..alias + 6 * MIB) >= 6 * MIB, "{:?}", proc::mapping_at(alias));
        let small = MadeOf { collapsed: 0, ..space.made_of() };
        assert_eq!(small, MadeOf::default());
    }

    pub(super) fn a_buffer_shows_huge_pages_after_a_swap(machine: Machine) {
        for faults in [genie_memory::Faults::Never, genie_memory::Faults::Best] {
            let Some(space) = collapsed(&machine, |config| config.faults = faults) else { return };
            let mut buffer = space.allocate(4 * MIB).unwrap();
            for round in 1..4 {
                let mut system = space.aligned_buffer(0, 4 * MIB).unwrap();
                scatter(&system.data(), &vec![round; 4 * MIB]);
                let passed = space.deliver(&mut system, &mut buffer, &(0..2)).unwrap();
                assert_eq!((passed.copied, passed.swapped), (0, 2));
                assert_eq!(shown_huge(buffer.addresses()), 4 * MIB, "{faults:?}");
                assert!(buffer.iter().step_by(4096).all(|byte| *byte == round));
            }
            checked(&space);
        }
    }

    /// Protection divides huge pages' mappings. Unprotecting them by the userfaultfd would leave them so.
    pub(super) fn a_buffer_shows_huge_pages_again_when_output_has_completed(machine: Machine) {
        let Some(space) = collapsed(&machine, |_| ()) else { return };
        if machine.protecting_space(8).is_none() {
            return;
        }
        let mut buffer = space.allocate(6 * MIB).unwrap();
        let addresses = buffer.addresses();
        for round in 1..4 {
            buffer.fill(round);
            let reference = output(&space, &buffer);
            assert!(proc::page_frames(addresses.start, 1)[0].write_protected);
            assert_eq!(shown_huge(addresses.clone()), 0);
            // A store replaces the second granule.
            buffer[3 * MIB] = 99;
            assert_eq!(seen(&reference)[3 * MIB], round);
            drop(reference);
            assert_eq!(shown_huge(addresses.clone()), 6 * MIB, "round {round}");
            let is_registered = proc::mapping_at(addresses.start).unwrap().has_flag("uw");
            assert!(is_registered, "the next output could not be protected");
        }
        let statistics = space.statistics();
        assert_eq!((statistics.replacements, statistics.faults), (3, 3), "{statistics:?}");
        checked(&space);
    }

    /// Granules of a region that emulated move has hidden are not mapped again, which would show them.
    pub(super) fn a_hidden_region_stays_hidden_when_output_has_completed(machine: Machine) {
        let Some(space) = collapsed(&machine, |_| ()) else { return };
        if machine.protecting_space(8).is_none() {
            return;
        }
        let migrant = space.allocate_migrant(4 * MIB, true).unwrap();
        let start = migrant.as_ptr().addr();
        let reference = machine::output_of(&space, start, 4 * MIB);
        let mut emigrating = migrant.emigrate().unwrap();
        emigrating.hide().unwrap();
        drop(reference);
        assert!(!machine::is_accessible(start));
        drop(emigrating);
        assert!(!machine::is_accessible(start));
        checked(&space);
    }
}
