//! The promises of data passing, as a suite to which a server, a carrier or an adapter is held.
//!
//! Why: what each semantics promises has to hold for every server, on every way to it. Whoever writes one should neither guess
//! the promises nor write tests of them.
//! How: a [`Promise`] is a function over a [`Scene`], which is a client's interface and what it reaches. A [`Subject`] opens
//! scenes in each [`Setup`] (kind of memory, protection, buffers), and tries the promises on them: each in a test of its own, or
//! all in one [`Report`]. What a subject cannot do, or a machine has not, is reported with the reason.
//!
//! A *server* is held to what it does with the requests of any client ([`Servers::storing`]): it needs a service that keeps
//! bytes and one that gives them back. A *carrier*, which brings requests to servers (a channel, a server that forwards), is
//! held to far more: it carries requests to servers of the suite's ([`Servers::carried`]), one of which, the
//! [`Holder`](holder::Holder), keeps each request until a promise says what is to be done with it. An adapter that has data in
//! memory of its own has devices, too ([`Servers::with_devices`]).
//!
//! A report is no proof. Data is at most 2 MiB long with granules of 4 KiB, 80 KiB where a server's buffers are its own, and 6 MiB with
//! huge granules, so what a server does to longer data is not seen. A server has to keep that much. Nothing is promised of those who get what
//! is being put. A report ends even if a server never returns from a request, but a thread that is inside it is left behind; a
//! subject that never returns from being opened, and a promise that is a test of its own ([`Subject::hold`]), wait.
//!
//! # Examples
//! The memory server of `genie-io`, held to the promises of servers, and as a test of one's own server would be:
//! ```
//! use genie_conformance::{Granules, Guard, Buffering, Servers, Setup, Store, Subject};
//! use genie_io::ServerHandle;
//! use genie_io::servers::memory::{FETCH, Memory, STORE};
//!
//! let subject = Subject::new("the memory server", |_interface, _setup| {
//!     let server = ServerHandle::new(Memory::customized());
//!     let name_to_argument = |name: &str| name.as_bytes().to_vec();
//!     Ok(Servers::storing(Store::new(server, STORE, FETCH, name_to_argument)))
//! });
//! let setup = Setup::new(Granules::Base, Guard::Never, Buffering::Customized);
//! subject.report(&[setup]).assert_kept();
//! ```

pub mod bytes;
mod heap;
pub mod holder;
pub mod machine;
mod promise;
mod promises;
mod report;
mod scene;
mod setup;
mod subject;

pub use promise::{Need, Promise};
pub use promises::{PROMISES, promise};
pub use report::{Finding, Report, Verdict};
pub use scene::{POOLED, Scene, Servers, Store};
pub use setup::{
    Buffering, Granules, Guard, Setup, assert_idle, checked, fresh_seed, interface, memory_limit,
};
pub use subject::{GRACE, Subject};
