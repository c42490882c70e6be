//! Migrant input from overlay buffers: the server's granules become the client's region, wherever in them the data begins and
//! ends, and whatever rights the client has.
//!
//! Source: thesis table 7.3, which swaps without a condition.

use genie_conformance::{Guard, Setup};
use genie_io::{In, Interface, Limits};
use genie_memory::GranuleKind;
use genie_passing::{Overlays, Scheme, Thresholds};

use super::LIMIT;
use crate::support::bytes::{pattern, same};
use crate::support::holder::{HOLD, Holder};
use crate::support::machine::frames;
use crate::support::machine::proc::while_pages_stay;

#[test]
fn overlays_become_migrant_buffers_huge() {
    overlays_become_migrant_buffers("overlays_become_migrant_buffers_huge", GranuleKind::Huge);
}

#[test]
fn overlays_become_migrant_buffers_collapsed() {
    overlays_become_migrant_buffers("overlays_become_migrant_buffers_collapsed", GranuleKind::Collapsed);
}

#[test]
fn overlays_become_migrant_buffers_base() {
    overlays_become_migrant_buffers("overlays_become_migrant_buffers_base", GranuleKind::Base);
}

/// Data that began within a granule was copied, since regions began with one ("unaligned"). Where data ended within a granule,
/// stale bytes of the region were saved beside it, or, without the right to protect them, all data was copied.
fn overlays_become_migrant_buffers(test: &str, kind: GranuleKind) {
    for guard in [Guard::Full, Guard::Never] {
        while_pages_stay(|| {
            let setup = Setup { guard, ..Setup::plain(kind) };
            let interface = setup.interface(test, LIMIT, Limits::default(), Thresholds::ALWAYS);
            let Some(interface) = interface else { return };
            let granule = setup.granule();
            for (offset, len) in
                [(100, 2 * granule), (0, 2 * granule + 5), (100, 2 * granule - 100), (7, granule - 9)]
            {
                receives(&interface, granule, offset, len);
            }
        });
    }
}

fn receives(interface: &Interface, granule: usize, offset: usize, len: usize) {
    let overlays = Overlays::reserve(interface.space(), offset, len, 1).expect("memory for the pool");
    let holder = Holder::in_process(Some(overlays));
    // By each scheme twice: the second time, the region that the first one left is found again.
    for scheme in Scheme::ALL.into_iter().skip(4).flat_map(|scheme| [scheme; 2]) {
        let what = format!("{scheme}, {len} bytes at {offset}");
        let data = pattern(len as u64, len);
        let request = interface.request(holder.handle(), HOLD).input(In::migrant(scheme, len));
        let pending = request.submit().expect("a request");
        let system = holder.input_frames(pending.id(), granule);
        holder.deliver(pending.id(), &data);
        let mut reply = pending.sync().expect("a reply");
        let region = reply.take_migrant().expect("a region");
        same(&region, &data, &what);
        assert_eq!(region.as_ptr().addr() % granule, offset, "{what}");
        let receipt = reply.buffers[0].elements[0].receipt;
        assert_eq!((receipt.copied, receipt.effective, receipt.reason), (0, scheme, None), "{what}");
        let passed = if scheme == Scheme::Move { receipt.mapped } else { receipt.swapped };
        assert_eq!(passed as usize, (offset + len).div_ceil(granule), "{what}");
        if system.is_some() {
            assert_eq!(frames(region.as_ptr().addr(), len, granule), system, "{what}: something was copied");
        }
    }
    interface.space().check().unwrap_or_else(|wrong| panic!("{wrong}"));
}
