use genie_memory::Direction;
use proptest::collection::vec;
use proptest::prelude::*;

use super::layout::{
    BufferHead, ElementHead, ProgressPart, RefusalPart, ReplyBufferPart, ReplyHead, RequestHead, SaidPart,
};
use super::*;
use crate::wire::tests::assert_documented;
use crate::wire::{MAX_OFFSET, fuzzing};

mod short;

/// How many bytes a line of a ring carries beside its header.
const LINE: usize = 56;
const SLOT: Slot = Slot { index: 7, generation: 9 };
const ALL: u64 = MAX_OFFSET;
const SUCCESS: Outcome<'_> = Outcome::Ok { anticipated: false, argument: &[] };

fn segment(arena: u16, offset: u64, len: u64) -> Segment {
    Segment::new(arena, offset, len).unwrap()
}

fn decode_request(body: &[u8]) -> Result<Request<'_>, Malformed> {
    match Record::decode(Kind::Request as u8, body)? {
        Record::Request(request) => Ok(request),
        other => panic!("{other:?} instead of a request"),
    }
}

fn decode_reply(body: &[u8]) -> Result<Reply<'_>, Malformed> {
    match Record::decode(Kind::Reply as u8, body)? {
        Record::Reply(reply) => Ok(reply),
        other => panic!("{other:?} instead of a reply"),
    }
}

/// A request without an argument.
fn begin(body: &mut Body) -> RequestWriter<'_> {
    RequestWriter::begin(body, SLOT, 0, &[], 0).unwrap()
}

/// A request with one output of one segment.
fn one_output() -> Vec<u8> {
    let mut body = Body::new();
    let mut writer = RequestWriter::begin(&mut body, SLOT, 3, b"1234567890", 0).unwrap();
    writer.buffer(Direction::Out, false).unwrap();
    writer.element([segment(0, 4096, 100)]).unwrap();
    body.to_vec()
}

#[test]
fn the_documented_layouts_are_those_of_the_code() {
    assert_documented! {
        "Abort and done": SlotPart { index, generation }
        "Said": SaidPart { messages }
        "Progress": ProgressPart { slot, buffer, len }
        "Request: head": RequestHead { slot, service, buffers, argument, room }
        "Request: buffer": BufferHead { elements, direction, copied }
        "Request: element": ElementHead { segments, len }
        "Request: segment": Segment { arena, offset, len }
        "Reply: head": ReplyHead { slot, status, anticipated, buffers, code, detail }
        "Reply: refusal": RefusalPart { asked, pending, allowed }
        "Reply: buffer": ReplyBufferPart { actual }
    }
}

#[test]
fn the_common_request_and_the_common_reply_fit_one_line() {
    let request = one_output();
    assert_eq!(request.len(), 56);
    assert!(request.len() <= LINE);
    let mut reply = Body::new();
    let mut writer = ReplyWriter::begin(&mut reply, SLOT, SUCCESS);
    for _ in 0..6 {
        writer.buffer(ALL).unwrap();
    }
    assert_eq!(reply.len(), 56);
    assert!(reply.len() <= LINE);
}

#[test]
fn every_request_that_is_cut_short_or_goes_on_is_malformed() {
    let body = one_output();
    decode_request(&body).unwrap();
    for len in 0..body.len() {
        let malformed = decode_request(&body[..len]).unwrap_err();
        assert!(malformed.offset <= len, "{malformed}");
    }
    let mut longer = body.clone();
    longer.push(0);
    assert_eq!(decode_request(&longer).unwrap_err().offset, body.len());
}

#[test]
fn a_request_that_contradicts_itself_is_malformed() {
    let good = one_output();
    let buffer = 20 + 10;
    let element = buffer + 4;
    let segment = element + 8;
    let cases: [(usize, u8, &str); 8] = [
        (10, 2, "needs 4 bytes"),
        (11, 5, "more than the 1024"),
        (12, 255, "needs 255 bytes"),
        (buffer + 2, 2, "direction is 2"),
        (buffer + 3, 2, "flag 2"),
        (element, 2, "needs 28 bytes"),
        (element + 2, 101, "101 bytes has segments of 100"),
        (segment + 8, 0, "0 bytes at 4096"),
    ];
    for (at, byte, what) in cases {
        let mut body = good.clone();
        body[at] = byte;
        let malformed = decode_request(&body).unwrap_err();
        assert!(malformed.what.contains(what), "byte {at} as {byte}: {malformed}");
    }
    let mut body = good.clone();
    body[segment + 2..segment + 8].fill(0xff);
    assert!(decode_request(&body).unwrap_err().what.contains("100 bytes at 281474976710655"));
    body = good;
    body[element..element + 2].fill(0);
    body.truncate(segment);
    assert!(
        decode_request(&body).unwrap_err().what.contains("carried of outputs needs 100 bytes"),
        "an output without memory, whose bytes are to follow"
    );
}

#[test]
fn what_is_carried_of_outputs_follows_the_last_buffer() {
    let mut body = Body::new();
    let mut writer = begin(&mut body);
    writer.buffer(Direction::Out, true).unwrap();
    writer.carried_element(3).unwrap();
    writer.buffer(Direction::In, false).unwrap();
    writer.carried_element(40).unwrap();
    writer.element([segment(0, 0, 9)]).unwrap();
    writer.buffer(Direction::Out, true).unwrap();
    writer.carried_element(2).unwrap();
    writer.carried(3).copy_from_slice(b"abc");
    writer.carried(2).copy_from_slice(b"de");
    let request = decode_request(&body).unwrap();
    assert_eq!((request.carried, request.bytes), (&b"abcde"[..], 54));
    let lens: Vec<Vec<_>> = request
        .buffers()
        .map(|buffer| buffer.elements().map(|element| (element.len, element.is_carried())).collect())
        .collect();
    assert_eq!(lens, [vec![(3, true)], vec![(40, true), (9, false)], vec![(2, true)]]);
    for len in 0..body.len() {
        assert!(decode_request(&body[..len]).is_err(), "{len} bytes");
    }
    assert!(decode_request(&[&body[..], b"f"].concat()).is_err());
}

#[test]
fn a_request_that_carries_too_much_is_malformed() {
    let request = |lens: &[usize]| {
        let mut body = Body::new();
        let mut writer = begin(&mut body);
        writer.buffer(Direction::In, true).unwrap();
        lens.iter().for_each(|len| writer.carried_element(*len).unwrap());
        decode_request(&body).map(|request| request.bytes as usize)
    };
    assert_eq!(request(&[MAX_CARRIED]).unwrap(), MAX_CARRIED);
    assert_eq!(request(&[1; MAX_CARRIED / 16]).unwrap(), MAX_CARRIED / 16);
    for lens in [&[MAX_CARRIED + 1][..], &[MAX_CARRIED, 1], &[1; MAX_CARRIED / 16 + 1], &[ALL as usize]] {
        assert!(request(lens).unwrap_err().what.contains("are carried"), "{} elements", lens.len());
    }
}

#[test]
fn what_a_reply_carries_comes_with_a_success_alone() {
    let reply = |outcome, carried: usize| {
        let mut body = Body::new();
        let mut writer = ReplyWriter::begin(&mut body, SLOT, outcome);
        writer.buffer(9).unwrap();
        writer.carried(carried).fill(7);
        decode_reply(&body).map(|reply| reply.carried.to_vec())
    };
    assert_eq!(reply(SUCCESS, 9).unwrap(), [7; 9]);
    assert_eq!(reply(SUCCESS, MAX_CARRIED).unwrap().len(), MAX_CARRIED);
    reply(SUCCESS, MAX_CARRIED + 1).unwrap_err();
    reply(Outcome::Ok { anticipated: true, argument: &[] }, 1).unwrap_err();
    reply(Outcome::Failed { code: 0, message: "no" }, 1).unwrap_err();
    reply(Outcome::Dropped, 1).unwrap_err();
}

#[test]
fn the_lengths_of_a_request_cannot_overflow() {
    let mut body = Body::new();
    let mut writer = begin(&mut body);
    writer.buffer(Direction::In, false).unwrap();
    writer.element([segment(0, 0, ALL)]).unwrap();
    writer.element([]).unwrap();
    assert_eq!(writer.element([segment(0, 0, 1)]).unwrap_err().count, ALL + 1);
    let request = |segment: Segment| {
        let mut body = Body::new();
        let mut writer = begin(&mut body);
        writer.buffer(Direction::In, false).unwrap();
        writer.element([segment]).unwrap();
        body
    };
    let (all, one) = (request(segment(0, 0, ALL)), request(segment(0, 0, 1)));
    assert_eq!(decode_request(&all).unwrap().bytes, ALL);
    let heads = size_of::<RequestHead>() + size_of::<BufferHead>();
    let mut twice = [&all, &one[heads..]].concat();
    twice[size_of::<RequestHead>() + std::mem::offset_of!(BufferHead, elements)] = 2;
    assert!(decode_request(&twice).unwrap_err().what.contains("more than 281474976710655 bytes"));
    Segment::new(0, ALL, 1).unwrap_err();
    Segment::new(0, u64::MAX, u64::MAX).unwrap_err();
}

#[test]
fn buffers_and_segments_are_counted() {
    let mut body = Body::new();
    let mut writer = begin(&mut body);
    for _ in 0..MAX_BUFFERS {
        writer.buffer(Direction::Out, false).unwrap();
    }
    assert_eq!(writer.buffer(Direction::Out, false).unwrap_err().max, 1024);
    let mut writer = begin(&mut body);
    writer.buffer(Direction::Out, false).unwrap();
    writer.element((0..MAX_SEGMENTS as u64).map(|index| segment(0, index * 2, 1))).unwrap();
    assert_eq!(decode_request(&body).unwrap().bytes, MAX_SEGMENTS as u64);
    let mut writer = begin(&mut body);
    writer.buffer(Direction::Out, false).unwrap();
    writer.element([segment(0, 0, 1)]).unwrap();
    let error = writer.element((0..MAX_SEGMENTS as u64).map(|index| segment(0, index * 2, 1))).unwrap_err();
    assert_eq!(error.count, MAX_SEGMENTS as u64 + 1);
}

#[test]
fn a_request_with_too_many_segments_in_all_is_malformed() {
    let mut body = Body::new();
    let mut writer = begin(&mut body);
    writer.buffer(Direction::Out, false).unwrap();
    writer.element((0..MAX_SEGMENTS as u64).map(|index| segment(0, index * 2, 1))).unwrap();
    let mut one = Body::new();
    let mut writer = begin(&mut one);
    writer.buffer(Direction::Out, false).unwrap();
    writer.element([segment(0, 0, 1)]).unwrap();
    let mut body = [&body, &one[size_of::<RequestHead>()..]].concat();
    body[10] = 2;
    assert!(decode_request(&body).unwrap_err().what.contains("more than 65535 segments"));
}

#[test]
fn a_body_of_any_length_is_built_and_patched_and_used_again() {
    let mut body = Body::new();
    for len in [0, 100, 427, 428, 429, 447, 448, 449, 10_000, 3] {
        let argument = vec![7; len];
        let mut writer = RequestWriter::begin(&mut body, SLOT, 1, &argument, 5).unwrap();
        writer.buffer(Direction::Out, false).unwrap();
        writer.buffer(Direction::In, false).unwrap();
        writer.element([segment(0, 0, 9)]).unwrap();
        assert_eq!(body.len(), 20 + len + 4 + 4 + 8 + 14);
        let request = decode_request(&body).unwrap();
        assert_eq!((request.argument, request.room), (&argument[..], 5));
        let seen: Vec<_> = request.buffers().map(|buffer| buffer.elements().len()).collect();
        assert_eq!(seen, [0, 1]);
    }
}

#[test]
fn empty_segments_do_not_travel() {
    let mut body = Body::new();
    let mut writer = begin(&mut body);
    writer.buffer(Direction::Out, false).unwrap();
    writer.element([segment(0, 8, 0), segment(0, 8, 5), segment(1, 0, 0)]).unwrap();
    let request = decode_request(&body).unwrap();
    let element = request.buffers().next().unwrap().elements().next().unwrap();
    assert_eq!((element.len, element.segments), (5, &[segment(0, 8, 5)][..]));
}

#[test]
fn a_long_sentence_is_cut_and_a_longer_one_is_malformed() {
    let mut body = Body::new();
    let message = "\u{20ac}".repeat(2000);
    ReplyWriter::begin(&mut body, SLOT, Outcome::Failed { code: -5, message: &message });
    let expected = Outcome::Failed { code: -5, message: &message[..4095] };
    assert_eq!(decode_reply(&body).unwrap().outcome, expected);
    let mut body = body.to_vec();
    body[16..20].copy_from_slice(&4097u32.to_le_bytes());
    assert!(decode_reply(&body).unwrap_err().what.contains("4097 bytes, more than the 4096"));
}

#[test]
fn a_reply_that_contradicts_itself_is_malformed() {
    let mut good = Body::new();
    ReplyWriter::begin(&mut good, SLOT, Outcome::Ok { anticipated: true, argument: &[] });
    decode_reply(&good).unwrap();
    for (at, byte) in [(8, 1), (8, 2), (8, 3), (8, 5), (8, 7), (9, 2), (10, 1), (12, 1), (16, 1)] {
        let mut body = good.to_vec();
        body[at] = byte;
        assert!(decode_reply(&body).is_err(), "byte {at} as {byte}");
    }
    let mut short = Body::new();
    ReplyWriter::begin(&mut short, SLOT, Outcome::ArgumentTooLong { len: 1 });
    let mut short = short.to_vec();
    decode_reply(&short).unwrap();
    short[16] = 0;
    decode_reply(&short).expect_err("there is always room for no bytes");
    let mut untold = Body::new();
    ReplyWriter::begin(&mut untold, SLOT, Outcome::Untold { buffer: MAX_BUFFERS - 1 });
    let mut untold = untold.to_vec();
    decode_reply(&untold).unwrap();
    untold[16..20].copy_from_slice(&(MAX_BUFFERS as u32).to_le_bytes());
    decode_reply(&untold).expect_err("no request has so many buffers");
    let mut text = Body::new();
    ReplyWriter::begin(&mut text, SLOT, Outcome::Failed { code: 0, message: "ab" });
    let mut text = text.to_vec();
    text[21] = 0xff;
    assert_eq!(
        decode_reply(&text).unwrap_err(),
        Malformed::new(21, "a sentence about a failure is not valid UTF-8")
    );
}

#[test]
fn unknown_kinds_and_bodies_where_none_belong_are_malformed() {
    for kind in (0..=255).filter(|kind| !(1..=5).contains(kind)) {
        assert!(Record::decode(kind, &[]).is_err(), "kind {kind}");
    }
    assert!(Record::decode(5, &[]).is_err(), "no record is of this kind any more");
    assert!(matches!(Record::decode(Kind::Said as u8, &encode_said(258)), Ok(Record::Said(258))));
    assert!(Record::decode(Kind::Said as u8, &encode_said(258)[1..]).is_err());
    let mut body = Body::new();
    encode_slot(&mut body, SLOT);
    assert!(matches!(Record::decode(Kind::Abort as u8, &body), Ok(Record::Abort(SLOT))));
    assert!(matches!(Record::decode(Kind::Done as u8, &body), Ok(Record::Done(SLOT))));
    assert!(Record::decode(Kind::Abort as u8, &body[..7]).is_err());
    let progress = Progress { slot: SLOT, buffer: 3, len: ALL };
    progress.encode(&mut body).unwrap();
    assert!(
        matches!(Record::decode(Kind::Progress as u8, &body), Ok(Record::Progress(found)) if found == progress)
    );
    for len in 0..body.len() {
        assert!(Record::decode(Kind::Progress as u8, &body[..len]).is_err(), "{len} bytes of progress");
    }
    body.append(&[0]);
    assert!(Record::decode(Kind::Progress as u8, &body).is_err(), "a byte more");
    assert!(Progress { len: ALL + 1, ..progress }.encode(&mut body).is_err());
}

/// An element: its length and its segments, none if it is carried.
#[derive(Debug, Clone, PartialEq)]
struct AnElement(u64, Vec<Segment>);

#[derive(Debug, Clone, PartialEq)]
struct ABuffer(Direction, bool, Vec<AnElement>);

fn slots() -> impl Strategy<Value = Slot> {
    any::<(u32, u32)>().prop_map(|(index, generation)| Slot { index, generation })
}

fn elements() -> impl Strategy<Value = AnElement> {
    let named = vec((any::<u16>(), 0u64..1 << 40, 1u64..1 << 32), 0..5).prop_map(|segments| {
        let segments: Vec<_> =
            segments.into_iter().map(|(arena, offset, len)| segment(arena, offset, len)).collect();
        AnElement(segments.iter().map(Segment::len).sum(), segments)
    });
    prop_oneof![named, (1u64..=120).prop_map(|len| AnElement(len, Vec::new()))]
}

/// What the record carries of an element of a buffer.
fn carried(direction: Direction, AnElement(len, segments): &AnElement) -> usize {
    if direction == Direction::Out && segments.is_empty() { *len as usize } else { 0 }
}

fn buffers() -> impl Strategy<Value = ABuffer> {
    let directions = prop_oneof![Just(Direction::Out), Just(Direction::In)];
    (directions, any::<bool>(), vec(elements(), 0..4))
        .prop_map(|(direction, is_copied, elements)| ABuffer(direction, is_copied, elements))
}

fn arguments() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..20)
}

fn outcomes() -> impl Strategy<Value = (u8, bool, i32, String, [u64; 3])> {
    (0u8..8, any::<bool>(), any::<i32>(), any::<String>(), any::<[u64; 3]>())
}

fn outcome(seed: &(u8, bool, i32, String, [u64; 3])) -> Outcome<'_> {
    let (which, anticipated, code, message, [asked, pending, allowed]) = seed;
    let (asked, pending, allowed) = (*asked, *pending, *allowed);
    match which {
        0 => Outcome::Ok { anticipated: *anticipated, argument: message.as_bytes() },
        1 => Outcome::Failed { code: *code, message },
        2 => Outcome::Dropped,
        3 => Outcome::Refused(Refusal { limit: Limit::Bytes, asked, pending, allowed }),
        4 => Outcome::Panicked { message },
        5 => Outcome::ArgumentTooLong { len: asked.clamp(1, u32::MAX.into()) as usize },
        6 => Outcome::Untold { buffer: (asked % MAX_BUFFERS as u64) as usize },
        _ => Outcome::Refused(Refusal { limit: Limit::Requests, asked, pending, allowed }),
    }
}

fn encode_buffers(mut writer: RequestWriter<'_>, buffers: &[ABuffer]) {
    for ABuffer(direction, is_copied, elements) in buffers {
        writer.buffer(*direction, *is_copied).unwrap();
        for AnElement(len, segments) in elements {
            match segments.is_empty() && *len > 0 {
                true => writer.carried_element(*len as usize).unwrap(),
                false => writer.element(segments.iter().copied()).unwrap(),
            }
        }
    }
    for ABuffer(direction, _, elements) in buffers {
        elements.iter().for_each(|element| writer.carried(carried(*direction, element)).fill(7));
    }
}

proptest! {
    #[test]
    fn a_request_arrives_as_it_was_sent(
        slot in slots(), service in any::<u16>(), argument in arguments(), room in any::<u32>(),
        sent in vec(buffers(), 0..5)
    ) {
        let (mut body, room) = (Body::new(), room as usize);
        encode_buffers(RequestWriter::begin(&mut body, slot, service, &argument, room).unwrap(), &sent);
        let request = decode_request(&body).unwrap();
        prop_assert_eq!((request.slot, request.service), (slot, service));
        prop_assert_eq!((request.argument, request.room), (&argument[..], room));
        prop_assert_eq!(request.buffers().len(), sent.len());
        let arrived: Vec<_> = request.buffers().map(|buffer| {
            let elements = buffer.elements().map(|element| AnElement(element.len, element.segments.to_vec()));
            ABuffer(buffer.direction, buffer.is_copied, elements.collect())
        }).collect();
        let bytes: u64 = sent.iter().flat_map(|buffer| &buffer.2).map(|element| element.0).sum();
        prop_assert_eq!(request.bytes, bytes);
        let is_short = |ABuffer(.., elements): &ABuffer| {
            matches!(&elements[..], [AnElement(1.., segments)] if segments.is_empty())
        };
        let are_short = (1..=MAX_SHORTS).contains(&sent.len()) && sent.iter().all(is_short);
        prop_assert_eq!(request.shorts().len(), if are_short { sent.len() } else { 0 });
        let carried: usize = sent.iter().flat_map(|ABuffer(direction, _, elements)| {
            elements.iter().map(|element| carried(*direction, element))
        }).sum();
        prop_assert_eq!(request.carried.len(), carried);
        prop_assert_eq!(arrived, sent);
    }

    #[test]
    fn a_reply_arrives_as_it_was_sent(
        slot in slots(), seed in outcomes(), sent in vec(0..=ALL, 0..5)
    ) {
        let mut body = Body::new();
        let mut writer = ReplyWriter::begin(&mut body, slot, outcome(&seed));
        sent.iter().for_each(|actual| writer.buffer(*actual).unwrap());
        let reply = decode_reply(&body).unwrap();
        prop_assert_eq!((reply.slot, reply.outcome), (slot, outcome(&seed)));
        let arrived: Vec<_> = reply.buffers().map(|buffer| buffer.actual).collect();
        prop_assert_eq!(arrived, sent);
    }

    #[test]
    fn any_bytes_are_decoded_without_panic_and_encode_to_themselves(
        kind in 0u8..7, body in vec(prop_oneof![3 => 0u8..3, 1 => any::<u8>()], 0..200)
    ) {
        let mut bytes = vec![kind];
        bytes.extend(body);
        fuzzing::record(&bytes);
    }

    #[test]
    fn damaged_requests_are_decoded_without_panic_and_encode_to_themselves(
        argument in arguments(), sent in vec(buffers(), 0..4),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let mut body = Body::new();
        encode_buffers(RequestWriter::begin(&mut body, SLOT, 1, &argument, 0).unwrap(), &sent);
        let mut bytes = vec![Kind::Request as u8];
        bytes.extend_from_slice(&body);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fuzzing::record(&bytes);
    }
}
