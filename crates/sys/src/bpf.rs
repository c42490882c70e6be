//! BPF: maps, and programs that are assembled at run time, tried, and attached to an interface.
//!
//! Why: which frames of an interface are a program's, and which stay the kernel's, is said by a program that the kernel runs for each. It
//! has some dozen instructions, and depends on hosts that are known at run time only: no compiler is needed for it, and no file.
//! Invariants: what is attached is so while its [`Attached`] has a descriptor open: however the process ends, the kernel detaches the program.
//! A child made by fork that lives on without exec keeps it, too.
//! Trust: the kernel checks each program before it loads it.
#![allow(
    unsafe_code,
    reason = "gives the bpf system call the structure that the kernel expects for each command"
)]

mod assembly;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64};

use crate::error::{DRIVERS_NEED, last_errno};
use crate::mmap::Mapping;
use crate::{Errno, Error, Result};

pub use assembly::{Assembly, Condition, Instruction, Label, Register, Width};

const MAP_CREATE: u32 = 0;
const MAP_UPDATE_ELEM: u32 = 2;
const PROG_LOAD: u32 = 5;
const PROG_TEST_RUN: u32 = 10;
const LINK_CREATE: u32 = 28;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_DEVMAP: u32 = 14;
const MAP_TYPE_XSKMAP: u32 = 17;
const MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HAS_FRAGS: u32 = 1 << 5;
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// More than a program can add to a frame.
const PAGE: usize = 4096;

/// What an XDP program says of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Verdict {
    /// Nobody gets it.
    Drop = 1,
    /// The kernel's own network takes it.
    Pass = 2,
    /// It goes to a socket, or out of an interface.
    Redirect = 4,
}

/// Where on a frame's way a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the device's driver.
    Native,
    /// In the kernel's network, for any device.
    Generic,
}

/// An array of one value of so many bytes, which programs and this process load and store.
#[derive(Debug)]
pub struct Bytes {
    descriptor: OwnedFd,
    mapping: Mapping,
}

/// AF_XDP sockets, by the number of the queue.
#[derive(Debug)]
#[doc(alias = "XSKMAP")]
pub struct Sockets(OwnedFd);

/// Interfaces by which frames leave, each at a place. The kernel removes one that goes.
#[derive(Debug)]
#[doc(alias = "DEVMAP")]
pub struct Exits(OwnedFd);

/// A program that the kernel has checked and loaded.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// A program that is attached to an interface while this exists.
#[derive(Debug)]
pub struct Attached {
    _descriptor: OwnedFd,
    mode: Mode,
}

/// BPF_MAP_CREATE.
#[repr(C)]
struct NewMap {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
}

/// BPF_MAP_UPDATE_ELEM.
#[repr(C)]
struct Update {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// BPF_PROG_LOAD, up to the last field that is needed.
#[repr(C)]
struct NewProgram {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel: u32,
    flags: u32,
}

/// BPF_PROG_TEST_RUN, up to the last field that is needed.
#[repr(C)]
struct Trial {
    program: u32,
    verdict: u32,
    len: u32,
    len_out: u32,
    data: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

/// BPF_LINK_CREATE.
#[repr(C)]
struct NewLink {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// Says that a structure is what the kernel's union of arguments begins with for a command.
///
/// # Safety
/// The command takes this structure. Its addresses are those of memory that the caller of [`call`] has borrowed for the call.
unsafe trait Argument<const COMMAND: u32> {}

// SAFETY: linux/bpf.h has these members of `union bpf_attr` for these commands.
unsafe impl Argument<MAP_CREATE> for NewMap {}
// SAFETY: as above.
unsafe impl Argument<MAP_UPDATE_ELEM> for Update {}
// SAFETY: as above.
unsafe impl Argument<PROG_LOAD> for NewProgram {}
// SAFETY: as above.
unsafe impl Argument<PROG_TEST_RUN> for Trial {}
// SAFETY: as above.
unsafe impl Argument<LINK_CREATE> for NewLink {}

fn call<const COMMAND: u32, T: Argument<COMMAND>>(argument: &mut T) -> std::result::Result<i64, Errno> {
    // SAFETY: the command takes this structure, by `Argument`, which is borrowed; the kernel takes bytes beyond it for zeros.
    let result = unsafe { libc::syscall(libc::SYS_bpf, COMMAND, &raw mut *argument, size_of::<T>()) };
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

/// Makes a thing that has a descriptor.
fn make<const COMMAND: u32, T: Argument<COMMAND>>(mut argument: T) -> std::result::Result<OwnedFd, Errno> {
    let descriptor = call::<COMMAND, T>(&mut argument)?;
    // SAFETY: the call succeeded, so its result is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

fn failed(command: &'static str, subject: impl Into<String>, errno: Errno) -> Error {
    let error = Error::new(command, subject, errno);
    match errno {
        Errno::PERM | Errno::ACCESS => error.with_remedy(DRIVERS_NEED),
        Errno::NOSYS => error.with_remedy("use a kernel built with CONFIG_BPF_SYSCALL"),
        _ => error,
    }
}

fn number(descriptor: &impl AsFd) -> u32 {
    descriptor.as_fd().as_raw_fd() as u32
}

impl Bytes {
    /// Zeros.
    ///
    /// # Errors
    /// No right, or no memory.
    pub fn create(len: u32) -> Result<Self> {
        let failed = |errno| failed("BPF_MAP_CREATE", format!("an array of {len} bytes"), errno);
        let map = NewMap { kind: MAP_TYPE_ARRAY, key: 4, value: len, entries: 1, flags: MMAPABLE };
        let descriptor = make::<MAP_CREATE, _>(map).map_err(failed)?;
        let mapping = Mapping::new(descriptor.as_fd(), 0, len as usize).map_err(failed)?;
        Ok(Self { descriptor, mapping })
    }

    /// The bytes, as programs see them.
    pub fn bytes(&self) -> &[AtomicU8] {
        self.mapping.entries(0, self.mapping.len())
    }

    /// The same, as numbers of eight bytes each.
    pub fn numbers(&self) -> &[AtomicU64] {
        self.mapping.entries(0, self.mapping.len() / size_of::<u64>())
    }
}

impl Sockets {
    /// No sockets, for queues with numbers below `queues`.
    ///
    /// # Errors
    /// No right, or no memory.
    pub fn create(queues: u32) -> Result<Self> {
        places(MAP_TYPE_XSKMAP, queues).map(Self)
    }

    /// Has frames of a queue go to a socket, until that is closed.
    ///
    /// # Errors
    /// It is no AF_XDP socket, or has no rings yet.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<()> {
        set(self, queue, number(&socket))
    }
}

impl Exits {
    /// No interfaces, for places with numbers below `places`.
    ///
    /// # Errors
    /// No right, or no memory.
    pub fn create(places: u32) -> Result<Self> {
        self::places(MAP_TYPE_DEVMAP, places).map(Self)
    }

    /// Has frames for a place leave by an interface of this thread's namespace.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn set(&self, place: u32, interface: u32) -> Result<()> {
        set(self, place, interface)
    }
}

/// A map with places for so many numbers.
fn places(kind: u32, entries: u32) -> Result<OwnedFd> {
    let made = make::<MAP_CREATE, _>(NewMap { kind, key: 4, value: 4, entries, flags: 0 });
    made.map_err(|errno| failed("BPF_MAP_CREATE", format!("{entries} places"), errno))
}

fn set(map: &impl AsFd, place: u32, what: u32) -> Result<()> {
    let (key, value) = (&raw const place as u64, &raw const what as u64);
    let mut update = Update { map: number(map), unused: 0, key, value, flags: 0 };
    let updated = call::<MAP_UPDATE_ELEM, _>(&mut update);
    updated.map(drop).map_err(|errno| failed("BPF_MAP_UPDATE_ELEM", format!("place {place}"), errno))
}

impl Program {
    /// Has the kernel check an XDP program. With `frags`, it may be run for frames in several buffers.
    ///
    /// # Errors
    /// No right, or the program is refused.
    pub fn load(code: &[Instruction], frags: bool) -> Result<Self> {
        let mut program = NewProgram {
            kind: PROG_TYPE_XDP,
            count: code.len() as u32,
            instructions: code.as_ptr() as u64,
            licence: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: 0,
            log_len: 0,
            log: 0,
            kernel: 0,
            flags: if frags { HAS_FRAGS } else { 0 },
        };
        let made = call::<PROG_LOAD, _>(&mut program);
        let failed = |errno| failed("BPF_PROG_LOAD", format!("{} instructions", code.len()), errno);
        let descriptor = made.map_err(failed)?;
        // SAFETY: the call succeeded, so its result is a new descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor as i32) }))
    }

    /// What it says of a frame; as a number, since a program may say anything. And what it has made of it: metadata, and what follows that.
    ///
    /// # Errors
    /// No right; EINVAL: the frame is shorter than an Ethernet header.
    pub fn run(&self, frame: &[u8]) -> Result<(i32, Vec<u8>)> {
        let (len, data) = (frame.len() as u32, frame.as_ptr() as u64);
        let mut made = vec![0; frame.len() + PAGE];
        let (len_out, data_out) = (made.len() as u32, made.as_mut_ptr() as u64);
        let program = number(&self.0);
        let mut trial = Trial { program, len, len_out, data, data_out, repeat: 1, duration: 0, verdict: 0 };
        let ran = call::<PROG_TEST_RUN, _>(&mut trial);
        let failed = |errno| failed("BPF_PROG_TEST_RUN", format!("a frame of {len} bytes"), errno);
        ran.map_err(failed)?;
        made.truncate(trial.len_out as usize);
        Ok((trial.verdict as i32, made))
    }

    /// Attaches it to an interface, in a mode or, where none is named, in the first that the device has.
    ///
    /// # Errors
    /// No right; EBUSY: another program is attached; ENODEV: there is no such interface; ERANGE, EOPNOTSUPP: the device cannot run it in this mode.
    pub fn attach(&self, interface: u32, mode: Option<Mode>) -> Result<Attached> {
        let attach = |mode| {
            let flags = if mode == Mode::Native { NATIVE } else { GENERIC };
            let link = NewLink { program: number(&self.0), interface, kind: ATTACH_XDP, flags };
            make::<LINK_CREATE, _>(link).map(|descriptor| Attached { _descriptor: descriptor, mode })
        };
        let attached = match mode {
            Some(mode) => attach(mode),
            None => attach(Mode::Native).or_else(|_| attach(Mode::Generic)),
        };
        attached.map_err(|errno| {
            let error = failed("BPF_LINK_CREATE", format!("interface {interface}"), errno);
            match errno {
                Errno::BUSY | Errno::EXIST => {
                    error.with_remedy("another XDP program is attached there; end what has attached it")
                }
                _ => error,
            }
        })
    }
}

impl Attached {
    /// Where the program is run.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

impl AsFd for Bytes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsFd for Sockets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Exits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
