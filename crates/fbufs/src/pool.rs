//! Pools: the buffers of a process, or of a group of processes that share them.
//!
//! Why: a buffer that both sides have mapped already changes hands by a few stores, whatever its length; no mapping changes,
//! and no byte is copied.
//! How: one memory object, sealed, of which each member maps all. It consists of segments of 4 MiB, which come into use one
//! after the other, and of a bit string that says which pages are free (`words`). Whoever has the object's descriptor can
//! become a member. Memory is taken at the first touch of a page.
//! Invariants: a pool ends with its last member, since nothing but members' descriptors and mappings keeps the object. A child
//! made by fork is no member, and finds zeros where its parent has buffers.
//! Trust: the members of a group can spoil each other's buffers, and no other process's. What a member finds in the shared
//! words is loaded once and checked.
//! Limits: see [`Config`]; 64 members; a buffer has at most the pool's limit, and begins at a page of its own.
//! Source: SMLI TR-95-39 §5.2, §5.5. Differs: a segment is a part of one object, not an object of its own, so that members
//! need to be given no further descriptors; [`Pool::map`] has files.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_sys::fork::Maker;
use genie_sys::lock::{Mutex, RwLock};
use genie_sys::record_lock::RecordLocks;
use genie_sys::shared::{PAGE, Shared};
use genie_sys::{GranuleKind, Object};

use crate::bits::Run;
use crate::error::{Error, Result};
use crate::layout::{self, Layout};
use crate::residence::Residence;
use crate::unwritten::Unwritten;
use crate::words::Words;
use crate::{Config, Fbuf, members};

/// A handle of a pool. Copies are handles of the same membership.
#[derive(Debug, Clone)]
pub struct Pool(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) words: Words,
    pub(crate) config: Config,
    pub(crate) maker: Maker,
    /// Pages that this process holds.
    pub(crate) held: AtomicUsize,
    /// The word from which to look for free pages next.
    pub(crate) hint: AtomicUsize,
    /// Runs that could not be freed at once.
    pub(crate) deferred: Mutex<Vec<Run>>,
    /// How many there are, for a look without the lock.
    pub(crate) deferrals: AtomicUsize,
    /// What is locked into memory, if anything is to be.
    pub(crate) residence: Option<Residence>,
    /// Held by threads that look into messages which are still on their way, and alone by one that takes messages back.
    pub(crate) looking: RwLock<()>,
    /// A thread that sweeps holds it, since all threads of a process have the same record locks.
    locks: Mutex<RecordLocks>,
}

impl Pool {
    /// Makes a pool for this process. Other processes that are given [`Pool::descriptor`] can join it.
    ///
    /// # Errors
    /// [`Error::PoolSize`]; the kernel refused an object, addresses or a descriptor.
    ///
    /// # Cost
    /// Some system calls, and 64 bytes of memory for each 256 KiB of the limit.
    pub fn new(config: Config) -> Result<Self> {
        let layout = Layout::for_limit(config.limit)?;
        let object = Object::create(GranuleKind::Base, layout.object_bytes())?;
        let shared = Shared::map(object, layout.control_bytes(), config.traps)?;
        let mut token = [0u8; 16];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Error::io("getrandom", errno))?;
        let [low, high] = [0, 8].map(|at| std::array::from_fn(|byte| token[at + byte]));
        layout.begin(shared.words(), [u64::from_ne_bytes(low), u64::from_ne_bytes(high)]);
        Self::enter(shared, layout, config)
    }

    /// Joins the pool whose descriptor this is. Of `config`, the limit is not used.
    ///
    /// # Errors
    /// [`Error::NoPool`]; [`Error::Full`]: it has its 64 members; EACCES: it is another user's.
    pub fn join(descriptor: OwnedFd, config: Config) -> Result<Self> {
        let object = Object::accept(descriptor)?;
        let len = object.len();
        let layout = Layout::of_object(len).ok_or(Error::NoPool { len })?;
        let shared = Shared::map(object, layout.control_bytes(), config.traps)?;
        if !layout.is_begun(shared.words()) {
            return Err(Error::NoPool { len });
        }
        Self::enter(shared, layout, config)
    }

    fn enter(shared: Shared, layout: Layout, config: Config) -> Result<Self> {
        let (words, locks) = members::join(Arc::new(shared), layout)?;
        Ok(Self(Arc::new(Inner {
            words,
            config,
            maker: Maker::this_process(),
            held: AtomicUsize::new(0),
            hint: AtomicUsize::new(0),
            deferred: Mutex::default(),
            deferrals: AtomicUsize::new(0),
            residence: Residence::new(&config),
            looking: RwLock::new(()),
            locks: Mutex::new(locks),
        })))
    }

    /// A descriptor of the pool, for a process that is to join it: send it, or let a child inherit it by exec. Its holder can
    /// load and store all of the pool's bytes.
    ///
    /// # Errors
    /// The limit on descriptors.
    pub fn descriptor(&self) -> Result<OwnedFd> {
        Ok(self.0.words.shared.object().duplicate()?)
    }

    /// Allocates a buffer of `len` bytes, which are whatever they were.
    ///
    /// # Errors
    /// [`Error::Exhausted`]: no pages in a row are free, not even after members that have died were looked for.
    /// [`Error::Quota`], [`Error::Inherited`].
    ///
    /// # Cost
    /// A lock of one word, and a fault for each page that nobody has touched; no system call unless the pool is used up.
    #[doc(alias = "uf_allocate")]
    pub fn allocate(&self, len: usize) -> Result<Fbuf> {
        Ok(Fbuf::new(self.clone(), self.0.allocate(len.div_ceil(PAGE).max(1))?, 0, len))
    }

    /// Takes back what members had that have died. Allocation does so before it fails, and joining does so for one of them.
    /// Returns the numbers of their processes, as [`Pool::members`] has them.
    ///
    /// # Errors
    /// [`Error::Inherited`]; the kernel's, where it has no memory for locks.
    ///
    /// # Cost
    /// A system call for each other member; for each that has died, a look at all pages in use.
    pub fn sweep(&self) -> Result<Vec<i32>> {
        self.ensure_own()?;
        self.0.sweep()
    }

    /// The numbers of the processes that are members, each as often as it is one; 0 for one in another PID namespace.
    pub fn members(&self) -> Vec<i32> {
        members::pids(&self.0.words)
    }

    /// Bytes of buffers that this member holds.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed) * PAGE
    }

    /// Bytes of buffers that are locked into memory for this process.
    pub fn locked(&self) -> usize {
        self.0.residence.as_ref().map_or(0, Residence::locked)
    }

    /// Bytes of buffers that are free now, of those that the pool may have.
    ///
    /// # Cost
    /// A load for each 256 KiB.
    pub fn free(&self) -> usize {
        let words = &self.0.words;
        let unused = words.layout.pages() - words.in_use() * crate::bits::PER_WORD;
        let free: usize = (0..words.in_use()).map(|word| words.bits(word).count_ones() as usize).sum();
        (free + unused) * PAGE
    }

    /// The most bytes of buffers that the pool may have.
    pub fn limit(&self) -> usize {
        self.0.words.layout.pages() * PAGE
    }

    /// Gives the memory of free pages back to the kernel, 256 KiB at a time; returns how many bytes were looked at.
    ///
    /// # Errors
    /// [`Error::Inherited`].
    pub fn trim(&self) -> Result<usize> {
        self.ensure_own()?;
        Ok(self.0.trim())
    }

    /// Makes a buffer of another pool's, or a migrant buffer, one of this pool's, by copying its data.
    pub(crate) fn import(&self, fbuf: Fbuf) -> Result<Fbuf, Box<Unwritten>> {
        if self.has(&fbuf) {
            return Ok(fbuf);
        }
        match self.allocate(fbuf.len()) {
            Ok(mut copy) => {
                copy.copy_from_slice(&fbuf);
                Ok(copy)
            }
            Err(error) => Err(Unwritten::nothing(error, fbuf)),
        }
    }

    /// Whether a buffer is of this membership.
    pub(crate) fn has(&self, fbuf: &Fbuf) -> bool {
        fbuf.pool().is_some_and(|pool| self.is_handle_of(pool))
    }

    /// Whether both are handles of the same membership.
    pub(crate) fn is_handle_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether both are handles of members of one group.
    pub fn is_same_group(&self, other: &Self) -> bool {
        self.token() == other.token()
    }

    pub(crate) fn token(&self) -> [u64; 2] {
        layout::token(self.0.words.shared.words())
    }

    pub(crate) fn ensure_own(&self) -> Result<()> {
        self.0.ensure_own()
    }
}

impl Inner {
    pub(crate) fn ensure_own(&self) -> Result<()> {
        if self.maker.is_this_process() { Ok(()) } else { Err(Error::Inherited) }
    }

    pub(crate) fn sweep(&self) -> Result<Vec<i32>> {
        members::sweep(&self.words, &self.locks.lock())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.maker.is_this_process() {
            // Before the lock of its place ends, with `locks`.
            members::leave(&self.words);
        }
    }
}

/// The object, for calls that move its pages.
impl AsFd for Pool {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.words.shared.object().as_fd()
    }
}

#[cfg(test)]
mod tests;
