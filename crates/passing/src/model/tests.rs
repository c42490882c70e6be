//! The model's rules one by one.

use super::*;

#[test]
fn allocation_and_integrity_define_the_semantics() {
    for semantics in [Semantics::Copy, Semantics::Share, Semantics::Move, Semantics::WeakMove] {
        assert_eq!(Semantics::new(semantics.allocation(), semantics.integrity()), semantics);
    }
    assert!(Integrity::Weak < Integrity::Strong);
}

#[test]
fn full_protection_protects_more_than_none() {
    assert!(Protection::FULL.at_least(&Protection::NONE));
    assert!(!Protection::NONE.at_least(&Protection::FULL));
}

#[test]
fn a_descriptor_widens_granules_to_the_object_and_leaves_copying_alone() {
    assert_eq!(Protection::FULL.by_descriptor(), Protection::FULL);
    let in_place = Protection {
        granularity: Granularity::Granule,
        server_reads_output: Access::DuringRequest,
        ..Protection::FULL
    };
    let widened = in_place.by_descriptor();
    assert_eq!(widened.granularity, Granularity::Object);
    assert_eq!(widened.server_reads_output, Access::Anytime);
    assert_eq!(
        widened.server_writes_input,
        Access::Anytime,
        "swapped granules come from an object that it still holds"
    );
    assert_eq!(widened.server_writes_output, Access::Never, "a read-only descriptor stays read-only");
}
