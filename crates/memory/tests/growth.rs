//! Growth: what pages a space gets when the machine's reserve of huge pages is used up, and when it is not any more.
//!
//! A test binary of its own, since the test takes all free huge pages for a moment.

use genie_memory::{Config, Direction, Faults, Granularity, GranuleKind, MadeOf, Space};
use genie_sys::{Object, inspect};

#[path = "../../sys/tests/skip/mod.rs"]
mod skip;

const MIB: usize = 1 << 20;
const NAME: &str = "a_space_grows_by_the_best_pages_there_are";

fn available() -> usize {
    let pages = inspect::huge_pages().expect("/proc/meminfo is readable");
    if pages.size_kib == 2048 { pages.free.saturating_sub(pages.reserved) } else { 0 }
}

/// Once, a space whose granules were reserved huge pages could not grow when there were no more of those.
#[test]
fn a_space_grows_by_the_best_pages_there_are() {
    let config = Config { limit: 128 * MIB, faults: Faults::Never, ..Config::default() };
    assert_eq!(config.granularity, Granularity::Best);
    if available() < 64 {
        return skip::skip(NAME, "64 free huge pages of 2 MiB are needed");
    }
    let space = Space::new(&config).unwrap();
    assert_eq!(space.made_of(), MadeOf { reserved: 32 * MIB, ..MadeOf::default() });
    let Ok(hog) = Object::create(GranuleKind::Huge, available() * GranuleKind::Huge.size()) else {
        return skip::skip(NAME, "another process takes huge pages");
    };
    let buffer = space.allocate(34 * MIB);
    drop(hog);
    let buffer = buffer.unwrap();
    let made_of = space.made_of();
    assert_eq!(made_of.reserved, 32 * MIB);
    assert_eq!(made_of.collapsed + made_of.small, 32 * MIB, "{made_of}");
    assert_eq!((space.granule_kind(), space.granule()), (GranuleKind::Huge, 2 * MIB));
    // The buffer is of pages of both kinds, which are wired and referenced together.
    let wired = space.wire_region(buffer.region());
    assert!(wired.is_ok() || !genie_sys::machine::can_lock_without_limit().unwrap());
    let output = space.reference(buffer.addresses().start, buffer.len(), Direction::Out).unwrap();
    assert_eq!(output.data().len(), 34 * MIB);
    if available() < 64 {
        return skip::skip(NAME, "another process has taken huge pages");
    }
    let _more = space.allocate(40 * MIB).unwrap();
    assert!(space.made_of().reserved > 32 * MIB, "reserved pages are there again: {}", space.made_of());
    space.check().unwrap_or_else(|wrong| panic!("{wrong}"));
}
