//! `ttcp` and `ftp`: throughput and CPU time of the work of two programs, with the standard calls and with fbufs.
//!
//! How: one process sends to another one over a transport. As `ttcp` it sends 2048 buffers of one length; as `ftp` it sends a file
//! of 1 MiB, which is in the page cache, several times: with the standard calls it reads and writes, with fbufs it maps the
//! file and writes its parts; the receiver writes to `/dev/null`. The time is from before the first write until all was read.
//! The CPU time of both processes is measured meanwhile. Times are for each buffer. All means take turns.
//! The inner loops are those of the programs in C that come with libfbufs. What differs: connections stay open from transfer to
//! transfer, the receiver counts bytes instead of waiting for the end, and buffers carry numbers, which are compared.
//! Source: Thadani and Khalidi, section 6.2, figure 9, table 3. Differs: there two machines and a network, whose adapters
//! computed checksums; here two processes of one machine, so that a channel can take TCP's place.

use std::fs::File;
use std::io::Write;

use super::described::{Described, Measuring};
use super::partners::{PLACES, Partners, each, take_turns};
use super::reading::{MISSING, Reading, findings, per_cent, shown};
use crate::error::{Error, Result};
use crate::experiment::{Claim, Declaration, Options, Sitting, Step};
use crate::findings::{Conclusion, Figure, Judgement, Scale, Table, row};
use crate::measurement::{Measured, Measurements, Quantity};
use crate::papers::thadani;
use crate::transport::{Calls, Means, Streamed, Transport};

/// The ids.
pub(super) const TTCP_ID: &str = "ttcp";
const FTP_ID: &str = "ftp";

/// The means; standard calls and fbufs on the paper's transport come first.
const MEANS: [Means; 7] = [
    Means::standard(Transport::Tcp),
    Means::fbufs(Transport::Tcp),
    Means::standard(Transport::UnixSocket),
    Means::fbufs(Transport::UnixSocket),
    Means::standard(Transport::Pipe),
    Means::fbufs(Transport::Pipe),
    Means::CHANNEL,
];

/// The paper's length of buffers, in both programs.
pub(super) const PAPER_LEN: u64 = 8 << 10;
const TTCP_LENGTHS: [usize; 6] = [2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
const FTP_LENGTHS: [usize; 2] = [8 << 10, 64 << 10];
const LENGTHS_SMOKE: [usize; 2] = [8 << 10, 64 << 10];

/// How many buffers `ttcp` sends: in a smoke run, and otherwise.
const BUFFERS: (usize, usize) = (300, 2048);
/// The length of the file that `ftp` sends, and how often it sends it.
const FILE: usize = 1 << 20;
const TIMES: (usize, usize) = (1, 16);
/// How often each subject has its turn.
const ROUNDS: (usize, usize) = (1, 12);

/// The two ends, as settings of their CPU times name them.
const SIDES: [&str; 2] = ["sender", "receiver"];

/// The experiments.
pub(super) static TTCP: Described = Described {
    declaration: &TTCP_DECLARATION,
    measuring: Measuring::Own {
        steps: |options| steps(options, &TTCP_LENGTHS),
        sit: |options| sit(options, &TTCP_DECLARATION),
    },
    conclude: |measurements| conclude(measurements, &TTCP_DECLARATION),
};
pub(super) static FTP: Described = Described {
    declaration: &FTP_DECLARATION,
    measuring: Measuring::Own {
        steps: |options| steps(options, &FTP_LENGTHS),
        sit: |options| sit(options, &FTP_DECLARATION),
    },
    conclude: |measurements| conclude(measurements, &FTP_DECLARATION),
};

static TTCP_DECLARATION: Declaration = Declaration {
    id: TTCP_ID,
    title: "Throughput and CPU time of ttcp, with the standard calls and with fbufs",
    source: thadani!("§6.2, figure 9, table 3"),
    claims: &[
        Claim {
            id: "same-transport",
            text: "Over TCP, fbufs give ttcp 35 % more throughput than the standard calls, with buffers of 8 KiB.",
            source: "§6.2, figure 9",
        },
        Claim {
            id: "channel",
            text: "On one machine a channel, in TCP's place, gives ttcp at least 35 % more throughput than the fastest of the \
                   standard calls.",
            source: "§6.2, figure 9, applied to the processes of one machine",
        },
        Claim {
            id: "utilization",
            text: "With fbufs, the CPUs are less busy at both ends: 89 instead of 99 % at the receiver, 62 instead of 85 % at the \
                   sender.",
            source: "table 3",
        },
    ],
    axes: &["length of buffers, 2 KiB to 64 KiB", "transport and calls", "the CPUs of the two processes"],
    needs: &[],
};

static FTP_DECLARATION: Declaration = Declaration {
    id: FTP_ID,
    title: "Throughput and CPU time of ftp, with the standard calls and with fbufs",
    source: thadani!("§6.2, figure 9"),
    claims: &[
        Claim {
            id: "same-transport",
            text: "Over TCP, fbufs give ftp 42 % more throughput than the standard calls, with buffers of 8 KiB.",
            source: "§6.2, figure 9",
        },
        Claim {
            id: "channel",
            text: "On one machine a channel, in TCP's place, gives ftp at least 42 % more throughput than the fastest of the \
                   standard calls.",
            source: "§6.2, figure 9, applied to the processes of one machine",
        },
    ],
    axes: &["length of buffers, 8 KiB and 64 KiB", "transport and calls", "the CPUs of the two processes"],
    needs: &[],
};

fn of<T>(options: &Options, (small, large): (T, T)) -> T {
    if options.smoke { small } else { large }
}

fn steps(options: &Options, all: &'static [usize]) -> Vec<Step> {
    let lengths = if options.smoke { &LENGTHS_SMOKE } else { all };
    let buffers = of(options, BUFFERS) * of(options, ROUNDS) * MEANS.len() * PLACES.len();
    Step::each(lengths, |len| buffers as f64 * (2e-6 + len as f64 * 0.3e-9))
}

fn sit<'o>(options: &'o Options, declaration: &'static Declaration) -> Result<Box<dyn Sitting + 'o>> {
    let failed = |source| Error::File { path: std::env::temp_dir(), what: "takes no new file", source };
    let mut file = tempfile::tempfile().map_err(failed)?;
    file.write_all(crate::data::Data::generate(FILE).all()).map_err(failed)?;
    std::io::Seek::rewind(&mut file).map_err(failed)?;
    Ok(Box::new(Programs { options, declaration, partners: Partners::open(&MEANS)?, file }))
}

/// A sitting under way.
struct Programs<'o> {
    options: &'o Options,
    declaration: &'static Declaration,
    partners: Partners,
    file: File,
}

impl Sitting for Programs<'_> {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let Self { options, declaration, partners, file } = self;
        let len = step.length(declaration.id, &TTCP_LENGTHS)?;
        let places = partners.places();
        let subjects: Vec<_> = places.iter().flat_map(|place| MEANS.map(|means| (*place, means))).collect();
        for (place, means) in &subjects {
            partners.at(place)?.verify(*means, len, false)?;
        }
        let (times, seed) = (of(options, TIMES), options.seed ^ len as u64);
        let buffers = if declaration.id == TTCP_ID { of(options, BUFFERS) } else { times * FILE / len };
        let samples = take_turns(subjects.len(), of(options, ROUNDS), seed, |index| {
            let (place, means) = subjects[index];
            let partner = partners.at(place)?;
            let streamed = if declaration.id == TTCP_ID {
                partner.stream(means, len, buffers)
            } else {
                partner.file(means, (&mut *file, FILE), len, times)
            };
            Ok(vec![streamed?])
        })?;
        let measured = |((place, means), samples): (&(&str, Means), Vec<Streamed>)| {
            let of = |setting: String, quantity, time: &dyn Fn(&Streamed) -> std::time::Duration| {
                let samples = samples.iter().map(|one| each(time(one), buffers)).collect();
                Measured::new(setting, means.name(), len, quantity, samples)
            };
            [
                of((*place).to_owned(), Quantity::Latency, &|one| one.time),
                of(side(place, 0), Quantity::CpuTime, &|one| one.cpu[0]),
                of(side(place, 1), Quantity::CpuTime, &|one| one.cpu[1]),
            ]
        };
        Ok(subjects.iter().zip(samples).flat_map(measured).collect())
    }
}

/// The setting of the CPU time of one end.
fn side(place: &str, end: usize) -> String {
    format!("{place}, {}", SIDES[end])
}

/// What was measured at one place.
struct Place<'m> {
    name: &'static str,
    times: Reading<'m>,
    cpu: [Reading<'m>; 2],
}

impl<'m> Place<'m> {
    fn all(measurements: &'m Measurements, id: &'static str) -> Vec<Self> {
        let place = |name: &'static str| Self {
            name,
            times: Reading::of(measurements, id, name, Quantity::Latency),
            cpu: [0, 1].map(|end| Reading::of(measurements, id, side(name, end), Quantity::CpuTime)),
        };
        PLACES.map(place).into_iter().filter(|place| !place.times.lengths(names()).is_empty()).collect()
    }

    /// How much more throughput one means has than another, as a fraction.
    fn gain(&self, more: Means, less: Means) -> Option<f64> {
        Some(self.times.at(&less.name(), PAPER_LEN)? / self.times.at(&more.name(), PAPER_LEN)? - 1.0)
    }

    /// The standard calls with the most throughput.
    fn fastest(&self) -> Option<Means> {
        let standard = MEANS.into_iter().filter(|means| means.calls == Calls::Standard);
        let timed = standard.filter_map(|means| Some((means, self.times.at(&means.name(), PAPER_LEN)?)));
        timed.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(means, _)| means)
    }

    /// How busy an end was, as a fraction of a CPU.
    fn utilization(&self, means: Means, end: usize) -> Option<f64> {
        let name = means.name();
        Some(self.cpu[end].at(&name, PAPER_LEN)? / self.times.at(&name, PAPER_LEN)?)
    }

    fn table(&self, id: &str) -> Table {
        let rows = MEANS.map(|means| {
            let name = means.name();
            let rate = self.times.at(&name, PAPER_LEN).map(|us| PAPER_LEN as f64 / us);
            let gain = self
                .gain(means, MEANS[0])
                .map_or(MISSING.to_owned(), |gain| format!("{:+.0} %", gain * 100.0));
            let busy = [0, 1].map(|end| self.utilization(means, end).map_or(MISSING.to_owned(), per_cent));
            let cpu = [0, 1].map(|end| shown(self.cpu[end].at(&name, PAPER_LEN)));
            row(name, [shown(rate), gain].into_iter().chain(busy).chain(cpu))
        });
        let columns =
            ["calls, transport", "MB/s", "gain", "sender", "receiver", "sender, µs", "receiver, µs"];
        Table::new(
            format!(
                "{id}, {}, with buffers of 8 KiB: throughput, share of a CPU, and CPU time of a buffer",
                self.name
            ),
            columns,
            rows.into_iter().chain(papers(id)),
        )
    }

    fn throughputs(&self, id: &str) -> Table {
        let title = format!("Throughput of {id} in MB/s by length of buffers, {}", self.name);
        self.times.table_of(title, "calls, transport", names(), |len, us| len as f64 / us)
    }

    fn figure(&self, id: &str) -> Option<Figure> {
        let name = format!("{id}-{}", super::reading::slug(self.name));
        let title = format!("Time of a buffer of {id}, {}", self.name);
        self.times.figure(&name, &title, "time of a buffer in µs", Scale::Logarithmic, names())
    }
}

/// The paper's rows of the table.
fn papers(id: &str) -> [Vec<String>; 2] {
    let gain = format!("+{} %", thadani::gain(id));
    let busy = |fbufs: bool| {
        ["sender", "receiver"].map(|node| {
            let all = thadani::utilizations().into_iter().filter(|_| id == TTCP_ID);
            let found =
                all.filter(|one| one.node == node).map(|one| if fbufs { one.fbufs } else { one.standard });
            found.map(|printed| format!("{printed} %")).next().unwrap_or(MISSING.to_owned())
        })
    };
    let cells = |name: &str, gain: String, fbufs| {
        let rate = if id == TTCP_ID { megabytes(if fbufs { "fbufs" } else { "single-copy" }) } else { None };
        let missing = [MISSING, MISSING].map(str::to_owned);
        row(name, [shown(rate), gain].into_iter().chain(busy(fbufs)).chain(missing))
    };
    [cells("paper: standard, TCP", "+0 %".to_owned(), false), cells("paper: fbufs, TCP", gain, true)]
}

/// The paper's throughput, whose Mbit are 2^20 bits.
fn megabytes(framework: &str) -> Option<f64> {
    let found = thadani::frameworks().into_iter().find(|one| one.framework == framework);
    found.map(|one| one.throughput.value() * 1.048_576 / 8.0)
}

fn names() -> [String; MEANS.len()] {
    MEANS.map(Means::name)
}

fn conclude(measurements: &Measurements, declaration: &'static Declaration) -> Conclusion {
    let id = declaration.id;
    let places = Place::all(measurements, id);
    let judgements = vec![same_transport(&places, id), channel(&places, id), utilization(&places)];
    Conclusion {
        figures: places.iter().filter_map(|place| place.figure(id)).collect(),
        tables: places.iter().flat_map(|place| [place.table(id), place.throughputs(id)]).collect(),
        verdicts: findings(declaration, Ok(judgements)),
        notes: vec![
            "With fbufs on a descriptor of the kernel's, the kernel copies buffers of a pool, as it copies any buffer; parts of mapped \
             files go without a copy. A channel's reader spins while it waits for a writer on another CPU: that CPU is then busy \
             whether or not it has work."
                .to_owned(),
            "Nobody looks at the data, as in the paper's programs. So the throughput of a channel is not bounded by memory: it says \
             how fast buffers change hands."
                .to_owned(),
        ],
    }
}

/// Judges a gain at all places.
fn judge(places: &[Place<'_>], id: &str, pair: impl Fn(&Place<'_>) -> Option<(Means, Means)>) -> Judgement {
    let mut holds = true;
    let each = places.iter().map(|place| {
        let (more, less) = pair(place)?;
        let gain = place.gain(more, less)?;
        holds &= (gain * 100.0).round() >= thadani::gain(id).value();
        Some(format!("{}: {:+.0} % ({} against {})", place.name, gain * 100.0, more.name(), less.name()))
    });
    let each =
        each.collect::<Option<Vec<_>>>().filter(|each| !each.is_empty()).ok_or("8 KiB were not measured.")?;
    Ok((holds, format!("{}.", each.join("; "))))
}

fn same_transport(places: &[Place<'_>], id: &str) -> Judgement {
    judge(places, id, |_| Some((MEANS[1], MEANS[0])))
}

fn channel(places: &[Place<'_>], id: &str) -> Judgement {
    judge(places, id, |place| Some((Means::CHANNEL, place.fastest()?)))
}

/// The paper's ends had a CPU each.
fn utilization(places: &[Place<'_>]) -> Judgement {
    let place = places.iter().find(|place| place.name == PLACES[0]).ok_or("This needs two CPUs.")?;
    let mut holds = true;
    let each = [0, 1].map(|end| {
        let less = place.fastest()?;
        let [fbufs, standard] = [Means::CHANNEL, less].map(|means| place.utilization(means, end));
        let [cpu, cpu_standard] =
            [Means::CHANNEL, less].map(|means| place.cpu[end].at(&means.name(), PAPER_LEN));
        holds &= fbufs? < standard?;
        Some(format!(
            "{} {} instead of {}, with {} instead of {} µs of CPU time a buffer",
            SIDES[end],
            per_cent(fbufs?),
            per_cent(standard?),
            shown(cpu),
            shown(cpu_standard),
        ))
    });
    let each = each.into_iter().collect::<Option<Vec<_>>>().ok_or("8 KiB were not measured.")?;
    Ok((holds, format!("With a channel instead of the fastest of the standard calls: {}.", each.join("; "))))
}

/// CPU time in µs of both ends for a buffer of each length, with a CPU each: by the standard calls of the paper's transport, and
/// with fbufs on a channel.
pub(super) fn costs(measurements: &Measurements) -> Vec<(u64, [f64; 2])> {
    let places = Place::all(measurements, TTCP_ID);
    let Some(place) = places.iter().find(|place| place.name == PLACES[0]) else { return Vec::new() };
    let cost =
        |means: Means, len| Some(place.cpu[0].at(&means.name(), len)? + place.cpu[1].at(&means.name(), len)?);
    let both = |len| Some((len, [cost(MEANS[0], len)?, cost(Means::CHANNEL, len)?]));
    place.times.lengths(names()).into_iter().filter_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{made, run};
    use super::*;
    use crate::findings::Verdict;

    /// A run in which each means takes so many µs for 8 KiB, and both ends are busy for a share of that.
    fn concluded(declaration: &'static Declaration, us: impl Fn(Means) -> (f64, f64)) -> Conclusion {
        let all = MEANS.map(|means| (means.name(), us(means)));
        let settings = PLACES.map(|place| (place, [0, 1].map(|end| side(place, end))));
        let points = settings.iter().flat_map(|(place, sides)| {
            all.iter().flat_map(move |(name, (us, busy))| {
                let of = |setting, quantity, us| made(setting, name, quantity, (PAPER_LEN, us));
                let cpu = |end: usize| of(sides[end].as_str(), Quantity::CpuTime, us * busy);
                [of(place, Quantity::Latency, *us), cpu(0), cpu(1)]
            })
        });
        conclude(&run(declaration.id, points), declaration)
    }

    fn papers_own(means: Means) -> (f64, f64) {
        if means.calls == Calls::Fbufs { (10.0 / 1.42, 0.6) } else { (10.0, 0.9) }
    }

    #[test]
    fn the_papers_gains_bear_its_claims_out() {
        let conclusion = concluded(&TTCP_DECLARATION, papers_own);
        assert_eq!(conclusion.judged(), [Verdict::Holds; 3], "{:?}", conclusion.verdicts);
        conclusion.check_tables();
        assert_eq!(conclusion.tables[0].rows[6][1..5], ["1163", "+42 %", "60 %", "60 %"].map(str::to_owned));
        assert_eq!(conclusion.tables[0].rows[8][1..5], ["14.8", "+35 %", "62 %", "89 %"].map(str::to_owned));
        assert_eq!(concluded(&FTP_DECLARATION, papers_own).judged(), [Verdict::Holds; 2]);
    }

    #[test]
    fn fbufs_that_the_kernel_copies_gain_nothing_while_a_channel_may() {
        let conclusion =
            concluded(
                &FTP_DECLARATION,
                |means| {
                    if means == Means::CHANNEL { (1.0, 1.0) } else { (10.0, 0.9) }
                },
            );
        assert_eq!(conclusion.judged(), [Verdict::DoesNotHold, Verdict::Holds], "{:?}", conclusion.verdicts);
    }
}
