//! What is made of requests: buffers that take turns, streams of parts, a server for each client, a server that may go and come again, and
//! data that arrives apart from the headers in front of it.
//!
//! How: by public means of the floors below alone. A program can make such things of its own in the same way.

mod buffer_ring;
mod header_patching;
mod interspersed;
mod per_client;
mod reconnecting;
mod stream;

pub use buffer_ring::BufferRing;
pub use header_patching::{HeaderPatching, Unpatchable};
pub use interspersed::intersperse;
pub use per_client::PerClient;
pub use reconnecting::Reconnecting;
pub use stream::{Part, Parts, Stream, Streams};
