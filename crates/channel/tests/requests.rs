//! Requests: what holds for all of them, however their data is passed: limits, time, arguments, elements, and servers that
//! fail.
//!
//! Source: thesis §7.1, §3.1.2, §1.1.2.

mod abort;
mod backings;
mod carried;
mod compose;
mod failing;
mod filling;
mod keep;
mod layouts;
mod limits;
mod registered;
mod replacement;
mod room;
mod supplied;
mod threads;
mod time;

use genie_conformance::{Scene, Setup};
use genie_io::{Interface, Limits, Pending, Reply};
use genie_memory::GranuleKind;
use genie_passing::{Scheme, Thresholds};

use crate::support::holder::{HOLD, Holder};

/// A client on small granules with these limits.
fn client(test: &str, limits: Limits) -> Option<Scene> {
    Scene::in_process(test, Setup::allowed(GranuleKind::Base), limits, Thresholds::ALWAYS)
}

/// Submits an output of these bytes to the holder.
fn submit(t: &Scene, bytes: &[u8]) -> Pending<'static> {
    submit_to(t.interface(), t.holder(), bytes).expect("a request")
}

fn submit_to(
    interface: &Interface,
    holder: &Holder,
    bytes: &[u8],
) -> Result<Pending<'static>, genie_io::Failed> {
    interface.request(holder.handle(), HOLD).out(genie_io::Out::borrowed(Scheme::Copy, bytes)).submit()
}

/// Has the server reply, and takes the reply.
fn finish(t: &Scene, pending: Pending<'_>) -> Reply {
    t.holder().reply(pending.id());
    pending.sync().expect("a reply")
}
