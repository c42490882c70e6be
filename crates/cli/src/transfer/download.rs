//! Fetching: files from the server to this machine.
//!
//! How: a file ends where reading it ends, whatever its size says: files of procfs say 0, and those of sysfs more than they
//! have. So more is asked for than the size says, and the first chunk that comes short is the last.
//! Limits: a chunk that part of which lies beyond the size is not kept from an interrupted fetch.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use genie::file::{Attributes, Checksum, Kind};

use super::carrier::{CHUNK, Carrier, Chunk, SHORTEST};
use super::client::Client;
use super::part::{Part, check_replaceable};
use super::summary::Outcome;
use super::tree::{Tree, part_name, served};
use super::{Bytes, Options, Remote, jobs};
use crate::bar::Bar;
use crate::failure::Failure;

/// One file to be fetched.
#[derive(Debug)]
struct Download {
    source: PathBuf,
    /// The file's attributes when it was found.
    attributes: Attributes,
    /// The bytes that are wanted, as far as the file's size tells.
    bytes: Range<u64>,
    /// Whether all that follows is wanted, too.
    to_end: bool,
    target: PathBuf,
    part: PathBuf,
}

/// Fetches a file, some of its bytes, or a directory.
pub(crate) fn fetch(
    client: &Client,
    from: &Remote,
    target: Option<&Path>,
    range: Option<Bytes>,
    options: &Options,
) -> Result<Outcome, Failure> {
    let attributes = client.stat(&served(&from.path, Path::new("")))?;
    let (target, downloads, left_out) = match attributes.kind {
        Kind::File => {
            let target = file_target(&from.path, target)?;
            (target.clone(), vec![Download::one(from, attributes, target, range)?], 0)
        }
        Kind::Directory => {
            options.check_recursive(from)?;
            if range.is_some() {
                return Err(Failure::usage(format!(
                    "{from} is a directory; --range takes bytes of one file"
                )));
            }
            directory(client, from, target)?
        }
        Kind::Link | Kind::Other => {
            return Err(Failure::could_not(format!("{from} is no regular file; only such are served")));
        }
    };
    let size = |download: &Download| download.bytes.end - download.bytes.start;
    let tally = jobs::share_out(client, options, &downloads, size, |carrier, download, bar| {
        download.run(carrier, options, bar)
    })?;
    Ok(Outcome { tally, left_out, source: from.to_string(), target: target.display().to_string() })
}

/// Where a file goes: into a directory, to another name, or to its own name here.
fn file_target(source: &Path, target: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(name) = source.file_name() else {
        return Err(Failure::usage(format!("{} names no file", source.display())));
    };
    Ok(match target {
        None => name.into(),
        Some(target) if target.is_dir() => target.join(name),
        Some(target) => target.to_owned(),
    })
}

/// Lists a directory of the server's and makes the directories that are needed here.
fn directory(
    client: &Client,
    from: &Remote,
    target: Option<&Path>,
) -> Result<(PathBuf, Vec<Download>, u64), Failure> {
    let target = target.unwrap_or_else(|| from.path.file_name().unwrap_or(from.server.as_ref()).as_ref());
    let tree = Tree::remote(client, &from.path)?;
    for directory in &tree.directories {
        let path = target.join(directory);
        fs::create_dir_all(&path).map_err(|error| {
            Failure::could_not(format!("directory {} cannot be made: {error}", path.display()))
        })?;
    }
    let downloads = tree.files.into_iter().filter_map(|leaf| {
        let to = target.join(&leaf.path);
        Some(Download {
            source: from.path.join(&leaf.path),
            attributes: leaf.attributes?,
            bytes: 0..leaf.size,
            to_end: true,
            part: to.with_file_name(leaf.part),
            target: to,
        })
    });
    Ok((target.to_owned(), downloads.collect(), tree.left_out))
}

impl Download {
    fn one(
        from: &Remote,
        attributes: Attributes,
        target: PathBuf,
        range: Option<Bytes>,
    ) -> Result<Self, Failure> {
        let size = attributes.size;
        let bytes = range.map_or(Ok(0..size), |range| range.of(size));
        let bytes = bytes
            .map_err(|error| Failure::usage(format!("{from} does not have the bytes of --range: {error}")))?;
        let name = target.file_name().unwrap_or_default();
        let part = target.with_file_name(part_name(name, &mut HashSet::new()));
        let to_end = range.is_none_or(Bytes::goes_to_end);
        Ok(Self { source: from.path.clone(), attributes, bytes, to_end, target, part })
    }

    fn run(&self, carrier: &mut Carrier<'_>, options: &Options, bar: &Bar) -> Result<(), Failure> {
        check_replaceable(&self.target)?;
        let part = Part::open(self.part.clone(), options.resume)?;
        let (missing, kept) = self.missing(carrier, &part, options.resume)?;
        carrier.tally.kept += kept;
        bar.done(usize::try_from(kept).unwrap_or(usize::MAX));
        let end = self.fill(carrier, &part, missing, !options.no_verify, bar)?;
        self.check_unchanged(carrier.client)?;
        if end < self.bytes.end && !self.to_end {
            return Err(Failure::could_not(format!(
                "{:?} ends after {end} bytes, and its size says {}; ask for fewer by --range",
                self.source, self.attributes.size
            )));
        }
        part.finish(&self.target, end - self.bytes.start, self.attributes.mode)
    }

    /// Fetches what is missing, and what follows if all is wanted; returns where the bytes end.
    fn fill(
        &self,
        carrier: &mut Carrier<'_>,
        part: &Part,
        missing: Vec<Range<u64>>,
        verify: bool,
        bar: &Bar,
    ) -> Result<u64, Failure> {
        let end = Cell::new(None);
        let take = |chunk: Chunk, bytes: &[u8]| {
            if end.get().is_some() && !bytes.is_empty() {
                return Err(self.changed());
            }
            part.write(chunk.offset - self.bytes.start, bytes)?;
            bar.done(bytes.len());
            if bytes.len() < chunk.len {
                end.set(end.get().or(Some(chunk.offset + bytes.len() as u64)));
            }
            Ok(())
        };
        let missing: Vec<_> = missing.into_iter().map(|bytes| carrier.chunks(bytes)).collect();
        carrier.fetch(&self.source, missing.into_iter().flatten(), verify, take)?;
        let mut asked = self.asked();
        while self.to_end && end.get().is_none() {
            asked = asked.end..asked.end + CHUNK as u64;
            carrier.fetch(&self.source, carrier.chunks(asked.clone()), verify, take)?;
        }
        Ok(end.get().unwrap_or(self.bytes.end))
    }

    /// The bytes to be asked for at first: some beyond the file's size, if the file is wanted to its end.
    fn asked(&self) -> Range<u64> {
        let beyond = match self.attributes.size {
            _ if !self.to_end => 0,
            0 => SHORTEST as u64,
            _ => 1,
        };
        self.bytes.start..self.bytes.end + beyond
    }

    /// The ranges that the part does not hold yet, and how many bytes it holds already.
    fn missing(
        &self,
        carrier: &Carrier<'_>,
        part: &Part,
        resume: bool,
    ) -> Result<(Vec<Range<u64>>, u64), Failure> {
        let len = if resume { part.len()? } else { 0 };
        // The server may claim any size; the loop goes only through what is there.
        let there = (self.bytes.start + len).min(self.bytes.end);
        let (mut missing, mut kept) = (Vec::new(), 0);
        let mut bytes = Vec::new();
        let mut checked = self.bytes.start;
        for chunk in carrier.chunks(self.asked()) {
            let end = chunk.offset + chunk.len as u64;
            if end > there {
                break;
            }
            checked = end;
            bytes.resize(chunk.len, 0);
            part.read(chunk.offset - self.bytes.start, &mut bytes)?;
            let wanted = carrier.client.checksum(&self.source, chunk.offset, chunk.len as u64)?;
            if Checksum::of(&bytes) == wanted {
                kept += chunk.len as u64;
            } else {
                missing.push(chunk.offset..end);
            }
        }
        missing.push(checked..self.asked().end);
        Ok((missing, kept))
    }

    fn check_unchanged(&self, client: &Client) -> Result<(), Failure> {
        let now = client.stat(&self.source)?;
        let identity = |of: &Attributes| (of.kind, of.size, of.modified_seconds, of.modified_nanoseconds);
        if identity(&now) != identity(&self.attributes) {
            return Err(self.changed());
        }
        Ok(())
    }

    fn changed(&self) -> Failure {
        Failure::could_not(format!(
            "{:?} was changed on the server while it was fetched; fetch it again by --resume",
            self.source
        ))
    }
}
