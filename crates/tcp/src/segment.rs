//! Segments: a header's fields, and references to the data.

use std::net::{IpAddr, SocketAddr};

use crate::options::Options;
use crate::payload::{Payload, Pieces, len_of};
use crate::sequence::Seq;

/// Between which two ends a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Path {
    /// This end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

impl Path {
    /// The same, seen from the peer.
    pub fn reversed(self) -> Self {
        Self { local: self.remote, remote: self.local }
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.local.is_ipv6()
    }

    /// Whether both ends are single hosts of one family, with ports. Others are asked for nothing, and answered nothing (RFC 9293 §3.9.2.3:
    /// MUST-46, MUST-57, MUST-63).
    pub(crate) fn is_between_hosts(&self) -> bool {
        let host = |end: &SocketAddr| {
            let no_host = match end.ip() {
                IpAddr::V4(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast(),
                IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast(),
            };
            !no_host && end.port() != 0
        };
        self.local.is_ipv4() == self.remote.is_ipv4() && host(&self.local) && host(&self.remote)
    }
}

/// The flags of a header. URG is not among them: it is ignored where it comes, and never sent; nor are those of ECN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "these are the names of the flags (RFC 9293 §3.1)")]
pub struct Flags {
    pub syn: bool,
    pub ack: bool,
    pub fin: bool,
    pub rst: bool,
    pub psh: bool,
}

/// What a header says, but for the ports (which a [`Path`] has) and the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The sequence number of the first byte, or of SYN or FIN.
    pub seq: Seq,
    /// What the sender expects next; zero where [`Flags::ack`] is not set.
    pub ack: Seq,
    /// The flags.
    pub flags: Flags,
    /// The window as it stands in the header: unscaled.
    pub window: u16,
    /// The options.
    pub options: Options,
}

/// A segment.
///
/// Shape: the data is `payload`'s pieces, one after the other.
#[derive(Debug, Clone)]
pub struct Segment<P> {
    /// The header's fields.
    pub header: Header,
    /// References to the data.
    pub payload: Pieces<P>,
}

impl<P: Payload> Segment<P> {
    /// One without data.
    pub fn bare(header: Header) -> Self {
        Self { header, payload: Pieces::new() }
    }

    /// How many bytes of data it has.
    pub fn data_len(&self) -> usize {
        len_of(&self.payload)
    }

    /// How many sequence numbers it takes: SEG.LEN (RFC 9293 §3.4). Data longer than any IP packet's counts as nothing that fits a window.
    pub fn len(&self) -> u32 {
        let data = u32::try_from(self.data_len()).unwrap_or(u32::MAX >> 2).min(u32::MAX >> 2);
        data + u32::from(self.header.flags.syn) + u32::from(self.header.flags.fin)
    }

    /// Whether it takes no sequence number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The reset that answers a segment which belongs to no connection; none answers a reset (RFC 9293 §3.10.7.1).
pub(crate) fn reset_for<P: Payload>(segment: &Segment<P>) -> Option<Header> {
    let Header { seq, ack, flags, .. } = segment.header;
    if flags.rst {
        return None;
    }
    let rst = Flags { rst: true, ..Flags::default() };
    Some(match flags.ack {
        true => Header { seq: ack, flags: rst, ..Header::default() },
        false => Header { ack: seq + segment.len(), flags: Flags { ack: true, ..rst }, ..Header::default() },
    })
}
