//! Transports: they carry requests from a client to a server. The promises know a transport only by this trait, so that
//! every later transport is held to the same promises.

use std::time::Duration;

use genie_io::servers::memory::Memory;
use genie_io::{Interface, Limits, ServerHandle};
use genie_memory::Space;
use genie_passing::{Overlays, Thresholds};

use super::channel::Channel;
use super::heap;
use super::holder::Holder;
use super::setup::{Buffering, Setup, assert_idle, interface};

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
pub(crate) const POOLED: usize = 2;

impl InProcess {
    /// Opens both servers and an interface with these limits and thresholds. Where the machine cannot, says so and returns
    /// `None`.
    pub(crate) fn open_with(
        test: &str,
        setup: Setup,
        limits: Limits,
        thresholds: Thresholds,
    ) -> Option<Self> {
        Some(Self::on(setup.space(test, setup.memory_limit())?, setup, limits, thresholds))
    }

    /// The same on a space that is there, with nothing in it.
    pub(crate) fn on(space: Space, setup: Setup, limits: Limits, thresholds: Thresholds) -> Self {
        let interface = interface(space, limits, thresholds);
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
        Self { setup, interface, memory: ServerHandle::new(memory), holder, reserved }
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

/// Runs promises on each configuration, each as a test of its own: with servers in the client's process and in another one,
/// which maps the client's memory or has the kernel copy. A space without the promise that its userfaultfd would need has none
/// (`user_mode_only_needs_a_promise` in genie-memory's `tcow.rs`), so `Guard::Unpromised` is `Guard::Never` there.
#[macro_export]
macro_rules! promise {
    ($($module:ident :: $promise:ident as $name:ident),* $(,)?) => {$(
        mod $name {
            $crate::promise!(@here $name, $crate::conformance::$module::$promise);
            mod channel {
                $crate::promise!(@mapped $name, $crate::conformance::$module::$promise);
                $crate::promise!(@copied $name, $crate::conformance::$module::$promise);
            }
        }
    )*};
    (@here $name:ident, $promise:path) => {
        $crate::promise!(@kind huge, Huge, $name, $promise);
        $crate::promise!(@kind base, Base, $name, $promise);
        mod collapsed {
            $crate::promise!(@one customized_full, Collapsed, Full, Customized, InProcess, $name, $promise);
        }
        mod mixed {
            $crate::promise!(@one customized_full, Mixed, Full, Customized, InProcess, $name, $promise);
            $crate::promise!(@one pooled_never, Mixed, Never, Pooled, InProcess, $name, $promise);
        }
    };
    (@kind $kind:ident, $granules:ident, $name:ident, $promise:path) => {
        mod $kind {
            $crate::promise!(@one customized_full, $granules, Full, Customized, InProcess, $name, $promise);
            $crate::promise!(@one customized_stores_only, $granules, Stores, Customized, InProcess, $name, $promise);
            $crate::promise!(@one customized_never, $granules, Never, Customized, InProcess, $name, $promise);
            $crate::promise!(@one pooled_full, $granules, Full, Pooled, InProcess, $name, $promise);
            $crate::promise!(@one pooled_stores_only, $granules, Stores, Pooled, InProcess, $name, $promise);
            $crate::promise!(@one pooled_never, $granules, Never, Pooled, InProcess, $name, $promise);
        }
    };
    (@mapped $name:ident, $promise:path) => {
        $crate::promise!(@one huge_customized, Huge, Full, Customized, Cached, $name, $promise);
        $crate::promise!(@one huge_pooled, Huge, Full, Pooled, Cached, $name, $promise);
        $crate::promise!(@one huge_transient, Huge, Full, Customized, Transient, $name, $promise);
        $crate::promise!(@one collapsed_customized, Collapsed, Full, Customized, Cached, $name, $promise);
        $crate::promise!(@one base_customized, Base, Full, Customized, Cached, $name, $promise);
        $crate::promise!(@one base_pooled, Base, Full, Pooled, Cached, $name, $promise);
        $crate::promise!(@one base_transient, Base, Full, Customized, Transient, $name, $promise);
        $crate::promise!(@one mixed_customized, Mixed, Full, Customized, Cached, $name, $promise);
        $crate::promise!(@one mixed_pooled, Mixed, Full, Pooled, Transient, $name, $promise);
        $crate::promise!(@one base_never, Base, Never, Customized, Cached, $name, $promise);
    };
    (@copied $name:ident, $promise:path) => {
        $crate::promise!(@one huge_untrusted, Huge, Full, Pooled, Untrusted, $name, $promise);
        $crate::promise!(@one base_untrusted, Base, Full, Pooled, Untrusted, $name, $promise);
    };
    (@one $test:ident, $granules:ident, $guard:ident, $buffering:ident, $place:ident, $name:ident, $promise:path) => {
        #[test]
        fn $test() {
            let test = concat!(stringify!($name), "::", stringify!($granules), "::", stringify!($test));
            let setup = $crate::support::setup::Setup::new(
                $crate::support::setup::Granules::$granules,
                $crate::support::setup::Guard::$guard,
                $crate::support::setup::Buffering::$buffering,
            );
            $crate::support::transport::run(test, setup, $crate::support::transport::Place::$place, $promise);
        }
    };
}

/// Promises that a server can't keep that sees only a copy: about where data is.
#[macro_export]
macro_rules! promise_in_place {
    ($($module:ident :: $promise:ident as $name:ident),* $(,)?) => {$(
        mod $name {
            $crate::promise!(@here $name, $crate::conformance::$module::$promise);
            mod channel {
                $crate::promise!(@mapped $name, $crate::conformance::$module::$promise);
            }
        }
    )*};
}

/// Promises whose servers are a part of the test itself.
#[macro_export]
macro_rules! promise_here {
    ($($module:ident :: $promise:ident as $name:ident),* $(,)?) => {$(
        mod $name {
            $crate::promise!(@here $name, $crate::conformance::$module::$promise);
        }
    )*};
}

/// Where the servers are, and how they get at their clients' memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the client's process.
    InProcess,
    /// In another process, which keeps clients' memory mapped.
    Cached,
    /// In another process, which maps clients' memory while a request needs it.
    Transient,
    /// In another process, which maps nothing; the kernel copies.
    Untrusted,
}

/// How long a server may take to let a request go before the client goes on, where promises are tried.
pub(crate) const GRACE: Duration = Duration::from_millis(20);

/// Runs one promise on one configuration; afterwards nothing may be left.
pub(crate) fn run(test: &str, setup: Setup, place: Place, promise: fn(&dyn Transport)) {
    let limits = Limits { abort_timeout: GRACE, ..Limits::default() };
    let Some(transport) = open(test, setup, place, limits, Thresholds::ALWAYS) else { return };
    promise(&*transport);
    transport.assert_idle();
}

/// Opens a client and its servers. Where the machine cannot, says so and returns `None`.
pub(crate) fn open(
    test: &str,
    setup: Setup,
    place: Place,
    limits: Limits,
    thresholds: Thresholds,
) -> Option<Box<dyn Transport>> {
    heap::keep_what_is_freed();
    Some(match place {
        Place::InProcess => Box::new(InProcess::open_with(test, setup, limits, thresholds)?),
        _ => Box::new(Channel::open(test, setup, place, limits, thresholds)?),
    })
}
