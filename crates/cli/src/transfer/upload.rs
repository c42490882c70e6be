//! Storing: files from this machine to the server.
//!
//! How: the server is told a file's size before the bytes come. A file that does not end where its size says, as files of
//! procfs and sysfs do not, is read to its end before, into memory.
//! Limits: such a file may have [`HIDING_MAX`] bytes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use genie::file::{Begin, Checksum, Checksummer, Commit, Kind, Token};
use genie_lab::length;
use rustix::fs::{MemfdFlags, memfd_create};

use super::carrier::Carrier;
use super::client::Client;
use super::summary::Outcome;
use super::tree::{Tree, served};
use super::{Options, Remote, jobs};
use crate::bar::Bar;
use crate::failure::Failure;

/// The longest file that is stored although its size does not say where it ends.
const HIDING_MAX: u64 = 256 << 20;

/// One file to be stored.
#[derive(Debug)]
struct Upload {
    source: PathBuf,
    target: PathBuf,
    size: u64,
}

/// What tells one content of a local file from another: size and modification time.
type Version = (u64, i64, i64);

/// Stores a file or a directory; with `durable`, each file is on the server's disk when it appears.
pub(crate) fn store(
    client: &Client,
    source: &Path,
    to: &Remote,
    durable: bool,
    options: &Options,
) -> Result<Outcome, Failure> {
    let metadata = source.metadata().map_err(|error| unreadable(source, &error))?;
    let (target, uploads, left_out) = if metadata.is_dir() {
        options.check_recursive(source.display())?;
        directory(client, source, to)?
    } else if metadata.is_file() {
        let target = file_target(client, source, to)?;
        (target.clone(), vec![Upload { source: source.to_owned(), target, size: metadata.len() }], 0)
    } else {
        let source = source.display();
        return Err(Failure::could_not(format!("{source} is neither a regular file nor a directory")));
    };
    let size = |upload: &Upload| upload.size;
    let tally = jobs::share_out(client, options, &uploads, size, |carrier, upload, bar| {
        upload.run(carrier, durable, options, bar)
    })?;
    let target = Remote { server: to.server.clone(), path: target };
    Ok(Outcome { tally, left_out, source: source.display().to_string(), target: target.to_string() })
}

/// Where a file goes: into a directory, to another name, or to its own name in the root.
fn file_target(client: &Client, source: &Path, to: &Remote) -> Result<PathBuf, Failure> {
    let is_directory = to.path.as_os_str().is_empty()
        || client.find(&to.path)?.is_some_and(|attributes| attributes.kind == Kind::Directory);
    match source.file_name() {
        Some(name) if is_directory => Ok(to.path.join(name)),
        None if is_directory => {
            Err(Failure::usage(format!("{} has no name to be stored by", source.display())))
        }
        _ => Ok(to.path.clone()),
    }
}

/// Lists a directory of this machine's and makes the directories that are needed on the server.
fn directory(client: &Client, source: &Path, to: &Remote) -> Result<(PathBuf, Vec<Upload>, u64), Failure> {
    let target = match source.file_name() {
        Some(name) if to.path.as_os_str().is_empty() => PathBuf::from(name),
        _ => to.path.clone(),
    };
    let tree = Tree::local(source)?;
    for directory in &tree.directories {
        let path = served(&target, directory);
        if path != Path::new(".") {
            client.make_directories(&path)?;
        }
    }
    let left_out = tree.left_out;
    let uploads = tree.files.into_iter().map(|leaf| Upload {
        source: source.join(&leaf.path),
        target: target.join(&leaf.path),
        size: leaf.size,
    });
    Ok((target.clone(), uploads.collect(), left_out))
}

impl Upload {
    fn run(
        &self,
        carrier: &mut Carrier<'_>,
        durable: bool,
        options: &Options,
        bar: &Bar,
    ) -> Result<(), Failure> {
        let file = File::open(&self.source).map_err(|error| unreadable(&self.source, &error))?;
        let (version, mode) = self.look(&file)?;
        let copy = self.copy_unless_sized(&file, version)?;
        let (bytes, size) = copy.as_ref().map_or((&file, version.0), |(copy, size)| (copy, *size));
        let client = carrier.client;
        let begin = Begin { size, token: self.token(version), resume: options.resume };
        let (there, name) = client.begin(&self.target, &begin)?;
        let part = self.target.with_file_name(&name);
        let stored = self.send(carrier, bytes, &part, there, size, bar).and_then(|checksum| {
            self.check_unchanged(&file, version)?;
            let checksum = (!options.no_verify).then_some(checksum);
            client.commit(&self.target, &name, &Commit { size, checksum, mode, durable })
        });
        if stored.is_err() {
            // A server that can no longer be reached keeps the part, so that the upload can be resumed.
            let _ = client.abandon(&part);
        }
        stored
    }

    /// Stores the missing bytes of the file into a part that holds `there` bytes already; returns the whole file's checksum.
    fn send(
        &self,
        carrier: &mut Carrier<'_>,
        file: &File,
        part: &Path,
        there: u64,
        size: u64,
        bar: &Bar,
    ) -> Result<Checksum, Failure> {
        let client = carrier.client;
        let mut whole = Checksummer::default();
        carrier.store(part, carrier.chunks(0..size), |chunk, bytes| {
            file.read_exact_at(bytes, chunk.offset).map_err(|error| unreadable(&self.source, &error))?;
            whole.add(bytes);
            bar.done(chunk.len);
            let len = chunk.len as u64;
            let is_there = chunk.offset + len <= there
                && client.checksum(part, chunk.offset, len)? == Checksum::of(bytes);
            Ok(!is_there)
        })?;
        Ok(whole.checksum())
    }

    /// Reads a file that does not end where its size says into memory; returns those bytes and how many there are.
    fn copy_unless_sized(&self, file: &File, version: Version) -> Result<Option<(File, u64)>, Failure> {
        let failed = |error| unreadable(&self.source, &error);
        let has_byte = |at| file.read_at(&mut [0], at).map(|len| len > 0).map_err(failed);
        let size = version.0;
        if !has_byte(size)? && (size == 0 || has_byte(size - 1)?) {
            return Ok(None);
        }
        // A long file that grows or shrinks just now is not to be taken for one that hides its size.
        self.check_unchanged(file, version)?;
        let memory = memfd_create("genie-store", MemfdFlags::CLOEXEC);
        let mut copy = File::from(memory.map_err(|errno| failed(errno.into()))?);
        let len = io::copy(&mut file.take(HIDING_MAX + 1), &mut copy).map_err(failed)?;
        if len > HIDING_MAX {
            return Err(Failure::could_not(format!(
                "{} holds more than {} and does not say how much; copy it to a regular file and store that",
                self.source.display(),
                length::approximate(HIDING_MAX)
            )));
        }
        Ok(Some((copy, len)))
    }

    fn check_unchanged(&self, file: &File, version: Version) -> Result<(), Failure> {
        if self.look(file)?.0 == version {
            return Ok(());
        }
        let source = self.source.display();
        Err(Failure::could_not(format!("{source} was changed while it was stored; store it again")))
    }

    /// The file's version and mode.
    fn look(&self, file: &File) -> Result<(Version, u32), Failure> {
        let metadata = file.metadata().map_err(|error| unreadable(&self.source, &error))?;
        if !metadata.is_file() {
            return Err(Failure::could_not(format!("{} is no regular file any more", self.source.display())));
        }
        Ok(((metadata.len(), metadata.mtime(), metadata.mtime_nsec()), metadata.mode()))
    }

    /// The name by which the server finds an interrupted upload of the same content to the same path.
    fn token(&self, (size, seconds, nanoseconds): Version) -> Token {
        let path = self.target.as_os_str().as_bytes();
        let [size, seconds, nanoseconds] =
            [size.to_le_bytes(), seconds.to_le_bytes(), nanoseconds.to_le_bytes()];
        let hash = Checksum::of(&[&size[..], &seconds, &nanoseconds, path].concat()).to_bytes();
        std::array::from_fn(|index| hash[index])
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::could_not(format!("{} cannot be read: {error}", path.display()))
}
