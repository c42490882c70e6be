//! Wiring: keeping a region's memory resident while a server works in it.
//!
//! Only share, move and weak move wire memory; the emulated schemes rely on memory that the kernel may swap out but never
//! loses. Reserved huge pages are never swapped out: they need no wiring, and `mlock` would mark no mapping of them.
//! Source: thesis §3.2.3; tables 7.1 to 7.3.

use std::sync::atomic::Ordering::Relaxed;

use crate::space::Space;
use crate::{Error, RegionId, Result};

/// A wired region; dropping it unwires, unless the region is wired for another request as well.
#[derive(Debug)]
pub struct Wired {
    /// None where the memory is always resident.
    _held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    space: Space,
    region: RegionId,
}

impl Space {
    /// Wires the whole region `region`.
    ///
    /// # Errors
    /// The memory-lock limit is too low, unless all of the region is of reserved huge pages; or the region is gone.
    pub fn wire_region(&self, region: RegionId) -> Result<Wired> {
        let core = self.core();
        if core.unreserved.load(Relaxed) == 0 {
            return Ok(Wired { _held: None });
        }
        core.ensure_own()?;
        let mut guard = core.lock();
        let state = &mut *guard;
        let found = state.regions.get_mut(region).ok_or(Error::Foreign { addr: 0, len: 0 })?;
        if state.objects.are_reserved(state.slots.granules(found.slots)) {
            return Ok(Wired { _held: None });
        }
        if found.wirings == 0 {
            core.windows.lock(core.bytes(found.slots.start), core.bytes(found.slots.len))?;
        }
        found.wirings += 1;
        Ok(Wired { _held: Some(Held { space: self.clone(), region }) })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let core = self.space.core();
        if !core.is_own() {
            return;
        }
        let mut state = core.lock();
        // A region that is gone was unwired when its window was unmapped.
        let Some(found) = state.regions.get_mut(self.region) else { return };
        found.wirings -= 1;
        if found.wirings == 0 {
            // Only a range that is not mapped cannot be unwired; it is not wired either.
            let _ = core.windows.unlock(core.bytes(found.slots.start), core.bytes(found.slots.len));
        }
    }
}
