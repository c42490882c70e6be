//! The rules of §2.4 one by one, on schemes of other systems that the thesis names.

use super::*;

const IN_FBUF_REGION: Condition = Condition {
    name: "buffer in the fbuf region",
    kind: ConditionKind::Spatial,
    restrictiveness: Restrictiveness::Hard,
    criticality: Criticality::Mandatory,
    source: "thesis §2.1.3",
};
const WEAK_MOVE: Qualified = Qualified { semantics: Semantics::WeakMove, conditions: &[] };
const FBUFS: Qualified = Qualified { semantics: Semantics::WeakMove, conditions: &[IN_FBUF_REGION] };
const COPY: Qualified = Qualified { semantics: Semantics::Copy, conditions: &[] };

#[test]
fn allocation_and_integrity_define_the_semantics() {
    for semantics in [Semantics::Copy, Semantics::Share, Semantics::Move, Semantics::WeakMove] {
        assert_eq!(Semantics::new(semantics.allocation(), semantics.integrity()), semantics);
    }
    assert!(Integrity::Weak < Integrity::Strong);
}

#[test]
fn a_new_mandatory_condition_is_incompatible_and_a_dropped_one_is_not() {
    let reasons = compatible(&FBUFS, &WEAK_MOVE).unwrap_err();
    assert_eq!(reasons, [Incompatibility::Condition { condition: IN_FBUF_REGION }]);
    assert_eq!(compatible(&WEAK_MOVE, &FBUFS), Ok(()));
    assert_eq!(compatible(&FBUFS, &FBUFS), Ok(()));
}

#[test]
fn a_hard_condition_that_is_only_advisory_is_compatible() {
    const HARD: &[Condition] = &[Condition { criticality: Criticality::Advisory, ..IN_FBUF_REGION }];
    let hinted = Qualified { semantics: Semantics::WeakMove, conditions: HARD };
    assert_eq!(compatible(&hinted, &WEAK_MOVE), Ok(()));
    // The offered scheme must not demand what the program treats as a hint.
    assert!(compatible(&FBUFS, &hinted).is_err());
}

#[test]
fn every_broken_rule_is_named() {
    let reasons = compatible(&FBUFS, &COPY).unwrap_err();
    let sentences: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    assert_eq!(
        sentences,
        [
            "the scheme has migrant buffers but the program expects native ones: their interfaces differ",
            "the scheme has weak integrity but the program expects strong: its data could be corrupted",
            "the scheme demands \"buffer in the fbuf region\" (thesis §2.1.3), which the program was not written to meet",
        ]
    );
}

#[test]
fn full_protection_has_no_weakening_and_none_has_all_three() {
    assert_eq!(Protection::FULL.weakenings(), []);
    assert_eq!(Protection::NONE.weakenings().len(), 3);
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

#[test]
fn servers_get_migrant_buffers_whatever_the_client_chose() {
    for side in [ServerSide::InProcess, ServerSide::TransientMapping, ServerSide::CachedMapping] {
        for client in [Semantics::Copy, Semantics::Share, Semantics::Move, Semantics::WeakMove] {
            let symmetry = Symmetry::new(client, side);
            assert_eq!(symmetry.server.allocation(), Allocation::Migrant);
            if client.allocation() == Allocation::Native {
                assert!(!symmetry.is_symmetrical());
            }
        }
    }
    assert!(Symmetry::new(Semantics::Move, ServerSide::TransientMapping).is_symmetrical());
    assert!(Symmetry::new(Semantics::WeakMove, ServerSide::InProcess).is_symmetrical());
}
