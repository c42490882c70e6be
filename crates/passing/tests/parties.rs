//! Parties: whose memory system buffers are made of, and what a server in another process finds in them.
//!
//! What the server sees is read from the object itself, as a server's own mapping would show it.

#[macro_use]
mod fixture;
mod frames;

use genie_memory::{DataMut, LenderId};
use genie_passing::{Outboard, Parties, Reason, Scheme, Source, Target, Thresholds};

use fixture::{DIRT, Fixture, begin, pattern};

on_both_kinds! {
    copied_output_lies_in_the_servers_pool,
    an_exhausted_pool_gets_memory_that_only_its_lender_is_shown,
    short_data_takes_no_more_memory_than_its_length,
    a_server_finds_nothing_of_anothers_beside_short_data,
    a_lender_that_is_gone_gives_way_to_own_memory,
    edges_of_emulated_copy_lie_in_the_servers_pool,
    a_server_is_shown_nothing_shorter_than_it_may_be,
    memory_of_another_lender_is_zero_completed,
    data_shorter_than_t_m_goes_through_the_servers_pool,
    a_subcontractor_finds_zeros_around_the_data,
    a_server_in_this_process_gets_no_zeros,
    copied_input_is_filled_in_the_servers_pool,
    swapped_input_takes_granules_from_the_pool_and_gives_it_others,
    input_into_half_a_granule_copies_nothing,
    input_from_own_memory_is_zeroed_before_the_server_fills_it,
    moved_input_costs_the_lender_nothing,
    data_in_place_has_no_lender,
    outboard_data_survives_zero_completion,
    an_input_is_ready_only_when_there_is_memory,
}

/// So few bytes that they share a granule with others, were they allocated together.
const SHORT: usize = 1000;
/// The part of a granule that they get, or all of a small one.
const PART: usize = 4096;

fn copied_output_lies_in_the_servers_pool(fixture: &Fixture) {
    let server = fixture.lender(4);
    let data = pattern(SHORT);
    let output = fixture.passing.output_from(Scheme::Copy, Source::Native(&data), server).unwrap();
    assert_eq!(output.lenders().collect::<Vec<_>>(), [server]);
    assert_eq!((output.receipt().copied, output.receipt().zeroed), (SHORT, 0));
    let seen = fixture.seen(&output.segments());
    assert_eq!(seen.lender, Some(server), "and the object is the one that the server lent");
    assert_eq!(seen.data, data);
}

/// The space's own objects stood in, in which all else that the client has lies, too.
fn an_exhausted_pool_gets_memory_that_only_its_lender_is_shown(fixture: &Fixture) {
    let server = fixture.lender(2);
    fixture.soil(LenderId::OWN);
    let data = pattern(2 * fixture.granule());
    let copy = |len| fixture.passing.output_from(Scheme::Copy, Source::Native(&data[..len]), server).unwrap();
    let outputs = [data.len(), data.len(), SHORT].map(copy);
    for output in &outputs {
        assert_eq!(output.lenders().collect::<Vec<_>>(), [server]);
        let seen = fixture.seen(&output.segments());
        assert_eq!((seen.lender, &*seen.data), (Some(server), &data[..output.len()]));
        assert!(!seen.around.contains(&DIRT) && output.receipt().zeroed == 0);
    }
    let buffer = fixture.space.allocate(SHORT).unwrap();
    let held = fixture.passing.output_from(Scheme::EmulatedCopy, Source::Borrowed(&buffer), server).unwrap();
    assert_eq!(fixture.seen(&held.segments()).lender, None, "the client's buffers lie elsewhere");
    fixture.check();
}

/// Of 2 MiB granules, data of 8 KiB took twice its length in the server's pool, and a whole granule beyond it.
fn short_data_takes_no_more_memory_than_its_length(fixture: &Fixture) {
    let server = fixture.lender(2);
    let (len, own) = (8 << 10, fixture.space.limit());
    let data = pattern(len);
    let copy = || fixture.passing.output_from(Scheme::Copy, Source::Native(&data), server);
    let held: Vec<_> = std::iter::from_fn(|| copy().ok()).collect();
    assert_eq!(held.len(), (2 * fixture.granule() + own) / len);
    assert!(held.iter().all(|output| fixture.seen(&output.segments()).data == data));
    drop(held);
    fixture.check();
    drop(fixture.space.allocate(own).expect("none of it was taken"));
}

fn a_server_finds_nothing_of_anothers_beside_short_data(fixture: &Fixture) {
    let servers = [fixture.lender(1), fixture.lender(1)];
    fixture.soil(LenderId::OWN);
    let _held = servers.map(|server| {
        fixture.space.aligned_buffer_from(server, 0, fixture.granule()).expect("all of its pool")
    });
    let data = pattern(SHORT);
    let outputs = [0, 1, 0, 1]
        .map(|at| fixture.passing.output_from(Scheme::Copy, Source::Native(&data), servers[at]).unwrap());
    for (output, server) in outputs.iter().zip([0, 1, 0, 1].map(|at| servers[at])) {
        let seen = fixture.seen(&output.segments());
        assert_eq!((seen.lender, seen.data), (Some(server), data.clone()));
        assert!(!seen.around.contains(&DIRT), "what the client had before");
    }
}

fn a_lender_that_is_gone_gives_way_to_own_memory(fixture: &Fixture) {
    let server = fixture.lender(2);
    let data = pattern(SHORT);
    let gone = fixture.lender(2);
    fixture.space.remove_lender(gone);
    let parties = Parties { lender: gone, server, shown_from: 0 };
    let output = fixture.passing.output_from(Scheme::Copy, Source::Native(&data), parties).unwrap();
    assert_eq!(output.lenders().collect::<Vec<_>>(), [LenderId::OWN]);
    assert_eq!(fixture.seen(&output.segments()).data, data);
}

fn edges_of_emulated_copy_lie_in_the_servers_pool(fixture: &Fixture) {
    let passing = fixture.passing.clone();
    let passing = passing.with_thresholds(Thresholds { output: SHORT + 1, ..Thresholds::ALWAYS });
    let server = fixture.lender(4);
    let granule = fixture.granule();
    let mut buffer = fixture.space.allocate(4 * granule).unwrap();
    buffer.copy_from_slice(&pattern(4 * granule));
    let source = &buffer[granule - SHORT..3 * granule + SHORT];
    let output = passing.output_from(Scheme::EmulatedCopy, Source::Native(source), server).unwrap();
    assert_eq!(output.receipt().reason, Some(Reason::Edges));
    assert_eq!(output.lenders().collect::<Vec<_>>(), [server, server]);
    let segments = output.segments();
    assert_eq!(fixture.seen(&segments[..1]).lender, Some(server));
    assert_eq!(fixture.seen(&segments[1..2]).lender, None, "in place, in the client's granules");
    let data: Vec<u8> = segments.iter().flat_map(|segment| fixture.seen(&[*segment]).data).collect();
    assert!(data == source, "the data");
}

fn a_server_is_shown_nothing_shorter_than_it_may_be(fixture: &Fixture) {
    let passing = fixture.passing.clone().with_thresholds(Thresholds::ALWAYS);
    let server = fixture.lender(4);
    let parties = Parties { shown_from: SHORT, ..Parties::by(server) };
    let mut buffer = fixture.space.allocate(SHORT).unwrap();
    buffer.copy_from_slice(&pattern(SHORT));
    let shown = passing.output_from(Scheme::EmulatedCopy, Source::Borrowed(&buffer), parties).unwrap();
    let receipt = shown.receipt();
    assert_eq!((receipt.copied, receipt.referenced, receipt.held, receipt.reason), (0, 1, true, None));
    let short = &buffer[..SHORT - 1];
    for source in [Source::Borrowed(short), Source::Owned(short), Source::Native(short)] {
        let hidden = passing.output_from(Scheme::EmulatedCopy, source, parties).unwrap();
        assert_eq!(hidden.receipt().reason, Some(Reason::Hidden));
        assert_eq!(hidden.lenders().collect::<Vec<_>>(), [server]);
        assert!(fixture.seen(&hidden.segments()).data == *short, "the data");
    }
    let share = passing.output_from(Scheme::EmulatedShare, Source::Borrowed(&buffer), parties).unwrap();
    assert_eq!((share.receipt().copied, share.receipt().reason), (0, None), "shared on purpose");
}

fn memory_of_another_lender_is_zero_completed(fixture: &Fixture) {
    let (server, other) = (fixture.lender(4), fixture.lender(4));
    fixture.soil(other);
    let data = pattern(SHORT);
    let parties = Parties { lender: other, server, shown_from: 0 };
    let output = fixture.passing.output_from(Scheme::Copy, Source::Native(&data), parties).unwrap();
    let seen = fixture.seen(&output.segments());
    assert_eq!((seen.lender, seen.data), (Some(other), data));
    assert!(seen.around.iter().all(|byte| *byte == 0));
    assert_eq!(output.receipt().zeroed, PART - SHORT);
}

fn data_shorter_than_t_m_goes_through_the_servers_pool(fixture: &Fixture) {
    let passing = fixture.passing.clone();
    let passing = passing.with_thresholds(Thresholds { mapping: SHORT, ..Thresholds::ALWAYS });
    let (server, other) = (fixture.lender(4), fixture.lender(4));
    let parties = Parties { lender: other, server, shown_from: 0 };
    let data = pattern(SHORT);
    for (len, lender) in [(SHORT, other), (SHORT - 1, server)] {
        let output = passing.output_from(Scheme::Copy, Source::Native(&data[..len]), parties).unwrap();
        assert_eq!(output.lenders().collect::<Vec<_>>(), [lender], "output of {len} bytes");
        assert_eq!(output.receipt().zeroed == 0, lender == server, "output of {len} bytes");

        let mut bytes = fixture.space.allocate(len).unwrap();
        let mut input = begin(&passing, Scheme::Copy, native(&bytes), parties);
        input.ready().unwrap();
        assert_eq!(input.lender(), Some(lender), "input of {len} bytes");
        assert_eq!(input.receipt().zeroed == 0, lender == server, "input of {len} bytes");
        input.deliver(0, Some(&mut bytes)).unwrap();
    }
}

fn a_subcontractor_finds_zeros_around_the_data(fixture: &Fixture) {
    let (server, subcontractor) = (fixture.lender(4), fixture.lender(4));
    fixture.soil(server);
    let data = pattern(fixture.granule() + SHORT);
    let mut output = fixture.passing.output_from(Scheme::Copy, Source::Native(&data), server).unwrap();
    output.zero_around(server);
    let rest = fixture.granule() - SHORT;
    let seen = fixture.seen(&output.segments());
    assert_eq!((output.receipt().zeroed, seen.around), (0, vec![DIRT; rest]), "the lender's own");
    output.zero_around(subcontractor);
    let seen = fixture.seen(&output.segments());
    assert_eq!((output.receipt().zeroed, seen.around), (rest, vec![0; rest]));
    assert!(seen.data == data, "the data");
}

fn a_server_in_this_process_gets_no_zeros(fixture: &Fixture) {
    let lender = fixture.lender(4);
    let data = pattern(SHORT);
    let parties = Parties { lender, server: LenderId::OWN, shown_from: 0 };
    let output = fixture.passing.output_from(Scheme::Copy, Source::Native(&data), parties).unwrap();
    assert_eq!(output.lenders().collect::<Vec<_>>(), [lender]);
    assert_eq!(output.receipt().zeroed, 0);
    let output = fixture.passing.output(Scheme::Copy, Source::Native(&data)).unwrap();
    assert_eq!(output.lenders().collect::<Vec<_>>(), [LenderId::OWN]);
    assert_eq!(output.receipt().zeroed, 0);
}

fn copied_input_is_filled_in_the_servers_pool(fixture: &Fixture) {
    let passing = fixture.passing.clone().with_thresholds(Thresholds::NEVER);
    let server = fixture.lender(4);
    let data = pattern(SHORT);
    for scheme in [Scheme::Copy, Scheme::EmulatedCopy] {
        let mut bytes = vec![0; SHORT];
        let mut buffer = fixture.space.allocate(SHORT).unwrap();
        for bytes in [&mut bytes[..], &mut buffer[..]] {
            let mut input = begin(&passing, scheme, native(bytes), server);
            input.ready().unwrap().copy_from(&data);
            assert_eq!(
                (input.lender(), fixture.seen(&input.segments()).lender),
                (Some(server), Some(server))
            );
            input.deliver(SHORT, Some(bytes)).unwrap();
            assert_eq!((bytes, input.receipt().zeroed), (&mut data.clone()[..], 0));
        }
    }
}

fn swapped_input_takes_granules_from_the_pool_and_gives_it_others(fixture: &Fixture) {
    let server = fixture.lender(4);
    let len = 4 * fixture.granule();
    let mut buffer = fixture.space.allocate(len).unwrap();
    let data = pattern(len);
    // The second time the pool is made of what were the client's granules, the third time of its own again.
    for round in 0..3 {
        buffer.fill(round);
        let mut input = begin(&fixture.passing, Scheme::EmulatedCopy, native(&buffer), server);
        input.ready().unwrap().copy_from(&data);
        assert_eq!(input.lender(), Some(server), "round {round}: the pool has four granules still");
        input.deliver(len, Some(&mut buffer)).unwrap();
        let receipt = *input.receipt();
        assert_eq!((receipt.swapped, receipt.copied, receipt.zeroed), (4, 0, 0), "round {round}");
        assert!(buffer[..] == data[..], "round {round}: the data");
        drop(input);
        fixture.check();
    }
}

fn input_into_half_a_granule_copies_nothing(fixture: &Fixture) {
    let server = fixture.lender(2);
    let len = fixture.granule() / 2;
    let mut buffer = fixture.space.allocate(len).unwrap();
    let data = pattern(len);
    for (lender, actual) in [(server, len), (LenderId::OWN, len), (server, len - 10)] {
        buffer.fill(7);
        let mut input = begin(&fixture.passing, Scheme::EmulatedCopy, native(&buffer), lender);
        input.ready().unwrap().copy_from(&data);
        input.deliver(actual, Some(&mut buffer)).unwrap();
        let receipt = input.receipt();
        assert_eq!((receipt.effective, receipt.swapped), (Scheme::EmulatedCopy, 1));
        assert_eq!(receipt.copied, len - actual, "but for the buffer's own bytes beside the data");
        assert!(buffer[..actual] == data[..actual] && buffer[actual..].iter().all(|byte| *byte == 7));
    }
}

fn input_from_own_memory_is_zeroed_before_the_server_fills_it(fixture: &Fixture) {
    let server = fixture.lender(4);
    fixture.soil(LenderId::OWN);
    let parties = Parties { lender: LenderId::OWN, server, shown_from: 0 };
    let (granule, len) = (fixture.granule(), fixture.granule() + SHORT);
    let mut buffer = fixture.space.allocate(len).unwrap();
    for scheme in [Scheme::Copy, Scheme::EmulatedCopy] {
        let mut input = begin(&fixture.passing, scheme, native(&buffer), parties);
        input.ready().unwrap();
        let seen = fixture.seen(&input.segments());
        assert_eq!((seen.lender, seen.data, seen.around), (None, vec![0; len], vec![0; granule - SHORT]));
        assert_eq!(input.receipt().zeroed, 2 * granule, "{scheme}");
        input.deliver(0, Some(&mut buffer)).unwrap();
    }
}

fn moved_input_costs_the_lender_nothing(fixture: &Fixture) {
    let server = fixture.lender(2);
    fixture.soil(LenderId::OWN);
    let len = 2 * fixture.granule();
    let data = pattern(len);
    let mut input = begin(&fixture.passing, Scheme::Move, Target::Migrant { len }, server);
    input.ready().unwrap();
    assert_eq!(input.lender(), Some(LenderId::OWN));
    assert_eq!(fixture.seen(&input.segments()).data, vec![0; len], "the server finds nothing of others");
    input.data().copy_from(&data);
    let migrant = input.deliver(len, None).unwrap().expect("a buffer arrives");
    assert!(migrant[..] == data[..], "the data");
    let output = fixture.passing.output_from(Scheme::Copy, Source::Native(&data), server).unwrap();
    assert_eq!(output.lenders().collect::<Vec<_>>(), [server], "all of the pool is there");
}

fn data_in_place_has_no_lender(fixture: &Fixture) {
    let server = fixture.lender(2);
    let buffer = fixture.space.allocate(SHORT).unwrap();
    let mut input = begin(&fixture.passing, Scheme::EmulatedShare, native(&buffer), server);
    input.ready().unwrap();
    assert_eq!((input.lender(), input.receipt().zeroed), (None, 0));
    let mut output =
        fixture.passing.output_from(Scheme::EmulatedShare, Source::Native(&buffer), server).unwrap();
    output.zero_around(LenderId::OWN);
    assert_eq!((output.lenders().count(), output.receipt().zeroed), (0, 0));
}

/// A device's memory that holds a pattern.
#[derive(Debug)]
struct Device;

impl Outboard for Device {
    fn len(&self) -> usize {
        SHORT
    }

    fn transfer(&mut self, offset: usize, into: DataMut<'_>) -> std::io::Result<()> {
        into.copy_from(&pattern(SHORT)[offset..]);
        Ok(())
    }
}

fn outboard_data_survives_zero_completion(fixture: &Fixture) {
    let parties = Parties { lender: LenderId::OWN, server: fixture.lender(2), shown_from: 0 };
    let mut bytes = vec![0; SHORT];
    let mut input = begin(&fixture.passing, Scheme::Copy, native(&bytes), parties);
    input.outboard(Box::new(Device)).unwrap();
    input.deliver(SHORT, Some(&mut bytes)).unwrap();
    assert_eq!(bytes, pattern(SHORT));
    assert_eq!(input.receipt().zeroed, PART);
}

fn native(bytes: &[u8]) -> Target {
    Target::Native { addr: bytes.as_ptr().addr(), len: bytes.len() }
}

/// The second attempt succeeded without memory, and a client was told of bytes that nobody had stored.
fn an_input_is_ready_only_when_there_is_memory(fixture: &Fixture) {
    let len = 2 * fixture.granule();
    let data = pattern(len);
    let mut bytes = vec![0; len];
    let held = fixture.space.allocate(fixture.space.limit()).unwrap();
    let copy = begin(&fixture.passing, Scheme::Copy, native(&bytes), LenderId::OWN);
    let moved = begin(&fixture.passing, Scheme::Move, Target::Migrant { len }, LenderId::OWN);
    let mut inputs = [copy, moved];
    for input in &mut inputs {
        assert!(input.ready().is_err() && input.ready().is_err());
        assert_eq!((input.is_ready(), input.data().len()), (false, 0));
    }
    drop(held);
    let [mut copy, mut moved] = inputs;
    assert_eq!(copy.ready().unwrap().copy_from(&data), len);
    copy.deliver(len, Some(&mut bytes)).unwrap();
    assert!(bytes == data);
    assert_eq!(moved.ready().unwrap().copy_from(&data), len);
    assert!(moved.deliver(len, None).unwrap().expect("a buffer arrives")[..] == data[..]);
}
