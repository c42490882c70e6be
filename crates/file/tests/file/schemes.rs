//! Every scheme, both ways, with small and huge granules, through the cache and around it.

use genie_conformance::bytes::{pattern, same};
use genie_conformance::{Setup, assert_idle};
use genie_file as file;
use genie_io::{In, Limits, Out, Reply};
use genie_memory::GranuleKind;
use genie_passing::Scheme;
use genie_passing::Thresholds;
use genie_passing::model::{Allocation, Integrity};

use crate::{Files, settle};

/// Room for 8 blocks is half of the cache.
const CACHE_BLOCKS: usize = 16;
const CACHED: usize = 300_000;
const DIRECT: usize = (4 << 20) + 4321;

#[test]
fn every_scheme_stores_and_fetches_with_small_granules() {
    every_scheme("every_scheme_stores_and_fetches_with_small_granules", GranuleKind::Base);
}

#[test]
fn every_scheme_stores_and_fetches_with_huge_granules() {
    every_scheme("every_scheme_stores_and_fetches_with_huge_granules", GranuleKind::Huge);
}

fn every_scheme(test: &str, kind: GranuleKind) {
    let Some(interface) = Setup::plain(kind).interface(test, 64 << 20, Limits::default(), Thresholds::ALWAYS)
    else {
        return;
    };
    let files = Files::with(interface, CACHE_BLOCKS);
    for (seed, scheme) in Scheme::ALL.into_iter().enumerate() {
        for len in [0, 1, CACHED, DIRECT] {
            if len == 0 && scheme.allocation() == Allocation::Migrant {
                continue; // There is no migrant buffer of no bytes.
            }
            let bytes = pattern(seed as u64, len);
            let what = format!("{len} bytes by {scheme}");
            let _ = std::fs::remove_file(files.path("file"));
            store(&files, scheme, &bytes);
            same(&std::fs::read(files.path("file")).unwrap(), &bytes, format!("{what}, stored"));
            settle();
            fetch(&files, scheme, &bytes, &format!("{what}, not cached yet"));
            fetch(&files, scheme, &bytes, &format!("{what}, again"));
        }
    }
    let statistics = files.file.statistics();
    assert!(statistics.hits > 0 && statistics.misses > 0 && statistics.bypassed > 0, "{statistics:?}");
    assert_idle(&files.interface, 0);
}

fn store(files: &Files, scheme: Scheme, bytes: &[u8]) {
    let element = match scheme.allocation() {
        Allocation::Native => {
            let mut buffer = files.interface.allocate(bytes.len().max(1)).expect("a buffer");
            buffer[..bytes.len()].copy_from_slice(bytes);
            Out::owned(scheme, buffer).part(0..bytes.len())
        }
        Allocation::Migrant => {
            let strong = scheme.integrity() == Integrity::Strong;
            let mut migrant =
                files.interface.allocate_migrant(bytes.len(), strong).expect("a migrant buffer");
            migrant.copy_from_slice(bytes);
            Out::migrant(scheme, migrant)
        }
    };
    let place = file::at("file", 0);
    let request = files.interface.request(&files.handle, file::STORE);
    request.out(element).argument(&place).send().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
}

/// Fetches more than there is, and compares what there is.
fn fetch(files: &Files, scheme: Scheme, expected: &[u8], what: &str) {
    let room = expected.len() + 100;
    let element = match scheme.allocation() {
        Allocation::Native => {
            let mut buffer = files.interface.allocate(room).expect("a buffer");
            buffer.fill(0x55);
            In::owned(scheme, buffer)
        }
        Allocation::Migrant => In::migrant(scheme, room),
    };
    let place = file::at("file", 0);
    let request = files.interface.request(&files.handle, file::FETCH);
    let mut reply =
        request.input(element).argument(&place).send().unwrap_or_else(|failed| panic!("{what}: {failed}"));
    assert_eq!(reply.actual(), expected.len(), "{what}");
    compare(&mut reply, expected, what);
}

fn compare(reply: &mut Reply, expected: &[u8], what: &str) {
    if let Some(buffer) = reply.take_buffer() {
        same(&buffer[..expected.len()], expected, what);
        assert!(buffer[expected.len()..].iter().all(|byte| *byte == 0x55), "{what}: the rest is untouched");
    } else if let Some(migrant) = reply.take_migrant() {
        same(&migrant[..expected.len()], expected, what);
    } else {
        assert!(expected.is_empty(), "{what}: no buffer came back");
    }
}

#[test]
fn a_buffer_of_several_elements_is_filled_and_stored_in_order() {
    let files = Files::new(CACHE_BLOCKS);
    let bytes = pattern(3, 200_000);
    let place = file::at("file", 0);
    let request = files.interface.request(&files.handle, file::STORE);
    let request = request.out(Out::copy(&bytes[..7])).and_out(Out::copy(&bytes[7..7]));
    request.and_out(Out::emulated_copy(&bytes[7..])).argument(&place).send().expect("a store");
    for pass in 0..3 {
        let mut parts = [vec![0; 70_001], vec![0; 0], vec![0; 65_536], vec![0; 100_000]];
        let [first, none, second, last] = &mut parts;
        let request = files.interface.request(&files.handle, file::FETCH).input(In::copy(first));
        let request = request.and_input(In::copy(none)).and_input(In::emulated_copy(second));
        let reply = request.and_input(In::copy(last)).argument(&place).send().expect("a fetch");
        assert_eq!(reply.actual(), bytes.len());
        same(&parts.concat()[..bytes.len()], &bytes, format!("pass {pass}"));
        settle();
    }
}
