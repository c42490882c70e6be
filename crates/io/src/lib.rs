//! Requests and replies between clients and servers, in which every buffer element says how its data is passed.
//!
//! How, one output: [`Interface::request`] composes a [`Request`]; `send` runs each element's request-time operations
//! (`passing`), hands the request to the server as an [`Incoming`], and takes the [`Reply`], whose receipts say what was
//! done. An input is the mirror image, with the ready-time step when the server first asks for its buffer, and delivery
//! when the client takes the reply.
//! Invariants: a request's memory belongs to the server until it replies or drops it, whatever the client gives up.
//! Source: thesis §1.1.2, §3.1.2, §7.1 to §7.3.

pub mod carrier;
mod client;
mod completions;
mod contract;
mod deadline;
mod error;
mod exchange;
mod followers;
mod incoming;
mod interface;
mod kept;
mod limits;
mod loop_waker;
mod name;
mod panics;
mod reply;
mod request;
mod sequel;
mod server;
pub mod servers;
mod telemetry;
mod views;
mod work;

use genie_sys::primitive;

pub use client::{Client, ClientId};
pub use completions::Completions;
pub use error::server_error::ServerError;
pub use error::{Error, Failed};
pub use incoming::fragment::Fragment;
pub use incoming::pin::{InputPin, OutputPin};
pub use incoming::transfer::Transfer;
pub use incoming::{Anticipated, Filled, Incoming};
pub use interface::Interface;
pub use interface::preference::Preference;
pub use kept::Kept;
pub use limits::Limits;
pub use reply::{Reply, ReplyBuffer, ReplyElement, Returned};
pub use request::Request;
pub use request::batch::Batch;
pub use request::element::{Element, In, Out, Shared};
pub use request::id::RequestId;
pub use request::pending::Pending;
pub use request::plan::Plan;
pub use sequel::{HIJACK_LIMIT, overruns};
pub use server::Server;
pub use server::completer::Completer;
pub use server::handle::ServerHandle;
pub use server::preferences::Preferences;
pub use server::service::{Service, ServiceId};
