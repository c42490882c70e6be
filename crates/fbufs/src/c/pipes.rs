//! Pipes between programs that both use this library, as in a shell's `a | b`.
//!
//! Why: a shell connects programs by pipes, and the kernel copies what goes through these. What a program inherits over exec is the
//! pipe alone: a channel needs a pool, which both programs have mapped only when both have begun.
//! How: the pipe stays what it is, and is what the two find each other by. Its reader listens at a name made of the pipe's device and
//! inode. A writer that finds a listener there sends it its pool and one end of a channel; from then on buffers go through the
//! channel. Bytes that were in the pipe before are read before. Until then, and where the other program does not use the library, bytes go
//! through the pipe: the writer looks for the reader at its first write, and again after each `LOOK` bytes.
//! Invariants: what one process has written is read in that order. When the channel has ended, the pipe is used again, until it ends
//! itself: by another program that has inherited its end, or to tell the writer, as pipes do, that nobody reads. What the reader has not
//! read then, the writer takes back, and sends through the pipe.
//! Trust: both sides make sure that the other is a process of the same user; it shares the writer's pool then, as a member of a group.
//! Another user that has taken the name keeps the bytes in the pipe.
//! Limits: one channel for each end, and programs in one network namespace. What others write to the pipe meanwhile, children among
//! them, is read when the channel has ended. A writer that ends without a close takes nothing back.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use genie_sys::Errno;
use genie_sys::lock::Mutex;
use genie_sys::socket::{Listener, Socket};
use genie_sys::unshared::Unshared;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags};

use crate::c::failure::{Failure, call};
use crate::c::process::{Kind, Process, kernels};
use crate::{Channel, Error, Explanation, Fbuf, Message, Offer, Passing, Unwritten};

/// After how many bytes a writer looks for the reader again: as many as a pipe holds, since the reader has read some then.
const LOOK: usize = 64 << 10;
/// The same, where this process reads a pipe whose writer has not come yet: that one's pool is to be passed on.
const LOOK_IN_BETWEEN: usize = 256 << 10;

const ALONE: &str =
    "the program at the other end of the pipe has not shown yet that it uses this library (uf_take_over)";

/// One end of a pipe, which is the library's.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// Set when both ends have found each other.
    channel: OnceLock<Channel>,
    /// Whether the channel has ended.
    is_over: AtomicBool,
    name: String,
    end: End,
    /// Closed last: whoever finds that the pipe has ended finds the channel's end.
    fd: OwnedFd,
}

#[derive(Debug)]
enum End {
    Reader(Mutex<Reading>),
    /// Bytes written to the pipe since the writer has looked last.
    Writer(Mutex<usize>),
}

#[derive(Debug)]
struct Reading {
    /// None when a writer was found, and where the name could not be taken.
    listener: Option<Listening>,
    /// Bytes in the pipe that were written before the channel was made.
    before: usize,
}

/// What a reader has until a writer comes.
#[derive(Debug)]
struct Listening {
    /// Dropped before the listener is.
    _unshared: Unshared,
    listener: Listener,
    /// How many readers of this process wait for a writer.
    unmet: Arc<AtomicUsize>,
}

impl Listening {
    fn new(name: &str, unmet: &Arc<AtomicUsize>) -> genie_sys::Result<Self> {
        let listener = Listener::bind_name(name)?;
        let _unshared = Unshared::new(&listener)?;
        unmet.fetch_add(1, Ordering::Relaxed);
        Ok(Self { _unshared, listener, unmet: Arc::clone(unmet) })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.unmet.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes over one end of a pipe, by which a shell, or whoever has started this program, has connected it with another one: calls of this
/// library on fd then pass fbufs without a copy if the program at the other end uses the library, too, and has called this. fd is most
/// often 0 or 1. No other call takes a pipe over: a program that wants to have a stream over it calls this first, and then uf_fdopen.
///
/// Until both have done so, and where the other program does not use the library, bytes go through the pipe, as they would without this
/// call; uf_explain says which it is. The two are processes of one user. Unless this process has joined a group, its fbufs are of the
/// writer's pool from when it reads what a writer passes, so that it can pass them on. Between the two, what is written by these calls
/// does not keep its order with what is written to the pipe by others, write and children among them.
///
/// Calls on fd wait, whatever uf_set_nonblocking says. It is closed by uf_close, never by close. For a descriptor that is no pipe, that does not block, or that is the library's already, this does nothing.
///
/// When the reader ends before it has read all, as in `a | (b; c)`, the writer puts what is left into the pipe for the next reader, at its
/// next call on fd: uf_close does so, too, and waits until no more is unread than a pipe holds. So a writer must call uf_close or fclose,
/// as one that ends otherwise leaves nothing for a next reader. A reader that is killed in a read takes at most what this read was to
/// return, as with any pipe.
///
/// Take a pipe over only where one process at a time reads it, and where no other process uses this process's end of it meanwhile.
/// Elsewhere it is no pipe any more. What a child program writes to the pipe is read when this process has closed its end, so that waiting
/// for a child that writes more than a pipe holds, as system does, waits for ever; so does waiting for a child that is to read from
/// it. Of several readers, and of a process and the children that it makes by fork, one gets fbufs, and the others may wait for ever. A
/// duplicate of fd (dup) is the bare pipe, and is not refused.
///
/// Returns 0, or -1 with errno set.
///
/// Errors: EBADF, ESTALE (it is the parent process's), EINVAL (it is a duplicate of a channel's).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_take_over(fd: c_int) -> c_int {
    call(-1, || {
        // SAFETY: the program gives the descriptor away.
        unsafe { take_over(Process::current()?, fd) }.map(|()| 0)
    })
}

/// # Safety
/// If the number is a pipe's, the program gives it away.
pub(crate) unsafe fn take_over(process: &Process, number: c_int) -> Result<(), Failure> {
    if process.descriptor(number)?.is_some() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let fd = unsafe { kernels(number) }?;
    let Some((name, is_reader)) = name_of(fd)? else { return Ok(()) };
    let end = if is_reader {
        // Without a listener all goes through the pipe, as without this library: another process may read there, too.
        let listener = Listening::new(&name, &process.unmet).ok();
        End::Reader(Mutex::new(Reading { listener, before: 0 }))
    } else {
        End::Writer(Mutex::new(LOOK))
    };
    // SAFETY: open, since its name was asked for, and given away by the caller's promise.
    let fd = unsafe { std::os::fd::FromRawFd::from_raw_fd(number) };
    let pipe = Pipe { channel: OnceLock::new(), is_over: AtomicBool::new(false), name, end, fd };
    process.add(Kind::Pipe(Box::new(pipe))).map(drop)
}

/// The name that both ends of a pipe have, and whether this is the one to read from; none if it is no end of a pipe that blocks.
fn name_of(fd: BorrowedFd<'_>) -> Result<Option<(String, bool)>, Failure> {
    let found = rustix::fs::fstat(fd).map_err(|errno| Error::io("fstat", errno))?;
    let flags = rustix::fs::fcntl_getfl(fd).map_err(|errno| Error::io("fcntl", errno))?;
    let is_pipe = FileType::from_raw_mode(found.st_mode) == FileType::Fifo;
    if !is_pipe || flags.intersects(OFlags::NONBLOCK | OFlags::RDWR) {
        return Ok(None);
    }
    let user = rustix::process::geteuid().as_raw();
    let name = format!("genie-fbufs/{user}/pipe-{:x}-{}", found.st_dev, found.st_ino);
    Ok(Some((name, !flags.contains(OFlags::WRONLY))))
}

impl Pipe {
    /// The channel that takes the pipe's place now.
    pub(crate) fn channel(&self) -> Option<&Channel> {
        self.channel.get().filter(|_| !self.is_over.load(Ordering::Acquire))
    }

    fn end_channel(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Sends what the reader has not read through the pipe, for whoever reads there next, and ends the channel.
    fn resend(&self, closes: bool) -> crate::Result<()> {
        let (Some(channel), End::Writer(unlooked)) = (self.channel.get(), &self.end) else { return Ok(()) };
        // What other threads write meanwhile comes after it.
        let _unlooked = unlooked.lock();
        if self.is_over.load(Ordering::Acquire) {
            return Ok(());
        }
        let unread = channel.take_back()?;
        self.end_channel();
        // A reader that is still there goes on with the pipe.
        channel.hang_up();
        // A pipe does not tell a writer that closes it that nobody will read what it holds.
        let fits = closes && unread.iter().map(|fbuf| fbuf.len()).sum::<usize>() <= LOOK;
        if fits && crate::channel::poll(&self.fd, PollFlags::empty(), false)? {
            return Ok(());
        }
        for fbuf in unread {
            crate::descriptors::write(self.fd.as_fd(), fbuf)?;
        }
        Ok(())
    }

    /// Before a writer closes its end: waits until no more is unread than a pipe holds, and leaves that in the pipe.
    pub(crate) fn settle(&self) -> Result<(), Failure> {
        if let (Some(channel), End::Writer(_)) = (self.channel(), &self.end) {
            channel.wait_until_read(LOOK)?;
            return Ok(self.resend(true)?);
        }
        Ok(())
    }

    pub(crate) fn explain(&self, process: &Process) -> Result<Explanation, Failure> {
        let of_pipe = crate::explain(&self.fd)?;
        Ok(match (self.channel(), &self.end) {
            (Some(channel), End::Writer(_)) => {
                Explanation { read: of_pipe.read, ..process.explain(channel)? }
            }
            (Some(channel), End::Reader(_)) => Explanation { read: channel.explain().read, ..of_pipe },
            (None, _) => {
                Explanation { write: Passing::Copied(ALONE), read: Passing::Copied(ALONE), ..of_pipe }
            }
        })
    }

    /// Looks for the reader, if that is due, and makes a channel with it. Where that fails, bytes go through the pipe.
    pub(crate) fn look(&self, process: &Process) {
        let End::Writer(unlooked) = &self.end else { return };
        if self.channel.get().is_some() {
            return;
        }
        let mut unlooked = unlooked.lock();
        let due = if process.unmet.load(Ordering::Relaxed) > 0 { LOOK_IN_BETWEEN } else { LOOK };
        if self.channel.get().is_none() && *unlooked >= due {
            *unlooked = 0;
            if let Ok(Some(channel)) = self.offer(process) {
                let _ = self.channel.set(channel);
            }
        }
    }

    /// Makes a channel with the reader, if it listens.
    fn offer(&self, process: &Process) -> Result<Option<Channel>, Failure> {
        let Ok(reader) = Socket::connect_to_name(&self.name) else { return Ok(None) };
        if !is_own_users(&reader)? {
            return Ok(None);
        }
        let pool = process.pool()?;
        let (channel, offer) = pool.keeping_channel()?;
        reader.send(&[1], &[pool.descriptor()?.as_fd()])?;
        offer.send(&reader)?;
        Ok(Some(channel))
    }

    pub(crate) fn write(&self, mut fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
        let mut written = 0;
        loop {
            let failed = if let Some(channel) = self.channel() {
                match channel.write(fbuf) {
                    Ok(count) => return Ok(written + count),
                    Err(unwritten) => *unwritten,
                }
            } else {
                match self.write_some(&mut fbuf) {
                    Ok(count) => written += count,
                    Err(error) => return Err(Box::new(Unwritten { error, fbuf, written })),
                }
                if fbuf.is_empty() {
                    return Ok(written);
                }
                if let Ok(process) = Process::current() {
                    self.look(process);
                }
                continue;
            };
            if !matches!(failed.error, Error::Closed) {
                return Err(Box::new(Unwritten { written, ..failed }));
            }
            // Now the pipe tells what to do: nobody reads, or somebody else does.
            if let Err(error) = self.resend(false) {
                return Err(Box::new(Unwritten { error, written, ..failed }));
            }
            fbuf = failed.fbuf;
        }
    }

    /// Writes to the pipe, no more than what it holds, and leaves the rest in the buffer.
    fn write_some(&self, fbuf: &mut Fbuf) -> crate::Result<usize> {
        let len = fbuf.len();
        let write = || rustix::io::retry_on_intr(|| rustix::io::write(&self.fd, &fbuf[..len.min(LOOK)]));
        let count = self.writing(len.min(LOOK), write).map_err(|errno| Error::io("write", errno))?;
        fbuf.set_data(fbuf.headroom() + count, len - count)?;
        Ok(count)
    }

    pub(crate) fn write_message(&self, process: &Process, message: &mut Message) -> Result<usize, Failure> {
        if let Some(channel) = self.channel() {
            match channel.write_message(message) {
                Err(Error::Closed) => self.resend(false)?,
                done => return Ok(done?),
            }
        }
        let pool = process.pool()?;
        Ok(self.writing(message.len(), || pool.write_message(&self.fd, message))?)
    }

    /// Writes bytes to the pipe, while no other thread makes a channel: they would be read after what goes through that.
    fn writing<T>(&self, len: usize, write: impl FnOnce() -> T) -> T {
        let End::Writer(unlooked) = &self.end else { return write() };
        let mut unlooked = unlooked.lock();
        *unlooked += len;
        write()
    }

    pub(crate) fn read(&self, process: &Process, len: usize) -> Result<Option<Fbuf>, Failure> {
        let End::Reader(reading) = &self.end else { return Ok(process.pool()?.read(&self.fd, len)?) };
        let mut reading = reading.lock();
        loop {
            if reading.before == 0
                && let Some(channel) = self.channel()
            {
                if let Some(fbuf) = channel.read(len)? {
                    return Ok(Some(fbuf));
                }
                self.end_channel();
            }
            if reading.before == 0 && self.meet(process, &mut reading, true)? {
                continue;
            }
            let most = if reading.before > 0 { len.min(reading.before) } else { len };
            let read = if reading.before > 0 || reading.listener.is_some() {
                match process.pool()?.read_now(self.fd.as_fd(), most) {
                    // Another process has read what was there before.
                    Err(Error::WouldBlock) => {
                        reading.before = 0;
                        continue;
                    }
                    read => read?,
                }
            } else {
                process.pool()?.read(&self.fd, most)?
            };
            match read {
                Some(fbuf) => {
                    reading.before = reading.before.saturating_sub(fbuf.len());
                    return Ok(Some(fbuf));
                }
                None if reading.before > 0 => reading.before = 0,
                // A writer may have come, written and ended since this end has looked.
                None if self.meet(process, &mut reading, false)? => {}
                None => return Ok(None),
            }
        }
    }

    /// Takes the channel of a writer that has come; returns whether there is one. `waits`: until one comes, or the pipe has something.
    fn meet(&self, process: &Process, reading: &mut Reading, waits: bool) -> Result<bool, Failure> {
        let Some(Listening { listener, .. }) = &reading.listener else { return Ok(false) };
        if waits {
            wait(listener, &self.fd)?;
        }
        while let Some(writer) = listener.accept()? {
            if !is_own_users(&writer)? {
                continue;
            }
            match taken(process, &writer) {
                Err(Error::Closed) => {}
                channel => {
                    let _ = self.channel.set(channel?);
                    let before =
                        rustix::io::ioctl_fionread(&self.fd).map_err(|errno| Error::io("ioctl", errno))?;
                    *reading = Reading { listener: None, before: before as usize };
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes what a writer has sent: its pool, and an end of a channel.
fn taken(process: &Process, writer: &Socket) -> crate::Result<Channel> {
    let mut pool = writer.receive(&mut [0])?;
    if pool.is_short {
        return Err(genie_sys::Error::new("recvmsg", "the pool of a pipe's writer", Errno::MFILE).into());
    }
    let descriptor = pool.descriptors.pop().ok_or(Error::Closed)?;
    let offer = Offer::receive(writer)?;
    process.pool_of(&offer, descriptor)?.take(offer)
}

fn is_own_users(socket: &Socket) -> Result<bool, Failure> {
    Ok(socket.peer()?.uid == rustix::process::geteuid().as_raw())
}

/// Waits until one of the two is readable, or has ended.
fn wait(listener: &Listener, pipe: &OwnedFd) -> Result<(), Failure> {
    let mut polled = [PollFd::new(listener, PollFlags::IN), PollFd::new(pipe, PollFlags::IN)];
    match rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None)) {
        Ok(_) => Ok(()),
        Err(errno) => Err(Error::io("poll", errno).into()),
    }
}
