//! Arbitrary instructions as a program over headers, run on arbitrary frames.
#![no_main]

use genie_net::adapter::program::{Instruction, check::check};

libfuzzer_sys::fuzz_target!(|input: (Vec<Instruction>, u64, &[u8])| {
    check(&input.0, input.2, input.1);
});
