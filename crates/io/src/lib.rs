//! Requests and replies between clients and servers, in which every buffer element says how its data is passed.
//!
//! How, one output: [`Interface::request`] composes a [`Request`]; `send` runs each element's request-time operations
//! (`passing`), hands the request to the server as an [`Incoming`], and takes the [`Reply`], whose receipts say what was
//! done. An input is the mirror image, with the ready-time step when the server first asks for its buffer, and delivery
//! when the client takes the reply.
//! Invariants: a request's memory belongs to the server until it replies or drops it, whatever the client gives up.
//! Source: thesis §1.1.2, §3.1.2, §7.1 to §7.3.

mod buffer_ring;
mod carrier;
pub mod channel;
mod client;
mod code;
mod completer;
mod completions;
mod contract;
mod counts;
mod deadline;
mod element;
mod error;
mod exchange;
mod followers;
mod forwarded;
mod fragment;
mod handle;
mod incoming;
mod interface;
mod limits;
mod located;
mod location;
mod loop_waker;
mod name;
mod outgoing;
mod outstanding;
mod panics;
mod pending;
mod per_client;
mod pin;
mod presence;
mod primitive;
mod reconnecting;
mod reply;
mod request;
mod request_id;
mod server;
mod server_error;
pub mod servers;
mod service;
mod stream;
mod telemetry;
mod timer;
mod views;
mod work;

pub use buffer_ring::BufferRing;
pub use client::{Client, ClientId};
pub use completer::Completer;
pub use completions::Completions;
pub use element::{Element, In, Out, Shared};
pub use error::{Error, Failed};
pub use fragment::Fragment;
pub use handle::ServerHandle;
pub use incoming::{Anticipated, Filled, Incoming};
pub use interface::Interface;
pub use limits::Limits;
pub use pending::Pending;
pub use per_client::PerClient;
pub use pin::{InputPin, OutputPin};
pub use reconnecting::Reconnecting;
pub use reply::{Reply, ReplyBuffer, ReplyElement, Returned};
pub use request::Request;
pub use request_id::RequestId;
pub use server::Server;
pub use server_error::ServerError;
pub use service::{Service, ServiceId};
pub use stream::{Part, Parts, Stream, Streams};
