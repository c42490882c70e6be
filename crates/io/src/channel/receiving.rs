//! Receiving: how a client's replies are taken off the ring, and by whom.
//!
//! How: a thread that waits for a reply takes what there is, also for others; one thread at a time, while the others sleep until
//! it passes its turn. A loop that waits by descriptor arms it, and takes what has come without waiting.
//! Trust: a reply must name a request that is pending; lengths are checked against the request's. What no honest server
//! says ends the channel.

use std::sync::TryLockError;
use std::time::{Duration, Instant};

use genie_ring::{Consumer, Mode, Record as Received};
use genie_sys::poll::Poller;

use super::remote::Remote;
use super::wire::record::{Limit, Outcome, Record, Refusal, Reply};
use crate::exchange::Awaited;
use crate::primitive::{MutexGuard, Ordering};
use crate::{Error, ServerError};

/// The longest sleep without a look at whether the server is still there.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// What takes replies.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) consumer: Consumer,
    pub(super) record: Received,
}

impl Remote {
    /// Waits until what is awaited has its reply, or has been given up; returns whether it has.
    pub(crate) fn wait(&self, awaited: &mut Awaited<'_>, deadline: Option<Instant>) -> bool {
        loop {
            if awaited.is_replied() {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            let Some(mut receiving) = self.try_receiving() else {
                let is_free = || self.receiving.try_lock().is_ok();
                self.turn.sleep(|| awaited.is_replied() || is_free(), deadline);
                continue;
            };
            let has_taken = self.receive_until(&mut receiving, awaited, deadline);
            drop(receiving);
            self.pass(has_taken);
        }
    }

    /// Takes replies off the ring until there is the one that is awaited, the time is over, or the server is gone. Returns
    /// whether it has taken some of which it has told nobody yet.
    fn receive_until(
        &self,
        receiving: &mut Receiving,
        awaited: &mut Awaited<'_>,
        deadline: Option<Instant>,
    ) -> bool {
        loop {
            let taken = self.receive(receiving, awaited);
            if awaited.is_replied() {
                return taken > 0;
            }
            if taken > 0 {
                self.pass(true);
                continue;
            }
            if self.spin.until(|| receiving.consumer.is_ready()) {
                continue;
            }
            let now = Instant::now();
            let left = deadline.map_or(LONGEST_SLEEP, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() || self.link.is_gone() {
                // The thread that noticed it gives up what is pending.
                self.link.settle(awaited);
                return false;
            }
            if receiving.consumer.arm(Mode::Futex)
                && let Err(error) = receiving.consumer.sleep(Some(left.min(LONGEST_SLEEP)))
            {
                self.link.break_off(&error.to_string());
            }
            receiving.consumer.disarm();
        }
    }

    /// Takes the replies that are there; returns how many. Nothing, when another thread is taking them.
    pub(crate) fn collect(&self) -> usize {
        let Some(mut receiving) = self.try_receiving() else { return 0 };
        let taken = self.receive(&mut receiving, &mut Awaited::none());
        drop(receiving);
        self.pass(taken > 0);
        taken
    }

    /// The same for a loop that waits for the descriptor, which is not readable afterwards.
    pub(crate) fn collect_watched(&self) -> usize {
        self.link.news().quiet();
        let Some(mut receiving) = self.try_receiving() else {
            // The thread that has the turn takes the reply that the bell was rung for, and tells the loop. It clears no bell.
            let _ = self.bell.clear();
            return 0;
        };
        receiving.consumer.disarm();
        let taken = self.receive(&mut receiving, &mut Awaited::none());
        drop(receiving);
        self.pass(false);
        taken
    }

    /// Has the descriptor become readable with the next reply, or when somebody else has taken one; returns false when
    /// there is one already, or others have taken some since the loop collected.
    pub(crate) fn arm(&self) -> bool {
        // First: the thread that has the turn now looks at this when it passes it on.
        let is_armed = self.link.news().arm();
        self.arm_bell() & is_armed
    }

    /// Has the bell ring with the next reply; returns false when there is one already. The thread that has the turn does so, or
    /// tells the loop, afterwards.
    fn arm_bell(&self) -> bool {
        let Some(mut receiving) = self.try_receiving() else { return true };
        // Of a server that is gone nothing comes; that what is pending has been ended is told, too.
        let is_armed = receiving.consumer.arm(Mode::Descriptor) || self.link.is_gone();
        drop(receiving);
        // A thread may have found the turn taken meanwhile.
        self.turn.pass();
        is_armed
    }

    /// Adds what becomes readable as [`Remote::arm`] says.
    pub(crate) fn watch_by(&self, poller: &Poller, token: u64) -> Result<(), Error> {
        poller.add(&self.bell, token)?;
        poller.add(self.link.news().event(), token)?;
        self.turn.watch();
        Ok(())
    }

    /// Takes it out again. Of a server that is gone it would stay readable.
    pub(crate) fn unwatch_by(&self, poller: &Poller) {
        // Removing a descriptor that is not in the set does no harm.
        let _ = poller.remove(&self.bell);
        let _ = poller.remove(self.link.news().event());
    }

    /// Takes the bell out when nobody is left to ring it, from when on it would be readable; the channel's end is told otherwise.
    pub(crate) fn silence_bell(&self, poller: &Poller) {
        if self.link.is_gone() {
            let _ = poller.remove(&self.bell);
        }
    }

    /// Whether the server is gone, and with it whatever was pending.
    pub(crate) fn is_over(&self) -> bool {
        self.link.is_over()
    }

    /// Has others look whether something has come for them, or whether it is their turn. An event loop is told only that
    /// something `is_over`: a reply was taken, or a request given up.
    #[inline]
    pub(crate) fn pass(&self, is_over: bool) {
        if self.turn.pass() {
            self.tell_loop(is_over);
        }
    }

    #[cold]
    fn tell_loop(&self, is_over: bool) {
        // A loop that sleeps has the bell armed again, which the thread that had the turn may have silenced.
        if is_over || self.link.news().is_armed() && !self.arm_bell() {
            self.link.news().come();
        }
    }

    fn try_receiving(&self) -> Option<MutexGuard<'_, Receiving>> {
        match self.receiving.try_lock() {
            Ok(receiving) => Some(receiving),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the replies that are there, up to the one that is awaited; returns how many.
    fn receive(&self, receiving: &mut Receiving, awaited: &mut Awaited<'_>) -> usize {
        let mut taken = 0;
        loop {
            match receiving.consumer.pop(&mut receiving.record) {
                Ok(false) => return taken,
                Ok(true) => {
                    taken += 1;
                    // Before the request leaves the table; until all that it held is back. Partner: `flush`.
                    self.is_accepting.store(true, Ordering::Relaxed);
                    let accepted = self.accept(&receiving.record, awaited);
                    self.is_accepting.store(false, Ordering::Release);
                    if let Err(wrong) = accepted {
                        self.link.break_off(&wrong);
                        return taken;
                    }
                    if awaited.has_work() {
                        return taken;
                    }
                }
                Err(broken) => {
                    self.link.break_off(&broken.to_string());
                    return taken;
                }
            }
        }
    }

    /// Acts upon a record; an error says what is wrong with it.
    fn accept(&self, record: &Received, awaited: &mut Awaited<'_>) -> Result<(), String> {
        match Record::decode(record.kind(), record.payload()).map_err(|malformed| malformed.to_string())? {
            Record::Reply(reply) => self.replied(&reply, awaited),
            Record::Done(slot) => {
                let done = self.sending().table.take_continued(slot);
                done.ok_or_else(|| format!("{slot:?} is done, which was not anticipated"))?.succeed();
                Ok(())
            }
            Record::Goodbye => Ok(()),
            Record::Request(_) | Record::Abort(_) | Record::Said(_) => {
                Err("a server makes no requests of its clients".to_owned())
            }
        }
    }

    fn replied(&self, reply: &Reply<'_>, awaited: &mut Awaited<'_>) -> Result<(), String> {
        let unknown = || format!("a reply names {:?}, which is not pending", reply.slot);
        let is_anticipated = reply.outcome == (Outcome::Ok { anticipated: true });
        let mut sending = self.sending();
        let taken = match is_anticipated {
            true => sending.table.take_and_keep(reply.slot),
            false => sending.table.take(reply.slot),
        };
        drop(sending);
        let mut request = taken.ok_or_else(unknown)?;
        for (index, buffer) in reply.buffers().enumerate() {
            let told = usize::try_from(buffer.actual)
                .map_err(|_| Error::Aborted)
                .and_then(|actual| request.note(index, actual, buffer.argument));
            if let Err(error) = told {
                request.fail(error.clone());
                return Err(format!("a reply does not fit its request: {error}"));
            }
        }
        match reply.outcome {
            Outcome::Ok { anticipated: false } => request.succeed_for(awaited),
            Outcome::Ok { anticipated: true } => {
                // Whether buffers are to come back with the reply the server does not know.
                request.anticipate();
                let left = self.sending().table.put_continued(reply.slot, request);
                left.into_iter().for_each(|request| self.link.keep(request));
            }
            Outcome::Failed { code, message } => {
                request.fail(Error::Server(ServerError { code, message: message.to_owned() }));
            }
            Outcome::Dropped => request.fail(Error::Dropped),
            Outcome::Panicked { message } => request.fail(Error::Panicked { message: message.to_owned() }),
            Outcome::Refused(refusal) => request.fail(refused(refusal)),
        }
        Ok(())
    }
}

/// The error for the limit that a server says was met.
fn refused(refusal: Refusal) -> Error {
    let [asked, used, limit] = [refusal.asked, refusal.pending, refusal.allowed]
        .map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    match refusal.limit {
        Limit::Bytes => Error::Exhausted { asked, pending: used, limit },
        Limit::Requests => Error::TooMany { pending: used, limit },
        Limit::Data => Error::NoRoom { asked, used, limit, unit: "bytes of data" },
        Limit::Pieces => Error::NoRoom { asked, used, limit, unit: "pieces of data" },
    }
}
