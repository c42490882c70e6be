//! What fuzzers and random tests check of programs: that those which are accepted do what their instructions say, and no harm.

use super::verify::verify;
use super::{Comparison, HEAD, Instruction, Operand, Operation, Parsed, Place, run};
use crate::adapter::Port;

/// Runs a program on a frame for which this port was found before, if it is accepted, and says whether it is.
///
/// # Panics
/// When an accepted program reads beyond the frame or the head, runs off its end or for longer than it is, has a number in a register that
/// its proof has ruled out, or returns something else than its instructions say.
pub fn check(program: &[Instruction], frame: &[u8], port: u64) -> bool {
    let Ok(proof) = verify(program) else { return false };
    let (mut registers, mut at, mut found) = ([port.into(), 0, 0, 0], 0, None);
    for _ in 0..program.len() {
        let known = proof.before[at].expect("an instruction that was ruled out is reached");
        for (at, &number) in registers.iter().enumerate() {
            let (least, most) = known.registers[at];
            assert!((least.into()..=most.into()).contains(&number), "{number} is not in {least}..={most}");
            let longer = known.longer[at].map(u128::from);
            assert!(longer.is_none_or(|longer| number + longer <= frame.len() as u128));
        }
        assert!(known.len <= frame.len() as u64, "the frame is not as long as was proved");
        let number = |operand| match operand {
            Operand::Number(number) => number.into(),
            Operand::In(register) => registers[register as usize],
        };
        let place = |place| match place {
            Place::At(at) => u128::from(at),
            Place::Behind(register, more) => registers[register as usize] + u128::from(more),
        };
        at += 1;
        match program[at - 1] {
            Instruction::Require(end) if place(end) > frame.len() as u128 => break,
            Instruction::Require(_) => {}
            Instruction::Load(to, width, from) => {
                let from = place(from) as usize;
                assert!(from + width as usize <= proof.reads.min(HEAD), "a load beyond the head");
                let bytes = &frame[from..from + width as usize];
                registers[to as usize] = bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
            }
            Instruction::Length(to) => registers[to as usize] = frame.len() as u128,
            Instruction::Set(to, by, operand) => {
                registers[to as usize] = result(by, registers[to as usize], number(operand));
            }
            Instruction::Check(a, is, b) if !holds(is, registers[a as usize], number(b)) => break,
            Instruction::Check(..) => {}
            Instruction::Skip(over, a, is, b) if holds(is, registers[a as usize], number(b)) => {
                at += usize::from(over);
            }
            Instruction::Skip(..) => {}
            Instruction::Return(port, header, trailer) => {
                let [port, header, trailer] = [port, header, trailer].map(number);
                let most = (proof.header.into(), proof.trailer.into());
                assert!(
                    header <= most.0 && trailer <= most.1,
                    "{header} and {trailer} are more than {most:?}"
                );
                found = (header + trailer <= frame.len() as u128).then_some(Parsed {
                    port: Port(port as u64),
                    header: header as usize,
                    trailer: trailer as usize,
                });
                break;
            }
        }
        assert!(at < program.len(), "the program runs off its end");
    }
    let head = &frame[..proof.reads.min(frame.len())];
    assert_eq!(run(program, head, frame.len(), Port(port)), found, "{program:?} of {frame:x?} for {port}");
    true
}

/// What an operation makes of two numbers of 64 bits: computed without bounds, and then cut.
pub(super) fn result(by: Operation, a: u128, b: u128) -> u128 {
    let whole = match by {
        Operation::Move => b,
        Operation::Add => a + b,
        Operation::Subtract => a.max(b) - b,
        Operation::Multiply => a * b,
        Operation::And => a & b,
        Operation::Or => a | b,
        // Beyond 64 places there is nothing that 64 bits could tell.
        Operation::ShiftLeft => a << b.min(64),
        Operation::ShiftRight => a >> b.min(64),
    };
    whole.min(u64::MAX.into())
}

fn holds(is: Comparison, a: u128, b: u128) -> bool {
    match is {
        Comparison::Equal => a == b,
        Comparison::Unequal => a != b,
        Comparison::Below => a < b,
        Comparison::AtLeast => a >= b,
    }
}
