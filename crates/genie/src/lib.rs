//! I/O for Linux in which every buffer says how its data is to be passed.
//!
//! A [`Request`] goes to a [`Server`] and comes back as a [`Reply`]. Each element of its buffers names a [`Scheme`]: copy,
//! share, move, weak move, or the *emulated* one of each, which means the same and does less work. The scheme to know is
//! **emulated copy**: no copying of long data, yet copy's exact meaning.
//!
//! ```
//! use genie::{Interface, Out, Scheme, ServerHandle, memory};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let genie = Interface::open()?;
//! let server = ServerHandle::new(memory::Memory::customized());
//! let mut page = genie.allocate(4 << 20)?;
//! page.fill(b'a');
//!
//! // Until the reply comes the server reads the page where it is; what it keeps, it keeps whatever is stored here later.
//! let store = genie.request(&server, memory::STORE).out(Out::emulated_copy(&page)).argument(b"letters");
//! let reply = store.send()?;
//! assert_eq!(reply.receipt().copied, 0);
//! page.fill(b'b');
//!
//! // A buffer that is given by value need not be waited for: the reply brings it back.
//! let store = genie.request(&server, memory::STORE).out(Out::owned(Scheme::EmulatedCopy, page)).argument(b"more");
//! let mut reply = store.submit()?.sync()?;
//! assert_eq!(reply.receipt().copied, 0);
//! let page = reply.take_buffer();
//! # Ok(())
//! # }
//! ```
//!
//! The types say what may happen to a buffer: copy and emulated copy borrow it, for the call (output) or until the reply is
//! taken (input); share takes a [`Buffer`] by value, and the reply brings it back, or borrows bytes until `send` returns; the migrant schemes
//! take a [`Migrant`] for good. Safe code therefore cannot corrupt what a server still reads, whatever scheme it chooses.
//!
//! # Where to go
//!
//! - With the feature `service`, the attribute `service` makes a typed client and a typed server of a trait; see the module
//!   `service`, and `examples/typed.rs`.
//! - A server is a [`Server`]; `examples/server.rs` is a small one. [`channel::Listener`] serves it to other processes, whose clients
//!   call [`Connect::connect`].
//! - To reply later or from another thread, a server keeps the [`Incoming`]. To use parts of a request in several threads, it calls
//!   [`Incoming::pin_output`] and [`Incoming::pin_input`].
//! - A server that has another server do a part of its work forwards parts of its requests ([`Incoming::fragment`]), and waits in no thread
//!   if it has a [`Completer`]; `examples/contractor.rs` is a whole one, which passes on progress, too.
//! - A device, or a server that has its data before it is asked, fills [`Overlays`](mechanism::Overlays), which may be
//!   [`Frames`](mechanism::Frames) of one memory object. A device that transfers data by itself is given a [`Transfer`]
//!   ([`Incoming::begin_transfer`]).
//! - A server that keeps something for each client is a [`PerClient`] of servers.
//! - A client that keeps several requests in flight uses a [`BufferRing`]; one with many takes them from [`Completions`], or says
//!   what follows each reply by [`Pending::then`].
//! - A server that hands out data as it comes keeps [`Streams`], and its client reads a [`Stream`].
//! - Data that arrives behind headers comes to lie at the beginning of a page by [`HeaderPatching`]; headers and trailers of fixed
//!   lengths come apart from it by [`intersperse`].
//! - With the feature `net`, the module `net` has datagrams between clients of one machine, over adapters of every kind.
//! - A client whose server may be restarted holds a [`Reconnecting`].
//! - [`memory`] is a test server: it keeps what it is sent in memory, so that a client can be tried before there is a server.
//! - Programs need nothing of [`mechanism`], unless they choose their memory themselves, or measure.
//! - A server whose requests are to be served in a thread of the program's is a [`channel::Driven`].
//! - A client's event loop waits for [`Interface::descriptor`], a server's event loop for [`channel::Driven::descriptor`].

#[cfg(feature = "tokio")]
pub mod tokio;

#[cfg(feature = "allocator")]
pub use genie_memory::Allocator;

#[cfg(feature = "service")]
pub use genie_service::service;

pub use names::*;

mod names {
    pub use genie_channel::Connect;
    pub use genie_file as file;
    pub use genie_io::servers::memory;
    pub use genie_io::{
        Anticipated, Batch, Client, ClientId, Completer, Completions, Element, Error, Failed, Filled,
        Fragment, HIJACK_LIMIT, In, Incoming, InputPin, Interface, Kept, Limits, Out, OutputPin, Pending,
        Plan, Preference, Preferences, Reply, ReplyBuffer, ReplyElement, Request, RequestId, Returned,
        Server, ServerError, ServerHandle, Service, ServiceId, Shared, Transfer, overruns,
    };
    pub use genie_memory::{Backing, Buffer, Data, DataMut, Direction, Inode, Migrant};
    #[cfg(feature = "net")]
    pub use genie_net as net;
    pub use genie_passing::{Reason, Receipt, Scheme, TotalReceipt};
    pub use genie_series::{
        BufferRing, HeaderPatching, Part, Parts, PerClient, Reconnecting, Stream, Streams, Unpatchable,
        intersperse,
    };
}

/// All that programs use, to be imported at once. It lacks the module `tokio`, whose name would hide the crate `tokio`: write
/// `genie::tokio::Interface`.
///
/// ```
/// use genie::prelude::*;
///
/// # fn main() -> Result<(), Error> {
/// let genie = Interface::open()?;
/// let server = ServerHandle::new(memory::Memory::customized());
/// let page = genie.allocate(1 << 20)?;
/// println!("{}", genie.request(&server, memory::STORE).out(Out::new(&page)).argument(b"a").send()?.receipt());
/// # Ok(())
/// # }
/// ```
pub mod prelude {
    #[cfg(feature = "allocator")]
    #[doc(no_inline)]
    pub use crate::Allocator;
    #[doc(no_inline)]
    pub use crate::names::*;
    #[cfg(feature = "service")]
    #[doc(no_inline)]
    pub use crate::service;
    #[doc(no_inline)]
    pub use crate::{channel, mechanism};
}

/// Servers in other processes: listening and connecting.
pub mod channel {
    pub use genie_channel::directory::Directory;
    pub use genie_channel::{
        ClientCounts, ConnectOptions, Counts, Driven, Layout, Listener, Running, ServeOptions, Serving,
        Status, Stopper, Traffic, servers, traffic,
    };
    pub use genie_memory::Mapping;
}

/// Services as traits: all of the crate [`genie_service`], whose documentation tells what the attribute [`macro@service`] makes of
/// a trait.
#[cfg(feature = "service")]
pub mod service {
    #[doc(inline)]
    pub use genie_service::*;
}

/// The parts that an [`Interface`] is made of. Programs that pass data need none of them: [`Interface::open`] makes the best
/// interface there is.
///
/// It is for programs that choose their memory's granules (as below), how stores are noticed, or from which length on data
/// is not copied; for programs that measure or inspect ([`Interface::space`], [`Interface::passing`]); for code that registers memory
/// with the kernel or a device ([`Space::register`](mechanism::Space::register)); and for servers that fill
/// buffers of their own before they are asked, or have a device do it ([`Incoming::overlay`], [`Incoming::outboard`],
/// [`Server::preferred`]). [`model`](mechanism::model) says what the schemes promise in general.
///
/// ```
/// use genie::mechanism::{Config, Granularity, GranuleKind, Passing};
/// use genie::{Interface, Limits};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config { granularity: Granularity::Only(GranuleKind::Base), ..Config::default() };
/// let genie = Interface::new(Passing::open(&config)?, Limits::default());
/// assert_eq!(genie.space().granule(), 4096);
/// # Ok(())
/// # }
/// ```
///
/// A pool of frames in a memory object that a device has, too:
///
/// ```
/// use genie::Interface;
/// use genie::mechanism::{Frames, GranuleKind, Layout, Object, Overlays, SystemBuffer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let genie = Interface::open()?;
/// let object = Object::create(GranuleKind::Base, 16 * 4096)?; // or `Object::accept`, of a descriptor
/// // SAFETY: only the device stores into the object but by the buffers, into frames that are in use.
/// let mut frames: Frames = unsafe { genie.space().frames(object, 4096)? };
/// let object = frames.object().ok_or("this is a child made by fork")?;
/// // SAFETY: only the device gets the descriptor.
/// let for_device = unsafe { frames.space().share_writable(object.id)? };
///
/// // The frames themselves, or a pool of them for `Incoming::overlay`.
/// let buffers: Vec<SystemBuffer> = frames.buffers();
/// assert_eq!((buffers.len(), buffers[0].len()), (16, 4096));
/// let frames = genie.space().make_frames(4096, 16)?;
/// let overlays = Overlays::framed(frames, Layout { headroom: 64, len: 4000, away: 0 });
/// # let _ = (for_device, overlays);
/// # Ok(())
/// # }
/// ```
pub mod mechanism {
    pub use genie_memory::{
        Config, Faults, Frames, Granularity, GranuleKind, LenderId, Mark, Object, ObjectId, Protection,
        Registrar, Registration, SharedObject, Space, Statistics, SystemBuffer,
    };
    pub use genie_passing::calibration::Circumstances;
    pub use genie_passing::{
        Chain, Cost, Costs, Layout, Line, Outboard, Overlay, Overlays, Passing, Preferred, Thresholds, model,
    };
}

/// Examples of code that programs which use `genie` alone cannot write.
///
/// They cannot use a span, which names raw memory, or copy from or to a span:
///
/// ```compile_fail,E0432
/// use genie::{Segments, Span, gather, scatter, transfer};
/// ```
///
/// They cannot use a reference's memory after the reference is gone:
///
/// ```compile_fail,E0716
/// # fn keep(genie: &genie::Interface, buffer: &genie::Buffer) {
/// let (addr, len) = (buffer.addresses().start, buffer.len());
/// let data = genie.space().reference(addr, len, genie::Direction::Out).unwrap().data();
/// data.to_vec();
/// # }
/// ```
///
/// They cannot store into borrowed memory through a reference, or through a reference's segments:
///
/// ```compile_fail,E0133
/// # fn store(genie: &genie::Interface, buffer: &genie::Buffer) {
/// let (addr, len) = (buffer.addresses().start, buffer.len());
/// let reference = genie.space().reference(addr, len, genie::Direction::In).unwrap();
/// reference.data_mut().fill(0x99);
/// # }
/// ```
///
/// ```compile_fail,E0133
/// # fn store(genie: &genie::Interface, buffer: &genie::Buffer) {
/// let (addr, len) = (buffer.addresses().start, buffer.len());
/// let reference = genie.space().reference(addr, len, genie::Direction::In).unwrap();
/// reference.segments()[0].fill(0x99);
/// # }
/// ```
///
/// They cannot have data delivered into borrowed memory:
///
/// ```compile_fail,E0596
/// # fn deliver(genie: &genie::Interface, buffer: &genie::Buffer) {
/// let mut system = genie.space().system_buffer(buffer.len()).unwrap();
/// genie.space().deliver(&mut system, &mut buffer[..], &Default::default()).unwrap();
/// # }
/// ```
///
/// They cannot have an input filled in place in borrowed memory:
///
/// ```compile_fail,E0133
/// # use genie_passing::Target;
/// # fn fill(genie: &genie::Interface, buffer: &genie::Buffer) {
/// let target = Target::Native { addr: buffer.addresses().start, len: buffer.len() };
/// let mut input = genie.passing().input(genie::Scheme::EmulatedShare, target).unwrap();
/// input.ready().unwrap().fill(0x99);
/// # }
/// ```
///
/// They cannot get a descriptor through which borrowed memory could be written:
///
/// ```compile_fail,E0133
/// # fn share(genie: &genie::Interface) {
/// let object = genie.space().object_at(0).unwrap();
/// genie.space().share_writable(object.id).unwrap();
/// # }
/// ```
#[cfg(doctest)]
struct SafeSurface;

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles and runs the guide's.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
