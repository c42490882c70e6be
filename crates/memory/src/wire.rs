//! Wiring: keeping a region's memory resident while a server works in it.
//!
//! Only the schemes that are not emulated wire (share, move, weak move); the emulated ones rely on memory that the
//! kernel may swap out but never loses. Huge pages are never swapped out: wiring them is counted, and costs no system
//! call, which the kernel would pass over (`mlock` marks no mapping of huge pages).
//! Source: thesis §3.2.3; tables 7.1 to 7.3.

use genie_sys::GranuleKind;

use crate::space::{Core, Space};
use crate::{Error, RegionId, Result};

/// A wired region; dropping it unwires, unless the region is wired for another request as well.
pub struct Wired {
    space: Space,
    region: RegionId,
}

impl Space {
    /// Wires the whole region `region`.
    ///
    /// # Errors
    /// The memory-lock limit is too low, or the region is gone.
    pub fn wire_region(&self, region: RegionId) -> Result<Wired> {
        let core = self.core();
        let mut state = core.lock();
        let found = state.regions.get_mut(region).ok_or(Error::Foreign { addr: 0, len: 0 })?;
        if found.wirings == 0 && core.may_be_swapped() {
            core.windows.lock(core.bytes(found.slots.start), core.bytes(found.slots.len))?;
        }
        found.wirings += 1;
        Ok(Wired { space: self.clone(), region })
    }
}

impl Core {
    /// Whether the kernel may take the memory's pages away for a time.
    fn may_be_swapped(&self) -> bool {
        self.kind != GranuleKind::Huge
    }
}

impl Drop for Wired {
    fn drop(&mut self) {
        let core = self.space.core();
        let mut state = core.lock();
        // A region that is gone was unwired when its window was unmapped.
        let Some(found) = state.regions.get_mut(self.region) else { return };
        found.wirings -= 1;
        if found.wirings == 0 && core.may_be_swapped() {
            // Only a range that is not mapped cannot be unwired; it is not wired either.
            let _ = core.windows.unlock(core.bytes(found.slots.start), core.bytes(found.slots.len));
        }
    }
}

impl std::fmt::Debug for Wired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Wired({:?})", self.region)
    }
}
