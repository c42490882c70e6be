//! Transfers between parties.

use std::path::Path;
use std::time::{Duration, Instant};

use genie::Scheme;
use genie::mechanism::Protection;
use genie_lab::counter::{Counting, Event, Modes};
use genie_lab::error::Error;
use genie_lab::interface::Granule;
use genie_lab::medium::{Copied, Medium, xdp_lack};
use genie_lab::model::breakdown::{Buffering, receiver_rows, sender_rows};
use genie_lab::parties::{Effect, Measure, Network, Parties, Place, Route, Stage, Transfer};
use genie_lab::samples::Samples;
use genie_net::Rate;
use genie_net::datagram::Summing;
use rustix::process::{Pid, Signal, kill_process};

use crate::skipping::skip;

/// Whether AF_XDP can be had here; says so if not.
pub(crate) fn has_xdp(test: &str) -> bool {
    let lack = xdp_lack();
    if let Some(lack) = lack {
        skip(test, lack);
    }
    lack.is_none()
}

/// The headers of a datagram.
const HEADERS: u64 = 42;
/// Whole granules, and more than any threshold.
const LONG: usize = 1 << 20;
/// A word, a part of a granule, a whole one, some, and some and a part.
const LENGTHS: [usize; 5] = [8, 1000, 4096, 61_440, 100_001];

fn open() -> Parties {
    Parties::open(Granule::Base, 1 << 20, Route::Device(Rate::Unlimited)).expect("the parties")
}

fn alike(scheme: Scheme, len: usize) -> Transfer {
    Transfer::of(scheme, len)
}

/// Whether a transfer worked; false where memory may not be wired.
fn passes(parties: &mut Parties, transfer: &Transfer) -> bool {
    match parties.transfer(transfer) {
        Ok(_) => true,
        Err(Error::Unwired(reason)) => {
            eprintln!("SKIP {transfer:?}: {reason}");
            false
        }
        Err(error) => panic!("{transfer:?}: {error}"),
    }
}

// The receiver compares every byte of every transfer with data that no transfer before had.

pub(crate) fn every_scheme_passes_every_byte() {
    let mut parties = open();
    let mut passed = 0;
    for len in LENGTHS {
        for scheme in Scheme::ALL {
            passed += (0..3).filter(|_| passes(&mut parties, &alike(scheme, len))).count();
        }
    }
    assert!(passed >= 3 * LENGTHS.len() * 6, "six schemes wire nothing");
}

pub(crate) fn operations_are_timed_at_both_ends() {
    let mut parties = open();
    for scheme in Scheme::ALL {
        let transfer = Transfer { measure: Measure::Operations, ..alike(scheme, LONG) };
        let transferred = match parties.transfer(&transfer) {
            Ok(transferred) => transferred,
            Err(Error::Unwired(reason)) => {
                eprintln!("SKIP {transfer:?}: {reason}");
                continue;
            }
            Err(error) => panic!("{transfer:?}: {error}"),
        };
        // Copying may pay more here.
        let effective = |effect: &Effect| effect.effective.parse::<Scheme>().expect("a scheme");
        let (sender, receiver) = (effective(&transferred.output), effective(&transferred.input));
        let expected = [
            (sender, sender_rows(sender)),
            (receiver, receiver_rows(receiver, Buffering::EarlyDemultiplexed)),
        ];
        for (times, (scheme, rows)) in transferred.operations.iter().zip(expected) {
            assert!(times.iter().all(|time| time.len == LONG), "{times:?}");
            for row in rows {
                let times_of = times.iter().filter(|time| time.row == row && time.scheme == scheme.name());
                assert_eq!(times_of.count(), 1, "{scheme}: {row}: {times:?}");
            }
        }
    }
    let transferred = parties.transfer(&alike(Scheme::EmulatedShare, LONG)).expect("a transfer");
    assert!(transferred.operations.iter().all(Vec::is_empty), "they were not asked for");
}

pub(crate) fn schemes_may_differ_at_the_two_ends() {
    let mut parties = open();
    for output in Scheme::ALL {
        for input in Scheme::ALL {
            let transfer = Transfer { output, input, ..alike(output, 9000) };
            passes(&mut parties, &transfer);
        }
    }
}

pub(crate) fn emulated_share_copies_nothing() {
    let mut parties = open();
    let shared = parties.transfer(&alike(Scheme::EmulatedShare, 1 << 20)).expect("a transfer");
    assert_eq!((shared.output.copied, shared.input.copied), (0, 0));
    let copied = parties.transfer(&alike(Scheme::Copy, 1 << 20)).expect("a transfer");
    assert_eq!((copied.output.copied, copied.input.copied), (1 << 20, 1 << 20));
}

pub(crate) fn cpu_time_is_measured_where_asked_for() {
    let mut parties = open();
    let measured = |measure| Transfer { measure, ..alike(Scheme::Copy, 1 << 20) };
    let timed = parties.transfer(&measured(Measure::CpuTime)).expect("a transfer");
    assert!(timed.cpu.expect("CPU time") > Duration::ZERO);
    assert!(parties.transfer(&measured(Measure::Latency)).expect("a transfer").cpu.is_none());
}

pub(crate) fn events_of_both_clients_are_counted_where_asked_for() {
    let mut parties = open();
    let counted =
        |event, modes| Transfer { measure: Measure::Count(event, modes), ..alike(Scheme::Copy, LONG) };
    let Counting { modes, lack } = Counting::of(Event::RunTime);
    let Some(modes) = modes else {
        eprintln!("SKIP events_of_both_clients_are_counted_where_asked_for: {}", lack.expect("a reason"));
        return;
    };
    let timed = Transfer { measure: Measure::CpuTime, ..alike(Scheme::Copy, LONG) };
    let (mut counts, mut times) = (Samples::default(), Samples::default());
    for _ in 0..31 {
        let transferred = parties.transfer(&counted(Event::RunTime, modes)).expect("a transfer");
        assert!(transferred.cpu.is_none());
        counts.add_number(transferred.count.expect("the kernel counts this itself"));
        times.add(parties.transfer(&timed).expect("a transfer").cpu.expect("CPU time"));
    }
    // Of one client alone it would be half as much.
    let ratio = counts.median() as f64 / times.median() as f64;
    assert!((0.7..1.8).contains(&ratio), "the same work takes {ratio} times the CPU time");
    assert!(parties.transfer(&alike(Scheme::Copy, LONG)).expect("a transfer").count.is_none());
}

pub(crate) fn what_cannot_be_counted_is_refused_and_disturbs_nobody() {
    let mut parties = open();
    let transfer = Transfer {
        measure: Measure::Count(Event::Instructions, Modes::User),
        ..alike(Scheme::EmulatedCopy, LONG)
    };
    match parties.transfer(&transfer) {
        Ok(transferred) => assert!(transferred.count.is_none_or(|count| count > 1000), "{transferred:?}"),
        Err(Error::Counter(refusal)) => {
            assert_eq!(Some(refusal.to_string()), Counting::of(Event::Instructions).lack)
        }
        Err(error) => panic!("{error}"),
    }
    parties.transfer(&alike(Scheme::EmulatedCopy, LONG)).expect("a transfer");
}

pub(crate) fn the_rate_bounds_the_latency_from_below() {
    let rate = Rate::Bits(155_000_000);
    let mut parties = Parties::open(Granule::Base, 1 << 20, Route::Device(rate)).expect("the parties");
    // One packet, and several.
    for len in [61_440, 150_000] {
        let transferred = parties.transfer(&alike(Scheme::EmulatedCopy, len)).expect("a transfer");
        assert!(transferred.latency >= rate.time(len as u64), "{len} bytes: {:?}", transferred.latency);
    }
}

pub(crate) fn datagram_servers_that_sum_pass_every_byte() {
    for summing in [Summing::Separate, Summing::Integrated] {
        let network = Network {
            medium: Medium::Wire(Rate::Unlimited),
            calibrated: true,
            place: Place::InProcess,
            summing,
        };
        let mut parties = Parties::open(Granule::Base, LONG, Route::Datagrams(network)).expect("the parties");
        for len in [8, 1000, 4096, 61_440] {
            for scheme in [Scheme::Copy, Scheme::EmulatedCopy, Scheme::EmulatedShare] {
                let transferred = parties.transfer(&alike(scheme, len));
                transferred.unwrap_or_else(|error| panic!("{summing:?}, {len} bytes by {scheme}: {error}"));
            }
        }
    }
}

pub(crate) fn datagram_servers_pass_every_byte_wherever_they_are_and_copy_only_where_copying_pays() {
    let genie = Granule::Base.open().expect("an interface");
    let protects = !matches!(genie.space().protection(), Protection::None(_));
    let wires = [(Rate::Unlimited, false), (Rate::Unlimited, true), (Rate::Bits(10_000_000_000), true)];
    let wires = wires.map(|(rate, calibrated)| (Medium::Wire(rate), calibrated));
    let test = "datagram_servers_pass_every_byte_wherever_they_are_and_copy_only_where_copying_pays";
    let xdp = if has_xdp(test) {
        [false, true].map(|calibrated| (Medium::Xdp, calibrated)).to_vec()
    } else {
        Vec::new()
    };
    for (medium, calibrated) in wires.into_iter().chain(xdp) {
        let routes = [Place::InProcess, Place::OwnProcess]
            .map(|place| Route::Datagrams(Network { medium, calibrated, place, summing: Summing::None }));
        let stage = Stage::open(Granule::Base, LONG, &routes).expect("a stage");
        let mut parties = routes.map(|route| Parties::join(&stage, route).expect("the parties"));
        stage.close();
        for len in [4, 1000, 8192, 61_440] {
            for (turn, scheme) in Scheme::ALL.into_iter().flat_map(|scheme| [scheme; 4]).enumerate() {
                let parties = &mut parties[turn % 2];
                let what = format!("{:?}, {len} bytes by {scheme}", parties.route());
                let done = match parties.transfer(&alike(scheme, len)) {
                    Err(Error::Unwired(reason)) => {
                        eprintln!("SKIP {what}: {reason}");
                        continue;
                    }
                    done => done.unwrap_or_else(|error| panic!("{what}: {error}")),
                };
                if matches!(medium, Medium::Xdp) && turn % 2 == 0 {
                    // Into the sender's ring, and out of the receiver's; and in the kernel, which has a packet of its own in between.
                    let twice = 2 * (len as u64 + HEADERS);
                    assert_eq!(done.brought, Some(Copied { driver: twice, kernel: twice }), "{what}");
                } else {
                    assert_eq!(done.brought, None, "{what}");
                }
                let copied = (done.output.copied, done.input.copied);
                if scheme == Scheme::Copy {
                    assert_eq!(copied, (len, len), "{what}");
                } else if !calibrated && len >= 8192 {
                    // What a client may store into while it is sent is copied where it cannot be protected.
                    let sent = if scheme == Scheme::EmulatedCopy && !protects { len } else { 0 };
                    assert_eq!(copied, (sent, 0), "{what}");
                }
            }
        }
    }
}

pub(crate) fn a_party_that_is_killed_is_an_error() {
    for victim in [0, 1] {
        let mut parties = open();
        parties.transfer(&alike(Scheme::EmulatedCopy, 4096)).expect("a transfer");
        let processes = parties.processes();
        kill_process(processes[victim], Signal::KILL).expect("a process to kill");
        // It may live on for a moment.
        let deadline = Instant::now() + Duration::from_secs(20);
        while parties.transfer(&alike(Scheme::EmulatedCopy, 4096)).is_ok() {
            assert!(Instant::now() < deadline, "party {victim} is not missed");
        }
        drop(parties);
        assert!(processes.iter().all(|pid| is_gone(*pid)));
    }
}

pub(crate) fn parties_go_with_their_sender() {
    let processes = open().processes();
    assert!(processes.iter().all(|pid| is_gone(*pid)));
    let prefix = format!("genie-run-{}-", std::process::id());
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("the folder for temporary files");
    let left = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    assert_eq!(left.count(), 0, "folders are left behind");
}

fn is_gone(pid: Pid) -> bool {
    !Path::new("/proc").join(pid.as_raw_nonzero().to_string()).exists()
}
