//! Carriers: what takes requests to servers elsewhere, and brings requests from there. This is all that a carrier needs of this crate.
//!
//! Why: a server may be in another process, in a virtual machine, or behind a wire. What a request is, how its data is passed and
//! what its client may rely on is the same everywhere; how it gets there is the business of crates above this one.
//! How, at the client's end: the carrier connects by itself, and [`Interface::attach`](crate::Interface::attach) makes a
//! [`ServerHandle`](crate::ServerHandle) of a [`Carrier`]. From then on,
//! 1. [`Carrier::request`] gets each request as an [`Outgoing`], whose request-time operations have run. The carrier calls
//!    [`Outgoing::make_ready`], and sends what [`Outgoing::work`] says: the argument, and of each element the bytes
//!    ([`Carried::copy_to`]) or where they are ([`WorkElement::each_shown`]).
//! 2. It keeps the [`Outgoing`] in a table of its own, by a [`Slot`], until the reply comes. The memory is the server's meanwhile.
//! 3. It enters the reply in [`Outgoing::work_mut`]: how much each input has got ([`Work::set_actual`]), then what the record
//!    carries of inputs ([`Work::note_carried`]), and the argument ([`Work::set_reply_argument`]). Then it ends the request by
//!    [`Outgoing::succeed`], [`Outgoing::succeed_for`] or [`Outgoing::fail`].
//!
//! At the server's end, the carrier holds the server as [`Code`], and for each client a [`Caller`]:
//! 1. Of what came it makes a [`Work`], adds the buffers and elements, and makes an [`Incoming`](crate::Incoming) of it
//!    ([`Incoming::brought`](crate::Incoming::brought)), with a name from its [`RequestIds`].
//! 2. It hands that to [`Code::request`]. The server replies then or later, in any thread: [`Caller::reply`] gets the work back.
//! 3. [`Caller::reply`] calls [`Work::check_inputs`], [`Work::bring`] and [`Work::let_go`], sends the reply, and calls
//!    [`Work::end`]. When the client is gone, the carrier has each pending request let go ([`Contract::evict`], then
//!    [`Code::abort`]), and at last calls [`Code::departed`], once.
//!
//! 4. What the server says of its progress ([`Caller::progress`]) goes to [`Outgoing::progress`], in the order of the server's words, and
//!    before the reply.
//!
//! 5. If the server has a completer ([`Code::is_looked_at`]), the carrier's threads call [`Code::collect_if_free`] while they are
//!    awake, and [`Code::arm`] before they sleep; [`Code::descriptor`] then says when to call [`Code::collect`].
//!
//! Invariants: an [`Outgoing`] is ended once, and not before the server surely has no part of its memory any more; what the client
//! is told meanwhile is [`Outgoing::give_up`]'s business. No request waits for a reply that no thread takes.
//! A child made by fork forgets its table of [`Outgoing`]s: to drop one there would end the parent's request. Locks of a carrier's are
//! not held while the server's code, or a client's task, is called: either may make requests. A carrier that ends requests under a lock
//! does so in [`Awaited::put_off`].
//! Trust: this crate believes what a carrier says. So a carrier checks all that a peer sends: numbers of services, lengths against the
//! request's, places of memory; and it ends what has no honest peer. What [`Work::set_actual`], [`Work::note_carried`],
//! [`Work::set_reply_argument`] and [`Work::check_inputs`] refuse is wrong, too.
//! Source: thesis §5.1, §7.2.

pub(crate) mod outgoing;
mod seam;

pub use crate::carrier::outgoing::Outgoing;
pub use crate::carrier::seam::{Caller, Carrier, Carries, Mirrored};
pub use crate::contract::Contract;
pub use crate::deadline::{Patience, deadline_after};
pub use crate::exchange::Awaited;
pub use crate::followers::Followers;
pub use crate::kept::allowance::Allowance;
pub use crate::loop_waker::LoopWaker;
pub use crate::name::{MAX_NAME, is_control, program_name};
pub use crate::request::id::{RequestIds, Slot};
pub use crate::sequel::{have_left_run, is_left, run_waiting, wake as wake_task};
pub use crate::server::code::Code;
pub use crate::work::located::{Located, PrivateBuffer};
pub use crate::work::location::Shown;
pub use crate::work::{Carried, MAX_CARRIED, MAX_SHORTS, Short, Work, WorkBuffer, WorkElement, carried_room};
