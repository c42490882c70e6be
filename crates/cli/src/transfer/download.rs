//! Fetching: files from the server to this machine.

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use genie::file::{Attributes, Checksum, Kind};

use super::carrier::{Carrier, Chunk};
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
    bytes: Range<u64>,
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
        Ok(Self { source: from.path.clone(), attributes, bytes, target, part })
    }

    fn run(&self, carrier: &mut Carrier<'_>, options: &Options, bar: &Bar) -> Result<(), Failure> {
        check_replaceable(&self.target)?;
        let part = Part::open(self.part.clone(), options.resume)?;
        let start = self.bytes.start;
        let (missing, kept) = self.missing(carrier, &part, options.resume)?;
        carrier.tally.kept += kept;
        bar.done(usize::try_from(kept).unwrap_or(usize::MAX));
        let verify = !options.no_verify;
        carrier.fetch(&self.source, missing.into_iter(), verify, |chunk, bytes| {
            part.write(chunk.offset - start, bytes)?;
            bar.done(chunk.len);
            Ok(())
        })?;
        self.check_unchanged(carrier.client)?;
        part.finish(&self.target, self.bytes.end - start, self.attributes.mode)
    }

    /// The chunks that the part does not hold yet, and how many bytes it holds already.
    fn missing(
        &self,
        carrier: &Carrier<'_>,
        part: &Part,
        resume: bool,
    ) -> Result<(Vec<Chunk>, u64), Failure> {
        let len = if resume { part.len()? } else { 0 };
        let (mut missing, mut kept) = (Vec::new(), 0);
        let mut bytes = Vec::new();
        for chunk in carrier.chunks(self.bytes.clone()) {
            let place = chunk.offset - self.bytes.start;
            if place + chunk.len as u64 <= len {
                bytes.resize(chunk.len, 0);
                part.read(place, &mut bytes)?;
                let wanted = carrier.client.checksum(&self.source, chunk.offset, chunk.len as u64)?;
                if Checksum::of(&bytes) == wanted {
                    kept += chunk.len as u64;
                    continue;
                }
            }
            missing.push(chunk);
        }
        Ok((missing, kept))
    }

    fn check_unchanged(&self, client: &Client) -> Result<(), Failure> {
        let now = client.stat(&self.source)?;
        let identity = |of: &Attributes| (of.kind, of.size, of.modified_seconds, of.modified_nanoseconds);
        if identity(&now) != identity(&self.attributes) {
            return Err(Failure::could_not(format!(
                "{:?} was changed on the server while it was fetched; fetch it again by --resume",
                self.source
            )));
        }
        Ok(())
    }
}
