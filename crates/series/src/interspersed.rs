//! Headers and trailers of known lengths, which an input gets apart from the data between them.
//!
//! Source: thesis §13.1, the third call, for lengths that do not vary; §6.4, where segments for headers and trailers are interspersed.

use genie_io::{In, Request};
use genie_passing::Preferred;

/// Adds an input buffer to a request into which packets of this layout come, with their headers and trailers apart: `headers`, `data` and
/// `trailers` get all packets' headers, data and trailers, each in one piece. Each packet has an element for each of the three: the
/// data by the interface's default scheme, and the others by copy.
///
/// The data should begin [`Preferred::offset`] bytes into a granule ([`Interface::allocate_at`](genie_io::Interface::allocate_at)). A packet with
/// less data than [`Preferred::len`] has its trailer right behind that, in `data`.
///
/// # Examples
/// ```
/// # mod genie { pub use genie_io::*; pub use genie_io::servers::memory; pub use genie_series::intersperse; pub mod mechanism { pub use genie_passing::Preferred; } }
/// use genie::mechanism::Preferred;
/// use genie::{Interface, Out, ServerHandle, intersperse, memory};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (genie, server) = (Interface::open()?, ServerHandle::new(memory::Memory::customized()));
/// let packets = b"1:first.2:again.3:last.";
/// genie.request(&server, memory::STORE).out(Out::new(packets)).argument(b"packets").send()?;
///
/// // What `Interface::preferred` tells, or what the program knows.
/// let layout = Preferred { offset: 0, len: 5, header: 2, trailer: 1 };
/// let (mut headers, mut data, mut trailers) = ([0; 3 * 2], [0; 5 + 5 + 4], [0; 3]);
/// let request = genie.request(&server, memory::FETCH).argument(b"packets");
/// intersperse(request, layout, [&mut headers, &mut data, &mut trailers]).send()?;
/// assert_eq!((&headers, &data, &trailers), (b"1:2:3:", b"firstagainlast", b"..."));
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// When `headers` or `trailers` has not as many bytes as the packets that `data` is for, one for each [`Preferred::len`] bytes or less.
pub fn intersperse<'r, 'o, 'i>(
    request: Request<'r, 'o, 'i>,
    layout: Preferred,
    [headers, data, trailers]: [&'i mut [u8]; 3],
) -> Request<'r, 'o, 'i> {
    let Preferred { len, header, trailer, .. } = layout;
    let count = data.len().div_ceil(len.max(1));
    assert!(
        (headers.len(), trailers.len()) == (count.saturating_mul(header), count.saturating_mul(trailer)),
        "{} bytes for headers and {} for trailers, where {count} packets have {header} and {trailer} each",
        headers.len(),
        trailers.len()
    );
    let mut headers = headers.chunks_mut(header.max(1)).map(In::copy);
    let mut trailers = trailers.chunks_mut(trailer.max(1)).map(In::copy);
    let packet = |data| [headers.next(), Some(In::new(data)), trailers.next()];
    let mut elements = data.chunks_mut(len.max(1)).flat_map(packet).flatten();
    let first = elements.next().unwrap_or_else(|| In::new(&mut []));
    elements.fold(request.input(first), Request::and_input)
}
