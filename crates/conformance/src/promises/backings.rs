//! Backings: the memory objects that a server is told of hold the data, byte for byte, for as long as the server has the data; and
//! registrars of the client's memory know them.
//!
//! Source: thesis §1.1.1, §3.2.2.

use std::collections::BTreeMap;
use std::sync::Arc;

use genie_io::{In, Out, Pending};
use genie_memory::{Inode, Registrar, SharedObject};
use genie_passing::Scheme;
use genie_passing::model::Allocation;
use genie_sys::lock::Mutex;

use super::schemes::{buffer_len, filled, is_strong, replied};
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::{Answer, Command, HOLD};
use crate::machine::Backed;
use crate::setup::fresh_seed;

/// An output of bytes that the interface owns.
#[track_caller]
fn output(t: &Scene, scheme: Scheme, bytes: &[u8]) -> Pending<'static> {
    let element = match scheme.allocation() {
        Allocation::Migrant => {
            let migrant = t.interface().allocate_migrant(bytes.len(), is_strong(scheme));
            let mut migrant = migrant.expect("a region");
            migrant.copy_from_slice(bytes);
            Out::migrant(scheme, migrant)
        }
        Allocation::Native => {
            let mut buffer = t.interface().allocate(bytes.len()).expect("a buffer");
            buffer.copy_from_slice(bytes);
            Out::owned(scheme, buffer)
        }
    };
    let request = t.interface().request(t.holder().handle(), HOLD).out(element);
    request.submit().unwrap_or_else(|failed| panic!("{scheme}: {failed}"))
}

#[track_caller]
fn assert_all_in_objects(parts: &[Backed], len: usize, scheme: Scheme) {
    let in_objects: usize = parts.iter().filter(|(_, object)| object.is_some()).map(|(len, _)| len).sum();
    assert_eq!(in_objects, len, "{scheme}: {parts:?}");
}

pub(crate) fn objects_hold_the_data_that_they_are_said_to(t: &Scene) {
    let len = buffer_len(t);
    for scheme in Scheme::ALL {
        // What is short may be in memory that is no object; what is said of it is true all the same.
        for len in [len, len - 7, 300, 5] {
            let bytes = pattern(fresh_seed(), len);
            let pending = output(t, scheme, &bytes);
            let parts = t.holder().backings(pending.id(), Command::Backings { buffer: 0 });
            if len > 300 {
                assert_all_in_objects(&parts, len, scheme);
            }
            same(&t.holder().read(pending.id()), &bytes, scheme);
            t.holder().reply(pending.id());
            replied(pending);
        }
        let (buffer, _) = filled(t);
        let element = match scheme.allocation() {
            Allocation::Migrant => In::migrant(scheme, len),
            Allocation::Native => In::owned(scheme, buffer),
        };
        let request = t.interface().request(t.holder().handle(), HOLD).input(element);
        let pending = request.submit().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        t.holder().write(pending.id(), 0, &pattern(fresh_seed(), len));
        let parts = t.holder().backings(pending.id(), Command::InputBackings { buffer: 0 });
        assert_all_in_objects(&parts, len, scheme);
        t.holder().set_actual(pending.id(), len);
        t.holder().reply(pending.id());
        replied(pending);
    }
}

pub(crate) fn objects_hold_pinned_data_after_the_reply(t: &Scene) {
    for scheme in Scheme::ALL {
        let bytes = pattern(fresh_seed(), buffer_len(t));
        let pending = output(t, scheme, &bytes);
        let before = t.holder().backings(pending.id(), Command::Backings { buffer: 0 });
        assert_eq!(t.holder().command(pending.id(), Command::Pin { buffer: 0 }), Answer::Done);
        t.holder().reply(pending.id());
        // Other data takes what memory is free.
        let other = output(t, Scheme::Copy, &pattern(fresh_seed(), bytes.len()));
        t.holder().reply(other.id());
        replied(other);
        let after = t.holder().backings(pending.id(), Command::PinnedBackings);
        assert_eq!(after, before, "{scheme}: the data has moved");
        let pinned = t.holder().command(pending.id(), Command::ReadPinned);
        let Answer::Bytes(pinned) = pinned else { panic!("{scheme}: {pinned:?}") };
        same(&pinned, &bytes, scheme);
        assert_eq!(t.holder().command(pending.id(), Command::Unpin), Answer::Done);
        replied(pending);
    }
}

/// The lengths of the client's memory objects, and whether servers elsewhere may have been shown each.
#[derive(Default)]
struct Registered(Mutex<BTreeMap<Inode, (usize, bool)>>);

impl Registrar for Registered {
    fn added(&self, object: &SharedObject) {
        self.0.lock().insert(object.inode, (object.len, object.lender.is_some()));
    }

    fn shown(&self, object: &SharedObject) {
        self.0.lock().insert(object.inode, (object.len, true));
    }

    fn removed(&self, object: &SharedObject) {
        self.0.lock().remove(&object.inode);
    }
}

pub(crate) fn registrars_know_where_outputs_are(t: &Scene) {
    let (registered, server) = (Arc::new(Registered::default()), t.holder().handle());
    let _registration = t.interface().space().register(registered.clone());
    for scheme in Scheme::ALL {
        for len in [buffer_len(t), buffer_len(t) - 7, 300] {
            let pending = output(t, scheme, &pattern(fresh_seed(), len));
            for (len, object) in t.holder().backings(pending.id(), Command::Backings { buffer: 0 }) {
                let Some((device, number, offset)) = object else { continue };
                let known = registered.0.lock().get(&Inode { device, number }).copied();
                // The kernel copies for an untrusted server, to memory of the server's own.
                let is_known = known
                    .is_some_and(|(object, shown)| offset + len <= object && (shown || !server.is_remote()));
                assert_eq!(
                    is_known,
                    !server.is_untrusted(),
                    "{scheme}: {known:?}, {len} bytes from {offset} on"
                );
            }
            t.holder().reply(pending.id());
            replied(pending);
        }
    }
}
