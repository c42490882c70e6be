//! Backings: which memory objects hold some data, and where in them, for code that names memory to the kernel, a device or another
//! process.
//!
//! Why: a server that registers memory (buffers of io_uring, a UMEM of AF_XDP, RDMA) does so once for each object. Of the data of a request, the
//! server has to know in which object the data lies and how far from its start, which an address does not tell; and an address can be
//! kept when the memory is no longer the server's.
//! How: data is in an arena, whose owner (a space, or a mirror of a peer's) knows where it has mapped which object. The owners are in a
//! table of the process's, by the first addresses of their arenas. Nothing is looked up while data is passed, only when somebody asks.
//! Invariants: an owner is in the table before there can be data in its arena, and until the arena's addresses are given back. The
//! table's lock is held for nothing but a look at it. A child made by fork, whose arenas show zeros, begins with an empty table.
//! Trust: a peer may withdraw an object, or announce another one in its place, while a request that named it is being served. A backing
//! says what was mapped at the moment of the question.
//! Source: thesis §1.1.1 (a granule is an object and an index), §3.2.2 (I/O-deferred deallocation: what is named is not freed).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use genie_sys::lock::Mutex;
use genie_sys::{Inode, PerProcess};

use crate::{Data, Error, Result};

/// Some bytes that lie in one run of addresses, and in one memory object at most. It is their [`Data`], too.
///
/// It borrows what keeps the memory, as its data does: a request, a pin, a buffer. So a server cannot name memory that is no longer its
/// own. Where the kernel or a device is to use the memory after the call, a pin of the request (`Incoming::pin_output`) belongs in the
/// table of what is under way, and the pin's data has the backings.
///
/// ```compile_fail,E0505
/// use genie_memory::{Backing, Space, SystemBuffer};
///
/// fn register(_: &Backing<'_>) {}
///
/// fn fill(buffer: SystemBuffer) {
///     let data = buffer.data();
///     let backing = data.backings().next().expect("some bytes");
///     drop(buffer);
///     register(&backing); // too late: the memory is free
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Backing<'r> {
    data: Data<'r>,
    object: Option<(Inode, usize)>,
}

/// A space or a mirror: it maps memory objects into its arena, and knows which object is where.
pub(crate) trait Owner: Send + Sync {
    /// What is mapped at an address of the arena.
    fn mapped_at(&self, addr: usize) -> Option<MappedAt>;

    /// A descriptor, for reading, of the object that is mapped at an address, if it is this one.
    ///
    /// # Errors
    /// As [`Backing::share`].
    fn share_at(&self, addr: usize, inode: Inode) -> Result<OwnedFd>;
}

/// A byte of an object.
pub(crate) struct MappedAt {
    pub(crate) inode: Inode,
    /// How far it is from the object's start.
    pub(crate) offset: usize,
    /// How many bytes of the object lie from there on, at as many addresses.
    pub(crate) rest: usize,
}

/// The owners of arenas by the arenas' first addresses.
type Owners = Mutex<BTreeMap<usize, Weak<dyn Owner>>>;

static OWNERS: PerProcess<Owners> = PerProcess::new();

fn owners() -> &'static Owners {
    let Ok(owners) = OWNERS.get(|_| Ok::<_, Infallible>(Owners::default()));
    owners
}

/// Enters the owner of the arena that begins at `base`.
pub(crate) fn enter(base: usize, owner: &Arc<impl Owner + 'static>) {
    let owner: Weak<dyn Owner> = Arc::downgrade(owner) as _;
    owners().lock().insert(base, owner);
}

/// Forgets the owner, which is about to give the arena's addresses back.
pub(crate) fn leave(base: usize) {
    owners().lock().remove(&base);
}

/// The owner of the arena that begins last at or before an address.
fn owner_before(addr: usize) -> Option<Arc<dyn Owner>> {
    owners().lock().range(..=addr).next_back()?.1.upgrade()
}

impl<'r> Data<'r> {
    /// Which memory objects hold the bytes, in order, cut where an object ends or the run of addresses does.
    ///
    /// # Cost
    /// For each backing a look into the process's table of arenas, the lock of its space, or of the peer's
    /// mirror, and a search among the objects there. [`Data::segments`] has the addresses alone, at no cost.
    pub fn backings(&self) -> impl Iterator<Item = Backing<'r>> + '_ {
        self.pieces().filter(|piece| !piece.is_empty()).flat_map(Backing::of_piece)
    }
}

impl<'r> Backing<'r> {
    /// The backings of data in one run of addresses.
    fn of_piece(piece: Data<'r>) -> impl Iterator<Item = Self> {
        let (addr, len) = (piece.segments()[0].addr(), piece.len());
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == len {
                return None;
            }
            let found = owner_before(addr + at).and_then(|owner| owner.mapped_at(addr + at));
            let here = found.as_ref().map_or(len, |found| found.rest).min(len - at);
            let data = piece.part(at..at + here);
            at += here;
            let object = found.map(|MappedAt { inode, offset, .. }| (inode, offset));
            Some(Self { data, object })
        })
    }

    /// The address of the first byte.
    pub fn addr(&self) -> usize {
        self.data.segments()[0].addr()
    }

    /// The memory object that the bytes lie in, one after the other, and how many bytes the first one is from the object's start.
    ///
    /// None for memory of this process alone: data so short that the records of a channel carried it, a mapped file, or
    /// what a program borrows, such as a client's own buffer, whose granules change. If a peer has withdrawn the object, it and all
    /// that follows in that run of addresses count as in none.
    pub fn object(&self) -> Option<(Inode, usize)> {
        self.object
    }

    /// A descriptor of the object, for reading, to be mapped or to be given to whoever is to see the bytes. Whoever has it
    /// reads all bytes of the object, now and later: those of other requests, and of buffers that were passed to nobody. It does not keep
    /// these bytes where they are: what this borrows does. What a server keeps of this object later is copied.
    ///
    /// # Errors
    /// [`Error::NoObject`]: the bytes are in no object, or no more in this one; or memory of the object is somebody's alone, as that of
    /// kept buffers is. The kernel's reason.
    ///
    /// # Cost
    /// A system call, under the lock of the space or the mirror.
    pub fn share(&self) -> Result<OwnedFd> {
        let (inode, _) = self.object.ok_or(Error::NoObject)?;
        owner_before(self.addr()).ok_or(Error::NoObject)?.share_at(self.addr(), inode)
    }
}

impl<'r> Deref for Backing<'r> {
    type Target = Data<'r>;

    fn deref(&self) -> &Data<'r> {
        &self.data
    }
}
