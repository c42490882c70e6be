use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};

use super::*;
use crate::Config;

fn pool() -> Pool {
    Pool::new(Config { limit: 8 << 20, ..Config::default() }).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at) as u8).collect()
}

fn filled(pool: &Pool, bytes: &[u8]) -> Fbuf {
    let mut fbuf = pool.allocate(bytes.len()).unwrap();
    fbuf.copy_from_slice(bytes);
    fbuf
}

/// Connected pairs of all kinds of streams: to write to, to read from.
fn streams() -> Vec<(&'static str, OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    vec![("pipe", write, read), ("unix", one.into(), other.into()), ("tcp", client.into(), server.into())]
}

#[test]
fn what_is_written_to_a_stream_is_read_from_it_and_the_buffers_are_gone() {
    let pool = pool();
    let bytes = pattern(1_000_000);
    for (kind, write, read) in streams() {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let parts = bytes.chunks(70_000);
                let written: usize = parts.map(|part| pool.write(&write, filled(&pool, part)).unwrap()).sum();
                drop(write);
                written
            });
            let mut found = Vec::new();
            while let Some(fbuf) = pool.read(&read, 50_000).unwrap() {
                assert!((1..=50_000).contains(&fbuf.len()));
                found.extend_from_slice(&fbuf);
            }
            assert_eq!(writer.join().unwrap(), bytes.len());
            assert!(found == bytes, "{kind}");
        });
        assert_eq!(pool.free(), pool.limit(), "{kind}");
    }
}

#[test]
fn a_read_is_bounded_by_what_the_quota_has_left() {
    let pool = Pool::new(Config { limit: 8 << 20, quota: 1 << 20, ..Config::default() }).unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.seek(SeekFrom::Start(100)).unwrap();
    // Behind the end, the kernel says that fewer than 0 bytes are there.
    assert!(pool.get(&file).unwrap().is_none());
    file.set_len(3 << 20).unwrap();
    file.rewind().unwrap();
    let most = pool.get(&file).unwrap().unwrap();
    assert_eq!(most.len(), 1 << 20);
    assert!(matches!(pool.read(&file, 100), Err(Error::Quota { .. })), "it has nothing left");
    drop(most);
    let held = pool.allocate((1 << 20) - 8192).unwrap();
    assert_eq!(pool.read(&file, 2 << 20).unwrap().unwrap().len(), 8192);
    assert_eq!(pool.read(&file, 10_000).unwrap().unwrap().len(), 8192);
    assert_eq!(file.stream_position().unwrap(), (1 << 20) + 2 * 8192);
    // Of a datagram, the rest would be lost.
    let (one, other) = UnixDatagram::pair().unwrap();
    one.send(&[1; 20_000]).unwrap();
    assert!(matches!(pool.get(&other), Err(Error::Quota { .. })));
    drop(held);
    assert_eq!(pool.get(&other).unwrap().unwrap().len(), 20_000);
}

#[test]
fn get_takes_what_there_is_and_a_datagram_whole() {
    let pool = pool();
    let (one, other) = UnixDatagram::pair().unwrap();
    for len in [100_000, 3] {
        pool.write(&one, filled(&pool, &pattern(len))).unwrap();
    }
    assert_eq!(pool.get(&other).unwrap().unwrap().to_vec(), pattern(100_000));
    assert_eq!(pool.get(&other).unwrap().unwrap().len(), 3);
    let (mut one, other) = UnixStream::pair().unwrap();
    one.write_all(&[1; 500]).unwrap();
    one.write_all(&[2; 600]).unwrap();
    assert_eq!(pool.get(&other).unwrap().unwrap().len(), 1_100);
    drop(one);
    assert!(pool.get(&other).unwrap().is_none(), "the end");
}

#[test]
fn files_are_read_and_written_where_they_stand() {
    let pool = pool();
    let mut file = tempfile::tempfile().unwrap();
    let bytes = pattern(300_000);
    assert_eq!(pool.write(&file, filled(&pool, &bytes)).unwrap(), bytes.len());
    file.seek(SeekFrom::Start(100)).unwrap();
    assert_eq!(pool.read(&file, 1000).unwrap().unwrap().to_vec(), bytes[100..1100]);
    assert_eq!(pool.get(&file).unwrap().unwrap().to_vec(), bytes[1100..]);
    assert!(pool.read(&file, 1).unwrap().is_none());
    // Of such files the kernel says that there is nothing to read.
    let status = pool.get(File::open("/proc/self/status").unwrap()).unwrap().unwrap();
    assert!(status.starts_with(b"Name:"));
    assert_eq!(pool.read(File::open("/dev/zero").unwrap(), 10).unwrap().unwrap().to_vec(), [0; 10]);
}

#[test]
fn what_was_not_written_comes_back() {
    let pool = pool();
    let (one, mut other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    let bytes = pattern(4 << 20);
    let unwritten = pool.write(&one, filled(&pool, &bytes)).unwrap_err();
    assert!(matches!(unwritten.error, Error::WouldBlock) && unwritten.written > 0);
    assert!(*unwritten.fbuf == bytes[unwritten.written..]);
    let mut found = vec![0; unwritten.written];
    other.read_exact(&mut found).unwrap();
    assert!(found == bytes[..unwritten.written]);
    drop(other);
    let rest = unwritten.fbuf.to_vec();
    let unwritten = pool.write(&one, unwritten.fbuf).unwrap_err();
    assert!(unwritten.error.errno() == Errno::PIPE && *unwritten.fbuf == rest, "{unwritten}");
    assert!(matches!(pool.read(&one, 5).map(drop), Ok(())), "the end, or what was there");
    let (_write, read) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).map(|(r, w)| (w, r)).unwrap();
    assert!(matches!(pool.read(&read, 5), Err(Error::WouldBlock)));
}

/// Once, a pipe's reader that was told of bytes waited for them although another one had read them.
#[test]
fn a_pipe_that_blocks_is_read_without_waiting() {
    let pool = Pool::new(Config { limit: 4 << 20, ..Config::default() }).unwrap();
    let (read, write) = std::io::pipe().unwrap();
    for len in [1, 100, usize::MAX] {
        assert!(matches!(pool.read_now(read.as_fd(), len), Err(Error::WouldBlock)), "{len}");
    }
    rustix::io::write(&write, &[7; 60_000]).unwrap();
    assert_eq!(pool.read_now(read.as_fd(), 50_000).unwrap().unwrap().to_vec(), [7; 50_000]);
    assert_eq!(pool.read_now(read.as_fd(), usize::MAX).unwrap().unwrap().to_vec(), [7; 10_000]);
    drop(write);
    assert!(pool.read_now(read.as_fd(), usize::MAX).unwrap().is_none());
}
