//! Buffers without bytes.

use genie_io::{In, Out};
use genie_passing::Scheme;
use genie_passing::model::{Allocation, Integrity};

use super::schemes::{migrant, replied, strong_native, weak_native};
use crate::Scene;
use crate::holder::HOLD;

/// A migrant input for no bytes was refused by all schemes but move, because a region has a granule at least.
pub(crate) fn no_bytes_pass_by_every_scheme(t: &Scene) {
    for scheme in strong_native() {
        output(t, scheme, Out::borrowed(scheme, &[]));
        input(t, scheme, In::borrowed(scheme, &mut []));
    }
    for scheme in weak_native() {
        let buffer = || t.interface().allocate(100).expect("a buffer");
        output(t, scheme, Out::owned(scheme, buffer()).part(7..7));
        input(t, scheme, In::owned(scheme, buffer()).part(7..7));
    }
    for scheme in migrant() {
        // What came can go, and come again.
        for _ in 0..2 {
            let mut reply = input(t, scheme, In::migrant(scheme, 0));
            let region = reply.take_migrant().unwrap_or_else(|| panic!("{scheme}: nothing came"));
            assert_eq!(region.len(), 0, "{scheme}");
            output(t, scheme, Out::migrant(scheme, region));
        }
    }
}

#[track_caller]
fn output(t: &Scene, scheme: Scheme, element: Out<'_>) {
    let request = t.interface().request(t.holder().handle(), HOLD).out(element);
    let pending = request.submit().unwrap_or_else(|failed| panic!("{scheme}, output: {failed}"));
    assert!(t.holder().read(pending.id()).is_empty(), "{scheme}");
    t.holder().reply(pending.id());
    returned(scheme, replied(pending));
}

#[track_caller]
fn input(t: &Scene, scheme: Scheme, element: In<'_>) -> genie_io::Reply {
    let request = t.interface().request(t.holder().handle(), HOLD).input(element);
    let pending = request.submit().unwrap_or_else(|failed| panic!("{scheme}, input: {failed}"));
    t.holder().deliver(pending.id(), &[]);
    returned(scheme, replied(pending))
}

/// A shared buffer comes back.
#[track_caller]
fn returned(scheme: Scheme, mut reply: genie_io::Reply) -> genie_io::Reply {
    let is_shared = (scheme.allocation(), scheme.integrity()) == (Allocation::Native, Integrity::Weak);
    assert_eq!(reply.take_buffer().is_some(), is_shared, "{scheme}");
    assert_eq!(reply.actual(), 0, "{scheme}");
    reply
}
