//! Receiving: how a client's replies are taken off the ring, and by which thread.
//!
//! How: one of the threads that wait for replies leads: it takes all replies that come, and its followers sleep until it
//! wakes them. It wakes tasks when it has let the lead go, since a task may make requests of this server, and wait. An event loop arms
//! the channel's descriptor before it sleeps, and afterwards takes the replies that have come, without waiting. Registrars of what the
//! replies change in the space are told when the lead is let go, too: their calls may abort requests, and so wait for replies.
//! Trust: a reply must name a request that is pending; lengths are checked against the request's. A reply that no honest server
//! sends ends the channel.

use std::time::{Duration, Instant};

use genie_io::carrier::{Awaited, Outgoing, is_left, wake_task};
use genie_io::{Error, ServerError};
use genie_memory::{Direction, TellLater};
use genie_ring::{Consumer, Mode, Record as Received};
use genie_sys::poll::Poller;
use smallvec::SmallVec;

use super::remote::Remote;
use super::telemetry::{Wait, Waits};
use super::wire::record::{Limit, Outcome, Progress, Record, Refusal, Reply, Slot};
use crate::primitive::{MutexGuard, Ordering};

/// The longest time that the leader sleeps before it looks again whether the server is still there.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The most records that are taken before time is looked at: a server can tell of progress without end.
const MOST_AT_ONCE: usize = 1 << 16;

/// The most requests that end together: while they leave the table, threads that make requests wait for its lock.
const TOGETHER: usize = 8;

/// What takes replies.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) consumer: Consumer,
    pub(super) record: Received,
}

impl Remote {
    /// Waits until the awaited request has its reply, or has been given up; returns false if the deadline came first, or in a child made
    /// by fork meanwhile.
    pub(super) fn wait(&self, awaited: &mut Awaited<'_>, deadline: Option<Instant>) -> bool {
        self.tell();
        let mut waits = Waits::default();
        let is_replied = self.wait_until(awaited, deadline, &mut waits);
        waits.tell();
        is_replied
    }

    fn wait_until(&self, awaited: &mut Awaited<'_>, deadline: Option<Instant>, waits: &mut Waits) -> bool {
        loop {
            if awaited.is_replied() {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            let Some(mut receiving) = self.receiving.try_lock() else {
                let is_free = || self.receiving.try_lock().is_some();
                self.followers.sleep(|| awaited.is_replied() || is_free(), deadline);
                // Even by asking whether the lock is free, this thread may have been in the way of one that armed the bell.
                if self.wants_bell.swap(false, Ordering::AcqRel) {
                    self.wake(false);
                }
                waits.note(Wait::Slept);
                continue;
            };
            let later = TellLater::begin();
            let has_taken = self.receive_until(&mut receiving, awaited, deadline, (waits, &later));
            drop(receiving);
            // Followers do not wait for registrars; tasks do, since they may be given data.
            self.wake_waiting(has_taken);
            drop(later);
            if has_taken {
                self.link.room.made();
            }
            if !awaited.is_replied() {
                awaited.follow();
                // The client's code has forked, and this is the child: the reply comes to the parent.
                if self.link.is_inherited() {
                    return false;
                }
                self.link.settle(awaited);
            }
        }
    }

    /// Leads: takes replies off the ring until the awaited one has come, tasks are to be woken or registrars to be told, the time is over,
    /// or the server is gone. Returns whether it has taken replies since it last woke the followers.
    fn receive_until(
        &self,
        receiving: &mut Receiving,
        awaited: &mut Awaited<'_>,
        deadline: Option<Instant>,
        (waits, later): (&mut Waits, &TellLater),
    ) -> bool {
        loop {
            let taken = self.receive(receiving, awaited);
            if awaited.is_replied() || later.owes() {
                return taken > 0;
            }
            if taken > 0 {
                if awaited.has_sequels() || self.link.room.is_waited_for() {
                    return true;
                }
                self.wake_waiting(true);
                // A server can tell of progress faster than it is taken.
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return false;
                }
                continue;
            }
            if self.spin.until(|| receiving.consumer.is_ready()) {
                waits.note(Wait::Spun);
                continue;
            }
            let now = Instant::now();
            let left = deadline.map_or(LONGEST_SLEEP, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() || self.link.is_gone() {
                // The link's thread takes the last replies, and ends what is pending then.
                return false;
            }
            // Other threads may have submitted requests in batches that they keep.
            self.tell();
            // The link's thread wakes this one when the server has gone.
            if receiving.consumer.arm(Mode::Futex)
                && !self.link.is_gone()
                && let Err(error) = receiving.consumer.sleep(Some(left.min(LONGEST_SLEEP)))
            {
                self.link.break_off(&error.to_string());
            }
            receiving.consumer.disarm();
            waits.note(Wait::Slept);
            if is_left() {
                return false;
            }
        }
    }

    /// Takes the replies that are there; returns how many it took. It takes none while another thread leads.
    pub(super) fn collect(&self) -> usize {
        self.tell();
        self.take_all(|| self.receiving.try_lock(), true)
    }

    /// Takes the replies that are there when the server has gone: the leader lets go soon.
    pub(super) fn collect_last(&self) {
        // What is there is the last: the server puts nothing more on the ring.
        while self.take_all(|| Some(self.receiving.lock()), true) > 0 {}
    }

    /// As [`Remote::collect`], for a loop that waits for the descriptor, which is not readable afterwards.
    pub(super) fn collect_watched(&self) -> usize {
        self.tell();
        self.link.loop_waker().begin_look();
        let Some(mut receiving) = self.receiving.try_lock() else {
            // The leader takes the reply for which the bell rang, and tells the loop. It does not clear the bell.
            let _ = self.bell.clear();
            return 0;
        };
        receiving.consumer.disarm();
        // The loop itself takes them.
        let mut first = Some(receiving);
        self.take_all(|| first.take().or_else(|| self.receiving.try_lock()), false)
    }

    /// Takes the replies that are there; returns how many it took. Registrars are told and tasks woken without the lock, and it is taken
    /// again if these were many.
    fn take_all<'a>(
        &'a self,
        mut lock: impl FnMut() -> Option<MutexGuard<'a, Receiving>>,
        is_told: bool,
    ) -> usize {
        let mut total = 0;
        while let Some(mut receiving) = lock() {
            let mut awaited = Awaited::none();
            let later = TellLater::begin();
            let taken = self.receive(&mut receiving, &mut awaited);
            drop(receiving);
            self.wake_waiting(is_told && taken > 0);
            drop(later);
            total += taken;
            if taken > 0 {
                self.link.room.made();
            }
            if !awaited.is_full() || total >= MOST_AT_ONCE {
                break;
            }
        }
        total
    }

    /// Makes the descriptor become readable when the next reply comes, or when another thread takes one. Returns false when
    /// a reply is there already, or other threads have taken some since the loop collected.
    pub(super) fn arm(&self) -> bool {
        self.tell();
        // This comes first: a thread that leads now looks at it when it stops leading.
        let is_armed = self.link.loop_waker().arm();
        self.arm_bell() & is_armed
    }

    /// Makes the bell ring when the next reply comes; returns false when one is there already. Where another thread leads,
    /// that thread arms the bell, or tells the loop, when it stops leading.
    fn arm_bell(&self) -> bool {
        loop {
            // Always exchanged: either the thread that has the lock now sees it, or this one finds the lock free.
            self.wants_bell.swap(true, Ordering::AcqRel);
            let Some(mut receiving) = self.receiving.try_lock() else { return true };
            self.wants_bell.swap(false, Ordering::AcqRel);
            // A server that is gone sends nothing more; the loop is told when all pending requests have been ended.
            let is_armed = receiving.consumer.arm(Mode::Descriptor) || self.link.is_gone();
            drop(receiving);
            // Another thread may have come meanwhile, found this one leading, and gone to sleep.
            self.followers.wake();
            // Or it has cleared a bell that rang meanwhile.
            if !is_armed || !self.wants_bell.swap(false, Ordering::AcqRel) {
                return is_armed;
            }
        }
    }

    /// Adds the descriptors that become readable as [`Remote::arm`] says.
    pub(super) fn watch_by(&self, poller: &Poller, token: u64) -> Result<(), Error> {
        poller.add(&self.bell, token)?;
        poller.add(self.link.loop_waker().event(), token)?;
        self.followers.watch();
        Ok(())
    }

    /// Takes those descriptors out again: when the server is gone, they would stay readable.
    pub(super) fn unwatch_by(&self, poller: &Poller) {
        // Removing a descriptor that is not in the set does no harm.
        let _ = poller.remove(&self.bell);
        let _ = poller.remove(self.link.loop_waker().event());
    }

    /// Takes the bell out once the server is gone, since it would stay readable. `Link::loop_waker` tells of the channel's end.
    pub(super) fn silence_bell(&self, poller: &Poller) {
        if self.link.is_gone() {
            let _ = poller.remove(&self.bell);
        }
    }

    /// Wakes the followers, so that each looks whether its reply has come, or leads. An event loop is told only if
    /// `is_over`: if a reply was taken, or a request given up. Then tasks that wait for room are woken, too.
    #[inline]
    pub(super) fn wake(&self, is_over: bool) {
        if is_over {
            self.link.room.made();
        }
        self.wake_waiting(is_over);
    }

    /// The same, but for the tasks: a thread that leads may do so.
    #[inline]
    fn wake_waiting(&self, is_over: bool) {
        if self.followers.wake() {
            self.tell_loop(is_over);
        }
    }

    #[cold]
    fn tell_loop(&self, is_over: bool) {
        // The leader may have disarmed the bell: it is armed again for a loop that sleeps.
        if is_over || self.link.loop_waker().is_armed() && !self.arm_bell() {
            self.link.loop_waker().tell();
        }
    }

    /// Takes the replies that are there, up to the awaited one, or until many tasks are to be woken; returns how many it took.
    fn receive(&self, receiving: &mut Receiving, awaited: &mut Awaited<'_>) -> usize {
        let mut taken = 0;
        loop {
            match receiving.consumer.pop(&mut receiving.record) {
                Ok(false) => return taken,
                Ok(true) => {
                    taken += 1;
                    // Set before the request leaves the table, and cleared when everything that it held is given back.
                    // Partner: `flush`.
                    self.is_accepting.store(true, Ordering::Relaxed);
                    let accepted = loop {
                        match self.accept(receiving, awaited, &mut taken) {
                            Ok(true) => {}
                            accepted => break accepted,
                        }
                    };
                    self.is_accepting.store(false, Ordering::Release);
                    if let Err(wrong) = accepted {
                        self.link.break_off(&wrong);
                        return taken;
                    }
                    if awaited.has_work() || awaited.is_full() || taken >= MOST_AT_ONCE {
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

    /// Acts upon the record that was taken, and upon successes that come next, which it counts in `taken`; an error says what is wrong with
    /// one. Returns whether it has taken something else, to be acted upon.
    #[inline]
    fn accept(
        &self,
        receiving: &mut Receiving,
        awaited: &mut Awaited<'_>,
        taken: &mut usize,
    ) -> Result<bool, String> {
        let Receiving { record, .. } = receiving;
        match Record::decode(record.kind(), record.payload()).map_err(|malformed| malformed.to_string())? {
            Record::Reply(reply) => {
                if let Some(succeeded) = self.replied(&reply, awaited)? {
                    return self.succeed_together(succeeded, receiving, awaited, taken);
                }
            }
            Record::Done(slot) => {
                let done = self.sending.lock().table.take_continued(slot);
                let done = done.ok_or_else(|| format!("{slot:?} is done, which was not anticipated"))?;
                awaited.put_off(|| done.succeed());
            }
            Record::Progress(progress) => self.progressed(&progress, awaited)?,
            Record::Request(_) | Record::Abort(_) | Record::Said(_) => {
                return Err("a server makes no requests of its clients".to_owned());
            }
        }
        Ok(false)
    }

    #[cold]
    fn progressed(&self, progress: &Progress, awaited: &mut Awaited<'_>) -> Result<(), String> {
        let Progress { slot, buffer, len } = *progress;
        let mut sending = self.sending.lock();
        let request = sending.table.pending(slot);
        let request = request.ok_or_else(|| format!("progress names {slot:?}, which is not pending"))?;
        let told = request.progress(buffer.into(), usize::try_from(len).unwrap_or(usize::MAX));
        drop(sending);
        let task = told.map_err(|error| format!("progress does not fit its request: {error}"))?;
        awaited.put_off(|| task.into_iter().for_each(wake_task));
        Ok(())
    }

    /// Returns the request if it has succeeded, and another thread than this one waits for it, or none does.
    #[inline]
    fn replied(&self, reply: &Reply<'_>, awaited: &mut Awaited<'_>) -> Result<Option<Outgoing>, String> {
        let is_anticipated = matches!(reply.outcome, Outcome::Ok { anticipated: true, .. });
        let mut sending = self.sending.lock();
        let taken = match is_anticipated {
            true => sending.table.take_and_keep(reply.slot),
            false => sending.table.take(reply.slot),
        };
        drop(sending);
        let mut request = taken.ok_or_else(|| unknown(reply.slot))?;
        if let Err(error) = note(&mut request, reply) {
            return Err(misfit(request, error, awaited));
        }
        match reply.is_final_success() {
            true if request.is_awaited_by(awaited) => request.succeed_for(awaited),
            true => return Ok(Some(request)),
            false => awaited.put_off(|| self.conclude(request, reply)),
        }
        Ok(None)
    }

    /// Ends a request that has succeeded, and those whose successes come next: the lock of the table is taken once for all of them. Returns
    /// as [`Remote::accept`].
    #[inline(never)]
    fn succeed_together(
        &self,
        first: Outgoing,
        receiving: &mut Receiving,
        awaited: &mut Awaited<'_>,
        taken: &mut usize,
    ) -> Result<bool, String> {
        let mut ended = SmallVec::<[Outgoing; TOGETHER]>::new();
        ended.push(first);
        let mut locked = None;
        let Receiving { consumer, record } = receiving;
        let is_other = loop {
            if ended.len() == TOGETHER {
                break Ok(false);
            }
            match consumer.pop(record) {
                Ok(true) => *taken += 1,
                Ok(false) => break Ok(false),
                Err(broken) => break Err(broken.to_string()),
            }
            let reply = match Record::decode(record.kind(), record.payload()) {
                Ok(Record::Reply(reply)) if reply.is_final_success() => reply,
                _ => break Ok(true),
            };
            let sending = locked.get_or_insert_with(|| self.sending.lock());
            let Some(mut request) = sending.table.take(reply.slot) else { break Err(unknown(reply.slot)) };
            if let Err(error) = note(&mut request, &reply) {
                locked = None;
                break Err(misfit(request, error, awaited));
            }
            ended.push(request);
        };
        drop(locked);
        awaited.put_off(|| ended.into_iter().for_each(Outgoing::succeed));
        is_other
    }

    /// Gives the client a reply that is anticipated, or no success.
    fn conclude(&self, mut request: Outgoing, reply: &Reply<'_>) {
        match reply.outcome {
            Outcome::Ok { .. } => {
                // The server does not know whether the client wants its buffers back with the reply.
                request.anticipate();
                let left = self.sending.lock().table.put_continued(reply.slot, request);
                left.into_iter().for_each(|request| self.link.keep(request));
            }
            Outcome::Failed { code, message } => {
                request.fail(Error::Server(ServerError { code, message: message.to_owned() }));
            }
            Outcome::ArgumentTooLong { len } => {
                let room = request.work().room();
                request.fail(Error::ArgumentTooLong { len, room });
            }
            Outcome::Untold { buffer } => request.fail(Error::Untold { buffer }),
            Outcome::Dropped => request.fail(Error::Dropped),
            Outcome::Panicked { message } => request.fail(Error::Panicked { message: message.to_owned() }),
            Outcome::Refused(refusal) => request.fail(refused(refusal)),
        }
    }
}

/// What is wrong with a reply that names no pending request.
#[cold]
fn unknown(slot: Slot) -> String {
    format!("a reply names {slot:?}, which is not pending")
}

/// Ends a request whose reply does not fit it; returns what is wrong.
#[cold]
fn misfit(request: Outgoing, error: Error, awaited: &mut Awaited<'_>) -> String {
    let wrong = format!("a reply does not fit its request: {error}");
    awaited.put_off(|| request.fail(error));
    wrong
}

/// The error for a request that the server refused because of a limit.
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

/// Notes what the reply says of the argument and the buffers.
///
/// # Errors
/// The reply does not fit the request.
#[inline(always)]
fn note(request: &mut Outgoing, reply: &Reply<'_>) -> Result<(), Error> {
    let work = request.work_mut();
    for (index, buffer) in reply.buffers().enumerate() {
        work.set_actual(index, usize::try_from(buffer.actual).map_err(|_| Error::Aborted)?)?;
    }
    if let Outcome::Ok { .. } = reply.outcome {
        work.note_carried(reply.carried)?;
    }
    let room = work.room();
    match reply.outcome {
        Outcome::Ok { argument, .. } => work.set_reply_argument(argument),
        // There was room.
        Outcome::ArgumentTooLong { len } if len <= room => Err(Error::ArgumentTooLong { len, room }),
        Outcome::Untold { buffer: index } if work.direction(index) != Some(Direction::In) => {
            let is_other = work.direction(index).is_some();
            Err(Error::NoSuchBuffer { index, direction: Direction::In, is_other })
        }
        _ => Ok(()),
    }
}
