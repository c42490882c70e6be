//! Connections to servers in this process and in another: which bytes arrive, and by what.
//!
//! How: a server in another process is this binary run once more; it prints what it has passed and copied when it is asked.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_io::servers::memory::Memory;
use genie_io::{Interface, ServerHandle};
use genie_passing::{Reason, Scheme};
use genie_sys::shared::PAGE;

use super::Connection;
use crate::{Config, Error, Fbuf, Message, Passing, Pool};

#[path = "../../examples/queue/queue.rs"]
mod queue;

#[path = "../../../sys/tests/proc/mod.rs"]
mod proc;

use queue::Queue;

const LENGTHS: [usize; 6] = [1, 100, 4096, 8192, 70_001, 1 << 20];
const SAYS: &str = "queue ";

#[test]
#[ignore = "run by tests below, in processes of its own"]
fn serve() {
    let Some(directory) = std::env::var_os("QUEUE_DIRECTORY") else { return };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let directory = Directory::at(directory).unwrap();
    let serving = Listener::bind_in(&directory, "queue", Queue::default(), ServeOptions::default()).unwrap();
    let running = serving.start().unwrap();
    println!("\n{SAYS}serves");
    for _ in std::io::stdin().lines() {
        let counts = running.traffic().total();
        println!(
            "{SAYS}{} {} {} {}",
            counts.out_copied, counts.out_passed, counts.in_copied, counts.in_passed
        );
    }
}

/// A server in a process of its own, and a connection to it.
struct Elsewhere {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _directory: tempfile::TempDir,
}

impl Elsewhere {
    fn start(genie: &Interface) -> (Connection, Self) {
        Self::start_with(genie, &ConnectOptions::default())
    }

    fn start_with(genie: &Interface, options: &ConnectOptions) -> (Connection, Self) {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "connection::tests::serve", "--ignored", "--nocapture"])
            .env("QUEUE_DIRECTORY", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut elsewhere = Self { child, stdin, stdout, _directory: directory };
        assert_eq!(elsewhere.line(), "serves");
        let at = Directory::at(elsewhere._directory.path()).unwrap();
        let server = genie.connect_with(&at, "queue", options).unwrap();
        (connection(genie, &server), elsewhere)
    }

    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the server has ended");
            if let Some(said) = line.strip_prefix(SAYS) {
                return said.trim_end().to_owned();
            }
        }
    }

    /// The server's own counts: bytes of outputs copied and passed, and of inputs.
    fn counts(&mut self) -> [usize; 4] {
        writeln!(self.stdin).unwrap();
        let numbers: Vec<_> = self.line().split(' ').map(|number| number.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connection(genie: &Interface, server: &ServerHandle) -> Connection {
    Connection::new(genie, server, server.service("take").ok(), server.service("put").ok())
}

fn here(genie: &Interface) -> Connection {
    connection(genie, &ServerHandle::new(Queue::default()))
}

fn pool() -> Pool {
    Pool::new(Config { limit: 8 << 20, ..Config::default() }).unwrap()
}

fn byte(at: usize, seed: usize) -> u8 {
    (at * 7 + at / 251 + seed) as u8
}

fn fill(mut fbuf: Fbuf, seed: usize) -> Fbuf {
    fbuf.iter_mut().enumerate().for_each(|(at, place)| *place = byte(at, seed));
    fbuf
}

#[track_caller]
fn expect(bytes: &[u8], from: usize, seed: usize) {
    let wrong = bytes.iter().enumerate().find(|(at, found)| **found != byte(from + at, seed));
    assert_eq!(wrong, None, "of {} bytes", bytes.len());
}

/// The page frames of a buffer; none where the kernel hides them.
fn frames(fbuf: &Fbuf) -> Option<Vec<u64>> {
    let first = fbuf.as_ptr().addr() & !(PAGE - 1);
    proc::page_frames(first, fbuf.len().div_ceil(PAGE)).into_iter().map(|page| page.frame).collect()
}

fn bytes_go_and_come_by_weak_move(connection: &Connection) {
    for (turn, len) in LENGTHS.into_iter().enumerate() {
        let fbuf = fill(connection.allocate(len).unwrap(), turn);
        let (addr, before) = (fbuf.as_ptr().addr(), frames(&fbuf));
        let sent = connection.pass(fbuf).unwrap();
        assert_eq!(
            (sent.asked, sent.effective),
            (Scheme::EmulatedWeakMove, Scheme::EmulatedWeakMove),
            "{len}"
        );
        assert!(sent.copied == 0 && sent.referenced > 0, "{len}: {sent}");
        let (fbuf, came) = connection.take(len).unwrap();
        let fbuf = fbuf.expect("bytes");
        assert_eq!((came.effective, came.copied), (Scheme::EmulatedWeakMove, 0), "{len}: {came}");
        // The pages that were given away were kept, and the server has filled them.
        assert_eq!((fbuf.as_ptr().addr(), fbuf.len()), (addr, len));
        assert_eq!(frames(&fbuf), before, "{len}");
        assert!(fbuf.pool().is_none() && fbuf.offset().is_none());
        expect(&fbuf, 0, turn);
    }
    assert!(connection.read(100).unwrap().is_none(), "the end");
    assert_eq!(connection.read(0).unwrap().expect("no bytes, but not the end").len(), 0);
    assert_eq!(connection.write(connection.allocate(0).unwrap()).unwrap(), 0);
}

fn parts_are_written_and_what_was_read_is_written_on(connection: &Connection) {
    let mut fbuf = fill(connection.allocate(9000).unwrap(), 1);
    fbuf.set_data(1000, 7000).unwrap();
    assert_eq!(connection.write(fbuf).unwrap(), 7000);
    let mut read = connection.read(5000).unwrap().expect("bytes");
    expect(&read, 1000, 1);
    read.truncate(4999).unwrap();
    assert_eq!(connection.pass(read).unwrap().copied, 0);
    let rest = connection.read(usize::MAX).unwrap().expect("bytes");
    assert_eq!(rest.len(), 2000 + 4999, "what there is, and no more");
    expect(&rest[..2000], 6000, 1);
    expect(&rest[2000..], 1000, 1);
}

fn a_pools_buffers_are_copied(connection: &Connection) {
    let pool = pool();
    let sent = connection.pass(fill(pool.allocate(100_000).unwrap(), 2)).unwrap();
    assert_eq!((sent.effective, sent.copied), (Scheme::Copy, 100_000));
    assert_eq!(sent.reason, Some(Reason::Foreign));
    assert_eq!(pool.held(), 0, "it is gone");
    expect(&connection.read(100_000).unwrap().expect("bytes"), 0, 2);
}

fn in_both_places(test: impl Fn(&Connection)) {
    let genie = Interface::open().unwrap();
    test(&here(&genie));
    let (connection, _server) = Elsewhere::start(&genie);
    test(&connection);
}

#[test]
fn a_servers_fbufs_go_and_come_by_weak_move() {
    in_both_places(bytes_go_and_come_by_weak_move);
}

#[test]
fn parts_of_a_servers_fbufs_are_passed_without_a_copy() {
    in_both_places(parts_are_written_and_what_was_read_is_written_on);
}

#[test]
fn a_pools_fbufs_are_copied_to_a_server() {
    in_both_places(a_pools_buffers_are_copied);
}

/// The server counts for itself what its clients' memory brought, and what was copied to it.
#[test]
fn a_server_elsewhere_counts_what_was_passed_and_what_was_copied() {
    let genie = Interface::open().unwrap();
    let (connection, mut server) = Elsewhere::start(&genie);
    connection.write(fill(connection.allocate(50_000).unwrap(), 1)).unwrap();
    connection.read(50_000).unwrap();
    assert_eq!(server.counts(), [0, 50_000, 0, 50_000]);
    connection.write(pool().allocate(30_000).unwrap()).unwrap();
    connection.read(30_000).unwrap();
    assert_eq!(server.counts(), [30_000, 50_000, 0, 80_000]);
}

/// What is explained is what is done: a server that shares no memory copies, and says so itself.
#[test]
fn what_an_untrusted_server_copies_is_explained() {
    let genie = Interface::open().unwrap();
    let options = ConnectOptions { untrusted: true, ..ConnectOptions::default() };
    let (connection, mut server) = Elsewhere::start_with(&genie, &options);
    let explained = connection.explain();
    assert!([explained.write, explained.read].iter().all(|what| matches!(what, Passing::Copied(_))));
    connection.write(fill(connection.allocate(50_000).unwrap(), 1)).unwrap();
    expect(&connection.read(50_000).unwrap().expect("bytes"), 0, 1);
    assert_eq!(server.counts(), [50_000, 0, 50_000, 0]);
}

#[test]
fn a_server_that_refuses_gives_the_buffer_back() {
    let genie = Interface::open().unwrap();
    let server = ServerHandle::new(Memory::customized());
    // It has no "fetch" without a name, and "check" finds nothing to compare with.
    let neither = Connection::new(&genie, &server, None, None).explain();
    for explained in [neither.write, neither.write_mapped, neither.read] {
        assert!(explained.to_string().contains("without a service"), "{explained}");
    }
    let refuses =
        Connection::new(&genie, &server, server.service("fetch").ok(), server.service("check").ok());
    assert!(matches!(refuses.read(10), Err(Error::Server(_))));
    let (pool, other) = (pool(), Interface::open().unwrap());
    for fbuf in [refuses.allocate(9000), pool.allocate(9000), here(&other).allocate(9000)] {
        let mut fbuf = fill(fbuf.unwrap(), 3);
        fbuf.set_data(100, 8000).unwrap();
        let (addr, capacity) = (fbuf.as_ptr().addr(), fbuf.capacity());
        let mut unwritten = refuses.write(fbuf).unwrap_err();
        assert!(matches!(unwritten.error, Error::Server(_)) && unwritten.written == 0, "{unwritten}");
        assert_eq!((unwritten.fbuf.as_ptr().addr(), unwritten.fbuf.capacity()), (addr, capacity));
        expect(&unwritten.fbuf, 100, 3);
        unwritten.fbuf.set_data(0, 9000).unwrap();
        expect(&unwritten.fbuf, 0, 3);
    }
    assert_eq!(genie.pending_bytes(), 0);
}

#[test]
fn a_server_that_is_gone_is_told() {
    let genie = Interface::open().unwrap();
    let (connection, server) = Elsewhere::start(&genie);
    drop(server);
    assert!(matches!(connection.read(10), Err(Error::Server(genie_io::Error::Gone { .. }))));
    let unwritten = connection.write(fill(connection.allocate(5000).unwrap(), 4)).unwrap_err();
    assert_eq!(unwritten.error.errno(), genie_sys::Errno::PIPE, "{unwritten}");
    expect(&unwritten.fbuf, 0, 4);
}

#[test]
fn a_direction_without_a_service_is_refused() {
    let genie = Interface::open().unwrap();
    let server = ServerHandle::new(Queue::default());
    let closed = Connection::new(&genie, &server, None, None);
    assert!(matches!(closed.read(10), Err(Error::NoService { .. })));
    let unwritten = closed.write(closed.allocate(10).unwrap()).unwrap_err();
    assert!(matches!(unwritten.error, Error::NoService { .. }) && unwritten.fbuf.len() == 10);
}

#[test]
fn migrant_buffers_go_to_channels_descriptors_and_messages_too() {
    let (genie, pool) = (Interface::open().unwrap(), pool());
    let connection = here(&genie);
    let (channel, offer) = pool.channel().unwrap();
    let other = pool.take(offer).unwrap();
    channel.write(fill(connection.allocate(9000).unwrap(), 5)).unwrap();
    let copy = other.read(usize::MAX).unwrap().expect("bytes");
    assert!(copy.pool().is_some(), "a copy in the pool");
    expect(&copy, 0, 5);

    let (read, write) = std::io::pipe().unwrap();
    pool.write(&write, fill(connection.allocate(9000).unwrap(), 6)).unwrap();
    expect(&pool.read(&read, 9000).unwrap().expect("bytes"), 0, 6);

    // A header in front, in a block of the pool; the rest twice, once passed and once copied.
    let mut fbuf = connection.allocate(9000).unwrap();
    fbuf.set_data(0, 6000).unwrap();
    let mut message = Message::from(fill(fbuf, 7));
    let mut same = message.duplicate();
    assert!(same.blocks().next().unwrap().copied().unwrap().into_fbuf().unwrap().pool().is_none());
    message.prepend(&pool, b"head").unwrap();
    assert_eq!(connection.write_message(&mut message).unwrap(), 6004);
    assert_eq!(channel.write_message(&mut same).unwrap(), 6000);
    let all = connection.read(usize::MAX).unwrap().expect("bytes");
    assert_eq!(&all[..4], b"head");
    expect(&all[4..], 0, 7);
    expect(&other.read(usize::MAX).unwrap().expect("bytes"), 0, 7);
    assert!(matches!(connection.explain().write, Passing::Passed(_)));
}

/// With traps, buffers go and come by emulated move, which hides what was given away.
#[test]
fn traps_hide_what_a_server_was_given() {
    let genie = Interface::open().unwrap();
    let connection = here(&genie).with_traps(true);
    let fbuf = fill(connection.allocate(9000).unwrap(), 8);
    let addr = fbuf.as_ptr().addr();
    let is_there = || genie_sys::process::read_memory(genie_sys::process::own_pid(), addr, &mut [0]).is_ok();
    assert!(is_there());
    assert_eq!(connection.pass(fbuf).unwrap().effective, Scheme::EmulatedMove);
    assert!(!is_there(), "given away");
    let (fbuf, came) = connection.take(9000).unwrap();
    let fbuf = fbuf.expect("bytes");
    assert_eq!((came.effective, came.copied, fbuf.as_ptr().addr()), (Scheme::EmulatedMove, 0, addr));
    expect(&fbuf, 0, 8);
    drop(fbuf);
    assert!(!is_there(), "deallocated");
    // A buffer that was allocated without traps goes all the same, as it was allocated.
    let weak = here(&genie).allocate(100).unwrap();
    assert_eq!(connection.pass(weak).unwrap().effective, Scheme::EmulatedWeakMove);
}
