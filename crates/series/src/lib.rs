//! What is made of many requests: buffers that take turns, streams of parts, a server for each client, and a server that may go and come
//! again.
//!
//! How: by public means of the floors below alone. A program can make such things of its own in the same way.

mod buffer_ring;
mod per_client;
mod reconnecting;
mod stream;

pub use buffer_ring::BufferRing;
pub use per_client::PerClient;
pub use reconnecting::Reconnecting;
pub use stream::{Part, Parts, Stream, Streams};
