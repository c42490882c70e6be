//! What this process has: its pool, its buffers, and its channels and servers by the descriptors that name them.
//!
//! How: a number that is no channel's is a descriptor of the kernel's, and the kernel judges it. Where it is a duplicate of a
//! channel's, the kernel would take it for a socket: those are recognized by their inode. A child's copies of its parent's are dummies
//! (`sys/unshared.rs`), so that no lock is needed to know them: a thread of the parent's may have had it at the fork.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use genie_channel::directory::Claim;
use genie_io::Interface;
use genie_sys::PerProcess;
use genie_sys::event::Event;
use genie_sys::lock::{Mutex, RwLock};
use genie_sys::unshared::{self, Unshared};

use crate::c::buffers::Buffers;
use crate::c::failure::Failure;
use crate::c::pipes::Pipe;
use crate::c::registrations::Registrations;
use crate::{Channel, Connection, Error, Explanation, Fbuf, Group, Offer, Passing, Pool, Unwritten};

/// What a process has.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pool: RwLock<Option<Pool>>,
    /// Those that it has joined.
    groups: Mutex<Vec<Group>>,
    /// A thread that decides which pool it is holds this.
    pub(crate) deciding: Mutex<()>,
    pub(crate) buffers: Buffers,
    pub(crate) registrations: Registrations,
    /// How many pipes it reads whose writers have not come yet.
    pub(crate) unmet: Arc<AtomicUsize>,
    descriptors: RwLock<HashMap<c_int, Slot>>,
}

/// A descriptor of the library's.
#[derive(Debug)]
pub(crate) struct Descriptor {
    /// Dropped before the descriptor is. A child has its parent's pipes.
    _unshared: Option<Unshared>,
    pub(crate) kind: Kind,
    /// Whether calls on it wait.
    pub(crate) waits: AtomicBool,
    /// Dropped after the descriptor is.
    _over: Over,
}

/// What stands behind a number, until its descriptor is closed.
#[derive(Debug)]
struct Slot {
    /// None after uf_close, while other threads' calls still use it.
    open: Option<Arc<Descriptor>>,
    /// Of the descriptor, by which it is known while it is being closed.
    inode: (u64, u64),
    /// Whether another descriptor of this inode is a duplicate. Both ends of a pipe have the same.
    is_own: bool,
    /// A channel's descriptor for room.
    room: Option<(c_int, (u64, u64))>,
    /// Whether the descriptor is known to be closed, so that the number may be anything's.
    is_over: Arc<AtomicBool>,
}

/// Notes that a descriptor is closed.
#[derive(Debug)]
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Slot {
    /// Whether the number may name anything. When uf_close has closed it, another thread may get it before `is_over` is set.
    fn is_over(&self, number: c_int) -> bool {
        // SAFETY: it is looked at, whoever owns it, and not kept.
        let is_closed = || unsafe { kernels(number) }.and_then(inode).ok() != Some(self.inode);
        self.is_over.load(Ordering::Acquire) || self.open.is_none() && is_closed()
    }

    fn open(&self) -> Result<&Arc<Descriptor>, Failure> {
        self.open.as_ref().ok_or_else(|| Failure::new(libc::EBADF, CLOSED))
    }
}

/// What a descriptor names.
#[derive(Debug)]
pub(crate) enum Kind {
    Channel(Box<Channel>),
    Server(Box<Server>),
    Listener(Claim),
    Pipe(Box<Pipe>),
}

/// A Genie server, by a socket that names it: its other end has signalled once, so that `poll` reports it ready, as it does files.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) connection: Connection,
    name: Event,
    _ready: Event,
}

impl Server {
    pub(crate) fn new(connection: Connection) -> Result<Self, Failure> {
        let (name, ready) = Event::pair()?;
        ready.signal()?;
        Ok(Self { connection, name, _ready: ready })
    }
}

/// What buffers are read from and written to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'t> {
    /// And whether calls wait.
    Channel(&'t Channel, bool),
    Server(&'t Connection),
    Kernel(BorrowedFd<'t>),
    Pipe(&'t Pipe),
}

impl<'t> Target<'t> {
    /// What a number names that is this descriptor's, or none of the library's.
    ///
    /// # Safety
    /// As [`kernels`], where it is none of the library's.
    pub(crate) unsafe fn of(descriptor: Option<&'t Descriptor>, number: c_int) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        let Some(descriptor) = descriptor else { return Ok(Self::Kernel(unsafe { kernels(number) }?)) };
        match &descriptor.kind {
            Kind::Channel(channel) => Ok(Self::Channel(channel, descriptor.waits.load(Ordering::Relaxed))),
            Kind::Server(server) => Ok(Self::Server(&server.connection)),
            Kind::Pipe(pipe) => {
                pipe.look(Process::current()?);
                Ok(Self::Pipe(pipe))
            }
            Kind::Listener(_) => {
                Err(Failure::misuse("it is a listener: read and write what uf_accept gives"))
            }
        }
    }

    /// The channel through which buffers go.
    pub(crate) fn channel(self) -> Option<&'t Channel> {
        match self {
            Self::Channel(channel, _) => Some(channel),
            Self::Pipe(pipe) => pipe.channel(),
            Self::Server(_) | Self::Kernel(_) => None,
        }
    }

    /// The descriptor to which the kernel writes.
    pub(crate) fn kernels(self) -> Option<BorrowedFd<'t>> {
        match self {
            Self::Kernel(fd) => Some(fd),
            Self::Pipe(pipe) if pipe.channel().is_none() => Some(pipe.as_fd()),
            _ => None,
        }
    }

    /// A buffer that can be written there without a copy, if any can.
    pub(crate) fn allocate(self, process: &Process, len: usize) -> Result<Fbuf, Failure> {
        Ok(match (self, self.channel()) {
            (_, Some(channel)) => channel.pool().allocate(len)?,
            (Self::Server(connection), _) => connection.allocate(len)?,
            _ => process.pool()?.allocate(len)?,
        })
    }

    pub(crate) fn write(self, fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
        match self {
            Self::Channel(channel, true) => channel.write(fbuf),
            Self::Channel(channel, false) => channel.try_write(fbuf),
            Self::Server(connection) => connection.write(fbuf),
            Self::Kernel(fd) => crate::descriptors::write(fd, fbuf),
            Self::Pipe(pipe) => pipe.write(fbuf),
        }
    }
}

impl Kind {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Channel(channel) => channel.as_fd(),
            Self::Server(server) => server.name.as_fd(),
            Self::Listener(claim) => claim.listener().as_fd(),
            Self::Pipe(pipe) => pipe.as_fd(),
        }
    }

    /// A channel's descriptor for room.
    fn room(&self) -> Option<BorrowedFd<'_>> {
        if let Self::Channel(channel) = self { Some(channel.room()) } else { None }
    }
}

const ANOTHER_POOL: &str = "the channel passes fbufs of the pool that this process had when it was made";
const DUPLICATE: &str =
    "it is a duplicate of a descriptor of the library's: use the number that the library gave";
const CLOSED: &str =
    "it is closed; its number is free when the calls of other threads that use it have returned";
const FOR_WAITING: &str =
    "it is a channel's descriptor for room, for waiting alone: use the channel's, whose uf_close closes both";

static PROCESS: PerProcess<Process> = PerProcess::new();
static INTERFACE: PerProcess<Interface> = PerProcess::new();
/// Whether this process, or one that it was forked from, has ever had a channel.
static HAS_CHANNELS: AtomicBool = AtomicBool::new(false);

impl Process {
    pub(crate) fn current() -> Result<&'static Self, Failure> {
        PROCESS.get(|_| Ok(Self::default()))
    }

    /// The pool that buffers are of: the process's own, unless it has joined another one.
    pub(crate) fn pool(&self) -> Result<Pool, Failure> {
        if let Some(pool) = self.pool.read().as_ref() {
            return Ok(pool.clone());
        }
        let _deciding = self.deciding.lock();
        if !self.has_pool() {
            self.use_pool(Pool::of_process()?);
        }
        Ok(self.pool.read().as_ref().expect("decided").clone())
    }

    /// The interface that makes requests of servers.
    pub(crate) fn interface() -> Result<&'static Interface, Failure> {
        Ok(INTERFACE.get(|_| Interface::open().map_err(Error::from))?)
    }

    pub(crate) fn has_pool(&self) -> bool {
        self.pool.read().is_some()
    }

    fn use_pool(&self, pool: Pool) {
        *self.pool.write() = Some(pool);
    }

    /// The pools that it shares with others.
    pub(crate) fn pools(&self) -> Vec<Pool> {
        self.groups.lock().iter().map(|group| group.pool().clone()).collect()
    }

    /// Joins a group, unless this process is in it, and has buffers be of its pool from now on.
    pub(crate) fn join(&self, name: &str) -> Result<(), Failure> {
        let _deciding = self.deciding.lock();
        let known =
            self.groups.lock().iter().find(|group| group.is_of(name)).map(|group| group.pool().clone());
        let pool = match known {
            Some(pool) => pool,
            None => {
                let group = Group::join(name, Pool::config_of_process())?;
                let pool = group.pool().clone();
                self.groups.lock().push(group);
                pool
            }
        };
        self.use_pool(pool);
        Ok(())
    }

    /// The pool that an offer is of, whose descriptor this is. Unless the process has joined another one, it has that from now on.
    pub(crate) fn pool_of(&self, offer: &Offer, descriptor: OwnedFd) -> Result<Pool, Error> {
        let _deciding = self.deciding.lock();
        let own = self.pool.read().clone();
        if let Some(known) = self.pools().into_iter().chain(own.clone()).find(|pool| offer.is_of(pool)) {
            return Ok(known);
        }
        let pool = Pool::join(descriptor, Pool::config_of_process())?;
        // Asked for only where the process has a pool: this makes one.
        let is_own = |pool: &Pool| Pool::of_process().is_ok_and(|own| own.is_handle_of(pool));
        if own.as_ref().is_none_or(is_own) {
            self.use_pool(pool.clone());
        }
        Ok(pool)
    }

    /// What calls on a channel do with this process's buffers.
    pub(crate) fn explain(&self, channel: &Channel) -> Result<Explanation, Failure> {
        let is_own = channel.pool().is_handle_of(&self.pool()?);
        let explanation = channel.explain();
        Ok(if is_own {
            explanation
        } else {
            Explanation { write: Passing::Copied(ANOTHER_POOL), ..explanation }
        })
    }

    pub(crate) fn add_channel(&self, channel: Channel) -> Result<c_int, Failure> {
        self.add(Kind::Channel(Box::new(channel)))
    }

    /// Makes a channel, server or listener the program's; returns its number.
    pub(crate) fn add(&self, kind: Kind) -> Result<c_int, Failure> {
        let number = kind.as_fd().as_raw_fd();
        let inode_of_room = |room: BorrowedFd<'_>| inode(room).map(|found| (room.as_raw_fd(), found));
        let is_own = !matches!(kind, Kind::Pipe(_));
        let inode = inode(kind.as_fd())?;
        let room = kind.room().map(inode_of_room).transpose()?;
        let _unshared = is_own.then(|| Unshared::new(kind.as_fd())).transpose().map_err(Error::from)?;
        HAS_CHANNELS.store(true, Ordering::Relaxed);
        let is_over = Arc::new(AtomicBool::new(false));
        let _over = Over(Arc::clone(&is_over));
        let descriptor = Descriptor { _unshared, kind, waits: AtomicBool::new(true), _over };
        let slot = Slot { open: Some(Arc::new(descriptor)), inode, is_own, room, is_over };
        if let Some(closed) = self.descriptors.write().insert(number, slot).and_then(|slot| slot.open) {
            // By close, although it is uf_close's: the number is the new one's, and must not be closed with the old channel.
            std::mem::forget(closed);
        }
        Ok(number)
    }

    /// The library's descriptor of this number; nothing if it is one of the kernel's.
    pub(crate) fn descriptor(&self, number: c_int) -> Result<Option<Arc<Descriptor>>, Failure> {
        if let Some(slot) = self.descriptors.read().get(&number).filter(|slot| !slot.is_over(number)) {
            return slot.open().cloned().map(Some);
        }
        if HAS_CHANNELS.load(Ordering::Relaxed) {
            self.ensure_kernels(number)?;
        }
        Ok(None)
    }

    /// Closes a descriptor of the library's, when the last call that uses it returns; returns whether it is one.
    pub(crate) fn close(&self, number: c_int) -> Result<bool, Failure> {
        let mut descriptors = self.descriptors.write();
        let Some(slot) = descriptors.get_mut(&number).filter(|slot| !slot.is_over(number)) else {
            return Ok(false);
        };
        slot.open()?;
        let open = slot.open.take();
        drop(descriptors);
        drop(open);
        self.descriptors.write().retain(|number, slot| !slot.is_over(*number));
        Ok(true)
    }

    /// Refuses copies of the library's descriptors, and those for room.
    fn ensure_kernels(&self, number: c_int) -> Result<(), Failure> {
        // SAFETY: it is looked at, whoever owns it, and not kept.
        let fd = unsafe { kernels(number) }?;
        let found = inode(fd)?;
        if unshared::is_parents(fd) {
            return Err(Error::Inherited.into());
        }
        for (_, slot) in self.descriptors.read().iter().filter(|(number, slot)| !slot.is_over(**number)) {
            if slot.is_own && slot.inode == found {
                return Err(Failure::misuse(DUPLICATE));
            }
            if slot.room.is_some_and(|(_, room)| room == found) {
                return Err(Failure::misuse(FOR_WAITING));
            }
        }
        Ok(())
    }

    /// Refuses to close what uf_room gave.
    pub(crate) fn ensure_no_room(&self, number: c_int) -> Result<(), Failure> {
        // By inode, too: another file may have its number since the program closed it.
        // SAFETY: it is looked at, whoever owns it, and not kept.
        let found = || unsafe { kernels(number) }.and_then(inode).ok();
        let is_room = |(own, slot): (&c_int, &Slot)| {
            !slot.is_over(*own)
                && slot.room.is_some_and(|(room, inode)| room == number && Some(inode) == found())
        };
        if self.descriptors.read().iter().any(is_room) { Err(Failure::misuse(FOR_WAITING)) } else { Ok(()) }
    }
}

/// A descriptor of the kernel's, if there may be one of this number.
///
/// # Safety
/// While it is used, the number is a descriptor of the program's, or no descriptor at all.
pub(crate) unsafe fn kernels<'fd>(number: c_int) -> Result<BorrowedFd<'fd>, Failure> {
    if number < 0 {
        return Err(Failure::new(libc::EBADF, format!("there is no descriptor {number}")));
    }
    // SAFETY: not -1, and the caller's promise. The kernel refuses a number that is not open.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// What all duplicates of a descriptor have in common, and no other descriptor has.
fn inode(descriptor: BorrowedFd<'_>) -> Result<(u64, u64), Failure> {
    let found = rustix::fs::fstat(descriptor).map_err(|errno| match errno {
        rustix::io::Errno::BADF => {
            Failure::new(libc::EBADF, format!("there is no descriptor {}", descriptor.as_raw_fd()))
        }
        errno => Error::io("fstat", errno).into(),
    })?;
    Ok((found.st_dev, found.st_ino))
}
