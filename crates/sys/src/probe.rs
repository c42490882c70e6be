//! Whether this process may use a kernel facility that crates above this one build on: collapsing pages.
//!
//! Why: it can be compiled out, or lack memory; the only reliable test is to try.
//! Invariants: a probe leaves nothing open.

use rustix::io::Errno;

use crate::{Arena, Error, GranuleKind, Object, Result};

/// Has the kernel collapse the pages of one granule of 2 MiB.
///
/// # Errors
/// EINVAL: the kernel cannot collapse pages of shared memory. ENOMEM, EAGAIN, EBUSY: it has no huge page to collapse them
/// to. What making and mapping an object fails with.
#[doc(alias = "MADV_COLLAPSE")]
pub fn collapse_available() -> Result<()> {
    let len = GranuleKind::Collapsed.size();
    let object = Object::create(GranuleKind::Base, len)?;
    let arena = Arena::reserve(len)?;
    arena.map(0, &object, 0, len)?;
    arena.collapse(0, len).map_err(uncollapsed)
}

fn uncollapsed(error: Error) -> Error {
    match error.errno {
        Errno::INVAL => error.with_remedy("use Linux 6.1 or later, built with CONFIG_TRANSPARENT_HUGEPAGE"),
        _ => error.with_remedy("join free memory: `sysctl vm.compact_memory=1`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A probe either succeeds or says what to do.
    #[test]
    fn probes_leave_no_descriptor_open_and_name_a_remedy() {
        // Other tests open descriptors meanwhile, so many probes must not add as many.
        let before = crate::proc::open_descriptors();
        for _ in 0..200 {
            if let Err(error) = collapse_available() {
                assert!(error.remedy.is_some(), "{error}");
            }
        }
        assert!(crate::proc::open_descriptors() < before + 100);
    }

    #[test]
    fn a_kernel_without_the_facility_is_named() {
        let uncollapsed = |errno| uncollapsed(Error::new("madvise", "2 MiB", errno)).to_string();
        assert!(uncollapsed(Errno::INVAL).contains("Linux 6.1"));
        assert!(uncollapsed(Errno::NOMEM).contains("vm.compact_memory"));
    }
}
