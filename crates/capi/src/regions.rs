//! The table of buffers.
//!
//! How: the table has all buffers by their first address. A request counts itself among the users of each buffer that it names, so that a
//! buffer that is in use cannot be freed. A migrant buffer leaves the table when a request takes it. A native one that a request is
//! given by value keeps its place there, and is nobody else's until the request gives it back.
//! Cost: each thread remembers the buffers that it has named last; to name one of them again takes no lock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use genie_io::{Kept, Returned};
use genie_memory::{Buffer, Migrant, Space};
use genie_sys::fork::Maker;
use genie_sys::lock::RwLock;
use smallvec::SmallVec;

use crate::failure::Failure;
use crate::types::Segment;

/// All buffers.
#[derive(Debug, Default)]
pub(crate) struct Regions(RwLock<BTreeMap<usize, Region>>);

#[derive(Debug)]
struct Region {
    owner: Owner,
    usage: Arc<Usage>,
}

#[derive(Debug)]
enum Owner {
    Native(Buffer),
    Migrant(Migrant),
    /// What a server has kept.
    Kept(#[expect(dead_code, reason = "holds the memory")] Kept),
    /// A request, which was given the native buffer by value; the usage has [`ENDED`].
    Request,
}

/// Where a buffer is, and who uses it.
#[derive(Debug)]
struct Usage {
    start: usize,
    len: usize,
    /// Requests that use it, each once for each element; or [`ENDED`].
    users: AtomicU32,
}

/// The users of a buffer that has left the table, or that a request was given.
const ENDED: u32 = u32::MAX;

/// How many buffers a thread remembers.
const REMEMBERED: usize = 4;

thread_local! {
    /// The buffers that this thread has named last.
    static RECENT: RefCell<Recent> = const { RefCell::new(Recent::NONE) };
}

#[derive(Debug)]
struct Recent {
    /// The process that these buffers are of.
    maker: Option<Maker>,
    buffers: [Option<Arc<Usage>>; REMEMBERED],
    next: usize,
}

impl Recent {
    const NONE: Self = Self { maker: None, buffers: [const { None }; REMEMBERED], next: 0 };
}

/// The buffers that a request uses.
#[derive(Debug, Default)]
pub(crate) struct Users(SmallVec<[User; 2]>);

/// A use of a buffer that has been counted, and has to be ended.
#[derive(Debug)]
struct User {
    usage: NonNull<Usage>,
    is_brief: bool,
}

impl Usage {
    fn has(&self, addr: usize) -> bool {
        addr.wrapping_sub(self.start) < self.len.max(1)
    }

    /// Counts another user; returns false if the buffer has left the table, or a request was given it.
    fn begin(&self) -> bool {
        let more = |users| (users < ENDED - 1).then(|| users + 1);
        self.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Lets the buffer leave the table, or be given to a request.
    ///
    /// # Errors
    /// It has users.
    fn end(&self) -> Result<(), Failure> {
        let users = self.users.compare_exchange(0, ENDED, Ordering::Acquire, Ordering::Relaxed);
        users.map(|_| ()).map_err(|count| self.busy(count))
    }

    #[cold]
    fn busy(&self, count: u32) -> Failure {
        let start = self.start;
        let sentence = match count {
            ENDED => format!("the buffer at {start:#x} was given to a request by value (IO_OWNED)"),
            _ => format!("the buffer at {start:#x} is in use by requests (elements: {count})"),
        };
        Failure::new(libc::EBUSY, sentence)
    }
}

impl User {
    fn end(&self) {
        // SAFETY: the table keeps what it has of a buffer, this included, as long as the buffer has users, of which this is one.
        unsafe { self.usage.as_ref() }.users.fetch_sub(1, Ordering::Release);
    }
}

impl Users {
    /// Ends the uses that end when the request has been made: those of outputs that the program may free then.
    pub(crate) fn end_brief(&mut self) {
        self.0.retain(|user| {
            if user.is_brief {
                user.end();
            }
            !user.is_brief
        });
    }

    /// Ends all uses. To be called once: after that the buffers, and their counts with them, may be freed.
    pub(crate) fn end(&self) {
        self.0.iter().for_each(User::end);
    }
}

impl Regions {
    fn add(&self, addr: usize, len: usize, owner: Owner) {
        let usage = Arc::new(Usage { start: addr, len, users: AtomicU32::new(0) });
        self.0.write().insert(addr, Region { owner, usage });
    }

    pub(crate) fn add_native(&self, buffer: Buffer) {
        self.add(buffer.as_ptr().addr(), buffer.len(), Owner::Native(buffer));
    }

    pub(crate) fn add_migrant(&self, migrant: Migrant) -> (usize, usize) {
        let (addr, len) = (migrant.as_ptr().addr(), migrant.len());
        self.add(addr, len, Owner::Migrant(migrant));
        (addr, len)
    }

    /// Takes in what a server has kept; returns where it is, which is nowhere if it has no bytes.
    pub(crate) fn add_kept(&self, mut kept: Kept) -> *mut u8 {
        let (place, len) = (kept.as_mut_ptr(), kept.len());
        if len == 0 {
            return std::ptr::null_mut();
        }
        self.add(place.addr(), len, Owner::Kept(kept));
        place
    }

    /// Counts another user of the buffer in which the bytes lie, if they lie in one.
    ///
    /// # Errors
    /// They leave the buffer; or they are where buffers of `space`, or of the parent process, are, and in none.
    #[inline]
    pub(crate) fn begin_use(
        &self,
        bytes: Segment,
        is_brief: bool,
        space: Option<&Space>,
        users: &mut Users,
    ) -> Result<(), Failure> {
        let Some(usage) = self.used(bytes)? else {
            let addr = bytes.addr.addr();
            return match bytes.length > 0 {
                true if space.is_some_and(|space| space.may_hold(addr)) => Err(gone(addr)),
                true if genie_sys::fork::is_inherited(addr) => Err(inherited(addr)),
                _ => Ok(()),
            };
        };
        users.0.push(User { usage, is_brief });
        // SAFETY: as in `User::end`.
        let Usage { start, len, .. } = unsafe { usage.as_ref() };
        let end = bytes.addr.addr() - start + bytes.length;
        if end > *len {
            return Err(Failure::misuse(format!("an element ends at byte {end} of a buffer of {len}")));
        }
        Ok(())
    }

    /// The buffer in which bytes begin, which has one user more.
    ///
    /// # Errors
    /// They begin in none, and reach into one; or a request was given it.
    #[inline]
    fn used(&self, bytes: Segment) -> Result<Option<NonNull<Usage>>, Failure> {
        let addr = bytes.addr.addr();
        let find = |recent: &RefCell<Recent>| {
            let recent = recent.borrow();
            let is_own = recent.maker.is_some_and(Maker::is_this_process);
            let mut buffers = recent.buffers.iter().flatten();
            let found = buffers.find(|usage| is_own && usage.has(addr) && usage.begin());
            found.map(|usage| NonNull::from(&**usage))
        };
        // A thread that is ending remembers none.
        match RECENT.try_with(find).ok().flatten() {
            Some(found) => Ok(Some(found)),
            None => self.look_up(addr, bytes.length),
        }
    }

    #[inline(never)]
    fn look_up(&self, addr: usize, len: usize) -> Result<Option<NonNull<Usage>>, Failure> {
        let regions = self.0.read();
        let before = regions.range(..=addr).next_back().map(|(_, region)| &region.usage);
        let Some(usage) = before.filter(|usage| usage.has(addr)) else {
            return match regions.range(addr..addr + len).next() {
                Some((start, _)) => Err(Failure::misuse(format!(
                    "an element of {len} bytes at {addr:#x} reaches into the buffer at {start:#x}"
                ))),
                None => Ok(None),
            };
        };
        if !usage.begin() {
            return Err(usage.busy(ENDED));
        }
        let _ = RECENT.try_with(|recent| {
            let recent = &mut *recent.borrow_mut();
            if !recent.maker.is_some_and(Maker::is_this_process) {
                *recent = Recent { maker: Some(Maker::this_process()), ..Recent::NONE };
            }
            recent.buffers[recent.next] = Some(Arc::clone(usage));
            recent.next = (recent.next + 1) % REMEMBERED;
        });
        Ok(Some(NonNull::from(&**usage)))
    }

    /// Takes a migrant buffer out, if these bytes are a whole one, which no request uses.
    pub(crate) fn take_migrant(&self, addr: usize, len: usize) -> Result<Migrant, Failure> {
        let mut regions = self.0.write();
        let Entry::Occupied(entry) = regions.entry(addr) else { return Err(unknown(addr)) };
        match entry.get() {
            Region { owner: Owner::Native(_) | Owner::Kept(_) | Owner::Request, .. } => Err(Failure::misuse(
                format!("the buffer at {addr:#x} is no migrant one, and the scheme passes such"),
            )),
            Region { usage, .. } if usage.len != len => Err(Failure::misuse(format!(
                "a segment of {len} bytes names a part of a migrant buffer of {}: it is passed whole",
                usage.len
            ))),
            Region { usage, .. } => {
                usage.end()?;
                match entry.remove().owner {
                    Owner::Migrant(migrant) => Ok(migrant),
                    Owner::Native(_) | Owner::Kept(_) | Owner::Request => {
                        unreachable!("it was looked at above")
                    }
                }
            }
        }
    }

    /// Gives a request the native buffer in which bytes lie, and says where in it they do. The buffer's place in the table is kept.
    ///
    /// # Errors
    /// They lie in none, or requests use it.
    pub(crate) fn give(&self, bytes: Segment) -> Result<(Buffer, Range<usize>), Failure> {
        let addr = bytes.addr.addr();
        let mut regions = self.0.write();
        let before = regions.range_mut(..=addr).next_back().map(|(_, region)| region);
        let region = before.filter(|region| region.usage.has(addr)).ok_or_else(|| {
            Failure::new(
                libc::EFAULT,
                format!("IO_OWNED: no buffer of io_allocate is at {addr:#x}; leave the flag out to pass other memory"),
            )
        })?;
        let start = addr - region.usage.start;
        let part = start..start + bytes.length;
        if part.end > region.usage.len {
            let (end, len) = (part.end, region.usage.len);
            return Err(Failure::misuse(format!("an element ends at byte {end} of a buffer of {len}")));
        }
        match region.owner {
            Owner::Migrant(_) => {
                return Err(Failure::misuse(format!(
                    "IO_OWNED: the buffer at {addr:#x} is migrant; move it"
                )));
            }
            Owner::Kept(_) => {
                let sentence =
                    format!("IO_OWNED: the bytes at {addr:#x} were kept by io_keep; leave the flag out");
                return Err(Failure::misuse(sentence));
            }
            Owner::Native(_) | Owner::Request => {}
        }
        region.usage.end()?;
        match std::mem::replace(&mut region.owner, Owner::Request) {
            Owner::Native(buffer) => Ok((buffer, part)),
            Owner::Migrant(_) | Owner::Kept(_) | Owner::Request => unreachable!("it was looked at above"),
        }
    }

    /// Takes in what a request gives back.
    pub(crate) fn take_back(&self, given: Returned) {
        match given {
            Returned::Nothing => {}
            Returned::Migrant(migrant) => {
                self.add_migrant(migrant);
            }
            Returned::Buffer(buffer) => {
                if let Some(region) = self.0.write().get_mut(&buffer.as_ptr().addr()) {
                    region.owner = Owner::Native(buffer);
                    region.usage.users.store(0, Ordering::Release);
                }
            }
        }
    }

    /// Forgets the buffer, given to a request, in which this address lies: its server has not let it go.
    pub(crate) fn forget(&self, addr: usize) {
        let mut regions = self.0.write();
        let before = regions.range(..=addr).next_back();
        let is_it = |region: &Region| region.usage.has(addr) && matches!(region.owner, Owner::Request);
        if let Some(start) = before.filter(|(_, region)| is_it(region)).map(|(start, _)| *start) {
            regions.remove(&start);
        }
    }

    pub(crate) fn free(&self, addr: usize) -> Result<(), Failure> {
        let mut regions = self.0.write();
        regions.get(&addr).ok_or_else(|| unknown(addr))?.usage.end()?;
        let freed = regions.remove(&addr);
        drop(regions);
        drop(freed);
        Ok(())
    }
}

fn gone(addr: usize) -> Failure {
    Failure::new(libc::EFAULT, format!("no buffer of the library's is at {addr:#x}: it was freed, or passed"))
}

fn inherited(addr: usize) -> Failure {
    Failure::new(
        libc::EFAULT,
        format!("the buffer at {addr:#x} is the parent process's: zeros are there after fork"),
    )
}

fn unknown(addr: usize) -> Failure {
    Failure::new(libc::EFAULT, format!("no buffer of the library's begins at {addr:#x}"))
}
