//! What can go wrong with a channel, and how a peer breaks it.

/// A channel that cannot be made, attached or waited for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The layout's numbers are not allowed.
    #[error(
        "a channel of {lines} lines and {area} argument bytes is not allowed: \
         take powers of two, 2 to 1048576 lines and 128 to 1073741824 bytes"
    )]
    Layout {
        /// Lines asked for.
        lines: u32,
        /// Bytes of argument area asked for.
        area: u32,
    },
    /// The object's size is not the layout's.
    #[error(
        "a channel object of {found} bytes does not have the {needed} bytes of its layout: refuse the peer"
    )]
    Size {
        /// Bytes of the object.
        found: usize,
        /// Bytes of the layout.
        needed: usize,
    },
    /// A call failed.
    #[error(transparent)]
    System(#[from] genie_sys::Error),
    /// The peer broke the rules.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// The peer has written words that no honest peer writes. The end that found them does nothing more; close the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// A record is longer than allowed at its place.
    #[error(
        "the peer broke the channel: the record at line {position} claims {len} bytes of at most {max}; close it"
    )]
    Length {
        /// The record's position.
        position: u64,
        /// The length claimed.
        len: u64,
        /// The length allowed.
        max: usize,
    },
    /// A record starts with a line whose role no first line has.
    #[error("the peer broke the channel: line {position} starts a record with role {role}; close it")]
    Role {
        /// The line's position.
        position: u64,
        /// The role found.
        role: u8,
    },
    /// A further line of a record was not written along with the record.
    #[error("the peer broke the channel: line {position} does not continue its record; close it")]
    Continuation {
        /// The line's position.
        position: u64,
    },
    /// The consumer claims to have consumed what was never sent, or to have gone back.
    #[error(
        "the peer broke the channel: it claims to have consumed up to {found} of {unit}, \
         which must be {least} to {most}; close it"
    )]
    Head {
        /// What is counted: lines or argument bytes.
        unit: &'static str,
        /// The claim.
        found: u64,
        /// The last claim.
        least: u64,
        /// What was sent.
        most: u64,
    },
}

/// A record that was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// There is no room until the peer has consumed more.
    #[error("the ring is full: take what the peer has sent, and try again when it has made room")]
    Full,
    /// No ring of this layout can carry the record.
    #[error("a record of {len} bytes is longer than the {max} that this channel carries: send less at once")]
    TooLong {
        /// Bytes of the record.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The peer broke the rules.
    #[error(transparent)]
    Broken(#[from] Broken),
}
