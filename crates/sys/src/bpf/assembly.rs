//! Assembling programs: instructions one after the other, with jumps to labels.

use std::os::fd::{AsFd, AsRawFd};

use super::{Bytes, Exits, Sockets};

/// An instruction, as the kernel has it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// A register, by its number: 0 has results, 1 to 5 have arguments and are lost by calls, 6 to 9 stay.
pub type Register = u8;

/// How much is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// 4 bytes.
    Word = 0x61,
    /// 2 bytes.
    Half = 0x69,
    /// One.
    Byte = 0x71,
}

/// When a jump is made: by the low 32 bits of a register, and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// They are equal.
    Equal = 0x16,
    /// They are not.
    Unequal = 0x56,
    /// They have a bit in common.
    AnyBit = 0x46,
}

/// A place to which jumps lead, before it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A program in the making.
#[derive(Debug, Default)]
pub struct Assembly {
    code: Vec<Instruction>,
    /// Where each label is.
    places: Vec<usize>,
    jumps: Vec<(usize, Label)>,
}

impl Assembly {
    /// A new label, to be placed once.
    pub fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    /// Has jumps to `label` lead here.
    pub fn place(&mut self, label: Label) {
        self.places[label.0] = self.code.len();
    }

    /// Loads from the address in `from`, and `offset` bytes on.
    pub fn load(&mut self, width: Width, into: Register, from: Register, offset: i16) {
        self.add(width as u8, into, from, offset, 0);
    }

    /// Stores four bytes at the address in `to`.
    pub fn store(&mut self, to: Register, from: Register) {
        self.add(0x63, to, from, 0, 0);
    }

    /// Copies a register.
    pub fn copy(&mut self, into: Register, from: Register) {
        self.add(0xbf, into, from, 0, 0);
    }

    /// Sets a register.
    pub fn set(&mut self, into: Register, value: i32) {
        self.add(0xb7, into, 0, 0, value);
    }

    /// Adds a value to a register.
    pub fn add_value(&mut self, to: Register, value: i32) {
        self.add(0x07, to, 0, 0, value);
    }

    /// Adds a register to a register.
    pub fn add_register(&mut self, to: Register, from: Register) {
        self.add(0x0f, to, from, 0, 0);
    }

    /// Loads the address of the bytes.
    pub fn load_bytes(&mut self, into: Register, bytes: &Bytes) {
        self.load_address(into, 2, bytes);
    }

    /// Loads the sockets, for a call.
    pub fn load_sockets(&mut self, into: Register, sockets: &Sockets) {
        self.load_address(into, 1, sockets);
    }

    /// Loads the exits, for a call.
    pub fn load_exits(&mut self, into: Register, exits: &Exits) {
        self.load_address(into, 1, exits);
    }

    /// Adds a register to the number of eight bytes at the address in `at`, whoever else adds to it.
    pub fn count(&mut self, at: Register, with: Register) {
        self.add(0xdb, at, with, 0, 0);
    }

    /// Calls a function of the kernel's, by its number.
    pub fn call(&mut self, function: i32) {
        self.add(0x85, 0, 0, 0, function);
    }

    /// Ends the program, with what is in register 0.
    pub fn exit(&mut self) {
        self.add(0x95, 0, 0, 0, 0);
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) {
        self.jump_by(0x05, 0, 0, 0, to);
    }

    /// Jumps if a register and a value are so.
    pub fn jump_if(&mut self, register: Register, condition: Condition, value: i32, to: Label) {
        self.jump_by(condition as u8, register, 0, value, to);
    }

    /// Jumps if a register is greater than another one.
    pub fn jump_if_greater(&mut self, register: Register, than: Register, to: Label) {
        self.jump_by(0x2d, register, than, 0, to);
    }

    /// The program.
    ///
    /// # Panics
    /// When a label to which a jump leads was not placed.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let distance = self.places[label.0]
                .checked_sub(at + 1)
                .expect("jumps lead forward, to labels that are placed");
            self.code[at].offset = i16::try_from(distance).expect("a program is short");
        }
        self.code
    }

    fn jump_by(&mut self, code: u8, register: Register, other: Register, value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.add(code, register, other, 0, value);
    }

    fn load_address(&mut self, into: Register, kind: u8, map: &impl AsFd) {
        self.add(0x18, into, kind, 0, map.as_fd().as_raw_fd());
        self.add(0, 0, 0, 0, 0);
    }

    fn add(&mut self, code: u8, to: Register, from: Register, offset: i16, value: i32) {
        // The kernel has both registers in one byte, as bit fields.
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        self.code.push(Instruction { code, registers, offset, value });
    }
}
