//! What a promise is.

use crate::scene::Scene;

/// One promise of data passing.
pub struct Promise {
    /// What is promised, as a claim.
    pub name: &'static str,
    /// Where the thesis promises it.
    pub source: &'static str,
    /// What it takes to try it.
    pub needs: &'static [Need],
    /// Tries it, and panics where it is broken.
    pub(crate) holds: fn(&Scene),
}

impl Promise {
    /// Tries it; afterwards nothing may be left.
    pub(crate) fn hold(&self, scene: &Scene) {
        (self.holds)(scene);
        scene.assert_idle();
    }
}

/// What it takes to try a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Requests reach the suite's [holder](crate::holder).
    Holder,
    /// Requests reach the [memory server](genie_io::servers::memory).
    Memory,
    /// The subject is a server that keeps bytes.
    Store,
    /// Servers work in the memory in which the client has its data, where the scheme says so.
    InPlace,
    /// Servers fill buffers that are made for the request.
    Customized,
    /// Servers in the client's process have devices.
    Device,
    /// The kernel shows page frames to this process.
    Frames,
}
