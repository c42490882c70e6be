//! Channels: both directions between a client and a server, and the ends that each side holds.

use std::sync::Arc;

#[cfg(not(loom))]
use genie_sys::{GranuleKind, Object};

use crate::bell::{Bell, Bells};
use crate::consumer::Consumer;
use crate::direction::Direction;
use crate::error::Error;
use crate::layout::Layout;
use crate::producer::Producer;

/// One of the two sides of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Sends requests and receives replies.
    Client,
    /// Receives requests and sends replies.
    Server,
}

/// What one side of a channel holds. The two ends may go to different threads; each end keeps the memory mapped.
#[derive(Debug)]
pub struct Ends {
    /// Sends to the peer.
    pub producer: Producer,
    /// Receives from the peer.
    pub consumer: Consumer,
}

impl Ends {
    fn of([requests, replies]: [Direction; 2], side: Side, bells: Bells) -> Self {
        let (sent, received) = match side {
            Side::Client => (requests, replies),
            Side::Server => (replies, requests),
        };
        let bell = Bell::new(sent.clone(), bells.peer);
        Self {
            consumer: Consumer::new(received, bells.own, bell.clone()),
            producer: Producer::new(sent, bell),
        }
    }

    /// Maps a channel object. Each side of an object must be attached once, and never again: positions are private to
    /// the ends and start at 0.
    ///
    /// The object may come from a peer that is not trusted, if it can neither shrink nor grow.
    ///
    /// # Errors
    /// The layout is not allowed, the object has another size, or it cannot be mapped.
    #[cfg(not(loom))]
    pub fn attach(object: &Object, layout: Layout, side: Side, bells: Bells) -> Result<Self, Error> {
        Ok(Self::of(Direction::map(object, layout)?, side, bells))
    }

    /// Makes a channel in memory of this process: the client's ends and the server's.
    ///
    /// # Errors
    /// The layout is not allowed.
    pub fn in_process(layout: Layout, client: Bells, server: Bells) -> Result<(Self, Self), Error> {
        layout.check()?;
        let directions = [(); 2].map(|()| Direction::allocate(layout, &[]));
        Ok((Self::of(directions.clone(), Side::Client, client), Self::of(directions, Side::Server, server)))
    }
}

/// Makes the memory of a channel: a fresh object, in which nothing has been sent.
///
/// # Errors
/// The layout is not allowed, or the kernel refused an object.
#[cfg(not(loom))]
pub fn create(layout: Layout) -> Result<Object, Error> {
    layout.check()?;
    Ok(Object::create(GranuleKind::Base, layout.bytes())?)
}

/// The receiving end of a direction whose lines and argument area hold, in this order, the words of `image`, as a
/// hostile peer might have left them; for fuzzing.
///
/// # Errors
/// The layout is not allowed.
#[doc(hidden)]
pub fn consumer_of_image(layout: Layout, image: &[u64], bells: Bells) -> Result<Consumer, Error> {
    layout.check()?;
    let bell = Bell::new(Direction::allocate(layout, &[]), Arc::clone(&bells.peer));
    Ok(Consumer::new(Direction::allocate(layout, image), bells.own, bell))
}
