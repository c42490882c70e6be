//! Servers that keep bytes.

use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use genie_conformance::{Buffering, Servers, Setup, Store, Subject, Verdict};
use genie_io::ServerHandle;
use genie_io::servers::memory::{FETCH, Memory, STORE};
use genie_memory::GranuleKind;

use crate::keeper::{Wrong, subject};
use crate::{breaks, plain};

/// Small and huge granules, where the machine has some.
fn setups() -> [Setup; 3] {
    [plain(Buffering::Customized), Setup::allowed(GranuleKind::Base), Setup::allowed(GranuleKind::Collapsed)]
}

#[test]
fn a_server_that_keeps_its_promises_is_found_to() {
    let report = subject(None).report(&setups());
    report.assert_kept();
    let of_servers = report.findings().iter().filter(|finding| finding.verdict == Verdict::Kept).count();
    assert!(of_servers >= 12, "{report}");
    let why = "its requests do not reach the suite's holder";
    let is_told = |finding: &genie_conformance::Finding| {
        finding.promise.name == "output_hides_later_stores"
            && finding.verdict == Verdict::NotApplicable(why.to_owned())
    };
    assert!(report.findings().iter().any(is_told), "{report}");
}

#[test]
fn the_memory_server_keeps_its_promises_pooled_and_customized() {
    let subject = Subject::new("the memory server", |interface, setup| {
        let space = interface.space();
        let (memory, granules) = match setup.buffering {
            Buffering::Customized => (Memory::customized(), 0),
            Buffering::Pooled => {
                let memory = Memory::pooled(space, 0, setup.granules() * setup.granule(), 2);
                (memory.expect("memory for the pool"), 2 * setup.granules())
            }
            Buffering::Framed => unreachable!("no setup here has frames"),
        };
        let name = |name: &str| name.as_bytes().to_vec();
        Ok(Servers::storing(Store::new(ServerHandle::new(memory), STORE, FETCH, name)).reserving(granules))
    });
    subject.report(&[setups().as_slice(), &[plain(Buffering::Pooled)]].concat()).assert_kept();
}

#[test]
#[should_panic(expected = "not opened: it was not started")]
fn a_subject_that_is_never_opened_fails() {
    let subject = Subject::new("a server that is not there", |_, _| Err("it was not started".to_owned()));
    subject.report(&[plain(Buffering::Customized)]).assert_kept();
}

#[test]
fn a_subject_that_panics_breaks_the_promises_it_was_tried_on() {
    let opened = AtomicUsize::new(0);
    let second_panics = Subject::new("a server that is not there the second time", |interface, setup| {
        assert_ne!(opened.fetch_add(1, Ordering::Relaxed), 1, "no second one");
        Ok(Servers::in_process(interface, setup))
    });
    let report = second_panics.report(&[plain(Buffering::Customized)]);
    let broken = report.findings().iter().filter(|finding| matches!(finding.verdict, Verdict::Broken(_)));
    let broken = broken.map(|finding| finding.verdict.to_string()).collect::<Vec<_>>();
    assert!(matches!(&broken[..], [one] if one.contains("no second one")), "{report}");
    let ends_badly = Subject::new("a server that panics when it is dropped", |interface, setup| {
        let end = PanicsAtItsEnd;
        Ok(Servers::in_process(interface, setup).settling(move || assert_eq!(size_of_val(&end), 0)))
    });
    breaks(ends_badly, plain(Buffering::Customized), "elements_are_one_buffer", "it panics at its end");
    let leaves_a_panic =
        Subject::new("a server whose panic panics when it is dropped", |interface, setup| {
            Ok(Servers::in_process(interface, setup).settling(|| panic_any(PanicsAtItsEnd)))
        });
    breaks(leaves_a_panic, plain(Buffering::Customized), "elements_are_one_buffer", "a panic without words");
}

struct PanicsAtItsEnd;

impl Drop for PanicsAtItsEnd {
    fn drop(&mut self) {
        panic!("it panics at its end");
    }
}

/// A server in the client's process has the client's thread.
#[test]
fn a_server_that_never_lets_its_client_go_on_is_found_out() {
    let never_returns = || subject(Some(Wrong::NeverReturns)).patience(Duration::from_millis(50));
    breaks(
        never_returns(),
        plain(Buffering::Customized),
        "elements_are_one_buffer",
        "thread of its own is left behind",
    );
    let report = never_returns().report(&[plain(Buffering::Customized)]);
    let stuck = report.findings().iter().filter(|finding| matches!(finding.verdict, Verdict::Stuck(_)));
    assert_eq!(stuck.count(), 1, "the others are not tried: {report}");
}

#[test]
fn servers_that_break_promises_are_found_out() {
    for (wrong, promise, seen) in [
        (Wrong::StoresIntoOutputs, "what_is_put_comes_back", "the client's buffer"),
        (Wrong::ReadsOutputsAfterItsReply, "output_is_read_before_the_reply", "stored into after the reply"),
        (Wrong::StoresAfterItsReply, "nothing_is_stored_after_the_reply", "the client has stored"),
        (Wrong::SaysMoreThanItPasses, "the_length_said_is_that_of_the_data", "with room for more"),
        (Wrong::SaysLessThanItPasses, "what_is_got_is_all_there_is", "the length that is said"),
        (Wrong::NeverSaysHowMuchItPasses, "what_is_got_is_all_there_is", "never said how many bytes came"),
        (
            Wrong::NeverSaysHowMuchItPasses,
            "the_length_said_is_that_of_the_data",
            "never said how many bytes came",
        ),
        (Wrong::LeavesTheLastByteOut, "what_is_put_comes_back", "the length that is said"),
        (Wrong::InventsWhatIsMissing, "refused_requests_change_nothing", "nothing of this name"),
        (Wrong::NeverReplies, "output_is_that_of_the_request", "putting"),
        (Wrong::NeverReplies, "an_abort_ends_one_request", "putting"),
        (Wrong::NeverLetsGo, "output_is_that_of_the_request", "pending"),
        (Wrong::KnowsOneName, "requests_of_threads_are_apart", "name a"),
        (Wrong::CutsNamesShort, "what_is_got_is_all_there_is", "the length that is said"),
        (Wrong::FlipsABitOfLongData, "long_data_comes_back", "byte 70000 of"),
        (Wrong::SeesOneElement, "elements_are_one_buffer", "in parts"),
        (Wrong::RefusesNoBytes, "no_bytes_can_be_kept", "no bytes"),
    ] {
        breaks(subject(Some(wrong)), plain(Buffering::Customized), promise, seen);
    }
}
