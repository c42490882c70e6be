//! A file whose file system, another process, does not answer when it is closed.
//!
//! How: FUSE by hand: the root of the mount is a file, and only those requests of the kernel are answered that are needed to
//! open it.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::attacker::Ground;
use crate::roles;

roles! { is_a_file_system }

/// Requests of the kernel's, as in linux/fuse.h.
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const FORGET: u32 = 2;
const ENOSYS: i32 = 38;

/// From now on, closing the file is not answered.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Where the file is.
pub(crate) fn place(ground: &Ground) -> PathBuf {
    ground.directory.path().join("file")
}

/// Is the file system: says what is missing, or that it is there; then, when it is told to, that it is silent. Nobody in
/// this process opens the file, so that the process can end, and with it whatever waits for its answers.
pub(crate) fn is_a_file_system(ground: &mut Ground) {
    match mount(&place(ground)) {
        Err(missing) => ground.say(missing),
        Ok(mut device) => {
            std::thread::spawn(move || {
                let mut request = vec![0; 1 << 17];
                while let Ok(len) = device.read(&mut request) {
                    answer(&mut device, &request[..len]);
                }
            });
            ground.say("mounted");
            ground.hear();
            // What is open stays.
            let unmounted = Command::new("umount").arg("-l").arg(place(ground)).status();
            assert!(unmounted.is_ok_and(|status| status.success()), "a mount is left");
            IS_SILENT.store(true, Ordering::Release);
            ground.say("silent");
        }
    }
    ground.stay();
}

fn mount(place: &Path) -> Result<File, String> {
    let missing = |what: &dyn std::fmt::Display| format!("no FUSE: {what}");
    File::create(place).map_err(|error| missing(&error))?;
    let device = File::options().read(true).write(true).open("/dev/fuse").map_err(|error| missing(&error))?;
    let shared = device.try_clone().map_err(|error| missing(&error))?;
    let mounted = Command::new("mount")
        .args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=100644,user_id=0,group_id=0", "genie-test"])
        .arg(place)
        .stdin(Stdio::from(shared))
        .stderr(Stdio::null())
        .status();
    match mounted.is_ok_and(|status| status.success()) {
        true => Ok(device),
        false => Err(missing(&"it can't be mounted")),
    }
}

fn answer(device: &mut File, request: &[u8]) {
    let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().expect("four bytes"));
    let (kind, unique) = (word(4), &request[8..16]);
    let body = match kind {
        FORGET => return,
        FLUSH if IS_SILENT.load(Ordering::Acquire) => return,
        // Version 7.31, and nothing else that it could do.
        INIT => [7u32, 31, 0, 0, 0, 4096].iter().flat_map(|word| word.to_le_bytes()).chain([0; 40]).collect(),
        OPEN => vec![0; 16],
        // A regular file of no bytes: its mode is the 16th word of the attributes, which follow 16 bytes.
        GETATTR => {
            let mut attributes = vec![0; 104];
            attributes[16] = 1;
            attributes[76..80].copy_from_slice(&0o100_644u32.to_le_bytes());
            attributes[80] = 1;
            attributes
        }
        FLUSH => Vec::new(),
        _ => return reply(device, unique, -ENOSYS, &[]),
    };
    reply(device, unique, 0, &body);
}

fn reply(device: &mut File, unique: &[u8], error: i32, body: &[u8]) {
    let len = (16 + body.len()) as u32;
    let whole = [&len.to_le_bytes()[..], &error.to_le_bytes(), unique, body].concat();
    // The kernel may have given the request up.
    let _ = device.write(&whole);
}
