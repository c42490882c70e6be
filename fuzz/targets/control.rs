//! Arbitrary bytes as a control message.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genie_channel::wire::fuzzing::message(bytes));
