//! Queues of regions that migrant buffers have left: what they keep for reuse, and what they give back.

use crate::machine::{Machine, checked};
use genie_memory::Migrant;

on_each_kind!(regions_of_all_lengths_are_kept_up_to_one_bound, regions_in_turns_stay_in_their_queues);

/// Regions of lengths that never came again were kept up to a quarter of the space's limit, in each queue: 6 GB within 20 seconds.
fn regions_of_all_lengths_are_kept_up_to_one_bound(machine: Machine) {
    const BOUND: usize = 64 << 20;
    let granule = machine.granule();
    // Enough granules for what once was kept: each length in two queues.
    let longest = (BOUND / 2 / granule).min(400) as u32;
    let space = machine.space((longest * (longest + 1)) as usize + 64);
    let sum = |lens: std::ops::RangeInclusive<u32>| lens.sum::<u32>() as usize * granule;
    assert!(sum(1..=longest) > 3 * BOUND, "{longest}");
    for granules in 1..=longest {
        for strong in [true, false] {
            drop(space.allocate_migrant(granules as usize * granule, strong).unwrap());
            assert!(space.check().unwrap().queued as usize * granule <= BOUND, "{granules} granules");
        }
    }
    let usage = checked(&space);
    assert_eq!(usage.queued, usage.regions, "all other regions are gone");
    assert!(usage.queued as usize * granule > BOUND / 2, "{usage:?}");
    // Those that have waited longest are gone; the last ones are there, in both queues.
    let is_found = |granules: u32, strong: bool| {
        let before = space.check().unwrap().queued;
        let migrant = space.allocate_migrant(granules as usize * granule, strong).unwrap();
        let is_found = space.check().unwrap().queued < before;
        drop(migrant);
        is_found
    };
    assert!(is_found(longest, true) && is_found(longest, false), "the last ones wait for reuse");
    assert!(!is_found(1, true) && !is_found(1, false), "the first ones are gone");
}

/// Four 16 MiB regions, two of each integrity, are all found again.
fn regions_in_turns_stay_in_their_queues(machine: Machine) {
    const LEN: usize = 16 << 20;
    let space = machine.space(6 * LEN / machine.granule());
    let turn = || [true, true, false, false].map(|strong| space.allocate_migrant(LEN, strong).unwrap());
    let addresses = |turn: &[Migrant; 4]| {
        let mut addresses = turn.each_ref().map(|migrant: &Migrant| migrant.as_ptr().addr());
        addresses.sort_unstable();
        addresses
    };
    let first = turn();
    let expected = addresses(&first);
    drop(first);
    for _ in 0..10 {
        let again = turn();
        assert_eq!(addresses(&again), expected);
        drop(again);
    }
    assert_eq!(checked(&space).queued as usize * machine.granule(), 4 * LEN);
}
