//! Arbitrary bytes as a received frame.
#![no_main]

libfuzzer_sys::fuzz_target!(|frame: &[u8]| {
    let _ = genie_net::packet::check::check(frame);
});
