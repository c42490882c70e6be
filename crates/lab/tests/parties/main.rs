//! The parties of the experiments, as real processes of this program.
//!
//! How: this test brings its own harness, since each party is this program once more, called by another name.

mod experiments;
#[path = "../../../sys/tests/skip/mod.rs"]
mod skipping;
mod transfers;

use std::process::ExitCode;

use genie_lab::{cards, parties, peer, transport};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(peer::COMMAND) {
        let role = words.next();
        // The name of the option comes first.
        let cpu = words.nth(1).and_then(|cpu| cpu.parse().ok());
        let run = match role.as_deref() {
            Some(transport::ROLE) => transport::run,
            Some(cards::ROLE) => cards::run,
            _ => parties::run,
        };
        return match run(cpu) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    // Each has the CPUs for itself, as an experiment does.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn trials() -> Vec<Trial> {
    let trial = |name, claim: fn()| {
        Trial::test(name, move || {
            claim();
            Ok(())
        })
    };
    vec![
        trial("every_scheme_passes_every_byte", transfers::every_scheme_passes_every_byte),
        trial("schemes_may_differ_at_the_two_ends", transfers::schemes_may_differ_at_the_two_ends),
        trial("emulated_share_copies_nothing", transfers::emulated_share_copies_nothing),
        trial("operations_are_timed_at_both_ends", transfers::operations_are_timed_at_both_ends),
        trial("cpu_time_is_measured_where_asked_for", transfers::cpu_time_is_measured_where_asked_for),
        trial(
            "events_of_both_clients_are_counted_where_asked_for",
            transfers::events_of_both_clients_are_counted_where_asked_for,
        ),
        trial(
            "what_cannot_be_counted_is_refused_and_disturbs_nobody",
            transfers::what_cannot_be_counted_is_refused_and_disturbs_nobody,
        ),
        trial("the_rate_bounds_the_latency_from_below", transfers::the_rate_bounds_the_latency_from_below),
        trial(
            "datagram_servers_that_sum_pass_every_byte",
            transfers::datagram_servers_that_sum_pass_every_byte,
        ),
        trial(
            "datagram_servers_pass_every_byte_wherever_they_are_and_copy_only_where_copying_pays",
            transfers::datagram_servers_pass_every_byte_wherever_they_are_and_copy_only_where_copying_pays,
        ),
        trial("a_party_that_is_killed_is_an_error", transfers::a_party_that_is_killed_is_an_error),
        trial(
            "every_experiment_measures_all_its_steps_and_judges_all_its_claims",
            experiments::every_experiment_measures_all_its_steps_and_judges_all_its_claims,
        ),
        trial(
            "where_there_is_af_xdp_it_is_measured_and_elsewhere_the_report_has_the_reason",
            experiments::where_there_is_af_xdp_it_is_measured_and_elsewhere_the_report_has_the_reason,
        ),
        trial("parties_go_with_their_sender", transfers::parties_go_with_their_sender),
    ]
}
