use std::io::Read;

use genie_io::Interface;
use proptest::prelude::*;

use super::*;
use crate::Config;

fn pool() -> Pool {
    Pool::new(Config { limit: 16 << 20, ..Config::default() }).unwrap()
}

fn filled(pool: &Pool, bytes: &[u8]) -> Fbuf {
    let mut fbuf = pool.allocate(bytes.len()).unwrap();
    fbuf.copy_from_slice(bytes);
    fbuf
}

#[test]
fn a_buffer_becomes_a_message_and_a_buffer_again_in_its_place() {
    let pool = pool();
    let mut fbuf = filled(&pool, b"..data");
    fbuf.set_data(2, 4).unwrap();
    let place = fbuf.as_ptr();
    let mut message = Message::from(fbuf);
    assert_eq!((message.to_vec(), message.len()), (b"data".to_vec(), 4));
    message.prepend(&pool, b"h:").unwrap();
    let fbuf = message.into_fbuf(&pool).unwrap();
    assert_eq!((fbuf.to_vec(), fbuf.as_ptr()), (b"h:data".to_vec(), place.wrapping_sub(2)));
    assert_eq!(pool.held(), 4096);
}

#[test]
fn a_header_does_not_reach_into_a_buffer_that_others_have() {
    let pool = pool();
    let mut block = Block::allocate(&pool, 10, 10).unwrap();
    assert!(block.append(b"data") && !block.append(&[0; 4096]));
    let mut message = Message::from(block);
    let copy = message.duplicate();
    message.prepend(&pool, b"head").unwrap();
    assert_eq!((message.to_vec(), copy.to_vec()), (b"headdata".to_vec(), b"data".to_vec()));
    assert_eq!(message.blocks().map(Block::references).collect::<Vec<_>>(), [1, 2]);
    assert!(message.blocks_mut().nth(1).unwrap().bytes_mut().is_none());
    drop(copy);
    message.blocks_mut().nth(1).unwrap().bytes_mut().unwrap()[0] = b'D';
    // The second header has room in front of the first one.
    message.prepend(&pool, b"two").unwrap();
    assert_eq!((message.to_vec(), message.blocks().count()), (b"twoheadData".to_vec(), 2));
}

#[test]
fn messages_go_through_channels_and_pipes_and_what_nobody_else_has_is_passed() {
    let pool = pool();
    let (channel, offer) = pool.channel().unwrap();
    let other = pool.take(offer).unwrap();
    let body = filled(&pool, &[7; 10_000]);
    let place = body.offset();
    let mut message = Message::from(body);
    message.append(Block::from(filled(&pool, b"tail")).duplicate().into());
    let kept = message.split_off(9_000).unwrap();
    message.append(kept.duplicate());
    drop(kept);
    message.pull_up(&pool, 9_000).unwrap();
    let mut piped = message.duplicate();
    assert_eq!(channel.write_message(&mut message).unwrap(), 10_004);
    let mut found = Vec::new();
    while found.len() < 10_004 {
        found.extend_from_slice(&other.read(usize::MAX).unwrap().unwrap());
    }
    assert!(found == [&[7; 10_000][..], b"tail"].concat());
    let (mut read, write) = std::io::pipe().unwrap();
    assert_eq!(pool.write_message(&write, &mut piped).unwrap(), 10_004);
    let mut again = vec![0; 10_004];
    read.read_exact(&mut again).unwrap();
    assert!(again == found && piped.is_empty());
    // A message of one block of its own changes hands as it is.
    let whole = filled(&pool, b"whole");
    let offset = whole.offset();
    channel.write_message(&mut whole.into()).unwrap();
    assert_eq!(other.read(9).unwrap().unwrap().offset(), offset);
    assert!(place < Some(pool.limit()));
}

#[test]
fn a_system_buffer_is_passed_by_reference_copied_where_fbufs_are_needed_and_dropped_with_the_last_block() {
    let (pool, interface) = (pool(), Interface::open().unwrap());
    let space = interface.space();
    let mut bytes = space.aligned_buffer(0, 8192).unwrap().into_bytes().unwrap();
    bytes.fill(7);
    let place = bytes.as_ptr();
    let mut block = Block::of(bytes);
    block.narrow(100..8192).unwrap();
    let mut message = Message::from(block);
    message.prepend(&pool, b"in its headroom").unwrap();
    assert_eq!(message.blocks().next().unwrap().as_ptr(), place.wrapping_add(85));
    let tail = message.split_off(1000).unwrap();
    assert_eq!(tail.blocks().next().unwrap().as_ptr(), place.wrapping_add(1085));
    let expected = [message.to_vec(), tail.to_vec()].concat();

    let copied = tail.blocks().next().unwrap().copied().unwrap();
    assert_eq!((&copied[..], copied.read_at(), copied.references()), (&tail.to_vec()[..], 1085, 1));
    let mut whole = message.duplicate();
    whole.append(tail);
    let (mut read, write) = std::io::pipe().unwrap();
    assert_eq!(pool.write_message(write, &mut whole.duplicate()).unwrap(), expected.len());
    let mut piped = Vec::new();
    read.read_to_end(&mut piped).unwrap();
    assert!(piped == expected);
    let (channel, offer) = pool.channel().unwrap();
    let other = pool.take(offer).unwrap();
    assert_eq!(channel.write_message(&mut message).unwrap(), 1000);
    assert!(other.read(usize::MAX).unwrap().unwrap()[..] == expected[..1000]);

    // One block, to which no other one refers, is no fbuf all the same.
    assert_eq!(pool.held(), 0);
    let mut only = whole.split_off(1000).unwrap();
    drop(whole);
    assert_eq!(only.blocks().map(Block::references).collect::<Vec<_>>(), [1]);
    assert!(only.blocks_mut().next().unwrap().append(b"") && space.check().unwrap().system > 0);
    let fbuf = only.into_fbuf(&pool).unwrap();
    assert!(fbuf[..] == expected[1000..] && fbuf.pool().is_some());
    assert_eq!(space.check().unwrap().system, 0);
}

#[derive(Debug, Clone)]
enum Step {
    Prepend(Vec<u8>),
    Append(Vec<u8>),
    Split(usize),
    Join,
    TrimFront(usize),
    PullUp(usize),
    Duplicate,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let step = prop_oneof![
        bytes().prop_map(Step::Prepend),
        bytes().prop_map(Step::Append),
        (0usize..100).prop_map(Step::Split),
        Just(Step::Join),
        (0usize..60).prop_map(Step::TrimFront),
        (0usize..100).prop_map(Step::PullUp),
        Just(Step::Duplicate),
    ];
    proptest::collection::vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever modules do to a message, its bytes are those that vectors of bytes would have.
    #[test]
    fn messages_hold_what_vectors_would(steps in steps()) {
        let pool = pool();
        let (mut message, mut bytes) = (Message::new(), Vec::new());
        let (mut rest, mut rest_bytes) = (Message::new(), Vec::new());
        let mut kept = Vec::new();
        for step in steps {
            match step {
                Step::Prepend(header) => {
                    message.prepend(&pool, &header).unwrap();
                    bytes = [&header[..], &bytes].concat();
                }
                Step::Append(more) => {
                    message.append(filled(&pool, &more).into());
                    bytes.extend(more);
                }
                Step::Split(at) => match message.split_off(at) {
                    Ok(split) => (rest, rest_bytes) = (split, bytes.split_off(at)),
                    Err(_) => prop_assert!(at > bytes.len()),
                },
                Step::Join => {
                    message.append(std::mem::take(&mut rest));
                    bytes.append(&mut rest_bytes);
                }
                Step::TrimFront(len) => match message.trim_front(len) {
                    Ok(()) => drop(bytes.drain(..len)),
                    Err(_) => prop_assert!(len > bytes.len()),
                },
                Step::PullUp(len) => match message.pull_up(&pool, len) {
                    Ok(()) => prop_assert!(len == 0 || message.blocks().next().unwrap()[..len] == bytes[..len]),
                    Err(_) => prop_assert!(len > bytes.len()),
                },
                Step::Duplicate => kept.push((message.duplicate(), bytes.clone())),
            }
            prop_assert_eq!(message.to_vec(), &bytes[..]);
            prop_assert_eq!(message.len(), bytes.len());
            prop_assert_eq!(rest.to_vec(), &rest_bytes[..]);
            for (kept, bytes) in &kept {
                prop_assert_eq!(kept.to_vec(), &bytes[..]);
            }
        }
        drop((rest, kept));
        let fbuf = message.into_fbuf(&pool).unwrap();
        prop_assert_eq!(fbuf.to_vec(), bytes);
        drop(fbuf);
        prop_assert_eq!(pool.check().unwrap(), pool.limit());
    }
}
