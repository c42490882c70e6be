//! Arbitrary segments, calls and pauses at connections.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| genie_tcp::check(input));
