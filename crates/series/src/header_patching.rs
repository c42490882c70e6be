//! Header patching: data behind headers of any length comes to lie at the beginning of a granule, and almost none of it is copied.
//!
//! Why: a network whose buffers come from one pool puts a packet's data behind the packet's headers, and the application's own
//! header lies in front of the data, too. To have the data begin at a page, the receiver would copy all of it.
//! How: the sender keeps back as much of the data's beginning as the headers will take up, d0, and sends it last. The receiver has the
//! rest come where it belongs, behind the headers, and then lays d0 over the headers.
//!
//! ```text
//! message                  | header | d1                         | d0              |
//! page, before     h' bytes| header | d1                         |   d0, its first h' bytes at the page's beginning,
//! page, after      | d0             | d1                         |   its last h bytes in an unrelated buffer
//! ```
//!
//! Invariants: what comes is cut into places that depend on the agreement alone, so that the receiver need know neither h nor l
//! before. A message that is refused stays as it came.
//! Trust: both ends agree on a [`HeaderPatching`]; what the other end says of one message is checked against it.
//! Source: thesis §6.3, figure 6.4. Differs: of d0, the first h' bytes come straight to their place, and only the h bytes that the
//! application's header keeps from theirs come to an unrelated buffer. So there is nothing to patch where h = 0. Where the
//! header was peeked at, h bytes are patched, where the thesis patches none: safe Rust does not lend the header's place twice.

#[cfg(test)]
mod tests;

use genie_io::{In, Out, Request};
use genie_passing::Preferred;

/// What the sender and the receiver of messages agree on, so that data arrives at the beginning of a granule however long the headers
/// in front of it are: *header patching*.
///
/// The data is swapped in, but for its edges, from a server whose own buffers hold a message [`HeaderPatching::offset`] bytes behind
/// the beginning of a granule, as a network's do. Through other servers it passes as well. Messages may have headers and
/// data of any lengths up to what is agreed.
///
/// # Examples
/// A message through a server that keeps bytes; the length of the header is its first byte, that of the data its second.
/// ```
/// # mod genie { pub use genie_io::*; pub use genie_io::servers::memory; pub use genie_series::HeaderPatching; }
/// use genie::{HeaderPatching, Interface, ServerHandle, memory};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (genie, server) = (Interface::open()?, ServerHandle::new(memory::Memory::customized()));
/// // The network's headers have 42 bytes, the application's up to 16, and there are up to 4,096 bytes of data.
/// let patching = HeaderPatching::new(42, 16, 4096)?;
///
/// let message = patching.gather(&[6, 100, 1, 2, 3, 4], &[7; 100])?;
/// patching.out(genie.request(&server, memory::STORE), message).argument(b"letter").send()?;
///
/// let (mut page, mut over) = (genie.allocate(4096)?, [0; 16]);
/// let request = genie.request(&server, memory::FETCH).argument(b"letter");
/// let actual = patching.input(request, &mut page, &mut over).send()?.actual();
/// let header = patching.header(&page, actual);
/// assert_eq!(header[..6], [6, 100, 1, 2, 3, 4]);
/// let (header, data) = (header[0].into(), header[1].into());
/// assert_eq!(patching.patch(&mut page, &over, actual, header, data)?, [7; 100]); // where the page begins
/// # Ok(())
/// # }
/// ```
/// A receiver that peeks at the header can have the data come to a page that the header names:
/// ```
/// # mod genie { pub use genie_io::*; pub use genie_io::servers::memory; pub use genie_series::HeaderPatching; }
/// # use genie::{HeaderPatching, Interface, ServerHandle, memory};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (genie, server) = (Interface::open()?, ServerHandle::new(memory::Memory::customized()));
/// # let patching = HeaderPatching::new(42, 1, 4096)?;
/// # let message = patching.gather(&[2], &[7; 4096])?;
/// # patching.out(genie.request(&server, memory::STORE), message).argument(b"letter").send()?;
/// # let (mut page, mut over) = (genie.allocate(4096)?, [0]);
/// # let mut pages = [genie.allocate(4096)?, genie.allocate(4096)?, genie.allocate(4096)?];
/// let request = genie.request(&server, memory::FETCH).argument(b"letter");
/// let pending = patching.input(request, &mut page, &mut over).submit()?;
/// let mut number = [0];
/// pending.peek(&mut [&mut number])?;
/// patching.check(pending.progress(0), 1, 4096)?; // while the message is still there
/// let (page, mut over) = (&mut pages[usize::from(number[0])], [0]);
/// let actual = pending.redirect(patching.places(page, &mut over))?.actual();
/// assert_eq!(patching.patch(page, &over, actual, 1, 4096)?, [7; 4096]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderPatching {
    offset: usize,
    header: usize,
    data: usize,
}

/// Why a message cannot be patched, or two ends cannot agree so.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unpatchable {
    /// The headers leave no room for data.
    #[error(
        "headers of {offset} and {header} bytes leave no room in a buffer for {data} bytes of data; agree on longer data, or on a shorter header"
    )]
    NoRoom {
        /// How far into a granule messages come.
        offset: usize,
        /// The longest header of an application.
        header: usize,
        /// The longest data.
        data: usize,
    },
    /// The header is longer than agreed.
    #[error("the message's header has {header} bytes, and sender and receiver have agreed on at most {most}")]
    LongHeader {
        /// Its length.
        header: usize,
        /// The longest.
        most: usize,
    },
    /// The data is longer than agreed.
    #[error(
        "the message has {data} bytes of data, and sender and receiver have agreed on at most {most}; send it in several messages"
    )]
    LongData {
        /// Its length.
        data: usize,
        /// The longest.
        most: usize,
    },
    /// Less has come than is to be header and data.
    #[error(
        "a message of {actual} bytes cannot have {header} bytes of header and {data} of data: it was cut off, or its header is wrong"
    )]
    Short {
        /// How much has come.
        actual: usize,
        /// The header's length.
        header: usize,
        /// The data's length.
        data: usize,
    },
}

impl HeaderPatching {
    /// An agreement on messages that come `offset` bytes into a granule of the receiver's (h': the length of the headers that a
    /// network leaves in front), with at most `header` bytes of header and `data` of data.
    ///
    /// # Errors
    /// [`Unpatchable::NoRoom`]: `data` bytes are not longer than the headers.
    pub fn new(offset: usize, header: usize, data: usize) -> Result<Self, Unpatchable> {
        match offset.checked_add(header) {
            Some(headers) if headers < data => Ok(Self { offset, header, data }),
            _ => Err(Unpatchable::NoRoom { offset, header, data }),
        }
    }

    /// The agreement by which messages with at most `header` bytes of header are as long as the receiver's server prefers
    /// ([`Interface::preferred`](genie_io::Interface::preferred)). The sender has to be told of it.
    ///
    /// # Errors
    /// As [`HeaderPatching::new`].
    pub fn preferred(preferred: Preferred, header: usize) -> Result<Self, Unpatchable> {
        Self::new(preferred.offset, header, preferred.len.saturating_sub(header))
    }

    /// How far into a granule messages come.
    pub fn offset(self) -> usize {
        self.offset
    }

    /// The length of the longest header, and of the receiver's unrelated buffer.
    pub fn longest_header(self) -> usize {
        self.header
    }

    /// The length of the longest data, and of the receiver's pages.
    pub fn longest_data(self) -> usize {
        self.data
    }

    /// The pieces of a message in the order in which they are to be sent: the header, the data from where it is not kept back (d1),
    /// and what is kept back of its beginning (d0). Nothing is copied.
    ///
    /// # Errors
    /// [`Unpatchable::LongHeader`], [`Unpatchable::LongData`].
    pub fn gather<'o>(self, header: &'o [u8], data: &'o [u8]) -> Result<[&'o [u8]; 3], Unpatchable> {
        self.check(usize::MAX, header.len(), data.len())?;
        let (d0, d1) = data.split_at(self.kept_back(header.len(), data.len()));
        Ok([header, d1, d0])
    }

    /// Adds an output buffer with these pieces to a request, each an element by the interface's default scheme.
    pub fn out<'r, 'o, 'i>(self, request: Request<'r, 'o, 'i>, pieces: [&'o [u8]; 3]) -> Request<'r, 'o, 'i> {
        let mut elements = pieces.into_iter().filter(|piece| !piece.is_empty()).map(Out::new);
        let request = request.out(elements.next().unwrap_or_else(|| Out::new(&[])));
        elements.fold(request, Request::and_out)
    }

    /// Where a message is to come: from `offset` into the page to its end, then at the page's beginning, and what is longer than
    /// the page, in an unrelated buffer, which needs no room where no header is agreed on. Empty places are left out.
    ///
    /// These are also the places for redirected delivery ([`Pending::redirect`](genie_io::Pending::redirect)).
    ///
    /// # Panics
    /// When `page` is not as long as the longest data, or `over` not as long as the longest header.
    pub fn places<'i>(self, page: &'i mut [u8], over: &'i mut [u8]) -> impl Iterator<Item = &'i mut [u8]> {
        self.assert_lengths(page, over);
        let (front, behind) = page.split_at_mut(self.offset);
        [behind, front, over].into_iter().filter(|place| !place.is_empty())
    }

    /// Adds an input buffer with these places to a request, each an element: the first one by the interface's default scheme, and the
    /// others, which are short, by copy.
    ///
    /// The page should begin a granule, as buffers of [`Interface::allocate`](genie_io::Interface::allocate) do: from elsewhere it
    /// gets the same data, copied. Bytes beside it stay what they are, whatever comes. In the page, what lies behind a message's data is
    /// unspecified afterwards.
    ///
    /// # Panics
    /// As [`HeaderPatching::places`].
    pub fn input<'r, 'o, 'i>(
        self,
        request: Request<'r, 'o, 'i>,
        page: &'i mut [u8],
        over: &'i mut [u8],
    ) -> Request<'r, 'o, 'i> {
        let mut places = self.places(page, over);
        let first = places.next().map_or_else(|| In::new(&mut []), In::new);
        places.map(In::copy).fold(request.input(first), Request::and_input)
    }

    /// The beginning of a message of `actual` bytes, before it is patched: its header, if the header has the agreed length, and else what
    /// follows it, too.
    pub fn header(self, page: &[u8], actual: usize) -> &[u8] {
        &page[self.offset..][..self.header.min(actual)]
    }

    /// Whether a message of which `actual` bytes have come can have so much header and data.
    ///
    /// # Errors
    /// [`Unpatchable::LongHeader`], [`Unpatchable::LongData`], [`Unpatchable::Short`].
    pub fn check(self, actual: usize, header: usize, data: usize) -> Result<(), Unpatchable> {
        if header > self.header {
            return Err(Unpatchable::LongHeader { header, most: self.header });
        }
        if data > self.data {
            return Err(Unpatchable::LongData { data, most: self.data });
        }
        if header.saturating_add(data) > actual {
            return Err(Unpatchable::Short { actual, header, data });
        }
        Ok(())
    }

    /// Has the data of a message that came to these places begin where the page does, and returns it. `actual` bytes came
    /// ([`ReplyBuffer::actual`](genie_io::ReplyBuffer::actual)), of which the application knows so many as its header and its data.
    ///
    /// # Errors
    /// As [`HeaderPatching::check`]; the message then is as it came, and can be looked at, or patched by other lengths.
    ///
    /// # Panics
    /// As [`HeaderPatching::places`].
    ///
    /// # Cost
    /// Copying `header` bytes; if there is less data than agreed, up to `offset` more.
    pub fn patch<'p>(
        self,
        page: &'p mut [u8],
        over: &[u8],
        actual: usize,
        header: usize,
        data: usize,
    ) -> Result<&'p mut [u8], Unpatchable> {
        self.assert_lengths(page, over);
        self.check(actual, header, data)?;
        // The message's bytes by their numbers: those of d0, and the first ones that came to the page's beginning, and beyond the page.
        let end = header + data;
        let d0 = end - self.kept_back(header, data)..end;
        let (front, beyond) = (self.data - self.offset, self.data);
        // From the page's beginning first, where the rest of d0 goes.
        let came = d0.start.max(front)..d0.end.clamp(front, beyond);
        if came.start < came.end {
            page.copy_within(came.start - front..came.end - front, came.start - d0.start);
        }
        let came = d0.start..d0.end.min(front);
        if came.start < came.end {
            page.copy_within(came.start + self.offset..came.end + self.offset, 0);
        }
        if d0.end > beyond {
            page[beyond - d0.start..d0.end - d0.start].copy_from_slice(&over[..d0.end - beyond]);
        }
        Ok(&mut page[..data])
    }

    /// How much of the data is sent last.
    fn kept_back(self, header: usize, data: usize) -> usize {
        data.min(self.offset + header)
    }

    fn assert_lengths(self, page: &[u8], over: &[u8]) {
        let Self { header, data, .. } = self;
        assert!(
            (page.len(), over.len()) == (data, header),
            "a page of {} bytes and a buffer of {}, where messages have up to {data} bytes of data and {header} of header",
            page.len(),
            over.len()
        );
    }
}
