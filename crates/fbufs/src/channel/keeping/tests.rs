use super::*;
use crate::{Config, Error};

/// The reader's end and the writer's end of a pipe's channel: of two members of a group, or of one.
fn ends(is_one_member: bool) -> (Channel, Channel) {
    let config = Config { limit: 8 << 20, ..Config::default() };
    let pool = Pool::new(config).unwrap();
    let reader =
        if is_one_member { pool.clone() } else { Pool::join(pool.descriptor().unwrap(), config).unwrap() };
    let (writer, offer) = pool.keeping_channel().unwrap();
    (reader.take(offer).unwrap(), writer)
}

/// Writes a buffer of bytes that go on where the last buffer's ended.
fn write(writer: &Channel, from: usize, len: usize) {
    let mut fbuf = writer.pool().allocate(len).unwrap();
    fbuf.iter_mut().zip(from..).for_each(|(byte, at)| *byte = byte_at(at));
    assert_eq!(writer.write(fbuf).unwrap(), len);
}

fn byte_at(at: usize) -> u8 {
    (at % 251) as u8
}

/// That bytes go on where those before ended; returns where they end.
fn ensure_bytes(fbuf: &Fbuf, from: usize) -> usize {
    assert!(
        fbuf.iter().zip(from..).all(|(byte, at)| *byte == byte_at(at)),
        "{} bytes from {from} on",
        fbuf.len()
    );
    from + fbuf.len()
}

#[test]
fn of_a_reader_of_parts_and_a_writer_that_takes_back_each_byte_goes_to_one() {
    const LENGTHS: [usize; 4] = [300_000, 10, 70_000, 8192];
    for turn in 0..200usize {
        let (reader, writer) = ends(turn % 2 == 0);
        let mut written = 0;
        for len in LENGTHS {
            write(&writer, written, len);
            written += len;
        }
        let (reader, part) = (&reader, 1 + turn * 331 % 40_000);
        let (mut at, unread) = std::thread::scope(|scope| {
            let reads = scope.spawn(move || {
                let mut at = 0;
                while at < written
                    && let Some(fbuf) = reader.read(part).unwrap()
                {
                    at = ensure_bytes(&fbuf, at);
                }
                at
            });
            (0..turn * 20).for_each(|_| std::hint::spin_loop());
            let unread = writer.take_back();
            writer.hang_up();
            (reads.join().unwrap(), unread.unwrap())
        });
        for fbuf in &unread {
            at = ensure_bytes(fbuf, at);
        }
        assert_eq!(at, written, "turn {turn}, parts of {part}");
        drop(unread);
        assert_eq!(writer.pool().free(), writer.pool().limit());
    }
}

/// Once, the writer took a message that the reader had in its hands, while it copied a part, for one that was read.
#[test]
fn a_part_is_read_or_not_and_the_rest_is_the_writers_to_take_back() {
    let (reader, writer) = ends(false);
    write(&writer, 0, 100);
    write(&writer, 100, 300_000);
    assert_eq!(ensure_bytes(&reader.read(100).unwrap().unwrap(), 0), 100);
    assert_eq!(ensure_bytes(&reader.read(1000).unwrap().unwrap(), 100), 1100);
    assert_eq!(reader.pool().held(), 0, "the rest is not the reader's");
    assert_eq!(writer.unread(&writer.sender.lock()), 300_000 - 1000);
    // No memory for a part: nothing is read.
    let all: Vec<_> = std::iter::from_fn(|| reader.pool().allocate(4096).ok()).collect();
    assert!(matches!(reader.read(1000), Err(Error::Exhausted { .. })));
    drop(all);
    let unread = writer.take_back().unwrap();
    assert_eq!((unread.len(), ensure_bytes(&unread[0], 1100)), (1, 300_100));
    assert!(reader.read(1000).unwrap().is_none() && reader.read(usize::MAX).unwrap().is_none());
}

/// Once, the writer forgot the message of which a part was read when it had written 256 more.
#[test]
fn the_rest_of_a_message_is_taken_back_with_as_many_as_may_follow() {
    let (reader, writer) = ends(false);
    write(&writer, 0, 3000);
    // As if the writer waited for room: it is told that a message was taken.
    channels::wanted(&writer.pool().0.words, writer.index, reader.end).store(1, Ordering::Release);
    assert_eq!(ensure_bytes(&reader.read(1000).unwrap().unwrap(), 0), 1000);
    (0..ON_THEIR_WAY as usize).for_each(|at| write(&writer, 3000 + at * 10, 10));
    assert!(writer.try_write(writer.pool().allocate(1).unwrap()).is_err(), "it is full");
    let unread = writer.take_back().unwrap();
    let end = unread.iter().fold(1000, |at, fbuf| ensure_bytes(fbuf, at));
    assert_eq!(end, 3000 + ON_THEIR_WAY as usize * 10);
}

#[test]
fn a_reader_that_says_it_has_read_more_than_there_is_is_refused() {
    for (read, is_good) in [(0, true), (1, true), (99, true), (100, false), (TAKEN_BACK - 1, false)] {
        let (reader, writer) = ends(false);
        write(&writer, 0, 100);
        channels::read(&reader.pool().0.words, reader.index).store(read, Ordering::Relaxed);
        match writer.take_back() {
            Ok(unread) => assert!(is_good && ensure_bytes(&unread[0], read as usize) == 100),
            Err(error) => assert!(!is_good && matches!(error, Error::Spoilt { .. }), "{read}: {error}"),
        }
        assert_eq!(writer.pool().free(), writer.pool().limit());
    }
}
