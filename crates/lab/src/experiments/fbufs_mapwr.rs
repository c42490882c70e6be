//! `fbufs-mapwr`: what it costs to map a file and write it: `uf_mmap` and `uf_write`, beside `mmap` and `write`.
//!
//! How: one thread opens a file, maps it, writes it, unmaps and closes it; after each write it reads from the other end of the
//! transport what it has written, which is not timed. The file is in the page cache. In one setting as much is mapped as is
//! written by one call; in the other a file of 1 MiB is mapped, and written in parts: a sample is then the time of a part.
//! Over the kernel's transports fbufs pass the file's pages; over a channel, which passes pages of a pool alone, they copy.
//! Source: Thadani and Khalidi, section 6.1, figure 8. Differs: the paper's driver freed what was written.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use genie_fbufs::Pool;
use tempfile::NamedTempFile;
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory, WriteVolatile};

use super::described::{Described, Measuring};
use super::partners::{each, take_turns};
use super::reading::{MISSING, Reading, findings, headings, per_cent, shown};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::experiment::{Claim, Declaration, Options, Sitting, Step};
use crate::findings::{Conclusion, Finding, Judgement, Scale, Table, row};
use crate::measurement::{Measured, Measurements, Quantity};
use crate::papers::thadani;
use crate::probe::Probe;
use crate::transport::{self, Calls, End, Means, Transport};

const ID: &str = "fbufs-mapwr";

/// The means: of each of the kernel's transports that of fbufs comes first.
const MEANS: [Means; 5] = [
    Means::fbufs(Transport::Pipe),
    Means::standard(Transport::Pipe),
    Means::fbufs(Transport::UnixSocket),
    Means::standard(Transport::UnixSocket),
    Means::CHANNEL,
];
/// The transports on which both kinds of calls do the same.
const COMPARED: [Transport; 2] = [Transport::Pipe, Transport::UnixSocket];

const LENGTHS: [usize; 7] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
const LENGTHS_SMOKE: [usize; 2] = [8 << 10, 64 << 10];
const PAPER_LEN: u64 = 8 << 10;
/// The length of the file.
const FILE: usize = 1 << 20;

/// The settings, and how much of the file is mapped, where that is not what one call writes.
const SETTINGS: [(&str, Option<usize>); 2] = [("a part of a file", None), ("all of 1 MiB", Some(FILE))];

/// How often each subject has its turn: in a smoke run, and otherwise; and how many samples a turn has.
const ROUNDS: (usize, usize) = (2, 40);
const OPERATIONS: usize = 8;

/// The experiment.
pub(super) static FBUFS_MAPWR: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Own { steps, sit }, conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "Fbufs of a mapped file, beside mmap and write",
    source: thadani!("§6.1, figure 8"),
    claims: &[
        Claim {
            id: "mapwr",
            text: "With buffers of 8 KiB, to map and write a file of 1 MiB with fbufs takes 68 % of the time of mmap and write.",
            source: "§6.1, figure 8",
        },
        Claim {
            id: "grows",
            text: "Both take longer for longer buffers: fbufs, too, since the file system works on each page.",
            source: "§6.1, figure 8",
        },
    ],
    axes: &["length of buffers, 4 KiB to 256 KiB", "transport and calls", "how much of the file is mapped"],
    needs: &[],
};

fn lengths(options: &Options) -> &'static [usize] {
    if options.smoke { &LENGTHS_SMOKE } else { &LENGTHS }
}

fn rounds(options: &Options) -> usize {
    if options.smoke { ROUNDS.0 } else { ROUNDS.1 }
}

fn steps(options: &Options) -> Vec<Step> {
    let seconds = rounds(options) as f64 * (OPERATIONS * MEANS.len()) as f64 * 0.3e-3;
    Step::each(lengths(options), |_| seconds)
}

fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    let pool = Pool::new(transport::config())?;
    let ends = MEANS.iter().map(|means| End::both(*means, &pool)).collect::<Result<_>>()?;
    let data = Data::generate(FILE);
    let filled = NamedTempFile::new().and_then(|mut file| file.write_all(data.all()).map(|()| file));
    let failed = |source| Error::File { path: std::env::temp_dir(), what: "takes no new file", source };
    Ok(Box::new(Mapping { options, ends, file: filled.map_err(failed)?, data, _probe: Probe::pin()? }))
}

/// A sitting under way.
struct Mapping<'o> {
    options: &'o Options,
    ends: Vec<[End; 2]>,
    file: NamedTempFile,
    data: Data,
    _probe: Probe,
}

impl Mapping<'_> {
    /// Maps and writes; returns the time. Compares what is read, if that is asked for.
    fn once(&mut self, means: usize, len: usize, whole: usize, compares: bool) -> Result<Duration> {
        let [to, from] = &mut self.ends[means];
        let data = self.data.all();
        let start = Instant::now();
        let mut mapped = Mapped::open(&self.file, to, whole).map_err(refused)?;
        let mut time = start.elapsed();
        for at in (0..whole).step_by(len) {
            let start = Instant::now();
            mapped.write(at, len)?;
            time += start.elapsed();
            from.read_all(len, len, |done, bytes| {
                let expected = &data[at + done..at + done + bytes.len()];
                if compares && bytes != expected { Err(damaged()) } else { Ok(()) }
            })?;
        }
        let start = Instant::now();
        drop(mapped);
        Ok(time + start.elapsed())
    }
}

impl Sitting for Mapping<'_> {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let len = step.length(ID, lengths(self.options))?;
        let all = SETTINGS.iter().flat_map(|(setting, whole)| {
            (0..MEANS.len()).map(move |means| (*setting, whole.unwrap_or(len), means))
        });
        let subjects: Vec<(&str, usize, usize)> = all.collect();
        for (_, whole, means) in &subjects {
            self.once(*means, len, *whole, true)?;
        }
        let (rounds, seed) = (rounds(self.options), self.options.seed ^ len as u64);
        let samples = take_turns(subjects.len(), rounds, seed, |index| {
            let (_, whole, means) = subjects[index];
            (0..OPERATIONS).map(|_| Ok(each(self.once(means, len, whole, false)?, whole / len))).collect()
        })?;
        let measured = subjects.iter().zip(samples).map(|((setting, _, means), samples)| {
            Measured::new(*setting, MEANS[*means].name(), len, Quantity::Latency, samples)
        });
        Ok(measured.collect())
    }
}

/// A file, opened and mapped by one kind of calls, and where its parts go.
enum Mapped<'e> {
    Fbufs(genie_fbufs::Mapped, &'e mut End),
    Standard(MmapRegion, &'e mut File),
}

impl<'e> Mapped<'e> {
    fn open(file: &NamedTempFile, to: &'e mut End, len: usize) -> std::io::Result<Self> {
        let file = File::open(file.path())?;
        let pool = match to {
            End::Channel(channel) => channel.pool().clone(),
            End::Fbufs { pool, .. } => pool.clone(),
            End::Standard { writer, .. } => {
                let builder = MmapRegionBuilder::new(len).with_file_offset(FileOffset::new(file, 0));
                let region =
                    builder.with_mmap_prot(libc::PROT_READ).with_mmap_flags(libc::MAP_SHARED).build();
                return region.map(|region| Self::Standard(region, writer)).map_err(std::io::Error::other);
            }
        };
        pool.map(&file, 0, len).map(|mapped| Self::Fbufs(mapped, to)).map_err(std::io::Error::other)
    }

    fn write(&mut self, at: usize, len: usize) -> Result<()> {
        match self {
            Self::Standard(region, writer) => {
                let part = region.get_slice(at, len).map_err(std::io::Error::other).map_err(refused)?;
                writer.write_all_volatile(&part).map_err(std::io::Error::other).map_err(refused)
            }
            Self::Fbufs(mapped, End::Channel(channel)) => {
                Ok(mapped.write_to_channel(channel, at..at + len).map(drop)?)
            }
            Self::Fbufs(mapped, End::Fbufs { writer, .. } | End::Standard { writer, .. }) => {
                Ok(mapped.write(&*writer, at..at + len).map(drop)?)
            }
        }
    }
}

fn refused(error: std::io::Error) -> Error {
    Error::Peer(format!("a file cannot be mapped or written: {error}"))
}

fn damaged() -> Error {
    Error::Peer("a part of a file arrived damaged; this is an error of Genie's, please report it".to_owned())
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let readings: Vec<_> = SETTINGS
        .map(|(setting, _)| Reading::of(measurements, ID, setting, Quantity::Latency))
        .into_iter()
        .filter(|reading| !reading.lengths(names()).is_empty())
        .collect();
    let figure = |reading: &Reading<'_>| {
        let name = format!("{ID}-{}", super::reading::slug(&reading.setting));
        reading.figure(&name, &title(&reading.setting), "time of a buffer in µs", Scale::Logarithmic, names())
    };
    Conclusion {
        figures: readings.iter().filter_map(figure).collect(),
        tables: readings.iter().map(table).collect(),
        verdicts: verdicts(&readings),
        notes: vec![
            "To open, map, unmap and close the file is part of the time. To pipes and Unix sockets fbufs of a file go as the file's own \
             pages. A channel passes pages of a pool alone, so the bytes are copied once; its reader gets them without another copy."
                .to_owned(),
        ],
    }
}

fn names() -> [String; MEANS.len()] {
    MEANS.map(Means::name)
}

fn title(setting: &str) -> String {
    format!("Mapping {setting}, and writing it")
}

/// The share of the time of the standard calls that fbufs take on a transport.
fn share(reading: &Reading<'_>, transport: Transport, len: u64) -> Option<f64> {
    let time = |calls| reading.at(&Means { calls, transport }.name(), len);
    Some(time(Calls::Fbufs)? / time(Calls::Standard)?)
}

fn table(reading: &Reading<'_>) -> Table {
    let lengths = reading.lengths(names());
    let medians = names().map(|name| row(&name, lengths.iter().map(|len| shown(reading.at(&name, *len)))));
    let shares = COMPARED.map(|transport| {
        let cell = |len: &u64| share(reading, transport, *len).map_or(MISSING.to_owned(), per_cent);
        row(format!("share of standard, {}", transport.name()), lengths.iter().map(cell))
    });
    let printed = format!("{} %", thadani::share("mapwr"));
    let paper = |len: &u64| if *len == PAPER_LEN { printed.clone() } else { MISSING.to_owned() };
    let paper = row("paper: share", lengths.iter().map(paper));
    let rows = medians.into_iter().chain(shares).chain([paper]);
    Table::new(
        format!("{}: time of a buffer in µs (medians)", title(&reading.setting)),
        headings("calls, transport", &lengths),
        rows,
    )
}

fn verdicts(readings: &[Reading<'_>]) -> Vec<Finding> {
    // The paper's setting.
    let whole = readings.iter().find(|reading| reading.setting == SETTINGS[1].0);
    let judgements = whole.map(|whole| vec![mapwr(whole), grows(whole)]);
    findings(&DECLARATION, judgements.ok_or("A mapped file was not written."))
}

fn mapwr(reading: &Reading<'_>) -> Judgement {
    let each = COMPARED.map(|transport| Some((transport, share(reading, transport, PAPER_LEN)?)));
    let each = each.into_iter().collect::<Option<Vec<_>>>().ok_or("8 KiB were not measured.")?;
    let holds = each.iter().all(|(_, share)| (share * 100.0).round() <= thadani::share("mapwr").value());
    let words = each.iter().map(|(transport, share)| format!("{} by {}", per_cent(*share), transport.name()));
    Ok((holds, format!("Fbufs take {}.", words.collect::<Vec<_>>().join(", "))))
}

fn grows(reading: &Reading<'_>) -> Judgement {
    let mut holds = true;
    let each = MEANS[..4].iter().map(|means| {
        let medians = reading.medians(&means.name());
        let (first, last) = medians.first().zip(medians.last())?;
        holds &= last.1 > first.1;
        Some(format!("{}: {} to {} µs", means.name(), shown(Some(first.1)), shown(Some(last.1))))
    });
    let each = each.collect::<Option<Vec<_>>>().ok_or("Not all calls were measured.")?;
    Ok((holds, format!("From the shortest to the longest buffers, {}.", each.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{made, run};
    use super::*;
    use crate::findings::Verdict;

    fn concluded(share: f64) -> Conclusion {
        let names = names();
        let points = SETTINGS.iter().flat_map(|(setting, _)| {
            names.iter().zip(MEANS).flat_map(move |(name, means)| {
                let share = if means.calls == Calls::Fbufs { share } else { 1.0 };
                LENGTHS.map(move |len| {
                    made(setting, name, Quantity::Latency, (len as u64, share * (1.0 + len as f64 / 8192.0)))
                })
            })
        });
        conclude(&run(ID, points))
    }

    #[test]
    fn the_papers_share_bears_it_out_and_a_greater_one_does_not() {
        let conclusion = concluded(0.68);
        assert_eq!(conclusion.judged(), [Verdict::Holds; 2], "{:?}", conclusion.verdicts);
        conclusion.check_tables();
        assert_eq!(conclusion.tables[1].rows[5][2], "68 %");
        assert_eq!(concluded(0.9).judged()[0], Verdict::DoesNotHold);
    }
}
