//! Why a flow cannot be, or is not any more.

use genie_sys::Errno;

/// Why a flow cannot be, or is not any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing more comes from its source.
    #[error("the flow's source {end} has failed: {errno}")]
    Source {
        /// The end's name.
        end: String,
        /// Why.
        errno: Errno,
    },
    /// A message has come that is longer than a packet; it is lost, and nothing more is taken.
    #[error(
        "the flow's source {end} has sent a message that is longer than the flow's packets: give them its length"
    )]
    Message {
        /// The end's name.
        end: String,
    },
    /// Nothing more goes to its sink.
    #[error("the flow's sink {end} has failed: {errno}")]
    Sink {
        /// The end's name.
        end: String,
        /// Why.
        errno: Errno,
    },
    /// Its tap has panicked.
    #[error("the tap of the flow from {from} to {to} has panicked")]
    Tap {
        /// The source's name.
        from: String,
        /// The sink's name.
        to: String,
    },
    /// The driver of one of its ends has panicked.
    #[error("a driver of the flow from {from} to {to} has panicked")]
    Driver {
        /// The source's name.
        from: String,
        /// The sink's name.
        to: String,
    },
    /// The source is another flow's already, or the same as the sink.
    #[error(
        "{end} cannot be the flow's source: it is its sink, or another flow's source; close that one first"
    )]
    Taken {
        /// The end's name.
        end: String,
    },
    /// No thread can be started, or waited with.
    #[error("a flow's thread cannot be had: {0}")]
    Thread(Errno),
    /// This process was forked from the one that has the flow.
    #[error("a child made by fork has no flows of its parent's: make new ones")]
    Child,
}
