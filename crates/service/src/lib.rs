//! Services as traits: the attribute [`service`] makes a typed client and a typed server of a trait, over the untyped requests
//! of `genie`.
//!
//! ```
//! use genie::service::{Error, Input, Output};
//! use genie::{Connect, Interface, ServerHandle};
//! use serde::{Deserialize, Serialize};
//!
//! /// What both sides know. Other crates get it by depending on the crate that has it.
//! #[genie::service]
//! pub trait Pictures {
//!     /// How many pixels are as bright as `threshold` or brighter.
//!     fn count(&self, pixels: &[f32], threshold: f32) -> u64;
//!     /// Returns how many bytes it has stored.
//!     fn darken(&self, by: &Amount, picture: &[u8], darker: &mut [u8]) -> Result<usize, Refused>;
//! }
//!
//! #[derive(Debug, Clone, Serialize, Deserialize)]
//! pub struct Amount {
//!     pub percent: u8,
//! }
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! pub enum Refused {
//!     TooMuch { percent: u8 },
//! }
//!
//! impl std::fmt::Display for Refused {
//!     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
//!         let Self::TooMuch { percent } = self;
//!         write!(f, "{percent} percent are too much")
//!     }
//! }
//!
//! /// The server: what clients pass as slices, it sees as outputs to be read and inputs to be filled.
//! struct Darkroom;
//!
//! impl Pictures for Darkroom {
//!     fn count(&self, pixels: Output<'_, f32>, threshold: f32) -> u64 {
//!         let mut count = 0;
//!         pixels.for_each_chunk(|pixels| count += pixels.iter().filter(|pixel| **pixel >= threshold).count());
//!         count as u64
//!     }
//!
//!     fn darken(&self, by: &Amount, picture: Output<'_>, mut darker: Input<'_>) -> Result<usize, Refused> {
//!         let percent = by.percent;
//!         let factor = 100_u32.checked_sub(percent.into()).ok_or(Refused::TooMuch { percent })?;
//!         picture.for_each_chunk(|bytes| {
//!             let bytes: Vec<u8> = bytes.iter().map(|byte| (u32::from(*byte) * factor / 100) as u8).collect();
//!             darker.append(&bytes);
//!         });
//!         Ok(darker.actual())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let genie = Interface::open()?;
//! # let server = ServerHandle::new(PicturesServer::new(Darkroom));
//! # #[cfg(any())]
//! // In the server's process:
//! Listener::bind("darkroom", PicturesServer::new(Darkroom), ServeOptions::default())?.run()?;
//! # #[cfg(any())]
//! // In the client's:
//! let server = genie.connect("darkroom")?;
//! let pictures = PicturesClient::new(&genie, server)?;
//!
//! let mut picture = genie.allocate(1 << 20)?;
//! picture.fill(100);
//! let mut darker = genie.allocate(1 << 20)?;
//! let reply = pictures.darken(&Amount { percent: 40 }, &picture, &mut darker).send()?;
//! assert_eq!((reply.value, darker[0]), (1 << 20, 60));
//! println!("{}", reply.receipt()); // "emulated copy: 0 bytes copied, ..."
//!
//! let pending = pictures.count(&[0.5, 1.5], 1.0).submit()?; // others go on meanwhile
//! assert_eq!(pending.sync()?.value, 1);
//!
//! let failed = pictures.darken(&Amount { percent: 200 }, &picture, &mut darker).send().unwrap_err();
//! assert_eq!(failed.error, Error::Method(Refused::TooMuch { percent: 200 }));
//! # Ok(())
//! # }
//! ```
//!
//! # What is made of a trait
//!
//! Of `trait Pictures`:
//!
//! - `PicturesClient`: `new` takes a `ServerHandle`, `connect` the name of a server in another process. Its methods return a
//!   [`Call`], to be sent, submitted, or awaited by `genie::tokio::Interface::call`. Clients are cloned and shared between
//!   threads as handles are. After a server has gone, make another one of `Reconnecting::handle`.
//! - `Pictures` itself, for servers: the same trait with [`Output`] in place of `&[T]`, [`Input`] in place of `&mut [T]`, and
//!   `Send + Sync + 'static`. Methods take `&self`, since a server may serve from several threads.
//! - `PicturesServer`: `new` takes an implementation, and makes a `genie::Server` of it. If the trait has one method, `from_fn`
//!   takes a closure in place of an implementation.
//!
//! # How arguments are passed
//!
//! | argument | passed | the server's method takes |
//! | --- | --- | --- |
//! | `&[T]`, `T` being [plain data](PlainData) | by a scheme | [`Output<'_, T>`](Output) |
//! | `&mut [T]` | by a scheme, to be filled | [`Input<'_, T>`](Input) |
//! | `Buffer` | by a native scheme; comes back with the reply, or with [`Failed`] | `Output<'_>` |
//! | `#[input] Buffer` | the same, to be filled | `Input<'_>` |
//! | `Migrant` | by a migrant scheme, for good | `Output<'_>` |
//! | `#[input] Migrant` | clients pass its greatest length, a `usize`; it arrives with the reply | `Input<'_>` |
//! | `T`, `&T`, `&str` | encoded by serde and postcard | the same |
//! | `#[plain] T`, `#[plain] &T` | as its bytes, `T` being plain data | the same |
//! | arrays of more than 32 values, `[u64; 256]` say | as `#[plain]`; a result by `#[plain]` before the method | the same |
//! | `&Incoming` | not at all: clients leave it out | the request: which client asks, say |
//!
//! `#[scheme(copy)]` before an argument names its scheme: `copy`, `emulated_copy` (the default), `share`, `emulated_share`; for a
//! `Migrant` `move`, `emulated_move` (the default), `weak_move`, `emulated_weak_move`. These are the client's choice: a server
//! serves all of them alike, and does not notice.
//!
//! Postcard writes neither names nor types, so serde's `flatten`, `untagged` and `skip_serializing_if` don't work.
//!
//! Results and errors are encoded by serde, too; `#[plain]` before a method has its result passed as bytes. An encoded result
//! takes 64 KiB at most, errors included; more is passed by an argument `&mut [T]`. `Result<T, E>` has to be written with both
//! types. The client gets `E` as [`Error::Method`], apart from all else that may happen; where a method fails, nothing is passed
//! to the client's buffers, but for those that it shares. `genie::ServerError` will do where a method has no error type of its
//! own.
//!
//! A method replies by returning. A server that replies later, that has other services besides, or that is told when its clients
//! leave, is a `genie::Server` of its own, and passes the requests of typed methods on to a `PicturesServer`, whose services
//! come first among its own; `examples/typed.rs` has one.
//!
//! # Several calls in flight
//!
//! [`Call::submit`] returns a [`Pending`] at once, and [`Call::submit_when_room`] as soon as there is room; take the results by
//! [`Pending::sync`], the oldest first. Each call in flight needs buffers of its own: `&mut [T]` is borrowed until the result is
//! taken, and a `Buffer` comes back with it ([`Reply`] dereferences to `genie::Reply`, which has `take_buffer`).
//! `genie::BufferRing` and `genie::Completions` take requests without types; for calls, a queue does:
//!
//! ```
//! # use genie::{Buffer, Interface, ServerHandle, service::{Input, Output}};
//! use std::collections::VecDeque;
//!
//! #[genie::service]
//! trait Frames {
//!     fn invert(&self, frame: Buffer, #[input] inverted: Buffer);
//! }
//! # struct Inverter;
//! # impl Frames for Inverter {
//! #     fn invert(&self, frame: Output<'_>, mut inverted: Input<'_>) {
//! #         inverted.append_output(&frame);
//! #     }
//! # }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let genie = Interface::open()?;
//! # let frames = FramesClient::new(&genie, ServerHandle::new(FramesServer::new(Inverter)))?;
//! let (mut in_flight, mut free) = (VecDeque::new(), Vec::new());
//! for _ in 0..10 {
//!     if in_flight.len() == 3 {
//!         let pending: genie::service::Pending<'_, _, _, _> = in_flight.pop_front().expect("three");
//!         let mut reply = pending.sync()?;
//!         free.extend([reply.take_buffer(), reply.take_buffer()].into_iter().flatten()); // the frame, and what came
//!     }
//!     let mut buffer = || free.pop().map_or_else(|| genie.allocate(100_000), Ok);
//!     in_flight.push_back(frames.invert(buffer()?, buffer()?).submit_when_room()?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A method returns one result: there are no streams in traits. A server that has both is a `genie::Server` as above, with
//! `genie::Streams` among its own services.
//!
//! # Versions
//!
//! Methods are found by their names, in whatever order either side has them. For each method client and server compare the
//! names and types of the arguments and the types of the result, down to the fields and variants that serde finds in them.
//!
//! - A server may lack methods of its client's. The client connects as long as one method agrees. A call of another one is
//!   [`Error::Mismatch`], which says what either side has; nothing is asked then, and buffers come back.
//! - A server may have methods that its client does not know.
//! - A method whose types change is another method: give it another name, and keep the old one for old clients.
//!
//! A signature marks what `#[plain]` passes, whose bytes are not those of postcard; two types of one name it numbers, as in `Page`
//! and `Page#2`; and a type within itself it names where it comes again. What it does not tell apart:
//!
//! - Plain data of types that have the same name and size, but other fields.
//! - Types of one name that refuse the values 1, `true`, `'a'` or an empty text, since they check them, as far as what comes
//!   behind such a value differs; the same holds of types without an end, and of types that are larger than 10,000 types in each
//!   other. A question mark, or `beginning`, says in the signature that there is more.
//! - Types that serde writes in another way than it reads them.
//! - Meanings: a number of seconds, and one of metres.
//!
//! Between programs, a method is the service `NAME#DIGEST`, the digest being FNV-1a (64 bits, in hexadecimal) of the signature. A
//! request's argument holds the small arguments, one behind the other; the reply's argument is 0 and the result, or 1 and the
//! error. The last service, `#signature`, gives the signature of the service whose number (a postcard `u32`) is its argument.
//!
//! # What peers can do
//!
//! Whatever does not fit a method is refused before the method is called, and a reply that is none is [`Error::Undecodable`].
//! Lengths that a peer claims reserve no memory, and values that are nested until decoding takes 128 KiB of stack are refused.
//! So are arguments and results whose lists and maps have more elements than there are bytes, and 1,024 more: elements without
//! bytes, as those of `Vec<()>` or structs whose fields are all skipped, would come in any number. Pass a number instead. An
//! [`Output`] may change while it is read, if the client shares it or means harm, so its values are copied out; any bytes are
//! values of plain data, so that nothing worse happens than wrong values.
//!
//! # What it costs
//!
//! Looking up methods: once, when the client is made; a server whose methods differ may take 5 s to say how, for all of them
//! together. A call: the encoding, on the stack up to 64 bytes. `cargo run --release --example typed -p genie` compares calls
//! with untyped requests.
//!
//! # What does not compile
//!
//! A server that takes what clients pass:
//!
//! ```compile_fail,E0053
//! #[genie::service]
//! trait Sums {
//!     fn sum(&self, data: &[u8]) -> u64;
//! }
//! struct Server;
//! impl Sums for Server {
//!     fn sum(&self, data: &[u8]) -> u64 { 0 } // `expected Output<'_>, found &[u8]`
//! }
//! ```
//!
//! Slices of what is no plain data, and arguments that serde does not know:
//!
//! ```compile_fail,E0277
//! #[genie::service]
//! trait Sums {
//!     fn sum(&self, data: &[String]) -> u64; // the trait `FromBytes` is not implemented for `String`
//! }
//! ```
//!
//! ```compile_fail,E0277
//! struct Unknown;
//! #[genie::service]
//! trait Sums {
//!     fn sum(&self, data: Unknown) -> u64; // the trait `Serialize` is not implemented for `Unknown`
//! }
//! ```
//!
//! A server that keeps what it was passed:
//!
//! ```compile_fail,E0521
//! #[genie::service]
//! trait Sums {
//!     fn sum(&self, data: &[u8]) -> u64;
//! }
//! struct Server(std::sync::Mutex<Vec<genie::service::Output<'static>>>);
//! impl Sums for Server {
//!     fn sum(&self, data: genie::service::Output<'_>) -> u64 {
//!         self.0.lock().unwrap().push(data); // `data` escapes
//!         0
//!     }
//! }
//! ```
//!
//! A client that looks at memory that is being filled:
//!
//! ```compile_fail,E0502
//! #[genie::service]
//! trait Fills {
//!     fn fill(&self, data: &mut [u8]);
//! }
//! fn ask(client: &FillsClient) {
//!     let mut data = [0; 10];
//!     let pending = client.fill(&mut data).submit().unwrap();
//!     println!("{}", data[0]);
//!     pending.sync().unwrap();
//! }
//! ```

mod call;
mod client;
mod codec;
mod error;
#[doc(hidden)]
pub mod generated;
mod input;
mod output;
mod server;
mod shape;
mod signature;

pub use call::{Call, Pending, Reply};
pub use codec::{Decode, Plain, PlainData, Serde};
pub use error::{Error, Failed, Mismatch, Never};
pub use genie_service_macros::service;
pub use input::Input;
pub use output::Output;

/// The most bytes that an encoded result may take.
const ROOM: usize = 64 << 10;
