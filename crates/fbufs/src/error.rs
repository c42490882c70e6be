//! What can go wrong with fbufs, as sentences that say what to do, and as the numbers that C programs get.

use genie_channel::directory;
use genie_sys::Errno;

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool has no free run of pages that is long enough.
    #[error(
        "no {asked} bytes in a row are free in a pool of {limit} bytes: deallocate buffers, or make pools with a higher limit"
    )]
    Exhausted {
        /// Bytes asked for.
        asked: usize,
        /// Bytes that the pool may have.
        limit: usize,
    },
    /// The process has as much of the pool as it may have.
    #[error(
        "this process holds {held} bytes of fbufs, and {asked} more would exceed its quota of {quota}: deallocate some, or raise the quota"
    )]
    Quota {
        /// Bytes asked for.
        asked: usize,
        /// Bytes that the process holds.
        held: usize,
        /// Bytes that it may hold.
        quota: usize,
    },
    /// The limit is one that no pool can have.
    #[error("a pool cannot have {asked} bytes: take 1 to {most}")]
    PoolSize {
        /// Bytes asked for.
        asked: usize,
        /// The most bytes.
        most: usize,
    },
    /// What was to be joined is no pool of this version.
    #[error(
        "the memory object of {len} bytes is no pool of fbufs: let all processes of a group use one version of Genie"
    )]
    NoPool {
        /// The object's length.
        len: usize,
    },
    /// A channel was to be made with a process of another group.
    #[error(
        "the process at the other end is of another group, or of none: let both call uf_join with one name"
    )]
    OtherGroup,
    /// The group has as many members, or channels, as it can have.
    #[error("the pool has its {most} {what} already: let some of them end")]
    Full {
        /// What there are too many of.
        what: &'static str,
        /// How many there can be.
        most: usize,
    },
    /// A group's name, or the file that is kept for it, cannot be used.
    #[error("the group {name:?} cannot be used: {why}")]
    Group {
        /// The group's name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A path at which to listen cannot be used, or another process listens there.
    #[error(transparent)]
    Place(directory::Error),
    /// A child made by fork uses what it has inherited.
    #[error("this pool was inherited over fork: join the group again in the child")]
    Inherited,
    /// An address at which no buffer of the pool's is.
    #[error(
        "{addr:#x} is not in an fbuf of this process (any more): pass buffers that the calls of uf_ gave, and that were neither written away nor deallocated"
    )]
    NotAnFbuf {
        /// The address.
        addr: usize,
    },
    /// More bytes were asked of a buffer than it has from there on.
    #[error("{asked} bytes were asked of a buffer that has {len}: ask for no more than it has")]
    TooShort {
        /// Bytes asked for.
        asked: usize,
        /// Bytes there are.
        len: usize,
    },
    /// The other end of a channel is closed, or its process has ended.
    #[error("the other end of the channel is closed: close this end, too")]
    Closed,
    /// The call would have had to wait.
    #[error(
        "the call would have to wait: try again when the descriptor is ready; to write to a channel, when that of its uf_room (Channel::room) is"
    )]
    WouldBlock,
    /// A server was opened without a service for this direction.
    #[error("the server was opened without a service that {does}: name one when it is opened")]
    NoService {
        /// What the service would do.
        does: &'static str,
    },
    /// A request to a Genie server failed.
    #[error(transparent)]
    Server(genie_io::Error),
    /// Another member of the group has written what no honest member writes.
    #[error("another member of the group spoilt {what}: end the group's processes and start them again")]
    Spoilt {
        /// What was spoilt.
        what: &'static str,
    },
    /// A call of the kernel failed.
    #[error("{call} failed: {errno}")]
    Io {
        /// The kernel's name of the call.
        call: &'static str,
        /// The kernel's reason.
        errno: Errno,
    },
    /// A call of the kernel failed.
    #[error(transparent)]
    System(#[from] genie_sys::Error),
    /// The ring of a channel failed.
    #[error(transparent)]
    Ring(#[from] genie_ring::Error),
}

impl Error {
    pub(crate) fn io(call: &'static str, errno: Errno) -> Self {
        if errno == Errno::AGAIN { Self::WouldBlock } else { Self::Io { call, errno } }
    }

    /// The number by which a C program learns of the error.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Exhausted { .. } => Errno::NOMEM,
            Self::Quota { .. } => Errno::DQUOT,
            Self::PoolSize { .. }
            | Self::NoPool { .. }
            | Self::OtherGroup
            | Self::Group { .. }
            | Self::TooShort { .. } => Errno::INVAL,
            Self::Full { .. } => Errno::USERS,
            Self::Place(directory::Error::File { source, .. }) => {
                Errno::from_io_error(source).unwrap_or(Errno::IO)
            }
            Self::Place(_) => Errno::ADDRINUSE,
            Self::Inherited => Errno::STALE,
            Self::NotAnFbuf { .. } => Errno::FAULT,
            Self::Closed => Errno::PIPE,
            Self::WouldBlock => Errno::AGAIN,
            Self::NoService { .. } => Errno::BADF,
            // A server may give any number.
            Self::Server(error) => match error.errno() {
                number @ 1..4096 => Errno::from_raw_os_error(number),
                _ => Errno::REMOTEIO,
            },
            Self::Spoilt { .. } => Errno::BADMSG,
            Self::Io { errno, .. } => *errno,
            Self::System(error) => error.errno,
            Self::Ring(genie_ring::Error::System(error)) => error.errno,
            Self::Ring(_) => Errno::BADMSG,
        }
    }
}

impl From<genie_io::Error> for Error {
    fn from(error: genie_io::Error) -> Self {
        if matches!(error, genie_io::Error::Inherited) { Self::Inherited } else { Self::Server(error) }
    }
}

impl From<directory::Error> for Error {
    fn from(error: directory::Error) -> Self {
        match error {
            directory::Error::Socket(error) => Self::System(error),
            error => Self::Place(error),
        }
    }
}

/// Drops the buffers that came back.
impl From<genie_io::Failed> for Error {
    fn from(failed: genie_io::Failed) -> Self {
        failed.error.into()
    }
}
