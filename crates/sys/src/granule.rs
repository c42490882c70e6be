//! Kinds of granules.

/// What an object's granules are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GranuleKind {
    /// 2 MiB pages from the machine's reserve (`vm.nr_hugepages`): write protection and swaps cost next to nothing.
    Huge,
    /// 2 MiB granules of ordinary memory, whose pages the kernel is asked to *collapse* to huge ones (Linux 6.1 and
    /// later). That takes neither a reserve nor a right. Where the kernel cannot collapse a granule's pages, since its
    /// memory is in pieces, the granule works as well, and mapping it costs as much as mapping its 512 pages.
    #[doc(alias = "MADV_COLLAPSE")]
    Collapsed,
    /// 4 KiB pages: works everywhere.
    Base,
}

impl GranuleKind {
    /// The granule's size in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Huge | Self::Collapsed => 2 << 20,
            Self::Base => 4096,
        }
    }

    /// The kind's name, for tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Huge => "2 MiB huge pages",
            Self::Collapsed => "2 MiB granules of collapsed pages",
            Self::Base => "4 KiB pages",
        }
    }

    /// The kinds of this granule size, the best one first.
    pub const fn of_its_size(self) -> &'static [Self] {
        match self {
            Self::Huge | Self::Collapsed => &[Self::Huge, Self::Collapsed],
            Self::Base => &[Self::Base],
        }
    }
}
