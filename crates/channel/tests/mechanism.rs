//! Mechanisms: right bytes could come from a hidden copy; page frames and receipts show whether they did.

mod chains;
mod cuts;
mod foreign;
mod framed;
mod input;
mod output;
mod overlays;
mod patching;
mod subcontract;

use genie_conformance::{Buffering, Guard, Setup};
use genie_io::{Interface, Limits, Pending, ServerHandle, servers::memory::Memory};
use genie_memory::{Buffer, GranuleKind};
use genie_passing::{Costs, Overlays, Passing, Thresholds};

use crate::support::holder::Holder;
use crate::support::machine::proc::while_pages_stay;

/// Bytes in the tests' buffers.
const LEN: usize = 16 << 20;
/// Bytes of memory that a test may take.
const LIMIT: usize = 64 << 20;

/// One client with one server, on one kind of granules.
struct Fixture {
    name: &'static str,
    kind: GranuleKind,
    interface: Interface,
    holder: Holder,
    memory: ServerHandle,
}

/// Makes a test of each granule kind.
#[macro_export]
macro_rules! on_each_kind {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            #[test]
            fn huge() {
                $crate::mechanism::fixture(concat!(stringify!($test), "::huge"), genie_memory::GranuleKind::Huge, super::$test);
            }

            #[test]
            fn collapsed() {
                let name = concat!(stringify!($test), "::collapsed");
                $crate::mechanism::fixture(name, genie_memory::GranuleKind::Collapsed, super::$test);
            }

            #[test]
            fn base() {
                $crate::mechanism::fixture(concat!(stringify!($test), "::base"), genie_memory::GranuleKind::Base, super::$test);
            }
        }
    )*};
}

/// Runs a test, if the machine can and shows page frames.
fn fixture(name: &'static str, kind: GranuleKind, test: fn(&Fixture)) {
    while_pages_stay(|| {
        if let Some(fixture) = open(name, kind) {
            test(&fixture);
        }
    });
}

/// The fixture of most tests.
fn open(name: &'static str, kind: GranuleKind) -> Option<Fixture> {
    Fixture::open(name, kind, Guard::Full, Thresholds::ALWAYS)
}

impl Fixture {
    fn open(name: &'static str, kind: GranuleKind, guard: Guard, thresholds: Thresholds) -> Option<Self> {
        let setup = Setup { guard, buffering: Buffering::Customized, ..Setup::plain(kind) };
        let space = setup.space(name, LIMIT)?;
        let passing = Passing::new(space, Costs::default()).with_thresholds(thresholds);
        let interface = Interface::new(passing, Limits::default());
        let memory = ServerHandle::new(Memory::customized());
        let fixture = Self { name, kind, interface, holder: Holder::in_process(None), memory };
        let buffer = fixture.interface.allocate(1).expect("a buffer");
        if crate::support::machine::frames(buffer.addresses().start, 1, kind.size()).is_none() {
            crate::support::machine::skip(name, "page frames are hidden (CAP_SYS_ADMIN is missing)");
            return None;
        }
        Some(fixture)
    }

    /// Has servers' buffers start `offset` bytes into their first granule.
    fn pooled(mut self, offset: usize, len: usize) -> Self {
        let overlays =
            Overlays::reserve(self.interface.space(), offset, len, 1).expect("memory for the pool");
        self.holder = Holder::in_process(Some(overlays));
        self
    }

    fn granule(&self) -> usize {
        self.kind.size()
    }

    fn granules(&self) -> usize {
        LEN / self.granule()
    }

    /// A buffer whose every granule is there.
    fn buffer(&self, seed: u64) -> Buffer {
        let mut buffer = self.interface.allocate(LEN).expect("a buffer");
        buffer.copy_from_slice(&crate::support::bytes::pattern(seed, LEN));
        buffer
    }

    /// The client's page frames.
    fn frames(&self, bytes: &[u8]) -> Vec<u64> {
        let (addr, len) = (bytes.as_ptr().addr(), bytes.len());
        crate::support::machine::frames(addr, len, self.granule()).expect("frames were visible before")
    }

    /// The server's page frames of an output.
    fn server_frames(&self, pending: &Pending<'_>) -> Vec<u64> {
        self.holder.frames(pending.id(), self.granule()).expect("frames were visible before")
    }
}

/// Which granules have another frame now.
fn changed(before: &[u64], after: &[u64]) -> Vec<usize> {
    before.iter().zip(after).enumerate().filter(|(_, (b, a))| b != a).map(|(index, _)| index).collect()
}
