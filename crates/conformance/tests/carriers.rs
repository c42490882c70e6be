//! Carriers of requests to the suite's servers.

use genie_conformance::{Buffering, Finding, Servers, Setup, Subject, Verdict};
use genie_memory::GranuleKind;

use crate::loopback::{Wrong, subject};
use crate::{breaks, plain, wire};

#[test]
fn a_carrier_that_serializes_every_request_keeps_all_promises_but_those_of_place() {
    let setup = Setup { buffering: Buffering::Pooled, ..Setup::allowed(GranuleKind::Base) };
    let report = subject(None).report(&[plain(Buffering::Pooled), setup]);
    report.assert_kept();
    let is_told = |finding: &Finding| {
        finding.promise.name == "weak_output_is_in_place"
            && finding.verdict == Verdict::NotApplicable("it copies all bytes".to_owned())
    };
    assert!(report.findings().iter().any(is_told), "{report}");
}

#[test]
fn a_carrier_by_the_seam_alone_that_serializes_every_request_keeps_all_promises_but_those_of_place() {
    let setup = Setup { buffering: Buffering::Pooled, ..Setup::allowed(GranuleKind::Base) };
    wire::subject().report(&[plain(Buffering::Pooled), setup]).assert_kept();
}

#[test]
fn servers_of_the_suites_own_keep_all_promises() {
    let subject = Subject::new("this process", |interface, setup| Ok(Servers::in_process(interface, setup)));
    subject.report(&[plain(Buffering::Customized), Setup::allowed(GranuleKind::Base)]).assert_kept();
}

#[test]
fn carriers_that_break_promises_are_found_out() {
    for (wrong, promise, seen) in [
        (Wrong::SendsOldBytes, "output_hides_later_stores", "copy of"),
        (Wrong::StoresIntoOutputs, "failed_output_gives_migrants_back", "move, fail"),
        (Wrong::SaysAllCame, "input_may_be_shorter_than_asked", "bytes into"),
        (Wrong::HidesFailures, "failed_input_leaves_the_buffer", "should fail"),
        (Wrong::HidesFailures, "input_without_a_length_is_refused", "should fail"),
        (Wrong::ForgetsAborts, "failed_migrant_input_brings_nothing", "under way for ever"),
        (Wrong::RepliesAtOnce, "input_changes_its_bytes_and_no_others", "copy into"),
        (Wrong::RepliesAtOnce, "pinned_output_hides_later_stores", "before the pin was let go"),
        (Wrong::RepliesAtOnce, "replies_wait_for_transfers", "nobody has said that all of it is there"),
        (Wrong::HidesFailures, "failed_transfers_fail_requests", "should fail"),
        (Wrong::FillsOneElement, "elements_may_meet_in_one_granule", "copy beside"),
        (Wrong::RepliesTwoBytesShort, "what_came_can_go", "lengths differ"),
        (Wrong::RepliesTwoBytesShort, "what_is_got_is_all_there_is", "the length that is said"),
    ] {
        breaks(subject(Some(wrong)), plain(Buffering::Pooled), promise, seen);
    }
}
