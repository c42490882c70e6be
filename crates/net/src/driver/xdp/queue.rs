//! Which queue of an interface is driven, and with how much memory.

use std::net::IpAddr;

use genie_sys::bpf::Mode;

/// Which queue of an interface is driven, and with how much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// Its number.
    pub number: u32,
    /// How many pages frames come into: more hold a longer burst, fewer stay in the CPU's cache.
    pub receiving: usize,
    /// How many pages there are for sending.
    pub sending: usize,
    /// How many of those for receiving never leave: while no more than these are free, adapters get no buffers.
    pub reserve: usize,
    /// How many pages clients may have in place of their own ([`genie_passing::Layout::away`]).
    pub away: usize,
    /// Where the program is run; in the driver if it can, where none is named.
    pub mode: Option<Mode>,
    /// Whether headers are stored apart, so that data begins where a page does (§6.2): the first 3,840 bytes of a datagram. Then there are twice
    /// as many pages, and the kernel copies frames whatever the device.
    pub splits: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self { number: 0, receiving: 1024, sending: 512, reserve: 256, away: 1024, mode: None, splits: false }
    }
}

impl Queue {
    pub(super) fn check(&self, hosts: &[IpAddr]) -> Result<(), &'static str> {
        /// As many parts as the kernel takes of one frame.
        const PARTS: usize = 18;
        const MOST: usize = 1 << 20;
        if hosts.is_empty() {
            Err("name at least one host whose datagrams are to come")
        } else if self.sending < PARTS || self.receiving < PARTS {
            Err("a frame may need 18 pages, for receiving and for sending")
        } else if self.sending > MOST || self.receiving > MOST {
            Err("there are at most 1,048,576 pages for receiving, and as many for sending")
        } else if self.reserve == 0 || self.reserve >= self.receiving {
            Err("the reserve is a part of the pages for receiving, and not all of them")
        } else {
            Ok(())
        }
    }
}
