//! Which schemes make which promise, and the slices of a buffer on which they are tried.

use std::ops::Range;
use std::time::Duration;

use genie_io::{Failed, Out, Pending, Reply};
use genie_memory::{Buffer, GranuleKind};
use genie_passing::Scheme;
use genie_passing::model::{Allocation, Integrity};

use crate::Scene;
use crate::bytes::pattern;
use crate::holder::HOLD;
use crate::setup::fresh_seed;

/// The schemes of this allocation and integrity.
pub(crate) fn schemes(allocation: Allocation, integrity: Integrity) -> impl Iterator<Item = Scheme> {
    let fits = move |scheme: &Scheme| scheme.allocation() == allocation && scheme.integrity() == integrity;
    Scheme::ALL.into_iter().filter(fits)
}

/// Copy and emulated copy.
pub(crate) fn strong_native() -> impl Iterator<Item = Scheme> {
    schemes(Allocation::Native, Integrity::Strong)
}

/// The share schemes.
pub(crate) fn weak_native() -> impl Iterator<Item = Scheme> {
    schemes(Allocation::Native, Integrity::Weak)
}

/// All schemes of migrant buffers.
pub(crate) fn migrant() -> impl Iterator<Item = Scheme> {
    Scheme::ALL.into_iter().filter(|scheme| scheme.allocation() == Allocation::Migrant)
}

/// Whether migrant buffers for this scheme are allocated for strong integrity.
pub(crate) fn is_strong(scheme: Scheme) -> bool {
    scheme.integrity() == Integrity::Strong
}

/// The length of a test's buffer.
pub(crate) fn buffer_len(transport: &Scene) -> usize {
    transport.setup().granules() * transport.setup().granule()
}

/// A buffer with a pattern in it, and the pattern.
pub(crate) fn filled(transport: &Scene) -> (Buffer, Vec<u8>) {
    let bytes = pattern(fresh_seed(), buffer_len(transport));
    let mut buffer = transport.interface().allocate(bytes.len()).expect("a buffer");
    buffer.copy_from_slice(&bytes);
    (buffer, bytes)
}

/// Slices of a buffer: whole, odd, within one granule, across a boundary, of one byte. Fewer of huge granules, whose
/// bytes take the time.
pub(crate) fn slices(transport: &Scene) -> Vec<Range<usize>> {
    let (granule, len) = (transport.setup().granule(), buffer_len(transport));
    let most = vec![0..len, granule - 7..granule + 9, 17..granule + granule / 2, granule + 1..len - 5];
    if transport.setup().kind != GranuleKind::Base {
        return most;
    }
    let more = [1..len - 1, granule..2 * granule, granule - 1..2 * granule + 1, 5..6];
    most.into_iter().chain(more).collect()
}

/// Submits an output of borrowed bytes to the holder.
#[track_caller]
pub(crate) fn submit_out(transport: &Scene, scheme: Scheme, bytes: &[u8]) -> Pending<'static> {
    let request = transport.interface().request(transport.holder().handle(), HOLD);
    request.out(Out::borrowed(scheme, bytes)).submit().unwrap_or_else(|failed| panic!("{scheme}: {failed}"))
}

/// Takes a reply that must be there.
#[track_caller]
pub(crate) fn replied(pending: Pending<'_>) -> Reply {
    // Another thread, which tends to requests that nobody waits for, may be about to take it off the channel.
    assert!(pending.is_replied() || pending.wait(Duration::from_secs(10)), "{} has no reply", pending.id());
    pending.sync().unwrap_or_else(|failed| panic!("{failed}"))
}

/// Takes a failure that must be there.
#[track_caller]
pub(crate) fn failed(pending: Pending<'_>) -> Failed {
    assert!(pending.wait(Duration::from_secs(10)), "{} has no reply", pending.id());
    pending.sync().map(drop).expect_err("the request should fail")
}
