//! Transports: what carries requests from a client to a server. The promises know a transport only by this trait, so
//! that whatever carries requests later is held to the same ones.

use genie_io::servers::memory::Memory;
use genie_io::{Interface, Limits, ServerHandle};
use genie_passing::{Overlays, Thresholds};

use super::holder::Holder;
use super::setup::{Buffering, Setup, assert_idle, memory_limit};

/// A client's interface with the two servers that the tests know.
pub(crate) trait Transport {
    /// The configuration.
    fn setup(&self) -> Setup;

    /// The client's interface.
    fn interface(&self) -> &Interface;

    /// The memory server.
    fn memory(&self) -> &ServerHandle;

    /// The server that keeps requests until it is told what to do with them.
    fn holder(&self) -> &Holder;

    /// Verifies that nothing is left of any request.
    fn assert_idle(&self);
}

/// Servers in the client's process.
pub(crate) struct InProcess {
    setup: Setup,
    interface: Interface,
    memory: ServerHandle,
    holder: Holder,
    reserved: usize,
}

/// How many buffers each pool of a server has.
const POOLED: usize = 2;

impl InProcess {
    /// Opens both servers and an interface; `None`, once said so, where the machine cannot.
    pub(crate) fn open(test: &str, setup: Setup) -> Option<Self> {
        Self::open_with(test, setup, Limits::default(), Thresholds::ALWAYS)
    }

    /// The same with these limits and thresholds.
    pub(crate) fn open_with(
        test: &str,
        setup: Setup,
        limits: Limits,
        thresholds: Thresholds,
    ) -> Option<Self> {
        let interface = setup.interface(test, memory_limit(setup.kind), limits, thresholds)?;
        let space = interface.space();
        let len = setup.granules() * setup.granule();
        let (memory, holder, reserved) = match setup.buffering {
            Buffering::Customized => (Memory::customized(), Holder::in_process(None), 0),
            Buffering::Pooled => {
                let overlays = Overlays::reserve(space, 0, len, POOLED).expect("memory for the pool");
                let memory = Memory::pooled(space, 0, len, POOLED).expect("memory for the pool");
                (memory, Holder::in_process(Some(overlays)), 2 * POOLED * setup.granules())
            }
        };
        Some(Self { setup, interface, memory: ServerHandle::new(memory), holder, reserved })
    }

    /// The holder and the interface, to be dropped one after the other.
    pub(crate) fn into_parts(self) -> (Holder, Interface) {
        (self.holder, self.interface)
    }
}

impl Transport for InProcess {
    fn setup(&self) -> Setup {
        self.setup
    }

    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn memory(&self) -> &ServerHandle {
        &self.memory
    }

    fn holder(&self) -> &Holder {
        &self.holder
    }

    fn assert_idle(&self) {
        assert_idle(&self.interface, self.reserved);
    }
}

/// Runs promises on each configuration, each as a test of its own.
#[macro_export]
macro_rules! promise {
    ($($module:ident :: $promise:ident as $name:ident),* $(,)?) => {$(
        mod $name {
            $crate::promise!(@kind huge, Huge, $name, $crate::$module::$promise);
            $crate::promise!(@kind base, Base, $name, $crate::$module::$promise);
        }
    )*};
    (@kind $kind:ident, $granules:ident, $name:ident, $promise:path) => {
        mod $kind {
            $crate::promise!(@one customized_full, $kind, $granules, Full, Customized, $name, $promise);
            $crate::promise!(@one customized_stores_only, $kind, $granules, Stores, Customized, $name, $promise);
            $crate::promise!(@one customized_unpromised, $kind, $granules, Unpromised, Customized, $name, $promise);
            $crate::promise!(@one customized_never, $kind, $granules, Never, Customized, $name, $promise);
            $crate::promise!(@one pooled_full, $kind, $granules, Full, Pooled, $name, $promise);
            $crate::promise!(@one pooled_stores_only, $kind, $granules, Stores, Pooled, $name, $promise);
            $crate::promise!(@one pooled_unpromised, $kind, $granules, Unpromised, Pooled, $name, $promise);
            $crate::promise!(@one pooled_never, $kind, $granules, Never, Pooled, $name, $promise);
        }
    };
    (@one $test:ident, $kind:ident, $granules:ident, $guard:ident, $buffering:ident, $name:ident, $promise:path) => {
        #[test]
        fn $test() {
            let test = concat!(stringify!($name), "::", stringify!($kind), "::", stringify!($test));
            let setup = $crate::support::setup::Setup {
                kind: genie_memory::GranuleKind::$granules,
                guard: $crate::support::setup::Guard::$guard,
                buffering: $crate::support::setup::Buffering::$buffering,
            };
            $crate::support::transport::run(test, setup, $promise);
        }
    };
}

/// Runs one promise on one configuration; afterwards nothing may be left.
pub(crate) fn run(test: &str, setup: Setup, promise: fn(&dyn Transport)) {
    let Some(transport) = InProcess::open(test, setup) else { return };
    promise(&transport);
    transport.assert_idle();
}
