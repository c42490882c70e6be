//! The outcome of a transfer: bytes, time, and how the data was passed.

use std::collections::BTreeMap;
use std::time::Duration;

use genie::{Receipt, Scheme};
use genie_lab::length;
use serde::Serialize;

use super::options::Options;

/// Counts of what was transferred so far.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    pub(super) files: u64,
    /// Bytes that were passed.
    pub(super) bytes: u64,
    /// Bytes that an interrupted transfer had left and that were kept.
    #[serde(rename = "kept_bytes")]
    pub(super) kept: u64,
    #[serde(rename = "copied_bytes")]
    copied: u64,
    /// Bytes passed by swapping pages, or in place.
    #[serde(rename = "uncopied_bytes")]
    uncopied: u64,
    #[serde(rename = "swapped_granules")]
    swapped: u64,
    #[serde(rename = "referenced_granules")]
    referenced: u64,
    /// Why data was copied although the scheme avoids it, and for how many requests.
    reasons: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Adds bytes that were passed, and their receipt.
    pub(super) fn add(&mut self, bytes: usize, receipt: &Receipt) {
        self.bytes += bytes as u64;
        self.copied += receipt.copied as u64;
        self.uncopied += bytes.saturating_sub(receipt.copied) as u64;
        self.swapped += u64::from(receipt.swapped);
        self.referenced += u64::from(receipt.referenced);
        if let Some(reason) = receipt.reason {
            *self.reasons.entry(reason.phrase()).or_default() += 1;
        }
    }

    /// Adds another job's tally.
    pub(super) fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.kept += other.kept;
        self.copied += other.copied;
        self.uncopied += other.uncopied;
        self.swapped += other.swapped;
        self.referenced += other.referenced;
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
    }
}

/// The outcome of a transfer.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(super) tally: Tally,
    /// The entries of directories that are neither files nor directories.
    pub(super) left_out: u64,
    pub(super) source: String,
    pub(super) target: String,
}

/// An outcome as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    operation: &'static str,
    source: String,
    target: String,
    #[serde(flatten)]
    tally: Tally,
    left_out: u64,
    seconds: f64,
    gb_per_s: f64,
    verified: bool,
    #[serde(serialize_with = "by_name")]
    scheme: Scheme,
}

impl Summary {
    pub(super) fn new(operation: &'static str, outcome: Outcome, time: Duration, options: &Options) -> Self {
        let Outcome { tally, left_out, source, target } = outcome;
        let seconds = time.as_secs_f64();
        let gb_per_s = if seconds > 0.0 { tally.bytes as f64 / seconds / 1e9 } else { 0.0 };
        let (verified, scheme) = (!options.no_verify, options.scheme);
        Self { operation, source, target, tally, left_out, seconds, gb_per_s, verified, scheme }
    }

    /// The outcome in one line.
    pub(super) fn line(&self) -> String {
        let Self { tally, seconds, gb_per_s, scheme, .. } = self;
        let files = if tally.files == 1 { "file" } else { "files" };
        let mut line = format!(
            "{}: {} {files}, {} in {seconds:.3} s ({gb_per_s:.2} GB/s)",
            self.operation,
            tally.files,
            length::approximate(tally.bytes)
        );
        if tally.kept > 0 {
            line += &format!(", {} were there already", length::approximate(tally.kept));
        }
        line += if self.verified { ", verified" } else { ", not verified" };
        let [copied, uncopied] = [tally.copied, tally.uncopied].map(length::approximate);
        line += &format!("; by {scheme}: {copied} copied, {uncopied} swapped or in place");
        if let Some((reason, _)) = tally.reasons.iter().max_by_key(|(_, count)| **count) {
            line += &format!(" ({reason})");
        }
        if self.left_out > 0 {
            line += &format!("; {} links and special files were left out", self.left_out);
        }
        line + "\n"
    }
}

fn by_name<S: serde::Serializer>(scheme: &Scheme, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(scheme.name())
}
