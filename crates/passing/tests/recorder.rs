//! The recorder: each scheme leaves the operations of its columns, in their order, and nothing else.

use genie_memory::{Config, Direction, Faults, Granularity, GranuleKind, Protection, Space};
use genie_passing::operation::Operation;
use genie_passing::{
    Column, Costs, Input, Moment, Overlays, Passing, Record, Recorder, Scheme, Source, Target, Thresholds,
    tables,
};

use crate::skip::skip;

/// What a transfer is expected to leave: operations, and the column that they are of.
type Expected = Vec<(Operation, Column)>;

const GRANULE: usize = 4096;
const LEN: usize = 3 * GRANULE;
/// How much of that comes.
const ACTUAL: usize = 2 * GRANULE;

struct Fixture {
    passing: Passing,
    recorder: &'static Recorder,
}

/// A fixture, where the machine can protect output.
fn fixture(test: &str, room: usize) -> Option<Fixture> {
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit: 16 << 20,
        faults: Faults::Best,
        kernel_never_stores: false,
        pool: 16 << 20,
    };
    let space = Space::new(&config).expect("a space");
    if space.protection() != Protection::Full {
        skip(test, "output cannot be protected");
        return None;
    }
    let recorder = Recorder::new(room);
    let passing =
        Passing::new(space, Costs::default()).with_thresholds(Thresholds::ALWAYS).with_recorder(recorder);
    Some(Fixture { passing, recorder })
}

fn is_native(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Copy | Scheme::EmulatedCopy | Scheme::Share | Scheme::EmulatedShare)
}

fn is_strong(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Move | Scheme::EmulatedMove)
}

fn expected(
    scheme: Scheme,
    direction: Direction,
    columns: &[(Moment, &'static [Operation], usize)],
) -> Expected {
    let column = |moment, len| Column { scheme, direction, moment, len };
    let of = |&(moment, operations, len): &(Moment, &'static [Operation], usize)| {
        operations.iter().map(move |operation| (*operation, column(moment, len)))
    };
    columns.iter().flat_map(of).collect()
}

fn recorded(recorder: &Recorder) -> Expected {
    recorder.drain().into_iter().map(|Record { operation, column, .. }| (operation, column)).collect()
}

fn output(passing: &Passing, scheme: Scheme) {
    let space = passing.space();
    let native = space.allocate(LEN).expect("a buffer");
    let source = match is_native(scheme) {
        true => Source::Native(&native),
        false => Source::Migrant(space.allocate_migrant(LEN, is_strong(scheme)).expect("a buffer")),
    };
    let mut output = passing.output(scheme, source).expect("an output");
    output.complete().expect("a reply");
}

/// An input into memory that the test does not touch before it is delivered.
#[allow(unsafe_code, reason = "vouches for that")]
fn begin(passing: &Passing, scheme: Scheme, target: Target) -> Box<Input> {
    // SAFETY: as said above.
    unsafe { passing.input(scheme, target) }.expect("an input")
}

/// An input that gets its memory from `supply`, and for which only the first bytes come.
fn input(passing: &Passing, scheme: Scheme, supply: impl Fn(&mut Input)) {
    let mut native = passing.space().allocate(LEN).expect("a buffer");
    let target = match is_native(scheme) {
        true => Target::Native { addr: native.as_ptr().addr(), len: LEN },
        false => Target::Migrant { len: LEN },
    };
    let mut input = begin(passing, scheme, target);
    supply(&mut input);
    let bytes = is_native(scheme).then_some(&mut native[..]);
    input.deliver(ACTUAL, bytes).expect("a reply");
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn outputs_leave_the_columns_of_table_7_1() {
    let Some(Fixture { passing, recorder }) = fixture("outputs_leave_the_columns_of_table_7_1", 64) else {
        return;
    };
    for scheme in Scheme::ALL {
        output(&passing, scheme);
        let columns = tables::output(scheme);
        let columns = [(Moment::Request, columns.request, LEN), (Moment::Reply, columns.reply, LEN)];
        assert_eq!(recorded(recorder), expected(scheme, Direction::Out, &columns), "{scheme}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn inputs_leave_the_columns_of_table_7_2() {
    let Some(Fixture { passing, recorder }) = fixture("inputs_leave_the_columns_of_table_7_2", 64) else {
        return;
    };
    for scheme in Scheme::ALL {
        input(&passing, scheme, |input| drop(input.ready().expect("memory")));
        let tables::InputOperations { request, ready, reply } = tables::customized_input(scheme);
        let columns =
            [(Moment::Request, request, LEN), (Moment::Ready, ready, LEN), (Moment::Reply, reply, ACTUAL)];
        assert_eq!(recorded(recorder), expected(scheme, Direction::In, &columns), "{scheme}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn overlaid_inputs_leave_the_columns_of_table_7_3() {
    let Some(Fixture { passing, recorder }) = fixture("overlaid_inputs_leave_the_columns_of_table_7_3", 64)
    else {
        return;
    };
    let overlays = Overlays::reserve(passing.space(), 0, LEN, 1).expect("a pool");
    let overlays = overlays.with_recorder(recorder);
    for scheme in Scheme::ALL {
        input(&passing, scheme, |input| input.overlay(overlays.allocate().expect("a buffer")));
        let tables::InputOperations { request, ready, reply } = tables::overlaid_input(scheme);
        let columns =
            [(Moment::Request, request, LEN), (Moment::Ready, ready, LEN), (Moment::Reply, reply, ACTUAL)];
        assert_eq!(recorded(recorder), expected(scheme, Direction::In, &columns), "{scheme}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn converted_data_leaves_the_columns_of_what_it_was_converted_to() {
    let name = "converted_data_leaves_the_columns_of_what_it_was_converted_to";
    let Some(Fixture { passing, recorder }) = fixture(name, 64) else { return };
    let foreign = [7; 100];
    let mut output = passing.output(Scheme::EmulatedCopy, Source::Native(&foreign)).expect("an output");
    output.complete().expect("a reply");
    let columns = tables::output(Scheme::Copy);
    let columns =
        [(Moment::Request, columns.request, foreign.len()), (Moment::Reply, columns.reply, foreign.len())];
    assert_eq!(recorded(recorder), expected(Scheme::Copy, Direction::Out, &columns));
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn a_column_that_fails_leaves_nothing() {
    let Some(Fixture { passing, recorder }) = fixture("a_column_that_fails_leaves_nothing", 64) else {
        return;
    };
    let migrant = passing.space().allocate_migrant(LEN, true).expect("a buffer");
    let refused = passing.output(Scheme::WeakMove, Source::Migrant(migrant)).expect_err("it is strong");
    assert!(refused.migrant.is_some());
    let mut input = begin(&passing, Scheme::Copy, Target::Native { addr: 0, len: LEN });
    input.deliver(LEN, None).expect_err("the server never had memory");
    assert_eq!(recorded(recorder), []);
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn without_a_recorder_or_while_it_pauses_nothing_is_recorded() {
    let Some(Fixture { passing, recorder }) =
        fixture("without_a_recorder_or_while_it_pauses_nothing_is_recorded", 64)
    else {
        return;
    };
    let unrecorded = Passing::new(passing.space().clone(), Costs::default());
    output(&unrecorded, Scheme::EmulatedShare);
    assert_eq!(recorded(recorder), [], "the same space, another engine");
    output(&passing, Scheme::EmulatedShare);
    assert_eq!(recorded(recorder).len(), 2);
    recorder.pause(true);
    output(&passing, Scheme::EmulatedShare);
    assert_eq!(recorded(recorder), [], "nor while it pauses");
    recorder.pause(false);
    output(&passing, Scheme::EmulatedShare);
    assert_eq!(recorded(recorder).len(), 2);
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
fn what_finds_no_room_is_counted_and_later_records_are_kept_again() {
    let name = "what_finds_no_room_is_counted_and_later_records_are_kept_again";
    let Some(Fixture { passing, recorder }) = fixture(name, 3) else { return };
    // Two operations at the request, one at the reply.
    output(&passing, Scheme::Copy);
    output(&passing, Scheme::Copy);
    assert_eq!((recorder.drain().len(), recorder.lost()), (3, 3));
    output(&passing, Scheme::Copy);
    assert_eq!((recorder.drain().len(), recorder.lost()), (3, 3));
}
