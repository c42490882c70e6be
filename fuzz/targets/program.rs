//! Arbitrary instructions, and arbitrary bytes, as a program over headers, run on arbitrary frames.
#![no_main]

use genie_net::adapter::program::{Instruction, Program, check::check};

libfuzzer_sys::fuzz_target!(|input: (Vec<Instruction>, u64, &[u8])| {
    check(&input.0, input.2, input.1);
    drop(Program::from_bytes(input.2));
});
