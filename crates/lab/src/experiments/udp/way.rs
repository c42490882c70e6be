//! The ways in which datagrams are sent.

/// How a datagram is sent, with a checksum or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) interface: Interface,
    pub(super) has_checksum: bool,
}

/// By which calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    Socket,
    Copying,
    Mmap,
    /// A call for each datagram, and buffers that are used again by the paper's rule.
    MmapEach,
    Gather,
}

/// All ways, in the order in which they are shown.
pub(super) const WAYS: [Way; 9] = [
    Way::SOCKET,
    Way::of(Interface::Socket),
    Way::COPYING.summed(),
    Way::COPYING,
    Way::MMAP.summed(),
    Way::MMAP,
    Way::PAPERS,
    Way::GATHER.summed(),
    Way::GATHER,
];

impl Way {
    /// As the paper's: with checksums.
    pub(super) const SOCKET: Self = Self::of(Interface::Socket).summed();
    pub(super) const COPYING: Self = Self::of(Interface::Copying);
    pub(super) const MMAP: Self = Self::of(Interface::Mmap);
    pub(super) const PAPERS: Self = Self::of(Interface::MmapEach);
    pub(super) const GATHER: Self = Self::of(Interface::Gather);

    const fn of(interface: Interface) -> Self {
        Self { interface, has_checksum: false }
    }

    /// The same with checksums.
    pub(super) const fn summed(self) -> Self {
        Self { has_checksum: true, ..self }
    }

    /// The name of the curve.
    pub(super) fn name(self) -> String {
        let each = if self.interface == Interface::MmapEach { ", a call each" } else { "" };
        format!("{}{each}, {}", self.paper(), if self.has_checksum { "checksum" } else { "no checksum" })
    }

    /// The name in the paper's table.
    pub(super) fn paper(self) -> &'static str {
        match self.interface {
            Interface::Socket => "standard socket",
            Interface::Copying => "copying extension",
            Interface::Mmap | Interface::MmapEach => "mmap",
            Interface::Gather => "gather",
        }
    }

    /// The word for the checksum in the paper's table.
    pub(super) fn checksum_word(self) -> &'static str {
        if self.has_checksum { "yes" } else { "no" }
    }

    /// Whether the paper has it: there, the socket made checksums.
    pub(super) fn is_papers(self) -> bool {
        self.interface != Interface::Socket || self.has_checksum
    }
}
