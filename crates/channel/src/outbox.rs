//! The outbox: what a client says to its server on the control socket, in order, without waiting for the server.
//!
//! Why: a server that is stopped reads nothing. A client that waited for the server would hold up requests whose own time is
//! over, and threads that only want replies.
//! How: a message goes out at once where the socket has room for it. Otherwise it waits here with its descriptors, and a
//! thread sends it as soon as there is room. Messages are numbered in their order. A request that rests on a message goes
//! out behind a record that bears the message's number, so that the server does not take the request before the message.
//! Limits: while [`CROWDED`] messages wait, no more requests are sent.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use genie_sys::socket::Socket;
use genie_sys::{Errno, Result};

use crate::primitive::{AtomicUsize, Mutex, Ordering, thread};

/// When this many messages wait, the server is taken to read nothing.
const CROWDED: usize = 64;
/// The pause when the socket has room, but the kernel has no memory for the message.
const PAUSE: Duration = Duration::from_millis(10);

/// What a client has said, and has yet to say, on its control socket.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    /// How many messages wait; kept here for threads that do not take the lock.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    /// How many messages have been sent or queued since the hello.
    count: u64,
    waiting: VecDeque<Waiting>,
    /// A thread sends what waits.
    has_sender: bool,
}

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// What became of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Put {
    /// The message's number.
    pub(super) number: u64,
    /// The message waits, and the caller is to start the thread that runs [`Outbox::send_all`].
    pub(super) wants_sender: bool,
}

impl Outbox {
    /// Sends a message behind those that wait: now, or when the socket has room.
    ///
    /// # Errors
    /// The server has hung up.
    pub(super) fn put(&self, socket: &Socket, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) -> Result<Put> {
        let mut queue = self.queue.lock();
        queue.count += 1;
        queue.waiting.push_back(Waiting { bytes, descriptors });
        let is_all_sent = self.send(&mut queue, socket)?;
        let wants_sender = !is_all_sent && !std::mem::replace(&mut queue.has_sender, true);
        Ok(Put { number: queue.count, wants_sender })
    }

    /// Sends a message without descriptors if that can be done now; returns whether it was sent.
    pub(super) fn try_put(&self, socket: &Socket, bytes: &[u8]) -> bool {
        let mut queue = self.queue.lock();
        let is_sent = queue.waiting.is_empty() && socket.try_send(bytes, &[]).unwrap_or(false);
        queue.count += u64::from(is_sent);
        is_sent
    }

    /// Whether the server reads nothing, so that requests had better wait.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) >= CROWDED
    }

    /// Sends the messages that wait as the server makes room; returns when none waits any more.
    ///
    /// # Errors
    /// The server has hung up.
    pub(super) fn send_all(&self, socket: &Socket) -> Result<()> {
        loop {
            socket.wait_for_room()?;
            let mut queue = self.queue.lock();
            let before = queue.waiting.len();
            if self.send(&mut queue, socket)? {
                queue.has_sender = false;
                return Ok(());
            }
            let is_stuck = queue.waiting.len() == before;
            drop(queue);
            if is_stuck {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Notes that no thread could be started to send the messages that wait: the next message tries again.
    pub(super) fn has_no_sender(&self) {
        self.queue.lock().has_sender = false;
    }

    /// Sends the messages that can be sent without waiting; returns whether those were all.
    fn send(&self, queue: &mut Queue, socket: &Socket) -> Result<bool> {
        let mut sent = Ok(true);
        while let Some(first) = queue.waiting.front() {
            let descriptors: Vec<BorrowedFd<'_>> = first.descriptors.iter().map(AsFd::as_fd).collect();
            sent = match socket.try_send(&first.bytes, &descriptors) {
                // Too much is unread already.
                Err(error) if matches!(error.errno, Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                    Ok(false)
                }
                sent => sent,
            };
            if !matches!(sent, Ok(true)) {
                break;
            }
            queue.waiting.pop_front();
        }
        if sent.is_err() {
            queue.waiting.clear();
        }
        self.waiting.store(queue.waiting.len(), Ordering::SeqCst);
        sent
    }
}

#[cfg(all(test, not(interleaved)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Fills the socket until a message waits; returns how many messages were put.
    fn fill(outbox: &Outbox, socket: &Socket) -> u64 {
        loop {
            let put = outbox.put(socket, vec![1; 1000], Vec::new()).unwrap();
            if put.wants_sender {
                return put.number;
            }
        }
    }

    fn receive(socket: &Socket) -> Vec<u8> {
        let mut bytes = vec![0; 2000];
        let received = socket.receive(&mut bytes).unwrap();
        bytes.truncate(received.len);
        bytes
    }

    #[test]
    fn what_finds_no_room_waits_and_goes_out_in_order() {
        let (socket, peer) = Socket::pair().unwrap();
        let outbox = Arc::new(Outbox::default());
        let filled = fill(&outbox, &socket);
        assert!(!outbox.try_put(&socket, b"not before others"));
        for number in 0..CROWDED as u64 {
            let put = outbox.put(&socket, number.to_le_bytes().to_vec(), Vec::new()).unwrap();
            assert_eq!((put.number, put.wants_sender), (filled + 1 + number, false), "there is one thread");
        }
        assert!(outbox.is_crowded());
        thread::scope(|scope| {
            let sending = scope.spawn(|| outbox.send_all(&socket));
            (0..filled).for_each(|_| assert_eq!(receive(&peer).len(), 1000));
            (0..CROWDED as u64).for_each(|number| assert_eq!(receive(&peer), number.to_le_bytes()));
            sending.join().unwrap().unwrap();
        });
        assert!(!outbox.is_crowded());
        assert!(outbox.try_put(&socket, b"now"));
        let put = outbox.put(&socket, b"and again".to_vec(), Vec::new()).unwrap();
        assert_eq!(put.number, filled + CROWDED as u64 + 2, "each one sent is counted");
    }

    #[test]
    fn a_hang_up_ends_the_wait_and_takes_along_what_waits() {
        let (socket, peer) = Socket::pair().unwrap();
        let outbox = Outbox::default();
        fill(&outbox, &socket);
        let (descriptor, held) = Socket::pair().unwrap();
        outbox.put(&socket, b"with a descriptor".to_vec(), vec![held.into()]).unwrap();
        thread::scope(|scope| {
            let sending = scope.spawn(|| outbox.send_all(&socket));
            drop(peer);
            sending.join().unwrap().unwrap_err();
        });
        assert!(descriptor.is_hung_up(), "the descriptor is closed");
    }
}
