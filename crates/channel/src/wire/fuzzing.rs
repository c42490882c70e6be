//! What fuzzers and random tests check of the decoders: that they never panic, and that each record and message has one
//! encoding only.

use super::control::{Message, Party};
use super::record::{
    Body, Kind, MAX_SHORTS, Record, Reply, ReplyWriter, Request, RequestWriter, encode_said, encode_slot,
};
use super::{TooLarge, control};

/// Decodes a record, whose kind is the first byte and whose body is the rest, and encodes it again.
///
/// # Panics
/// When encoding gives other bytes, or decoding complains about a byte beyond the end.
pub fn record(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else { return };
    match Record::decode(*kind, body) {
        Ok(record) => {
            if let Record::Request(request) = &record {
                check_shorts(request);
            }
            let mut again = Body::new();
            let kind_again = encode(&record, &mut again).expect("what was decoded can be encoded");
            assert_eq!((kind_again as u8, &again[..]), (*kind, body));
        }
        Err(malformed) => assert!(malformed.offset <= body.len(), "{malformed}"),
    }
}

/// Whether what a request says of its short buffers is what its buffers say.
fn check_shorts(request: &Request<'_>) {
    let mut buffers = request.buffers();
    let carried = buffers.by_ref().map_while(|buffer| {
        let [element] = buffer.elements().collect::<Vec<_>>()[..] else { return None };
        element.is_carried().then_some((buffer.direction, element.len as usize))
    });
    let carried: Vec<_> = carried.collect();
    let are_short = (1..=MAX_SHORTS).contains(&carried.len()) && carried.len() == request.buffers().len();
    let expected = if are_short { &carried[..] } else { &[] };
    assert_eq!(request.shorts().collect::<Vec<_>>(), expected);
}

/// Decodes a control message, and encodes it again.
///
/// The first byte says how many descriptors come with the message (its lower five bits), which side sent it, and what the
/// other bytes are: the whole message, or a byte for the kind and the body. The second way exists because few random bytes
/// would make a valid head.
///
/// # Panics
/// When encoding gives other bytes, or decoding complains about a byte beyond the end.
pub fn message(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let from = if how & 0x40 == 0 { Party::Client } else { Party::Server };
    let framed = match bytes.split_first() {
        Some((kind, body)) if how & 0x80 != 0 => Some(frame(*kind, body)),
        _ => None,
    };
    let bytes = framed.as_deref().unwrap_or(bytes);
    match Message::decode(bytes, usize::from(how & 0x1f), from) {
        Ok(message) => {
            assert_eq!(message.encode().expect("what was decoded can be encoded"), bytes);
            assert_eq!(message.descriptors(), usize::from(how & 0x1f));
        }
        Err(control::Error::Malformed(malformed)) => assert!(malformed.offset <= bytes.len(), "{malformed}"),
        Err(_) => {}
    }
}

/// A message of this kind with this body.
pub(super) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let version = control::Kind::of(kind.into()).map_or(control::VERSION, control::Kind::version);
    let mut bytes = b"GENIEctl".to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&u16::from(kind).to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Encodes what was decoded.
pub(super) fn encode(record: &Record<'_>, body: &mut Body) -> Result<Kind, TooLarge> {
    match record {
        Record::Request(request) => encode_request(request, body).map(|()| Kind::Request),
        Record::Reply(reply) => encode_reply(reply, body).map(|()| Kind::Reply),
        Record::Abort(slot) => {
            encode_slot(body, *slot);
            Ok(Kind::Abort)
        }
        Record::Done(slot) => {
            encode_slot(body, *slot);
            Ok(Kind::Done)
        }
        Record::Progress(progress) => progress.encode(body).map(|()| Kind::Progress),
        Record::Said(messages) => {
            body.clear();
            body.append(&encode_said(*messages));
            Ok(Kind::Said)
        }
    }
}

fn encode_request(request: &Request<'_>, body: &mut Body) -> Result<(), TooLarge> {
    let mut writer =
        RequestWriter::begin(body, request.slot, request.service, request.argument, request.room)?;
    for buffer in request.buffers() {
        writer.buffer(buffer.direction, buffer.is_copied)?;
        for element in buffer.elements() {
            match element.is_carried() {
                true => writer.carried_element(element.len as usize)?,
                false => writer.element(element.segments.iter().copied())?,
            }
        }
    }
    writer.carried(request.carried.len()).copy_from_slice(request.carried);
    Ok(())
}

fn encode_reply(reply: &Reply<'_>, body: &mut Body) -> Result<(), TooLarge> {
    let mut writer = ReplyWriter::begin(body, reply.slot, reply.outcome);
    reply.buffers().try_for_each(|buffer| writer.buffer(buffer.actual))?;
    writer.carried(reply.carried.len()).copy_from_slice(reply.carried);
    Ok(())
}
