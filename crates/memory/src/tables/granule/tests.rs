use super::*;

fn granules() -> Granules {
    Granules::new(64, 64)
}

fn anywhere(run: Run, count: u32) -> Option<u32> {
    (run.len >= count).then_some(run.start)
}

fn one(id: u32) -> Run {
    Run { start: id, len: 1 }
}

fn free(granules: &Granules) -> u32 {
    granules.stocks.own.free.total()
}

/// Takes granules from wherever they are.
fn take(granules: &mut Granules, lender: LenderId, count: u32) -> Option<GranuleRuns> {
    granules.take(lender, count, |run| anywhere(run, count))
}

/// Lends `len` granules.
fn lend(granules: &mut Granules, lender: LenderId, len: u32) -> Run {
    let run = granules.lent_objects.take_numbers(len).unwrap();
    granules.add_lent_object(lender, run, Origin::Lent);
    run
}

#[test]
fn a_referenced_granule_is_freed_by_its_last_reference_only() {
    let mut granules = granules();
    granules.add_object(2);
    let runs = take(&mut granules, LenderId::OWN, 1).unwrap();
    let id = runs[0].start;
    granules.reference(one(id), Direction::Out);
    granules.reference(one(id), Direction::In);
    granules.release([id]);
    assert_eq!((free(&granules), granules.deferred()), (1, 1));
    assert!(granules.unreference(one(id), Direction::Out));
    assert_eq!((free(&granules), granules.deferred()), (1, 1));
    assert!(granules.unreference(one(id), Direction::In));
    assert_eq!((free(&granules), granules.deferred()), (2, 0));
}

#[test]
fn take_gives_all_or_nothing_in_few_runs() {
    let mut granules = granules();
    granules.add_object(4);
    granules.add_object(4);
    assert_eq!(granules.take(LenderId::OWN, 9, |_| None), None);
    assert_eq!(granules.take(LenderId::OWN, 6, |_| None).unwrap().as_slice(), [Run { start: 0, len: 6 }]);
    assert_eq!(free(&granules), 2);
}

#[test]
fn take_prefers_what_fits() {
    let mut granules = granules();
    granules.add_object(8);
    let second_half = |run: Run| run.numbers().contains(&4).then_some(4);
    let runs = granules.take(LenderId::OWN, 3, second_half).unwrap();
    assert_eq!(runs.as_slice(), [Run { start: 4, len: 3 }]);
}

#[test]
fn a_granule_goes_back_to_the_pool_that_adopted_it() {
    let mut granules = granules();
    let lender = LenderId(1);
    granules.stocks.add(lender);
    granules.add_object(1);
    let lent = lend(&mut granules, lender, 1).start;
    take(&mut granules, LenderId::OWN, 1).unwrap();
    take(&mut granules, lender, 1).unwrap();
    granules.swap_pools(0, lent);
    granules.release([0, lent]);
    assert!(granules.stocks.own.free.numbers().eq([lent]));
    assert!(granules.stocks.get(lender).unwrap().free.numbers().eq([0]));
}

#[test]
fn without_its_lender_an_object_ends_when_its_last_granule_is_back() {
    let mut granules = granules();
    let (gone, stays) = (LenderId(1), LenderId(2));
    granules.stocks.add(gone);
    granules.stocks.add(stays);
    granules.add_object(2);
    let object = lend(&mut granules, gone, 3);
    lend(&mut granules, stays, 1);
    take(&mut granules, LenderId::OWN, 2).unwrap();
    let held = take(&mut granules, gone, 2).unwrap()[0];
    granules.swap_pools(0, held.start);
    granules.take_over(gone);
    assert_eq!(granules.lent_objects.take_ended(), None);
    // A granule that was adopted comes back to the space, one that was lent does not.
    granules.release([0]);
    assert!(granules.stocks.own.free.numbers().eq([0]));
    granules.release([held.start]);
    assert_eq!(granules.lent_objects.take_ended(), None);
    granules.reference(one(held.start + 1), Direction::Out);
    granules.release([held.start + 1]);
    granules.unreference(one(held.start + 1), Direction::Out);
    assert_eq!(granules.lent_objects.take_ended(), Some(object));
    granules.lent_objects.forget(object);
    assert_eq!(granules.lent_objects.take_numbers(3), Some(object));
    assert_eq!(granules.stocks.own.size, 2);
}

#[test]
fn a_granule_that_another_lender_has_adopted_keeps_its_object() {
    let mut granules = granules();
    let (gone, other) = (LenderId(1), LenderId(2));
    granules.stocks.add(gone);
    granules.stocks.add(other);
    granules.add_object(2);
    let object = lend(&mut granules, gone, 3);
    lend(&mut granules, other, 1);
    take(&mut granules, LenderId::OWN, 2).unwrap();
    take(&mut granules, gone, 3).unwrap();
    // One lent granule becomes the space's own and is free, one is the other lender's, one stays in use.
    granules.swap_pools(0, object.start);
    granules.set_pool(object.start + 1, other);
    granules.release([object.start, object.start + 1]);
    granules.take_over(gone);
    granules.release([0, object.start + 2]);
    assert!(granules.stocks.own.free.numbers().eq([0]));
    assert_eq!(granules.lent_objects.take_ended(), None);
    assert_eq!((granules.stocks.own.size, granules.stocks.get(other).unwrap().size), (2, 2));
    granules.take_over(other);
    assert_eq!(granules.lent_objects.take_ended(), Some(Run { start: object.end(), len: 1 }));
    assert_eq!(granules.lent_objects.take_ended(), Some(object));
    assert_eq!(granules.stocks.own.size, 2);
}

#[test]
fn a_run_of_own_and_lent_granules_is_counted_and_promised_as_a_whole() {
    let mut granules = Granules::new(2, 8);
    granules.add_object(2);
    let lender = LenderId(1);
    granules.stocks.add(lender);
    let lent = lend(&mut granules, lender, 2);
    let all = Run { start: 0, len: 4 };
    assert_eq!(lent, Run { start: 2, len: 2 });
    let [own, theirs] = [LenderId::OWN, lender].map(|pool| take(&mut granules, pool, 2).unwrap()[0]);
    own.numbers().chain(theirs.numbers()).for_each(|id| granules.put(id, Place::Region { slot: id }));
    granules.reference(all, Direction::Out);
    assert_eq!((granules.lacking(all), granules.lacking(one(3))), (Some(4), Some(1)));
    granules.promise(one(2));
    granules.promise(all);
    assert_eq!((granules.lacking(all), granules.promised()), (Some(0), 4));
    granules.reference(one(3), Direction::In);
    assert_eq!((granules.lacking(all), granules.lacking(own)), (None, Some(0)));
    granules.reference(one(1), Direction::Out);
    assert!(!granules.unreference(all, Direction::Out));
    assert_eq!(granules.promised(), 1, "of the one that is still referenced");
    assert!(granules.unreference(one(1), Direction::Out));
    assert_eq!(granules.promised(), 0);
}
