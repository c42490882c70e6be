use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;

use super::Comparison::{AtLeast, Below, Equal, Unequal};
use super::Instruction::{Check, Length, Load, Require, Return, Set, Skip};
use super::Operand::{In, Number};
use super::Operation::{Add, And, Move, Multiply, Or, ShiftLeft, ShiftRight, Subtract};
use super::Place::{At, Behind};
use super::Register::{A, B, C, D};
use super::Width::{Four, One, Two};
use super::check::{check, result};
use super::*;

/// A program that takes a header off whose length is in its first two bytes.
fn header_with_length() -> Program {
    Program::new(vec![Require(At(2)), Load(B, Two, At(0)), Return(In(A), In(B), Number(4))])
        .expect("a program")
}

/// The end of a program that says nothing of a frame.
const NOTHING: Instruction = Return(Number(0), Number(0), Number(0));

fn run_on(program: &Program, frame: &[u8]) -> Option<Parsed> {
    program.run(&Frame::new(frame.into()))
}

fn parsed(port: u64, header: usize, trailer: usize) -> Option<Parsed> {
    Some(Parsed { port: Port(port), header, trailer })
}

fn register() -> impl Strategy<Value = Register> {
    select(&[A, B, C, D])
}

/// Numbers as they occur in programs, and the ends of what there is.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..20_u64, 3 => 0..300_u64, 1 => any::<u64>(), 1 => u64::MAX - 20..=u64::MAX]
}

fn operand() -> impl Strategy<Value = Operand> {
    prop_oneof![number().prop_map(Number), register().prop_map(In)]
}

fn place(most: u16) -> impl Strategy<Value = Place> {
    let more = prop_oneof![9 => 0..most, 1 => any::<u16>()];
    (any::<bool>(), register(), more).prop_map(|(by_register, register, more)| match by_register {
        true => Behind(register, more),
        false => At(more),
    })
}

fn comparison() -> impl Strategy<Value = Comparison> {
    select(&[Equal, Unequal, Below, AtLeast])
}

fn operation() -> impl Strategy<Value = Operation> {
    select(&[Move, Add, Subtract, Multiply, And, Or, ShiftLeft, ShiftRight])
}

fn instruction() -> impl Strategy<Value = Instruction> {
    prop_oneof![
        2 => place(60).prop_map(Require),
        4 => (register(), select(&[One, Two, Four]), place(30)).prop_map(|(to, width, from)| Load(to, width, from)),
        1 => register().prop_map(Length),
        4 => (register(), operation(), operand()).prop_map(|(to, by, operand)| Set(to, by, operand)),
        2 => (register(), comparison(), operand()).prop_map(|(a, is, b)| Check(a, is, b)),
        2 => (0..8_u8, register(), comparison(), operand()).prop_map(|(over, a, is, b)| Skip(over, a, is, b)),
        1 => (operand(), operand(), operand()).prop_map(|(port, header, trailer)| Return(port, header, trailer)),
    ]
}

/// Random programs, and the one for UDP with some instructions in the place of others.
pub(crate) fn program() -> impl Strategy<Value = Vec<Instruction>> {
    let end =
        (operand(), operand(), operand()).prop_map(|(port, header, trailer)| Return(port, header, trailer));
    let random = (prop::collection::vec(instruction(), 0..20), end).prop_map(|(mut program, end)| {
        program.push(end);
        program
    });
    let len = udp::instructions().len();
    let changed = prop::collection::vec((0..len, instruction()), 0..4).prop_map(|changes| {
        let mut program = udp::instructions();
        changes.into_iter().for_each(|(at, instruction)| program[at] = instruction);
        program
    });
    Union::new_weighted(vec![(3, random.boxed()), (1, changed.boxed())])
}

/// Frames of all lengths that matter, with few big numbers.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![0..40_u8, any::<u8>()], 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_is_accepted_reads_no_byte_that_is_not_there(
        program in program().prop_filter("accepted", |program| Program::new(program.clone()).is_ok()),
        frames in prop::collection::vec((frame(), number()), 1..8),
    ) {
        for (frame, port) in frames {
            prop_assert!(check(&program, &frame, port));
        }
    }

    #[test]
    fn no_program_whatever_panics(
        program in prop::collection::vec(instruction(), 0..80),
        frame in frame(),
        port in number(),
    ) {
        check(&program, &frame, port);
    }

    #[test]
    fn a_program_as_bytes_is_the_same_program_and_changed_bytes_are_another_one_or_none(
        parts in prop::collection::vec(program().prop_filter_map("accepted", |program| Program::new(program).ok()), 1..3),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        frame in frame(),
    ) {
        let parts = parts.into_iter().map(Ok).reduce(|program, later| program?.then(later?));
        let Some(Ok(program)) = parts else { return Ok(()) };
        let mut bytes = program.to_bytes();
        prop_assert_eq!(Program::from_bytes(&bytes), Ok(program.clone()));
        changes.into_iter().for_each(|(at, byte)| bytes[at.index(program.to_bytes().len())] = byte);
        if let Ok(other) = Program::from_bytes(&bytes) {
            run_on(&other, &frame);
            prop_assert_eq!(Program::from_bytes(&other.to_bytes()), Ok(other));
        }
    }

    #[test]
    fn operations_end_at_zero_and_at_the_greatest_number(
        by in operation(),
        (a, less) in (any::<u64>(), 0..64_u32),
        (b, lesser) in (any::<u64>(), 0..64_u32),
    ) {
        let (a, b) = (a >> less, b >> lesser);
        prop_assert_eq!(u128::from(by.of(a, b)), result(by, a.into(), b.into()), "{:?} of {} and {}", by, a, b);
    }

    #[test]
    fn programs_behind_one_another_see_what_is_left(frame in frame(), header in 0..60_usize, trailer in 0..60_u64) {
        let first = Program::new(vec![Return(Number(7), Number(header as u64), Number(trailer))]).expect("a program");
        let whole = first.then(header_with_length()).expect("programs");
        let left = frame.len().checked_sub(header + trailer as usize).map(|left| &frame[header..header + left]);
        let expected = left.and_then(|left| run_on(&header_with_length(), left));
        let expected = expected.and_then(|found| parsed(7, header + found.header, trailer as usize + found.trailer));
        prop_assert_eq!(run_on(&whole, &frame), expected);
    }
}

/// What is said of a program that is refused.
fn refusal(program: &[Instruction]) -> String {
    Program::new(program.to_vec()).expect_err("a refusal").to_string()
}

#[test]
fn refusals_name_the_instruction_and_why() {
    for (program, words) in [
        (vec![], "no instruction"),
        (vec![Length(A); 65], "has 65 instructions, and 64 are allowed"),
        (vec![Length(A)], "instruction 0 (Length(A)) goes on with instruction 1, and there are 1"),
        (
            vec![Skip(1, A, Equal, Number(0)), NOTHING],
            "instruction 0 (Skip(1, A, Equal, Number(0))) goes on with instruction 2",
        ),
        (vec![Skip(255, A, Equal, Number(0)), NOTHING], "goes on with instruction 256, and there are 2"),
        // Nothing was required.
        (
            vec![Load(A, One, At(0)), NOTHING],
            "instruction 0 (Load(A, One, At(0))) may read up to byte 1 of a frame of which no more than 0",
        ),
        // Too little was required.
        (
            vec![Require(At(5)), Load(A, Four, At(2)), NOTHING],
            "instruction 1 (Load(A, Four, At(2))) may read up to byte 6 of a frame of which no more than 5",
        ),
        // It was required of another register.
        (
            vec![Require(Behind(B, 9)), Load(C, One, At(0)), Load(A, One, Behind(C, 0)), NOTHING],
            "may read up to byte 256 of a frame of which no more than 9",
        ),
        // It was required before the register changed.
        (
            vec![
                Require(At(1)),
                Load(B, One, At(0)),
                Check(B, Below, Number(9)),
                Require(Behind(B, 1)),
                Set(B, Add, Number(1)),
                Load(C, One, Behind(B, 0)),
                NOTHING,
            ],
            "may read up to byte 10 of a frame of which no more than 1",
        ),
        // One byte less was required of the register.
        (
            vec![
                Require(At(1)),
                Load(B, One, At(0)),
                Check(B, Below, Number(9)),
                Require(Behind(B, 1)),
                Load(C, Two, Behind(B, 0)),
                NOTHING,
            ],
            "may read up to byte 10 of a frame of which no more than 1",
        ),
        // It was required of the register on one of two paths.
        (
            vec![
                Require(At(1)),
                Load(B, One, At(0)),
                Check(B, Below, Number(9)),
                Skip(1, A, Equal, Number(0)),
                Require(Behind(B, 1)),
                Load(C, One, Behind(B, 0)),
                NOTHING,
            ],
            "may read up to byte 9 of a frame of which no more than 1",
        ),
        // It was required on one of two paths.
        (
            vec![Skip(1, A, Equal, Number(0)), Require(At(1)), Load(A, One, At(0)), NOTHING],
            "no more than 0 bytes are sure",
        ),
        // It is compared on one of two paths.
        (
            vec![
                Require(At(20)),
                Load(B, One, At(0)),
                Skip(1, A, Equal, Number(0)),
                Check(B, Below, Number(19)),
                Load(C, One, Behind(B, 0)),
                NOTHING,
            ],
            "byte 256 of a frame of which no more than 20",
        ),
        // What is required of the frame's length is not what is compared.
        (vec![Length(B), Load(C, One, Behind(B, 0)), NOTHING], "instruction 1 (Load(C, One, Behind(B, 0)))"),
        (
            vec![Require(At(300)), Load(A, One, At(256)), NOTHING],
            "may read up to byte 257, and programs see the first 256",
        ),
        (
            vec![
                Require(At(9)),
                Load(A, Two, At(0)),
                Require(Behind(A, 1)),
                Load(B, One, Behind(A, 0)),
                NOTHING,
            ],
            "may read up to byte 65536, and programs",
        ),
        // Sums end at the greatest number, and do not begin anew.
        (
            vec![
                Require(At(9)),
                Load(A, One, At(0)),
                Set(A, Add, Number(u64::MAX)),
                Load(B, One, Behind(A, 1)),
                NOTHING,
            ],
            "may read up to byte 18446744073709551615",
        ),
    ] {
        let said = refusal(&program);
        assert!(said.contains(words), "of {program:?} is said: {said}");
    }
}

#[test]
fn what_is_proved_by_comparisons_and_requirements_is_accepted() {
    for program in [
        // By the register's bound.
        vec![
            Require(At(20)),
            Load(B, One, At(0)),
            Check(B, Below, Number(20)),
            Load(C, One, Behind(B, 0)),
            NOTHING,
        ],
        // By a mask, on two paths with unlike bounds.
        vec![
            Require(At(20)),
            Load(B, One, At(0)),
            Set(B, And, Number(7)),
            Skip(1, A, Equal, Number(9)),
            Set(B, Add, Number(8)),
            Load(C, Four, Behind(B, 1)),
            NOTHING,
        ],
        // By another register that is compared.
        vec![
            Require(At(20)),
            Load(B, One, At(0)),
            Set(C, Move, Number(19)),
            Check(C, AtLeast, In(B)),
            Load(D, One, Behind(B, 0)),
            NOTHING,
        ],
        // By the register itself.
        vec![
            Require(At(1)),
            Load(B, One, At(0)),
            Check(B, Unequal, Number(255)),
            Require(Behind(B, 1)),
            Load(C, One, Behind(B, 0)),
            NOTHING,
        ],
    ] {
        Program::new(program.clone()).unwrap_or_else(|refused| panic!("{refused}"));
    }
}

#[test]
fn an_applications_header_is_taken_off_behind_udp() {
    let program = Program::udp().then(header_with_length()).expect("programs");
    let message = [&[0, 6][..], b"head", b"data", b"sums"].concat();
    let datagram = datagram_to(53, &message);
    assert_eq!(run_on(&Program::udp(), &datagram), parsed(53, 42, 4));
    assert_eq!(run_on(&program, &datagram), parsed(53, 48, 8));
    // A header that says it is longer than the message, to hide in the padding.
    let message = [&[0, 11][..], b"head", b"data", b"sums"].concat();
    assert_eq!(run_on(&program, &datagram_to(53, &message)), None);
}

#[test]
fn programs_that_read_too_far_behind_others_are_refused() {
    let deep = Program::new(vec![Require(At(200)), Load(A, One, At(199)), NOTHING]).expect("a program");
    let refused = Program::udp().then(deep).expect_err("a refusal").to_string();
    assert!(refused.contains("reads 200 bytes behind a header of up to 82"), "{refused}");
    let long = Program::new([vec![Length(A); 60], vec![NOTHING]].concat()).expect("a program");
    assert_eq!(Program::udp().then(long).err(), Some(Refused::TooLong(61 + udp::instructions().len())));
    let anything = Program::new(vec![Length(B), Return(In(A), In(B), Number(0))]).expect("a program");
    assert!(anything.then(header_with_length()).is_err(), "a header of any length");
}

#[test]
fn a_layout_fits_into_the_frame() {
    let constants = |header, trailer| Layout::Constants(Parsed { port: Port(5), header, trailer });
    // The port is in bytes 2 and 3.
    let field = vec![Require(At(4)), Load(A, Two, At(2)), Return(In(A), Number(8), Number(2))];
    let field = Layout::Program(Program::new(field).expect("a program"));
    let frame: Vec<u8> = (0..12).collect();
    for (len, layout, expected) in [
        (12, &constants(8, 2), parsed(5, 8, 2)),
        (10, &constants(8, 2), parsed(5, 8, 2)),
        (9, &constants(8, 2), None),
        (12, &constants(usize::MAX, 2), None),
        (10, &field, parsed(0x0203, 8, 2)),
        (9, &field, None),
    ] {
        assert_eq!(layout.parse(&Frame::new(frame[..len].into())), expected, "{layout:?} of {len} bytes");
    }
}

/// A frame with a datagram over IPv4, and four bytes behind it.
fn datagram_to(port: u16, data: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([127, 0, 0, 1], [127, 0, 0, 2], 64)
        .udp(1, port)
        .write(&mut frame, data)
        .expect("a frame");
    frame.extend([0; 4]);
    frame
}
