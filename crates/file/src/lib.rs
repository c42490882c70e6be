//! The file server: fetches and stores real files, lists directories, and lets files appear whole or not at all.
//!
//! Why: storage-like servers keep buffers after the reply, so the data that they pass is copied to or from their cache,
//! whatever the scheme (thesis §10.2). A client that has to tell files from networks needs both kinds of server at hand.
//! How: the server works in the client's thread. Every request opens its file anew beneath the root, so that no rename, link
//! or change of mode is missed (a kept descriptor would have to be checked for about as long), and no descriptor outlives
//! its request. A fetch copies from cached blocks; missing blocks are read whole. A fetch that would take more than half of
//! the cache, or whose file changed just now, is read by the kernel straight into the request's buffer. With mapped access,
//! fetches copy from mappings instead. A store is written by the kernel straight from the request's buffer, and its blocks
//! are removed from the cache.
//! Invariants: a cached block is used only while its file has the size and times that it had when the block was read.
//! Trust: paths come from clients; the kernel resolves them and refuses to leave the root, even by links. The root's owner
//! is responsible for device files beneath the root: they are refused, but only after they were opened.
//! Limits: the cache's bytes, in blocks of 64 KiB, and one block more for each fetch being served. Changes by other
//! processes are noticed at the next request by the file's size and times. Changes that these do not show are missed: stores
//! into a shared mapping may show only at writeback, a network file system may show changes late, and bytes that a fetch
//! reads during another process's single write of more than 20 ms may be kept. Like `pread`, a fetch that races with a store
//! may see a part of it. Stores reach the kernel before the reply and in the order of the requests; they reach the disk only
//! by `sync`. A store that fails may have stored a part. Fetches and stores of more than 4 MiB tell their clients how far they have come,
//! end early where they are given up, and reply with what was passed by then.
//! Source: thesis §1.1.2 (cached buffers), §10.1, §10.2. Differs: blocks are cached in the server besides the kernel's pages.

mod argument;
mod attributes;
mod cache;
mod checksum;
mod mapped;
mod parts;
mod root;
mod tree;
mod upload;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use genie_memory::{Data, DataMut};

use argument::Argument;
use cache::{Block, Cache, Key};
use genie_io::{Incoming, RequestId, Server, ServerError, ServerHandle, Service, ServiceId};
use mapped::Views;
use root::{Opened, Root, bytes_possible};

pub use argument::at;
pub use attributes::{Attributes, Kind};
pub use cache::{BLOCK, Statistics};
pub use checksum::{CHECKSUM_MAX, CHECKSUM_ROOM, Checksum, Checksummer, range};
pub use parts::Token;
pub use tree::{Entry, after, entries};
pub use upload::{BEGIN_ROOM, Begin, Commit, begun};

/// Fills input buffer 0 with the bytes of a file from an offset on; the argument is made by [`at`]. The actual
/// length is less than the buffer's where the file ends first, and 0 beyond the file's end.
pub const FETCH: ServiceId = ServiceId(0);
/// Writes output buffer 0 to a file from an offset on; the argument is made by [`at`]. A missing file is created (a
/// missing directory is not), and a short file is extended; bytes between its old end and the offset read as zeros. The actual
/// length is that of what was stored; a failure tells at least that of whole steps of 4 MiB.
pub const STORE: ServiceId = ServiceId(1);
/// Passes back the [`Attributes`] of whatever a path leads to, as the reply's argument, which needs [`Attributes::LEN`]
/// bytes of room. The argument is made by [`at`]; its offset is ignored.
pub const STAT: ServiceId = ServiceId(2);
/// Replies when all that was stored in a file before, and the file's entry in its directory, are on the disk. The argument
/// is made by [`at`]; its offset is ignored.
pub const SYNC: ServiceId = ServiceId(3);

/// Fills input buffer 0 with the entries of a directory that come after a name, in order. [`entries`] reads them; the
/// argument is made by [`after`]. The actual length is that of the entries that fit as a whole. The reply's argument is one
/// byte: 1 when more entries follow, else 0.
pub const LIST: ServiceId = ServiceId(4);
/// Passes back the checksum of a range of a file, as the reply's argument, which needs [`CHECKSUM_ROOM`] bytes of room
/// and is read by [`Checksum::from_reply`]; the argument is made by [`range`].
pub const CHECKSUM: ServiceId = ServiceId(5);
/// Begins an upload; the argument is made by [`Begin::argument`]. The reply's argument, which needs [`BEGIN_ROOM`] bytes of
/// room, is read by [`begun`]: it names the part, beside the future file, into which [`STORE`] is to store. A part that was
/// taken over holds data already.
pub const BEGIN: ServiceId = ServiceId(6);
/// Ends an upload: its part replaces the file at the path with which it was begun, in one step, if the part holds what the
/// argument says and if there is nothing but a regular file at that path. The argument is made by [`Commit::argument`].
/// Otherwise the part stays, to be mended or abandoned.
pub const COMMIT: ServiceId = ServiceId(7);
/// Removes the part of an upload; the argument is made by [`at`] from the part's path. Its offset is ignored.
pub const ABANDON: ServiceId = ServiceId(8);
/// Makes a directory, unless it is there already; its parent must be there. The argument is made by [`at`]; its offset is
/// ignored.
pub const MKDIR: ServiceId = ServiceId(9);

static SERVICES: [Service; 10] = [
    Service::new("fetch", false, true),
    Service::new("store", true, false),
    Service::new("stat", false, false),
    Service::new("sync", false, false),
    Service::new("list", false, true),
    Service::new("checksum", false, false),
    Service::new("begin", false, false),
    Service::new("commit", false, false),
    Service::new("abandon", false, false),
    Service::new("mkdir", false, false),
];
/// Whether a server has the services of a file server. Another server's services of the same numbers do other things: ask
/// this before the first request to a server that somebody has named.
pub fn is_file_server(server: &ServerHandle) -> bool {
    let its = server.services();
    its.len() >= SERVICES.len() && SERVICES.iter().zip(its).all(|(own, its)| own.name == its.name)
}

/// The services that change what is beneath the root.
const CHANGING: [ServiceId; 5] = [STORE, BEGIN, COMMIT, ABANDON, MKDIR];

/// A server of the files beneath one directory. Cloning makes another handle to the same server and its cache.
///
/// # Examples
/// ```
/// use genie_file::{self as file, File};
/// use genie_io::{In, Interface, Out, ServerHandle};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let interface = Interface::open()?;
/// let files = ServerHandle::new(File::open(directory, 64 << 20)?);
///
/// let place = file::at("greeting", 3);
/// interface.request(&files, file::STORE).out(Out::emulated_copy(b"hello")).argument(&place).send()?;
/// let mut bytes = [0; 100];
/// let reply = interface.request(&files, file::FETCH).input(In::copy(&mut bytes)).argument(&place).send()?;
/// assert_eq!(reply.actual(), 5);
/// assert_eq!(&bytes[..5], b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct File {
    root: Arc<Root>,
    cache: Arc<Cache>,
    is_read_only: bool,
    /// The mappings from which fetches are served instead of from the cache, if they are.
    views: Option<Arc<Views>>,
}

impl File {
    /// Serves the files beneath the directory `root`, caching at most `cache_bytes` of them; with less than one
    /// [`BLOCK`], nothing is cached.
    ///
    /// # Errors
    /// `root` does not exist, is no directory, or may not be entered.
    pub fn open(root: impl AsRef<Path>, cache_bytes: usize) -> Result<Self, ServerError> {
        let root = Arc::new(Root::open(root.as_ref())?);
        Ok(Self { root, cache: Arc::new(Cache::new(cache_bytes)), is_read_only: false, views: None })
    }

    /// Makes a handle that refuses every service that would change something.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// Makes a handle that serves fetches from mappings of the files instead of the cache (mapped access).
    ///
    /// # Cost
    /// A fetch of mapped bytes copies once and makes no system call except to find the file. Each mapping covers the 64 MiB
    /// around a fetch; the 64 mappings used last are kept. A deleted file keeps its disk space as long as a mapping of it.
    #[must_use]
    pub fn mapped(mut self) -> Self {
        self.views = Some(Arc::default());
        self
    }

    /// Removes the parts of uploads that were begun and that nobody has stored to for `age`; returns how many there were.
    /// Call it when a server starts. Parts that may not be removed are left.
    ///
    /// # Cost
    /// Looks at every entry beneath the root.
    pub fn remove_leftovers(&self, age: Duration) -> usize {
        upload::remove_leftovers(&self.root, age)
    }

    /// What the cache has done so far.
    pub fn statistics(&self) -> Statistics {
        self.cache.statistics()
    }

    fn serve(&self, request: &mut Incoming) -> Result<(), ServerError> {
        let service = request.service();
        if self.is_read_only && CHANGING.contains(&service) {
            return Err(self.root.unchangeable());
        }
        let argument = request.argument().to_vec();
        match service {
            FETCH => self.fetch(request, &Argument::parse(&argument)?),
            STORE => self.store(request, &Argument::parse(&argument)?),
            STAT => {
                let attributes = tree::attributes(&self.root, Argument::parse(&argument)?.path)?;
                Ok(request.set_argument(&attributes.to_bytes())?)
            }
            SYNC => self.root.sync(Argument::parse(&argument)?.path),
            LIST => self.list(request, &argument),
            CHECKSUM => self.checksum(request, &argument),
            BEGIN => Ok(request.set_argument(&upload::begin(&self.root, &argument)?)?),
            COMMIT => upload::commit(&self.root, &argument),
            ABANDON => upload::abandon(&self.root, Argument::parse(&argument)?.path),
            MKDIR => tree::make_directory(&self.root, Argument::parse(&argument)?.path),
            ServiceId(other) => Err(ServerError::new(format!("the file server has no service {other}"))),
        }
    }

    fn list(&self, request: &mut Incoming, argument: &[u8]) -> Result<(), ServerError> {
        let page = tree::list(&self.root, argument, request.len(0))?;
        request.fill(0, |room| room.copy_from(&page.bytes))?;
        Ok(request.set_argument(&[page.is_followed.into()])?)
    }

    fn checksum(&self, request: &mut Incoming, argument: &[u8]) -> Result<(), ServerError> {
        let (len, place) = checksum::parse_len(argument)?;
        let from = Argument::parse(place)?;
        let opened = self.root.reader(from.path)?;
        let bytes = from.offset..from.offset.saturating_add(len);
        let found = checksum::of_file(&opened, bytes).map_err(|error| self.root.unreadable(&from, &error))?;
        Ok(request.set_argument(&checksum::reply(found.0, found.1))?)
    }

    fn fetch(&self, request: &mut Incoming, from: &Argument<'_>) -> Result<(), ServerError> {
        let opened = self.root.reader(from.path)?;
        let len = request.ready(0)?.len();
        let is_cached = self.cache.suits(len) && opened.version.is_settled(SystemTime::now());
        let fetched = in_steps(request, len, |request, here| {
            let (offset, data) =
                (from.offset.saturating_add(here.start as u64), request.input(0)?.part(here));
            let viewed = self.views.as_ref().and_then(|views| views.fetch(&opened, offset, &data));
            if viewed.is_none() && !is_cached && offset == from.offset {
                self.cache.count_bypass();
            }
            let read = viewed.map_or_else(|| self.read(&opened, offset, &data, is_cached), Ok);
            read.map_err(|error| self.root.unreadable(from, &error))
        })?;
        Ok(request.set_actual(0, fetched)?)
    }

    /// Reads by the cache, or straight from the file; returns how many bytes there were.
    fn read(
        &self,
        opened: &Opened,
        offset: u64,
        data: &DataMut<'_>,
        is_cached: bool,
    ) -> genie_sys::Result<usize> {
        if is_cached {
            return self.fetch_cached(opened, offset, data);
        }
        let possible = data.len().min(bytes_possible(offset));
        data.part(0..possible).read_file(&opened.file, offset)
    }

    /// Copies from cached blocks; returns how many bytes there were.
    fn fetch_cached(
        &self,
        opened: &Opened,
        offset: u64,
        data: &DataMut<'_>,
    ) -> Result<usize, genie_sys::Error> {
        let (len, mut done) = (data.len(), 0);
        while done < len {
            let at = offset + done as u64;
            let block = self.block(opened, at / BLOCK as u64)?;
            let bytes = block.bytes.get((at % BLOCK as u64) as usize..).unwrap_or_default();
            let here = bytes.len().min(len - done);
            data.part(done..done + here).copy_from(&bytes[..here]);
            done += here;
            if block.bytes.len() < BLOCK {
                break;
            }
        }
        Ok(done)
    }

    /// The block of a file, from the cache or else from the file.
    fn block(&self, opened: &Opened, index: u64) -> Result<Arc<Block>, genie_sys::Error> {
        let key = Key { file: opened.id, index };
        let miss = match self.cache.get(key, opened.version) {
            Ok(block) => return Ok(block),
            Err(miss) => miss,
        };
        let start = index * BLOCK as u64;
        let block = Arc::new(Block::read(opened, start)?);
        let whole = opened.version.bytes_from(start).min(BLOCK as u64) == block.bytes.len() as u64;
        // Files that hide their size, as those of procfs do, may change without changing their size or times. One of them
        // may be empty now.
        if whole && !block.bytes.is_empty() {
            self.cache.insert(miss, Arc::clone(&block));
        }
        Ok(block)
    }

    fn store(&self, request: &mut Incoming, to: &Argument<'_>) -> Result<(), ServerError> {
        let len = request.output(0)?.len();
        to.check_end(len)?;
        let opened = self.root.writer(to.path)?;
        let _storing = self.cache.store(opened.id, to.offset, len);
        let stored = in_steps(request, len, |request, here| {
            let (offset, data) = (to.offset + here.start as u64, request.output(0)?.part(here));
            store_directly(&opened, offset, &data).map_err(|error| self.root.unwritable(to, len, &error))?;
            Ok(data.len())
        })?;
        Ok(request.set_actual(0, stored)?)
    }
}

/// The bytes that are passed before the client is told.
const STEP: usize = 4 << 20;

/// Passes `len` bytes of buffer 0 in steps by `pass`, which says how many of a step's there were. Ends at a step that is not whole,
/// or where the client gives the rest up; returns how many bytes were passed.
fn in_steps(
    request: &mut Incoming,
    len: usize,
    mut pass: impl FnMut(&Incoming, Range<usize>) -> Result<usize, ServerError>,
) -> Result<usize, ServerError> {
    let mut done = 0;
    loop {
        let here = done..len.min(done + STEP);
        let end = here.end;
        done += pass(request, here)?;
        if done < end || done == len || request.is_aborted() {
            return Ok(done);
        }
        request.progress(0, done)?;
    }
}

fn store_directly(opened: &Opened, offset: u64, data: &Data<'_>) -> Result<(), genie_sys::Error> {
    if data.write_file(&opened.file, offset)? < data.len() {
        let subject = format!("{} bytes at {offset}", data.len());
        return Err(genie_sys::Error::new("pwrite", subject, genie_sys::Errno::NOSPC));
    }
    Ok(())
}

impl Server for File {
    fn name(&self) -> &str {
        "file"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = self.serve(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {
        // Every request is replied to before the call that made it returns.
    }
}
