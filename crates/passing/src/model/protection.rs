//! Protection: what client data a server can reach by virtue of a request.
//!
//! Why: schemes with the same semantics may still differ in which parties a client must trust.
//! How: [`Protection`] says per direction when a server reads and writes, and how finely that is bounded. Full
//! protection is that of copying between processes; a scheme's own protection is [`crate::scheme::Scheme::protection`].
//! Source: thesis §2.2. Differs: [`Granularity::Object`], because Linux grants access by descriptors of whole objects.

/// The smallest piece of client memory to which a server can be given access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Granularity {
    /// Exactly the buffer.
    Byte,
    /// The granules that the buffer touches, with whatever else lies in them.
    Granule,
    /// The memory object that contains the buffer: the kernel grants access by descriptor.
    Object,
}

/// When a server can reach client data in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// At no time.
    Never,
    /// Once: as of the request for output, as of the reply for input.
    Once,
    /// From request to reply.
    DuringRequest,
    /// Before, during and after.
    Anytime,
}

/// What client data a server can reach by virtue of a request.
///
/// Nothing is said of a client's access to server data, because no scheme should give it any.
///
/// # Source
/// Thesis §2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Protection {
    /// The smallest piece of memory that the other fields are about.
    pub granularity: Granularity,
    /// When the server reads the client's output buffers.
    pub server_reads_output: Access,
    /// When the server changes the client's output buffers.
    pub server_writes_output: Access,
    /// When the server reads what the client had in its input buffers.
    pub server_reads_input: Access,
    /// When the server changes the client's input buffers.
    pub server_writes_input: Access,
    /// Whether the server's access to the data can depend on a pager that the client supplies, and so never return.
    pub client_supplied_pager: bool,
}

impl Protection {
    /// Full protection: copying between two processes.
    pub const FULL: Self = Self {
        granularity: Granularity::Byte,
        server_reads_output: Access::Once,
        server_writes_output: Access::Never,
        server_reads_input: Access::Never,
        server_writes_input: Access::Once,
        client_supplied_pager: false,
    };

    /// No protection in this sense: a server that runs with the client's own rights or more, such as a server in the
    /// client's process.
    pub const NONE: Self = Self {
        granularity: Granularity::Object,
        server_reads_output: Access::Anytime,
        server_writes_output: Access::Anytime,
        server_reads_input: Access::Anytime,
        server_writes_input: Access::Anytime,
        client_supplied_pager: true,
    };

    /// Gives what is left of this protection where access is granted by a descriptor of the memory object.
    ///
    /// A server that may touch a granule once or during a request can then touch the whole object for as long as it
    /// keeps the descriptor. What the server may never do stays impossible: a read-only descriptor cannot be mapped
    /// writable. Passing by copying needs no descriptor of the client's object and is not weakened.
    pub const fn by_descriptor(self) -> Self {
        if matches!(self.granularity, Granularity::Byte) {
            return self;
        }
        Self {
            granularity: Granularity::Object,
            server_reads_output: self.server_reads_output.kept(),
            server_writes_output: self.server_writes_output.kept(),
            server_reads_input: self.server_reads_input.kept(),
            server_writes_input: self.server_writes_input.kept(),
            client_supplied_pager: self.client_supplied_pager,
        }
    }

    /// Says whether this protects the client and the server in every respect at least as well as `other`.
    pub fn at_least(&self, other: &Self) -> bool {
        self.granularity <= other.granularity
            && self.server_reads_output <= other.server_reads_output
            && self.server_writes_output <= other.server_writes_output
            && self.server_reads_input <= other.server_reads_input
            && self.server_writes_input <= other.server_writes_input
            && self.client_supplied_pager <= other.client_supplied_pager
    }
}

impl Access {
    const fn kept(self) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::Once | Self::DuringRequest | Self::Anytime => Self::Anytime,
        }
    }
}
