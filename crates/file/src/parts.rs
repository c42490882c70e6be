//! Parts: the files in which uploads grow.
//!
//! How: a part's name, `.genie-TOKEN-NONCE.part`, bears the client's token, by which the part is found again, and a number
//! that no other client can guess. A client that resumes an upload takes the part over by renaming it; an upload that still
//! stores into the part finds it gone. All that must be remembered is in the directory itself, so a server that is killed
//! forgets nothing.
//! Limits: finding parts reads the names of their directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;

use genie_sys::Errno;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};

const TOKEN_LEN: usize = 16;

/// The client's name for one content of one file; by this token an interrupted upload is found again.
pub type Token = [u8; TOKEN_LEN];

const PREFIX: &str = ".genie-";
const SUFFIX: &str = ".part";
/// How often to try for a name that is free, or for a part that no other client takes.
const TRIES: usize = 16;

/// Whether a file's name is that of a part.
pub(crate) fn is_part(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let middle = name.strip_prefix(PREFIX.as_bytes()).and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    middle.is_some_and(|middle| middle.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-'))
}

/// Makes a part.
pub(crate) fn create(directory: &File, token: &Token) -> Result<OsString, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut tries = TRIES;
    loop {
        let name = part_name(token)?;
        match rustix::fs::openat(directory, &name, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::EXIST) if tries > 0 => tries -= 1,
            Err(errno) => return Err(errno),
            Ok(_) => return Ok(name),
        }
    }
}

/// Takes over the longest part with this token that is not longer than `size`, by giving the part a new name; returns the
/// part's length and name.
pub(crate) fn adopt(directory: &File, token: &Token, size: u64) -> Result<Option<(u64, OsString)>, Errno> {
    for _ in 0..TRIES {
        let Some((len, found)) = longest(directory, token, size)? else { return Ok(None) };
        let name = part_name(token)?;
        match rustix::fs::renameat_with(directory, &found, directory, &name, RenameFlags::NOREPLACE) {
            Err(Errno::NOENT | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
            Ok(()) => return Ok(Some((len, name))),
        }
    }
    Ok(None)
}

fn longest(directory: &File, token: &Token, size: u64) -> Result<Option<(u64, OsString)>, Errno> {
    let start = format!("{PREFIX}{}-", hex(token));
    let mut longest = None;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !is_part(name) || !name.as_bytes().starts_with(start.as_bytes()) {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let len = u64::try_from(stat.st_size).unwrap_or_default();
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && len <= size {
            longest = longest.max(Some((len, name.to_owned())));
        }
    }
    Ok(longest)
}

fn part_name(token: &Token) -> Result<OsString, Errno> {
    let mut nonce = [0; 8];
    rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{PREFIX}{}-{}{SUFFIX}", hex(token), hex(&nonce)).into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_that_are_made_here_are_parts() {
        assert!(is_part(&part_name(&[0xab; 16]).unwrap()));
        for name in ["file.part", ".genie-.", ".genie-x/../y.part", ".genie-../x.part", "genie-00-00.part"] {
            assert!(!is_part(OsStr::new(name)), "{name}");
        }
    }
}
