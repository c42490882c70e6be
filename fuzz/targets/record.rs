//! Arbitrary bytes as a ring record: the kind, then the body.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genie_channel::wire::fuzzing::record(bytes));
