//! Requests whose buffers are all short.

use genie_memory::Direction;

use super::{begin, decode_request, segment};
use crate::wire::record::{Body, RequestWriter, Slot};

#[test]
fn few_buffers_of_one_carried_element_are_short() {
    let mut body = Body::new();
    let said = [(Direction::Out, 3), (Direction::In, 200), (Direction::Out, 2)];
    let slot = Slot { index: 1, generation: 2 };
    let mut writer = RequestWriter::short(&mut body, slot, 5, b"argument", 9, said.into_iter()).unwrap();
    writer.carried(3).copy_from_slice(b"abc");
    writer.carried(2).copy_from_slice(b"de");
    let request = decode_request(&body).unwrap();
    assert_eq!(request.shorts().collect::<Vec<_>>(), said);
    assert_eq!((request.argument, request.carried, request.bytes), (&b"argument"[..], &b"abcde"[..], 205));
    assert_eq!((request.slot, request.service, request.room), (slot, 5, 9));
    for len in 0..body.len() {
        assert!(decode_request(&body[..len]).is_err(), "{len} bytes");
    }
    assert!(decode_request(&[&body[..], b"f"].concat()).is_err());
    // The first buffer's head is behind the request's and the argument.
    let first = body.len() - 5 - 3 * 12;
    let shorts = |at: usize, value: u8| {
        let mut bytes = body.to_vec();
        bytes[first + at] = value;
        decode_request(&bytes).map(|request| request.shorts().len())
    };
    assert_eq!(shorts(3, 0), Ok(3), "whether it is said to be copied does not matter");
    for (at, value, what) in [
        (0, 2, "two elements"),
        (0, 0, "no element"),
        (2, 2, "no direction"),
        (3, 2, "no flag"),
        (4, 1, "a segment"),
        (6, 0, "no bytes, and so a byte too many"),
        (7, 8, "more bytes than are carried"),
        (11, 1, "very many bytes"),
    ] {
        assert!(shorts(at, value).is_err(), "{what}");
    }
}

/// Adds a buffer of a byte that is carried.
fn carry_one(writer: &mut RequestWriter<'_>) {
    writer.buffer(Direction::In, true).unwrap();
    writer.carried_element(1).unwrap();
}

#[test]
fn other_buffers_are_not_short() {
    let mut body = Body::new();
    let mut writer = begin(&mut body);
    (0..4).for_each(|_| carry_one(&mut writer));
    let mut more = Body::new();
    assert_eq!(decode_request(&body).unwrap().shorts().len(), 4);
    let mut writer = begin(&mut more);
    (0..5).for_each(|_| carry_one(&mut writer));
    assert_eq!(decode_request(&more).unwrap().shorts().len(), 0, "five");
    let mut writer = begin(&mut more);
    carry_one(&mut writer);
    writer.buffer(Direction::In, true).unwrap();
    assert_eq!(decode_request(&more).unwrap().shorts().len(), 0, "one without an element");
    let mut writer = begin(&mut more);
    carry_one(&mut writer);
    writer.carried_element(1).unwrap();
    assert_eq!(decode_request(&more).unwrap().shorts().len(), 0, "two elements");
    let mut writer = begin(&mut more);
    writer.buffer(Direction::In, true).unwrap();
    writer.element([segment(0, 0, 9)]).unwrap();
    assert_eq!(decode_request(&more).unwrap().shorts().len(), 0, "an element with a segment");
    begin(&mut more);
    assert_eq!(decode_request(&more).unwrap().shorts().len(), 0, "no buffer");
    // Each is allowed by itself.
    let all = [(Direction::In, 1000); 3];
    let short = |count: usize| {
        let mut body = Body::new();
        let slot = Slot { index: 0, generation: 0 };
        RequestWriter::short(&mut body, slot, 0, &[], 0, all[..count].iter().copied()).unwrap();
        decode_request(&body).map(|request| request.shorts().len())
    };
    assert_eq!(short(2), Ok(2));
    assert!(short(3).unwrap_err().what.contains("1000 bytes are carried"));
}
