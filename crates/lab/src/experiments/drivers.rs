//! `drivers`: what a packet costs its application by drivers with two copies, one, and none.
//!
//! How: each driver ([`genie_net::network`]) has a card of its own, whose processor is a process on the other CPU: the paper's adapter, with
//! memory that the host maps. The application pays from the allocation of a packet, which it fills, until the card is told of it; and from the
//! look at a packet that has come until it is released, all bytes having been read. Packets go one at a time, and drivers take turns. Reception is measured
//! twice: with the packet there already, which is the driver's work alone, and with an application that sleeps until it comes, as the paper's did.
//! Before each step all bytes of some packets are compared.
//! Limits: a packet each 10 ms, as in the paper, would take an hour: they come sooner. The paper's adapter memory could not be cached, and its
//! caches could be turned off. Here all memory is cached; the substitute is to store into each line of 64 MiB before each packet, so that its data is
//! in no cache at first. What the first copy of two has stored is in the cache for the second one all the same.
//! Source: Murphy, Zeadally, Adams, *An Analysis of Process and Memory Models* (USENIX 1996), figures 2 to 5.

mod bench;

use super::described::{Described, Measuring};
use super::partners::take_turns;
use super::reading::{Reading, findings, slug};
use crate::amounts::significant;
use crate::error::Result;
use crate::experiment::{Claim, Declaration, Options, Sitting, Step};
use crate::findings::{Conclusion, Judgement, Scale};
use crate::measurement::{Measured, Measurements, Quantity};
use crate::model::fit::fit;
use crate::probe::Probe;
use bench::{Bench, DRIVERS, Driver, Sweep, Timed};
use genie_net::network::Management;

const ID: &str = "drivers";

const LENGTHS: [usize; 7] = [64, 256, 512, 1024, 2048, 3072, 4072];
/// A tiny packet.
const TINY: u64 = LENGTHS[0] as u64;
/// How many packets there are in a turn, and how many turns, in a smoke run, and otherwise; and by what the former is divided where caches
/// are swept.
const PACKETS: (usize, usize) = (4, 100);
const ROUNDS: (usize, usize) = (1, 10);
const SWEPT: usize = 4;

/// What is timed, and whether caches are swept: the settings.
const SETTINGS: [(&str, Timed, bool); 5] = [
    ("sending", Timed::Sending, false),
    ("receiving", Timed::Receiving, false),
    ("receiving asleep", Timed::Awakened, false),
    ("sending, caches swept", Timed::Sending, true),
    ("receiving, caches swept", Timed::Receiving, true),
];
const COPIED: &str = "bytes copied a packet";
const CALLS: &str = "system calls of buffer management a packet";

const ONE: Driver = Driver::One;
const CALLING: Driver = Driver::None(Management::SystemCall);
const SHARING: Driver = Driver::None(Management::SharedRing);

/// The experiment.
pub(super) static DRIVERS_OF_PAPER: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Own { steps, sit }, conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "Drivers with two copies, one and none, by the size of packets",
    source: "B. J. Murphy, S. Zeadally, C. J. Adams, An Analysis of Process and Memory Models, USENIX 1996, figures 2 to 5",
    claims: &[
        Claim {
            id: "reception",
            text: "Reception costs about twice what transmission does, by each driver: the application is woken up.",
            source: "Relative Cost of Transmission versus Reception; figures 2 and 3",
        },
        Claim {
            id: "small-packets",
            text: "Below some 500 bytes one copy beats none, since buffers are managed by system calls.",
            source: "Relative Performance of Zero-Copy versus Single-Copy Drivers",
        },
        Claim {
            id: "shared-ring",
            text: "With buffer management by shared memory no copy is needed for small packets to be fast: then none beats one at all sizes.",
            source: "Performance For Small Packets",
        },
        Claim {
            id: "streams",
            text: "With tiny packets the two-copy driver takes about twice the time of the single-copy driver: messages cost.",
            source: "Relative Cost of STREAMS versus non-STREAMS Drivers",
        },
        Claim {
            id: "cached-copy",
            text: "With caches a byte costs about as much by two copies as by one.",
            source: "Effects of the Cache; figures 2 and 3",
        },
        Claim {
            id: "uncached-copy",
            text: "Without caches a byte costs 1.7 times as much by two copies as by one.",
            source: "Effects of the Cache; figures 4 and 5",
        },
    ],
    axes: &["driver", "sending or receiving", "caches warm or swept", "length of packets, 64 to 4,072 bytes"],
    needs: &[],
};

fn of<T>(options: &Options, (small, large): (T, T)) -> T {
    if options.smoke { small } else { large }
}

fn steps(options: &Options) -> Vec<Step> {
    let packets = of(options, PACKETS) * (of(options, ROUNDS) + 1) * DRIVERS.len();
    Step::each(&LENGTHS, |_| packets as f64 * (1.3e-3 + 2.0 * 10e-3 / SWEPT as f64))
}

fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    let probe = Probe::pin()?;
    let benches = DRIVERS.into_iter().map(|driver| Bench::open(driver, &probe)).collect::<Result<_>>()?;
    Ok(Box::new(Drivers { options, benches, sweep: Sweep::new(), _probe: probe }))
}

/// A sitting under way.
struct Drivers<'o> {
    options: &'o Options,
    benches: Vec<Bench>,
    sweep: Sweep,
    _probe: Probe,
}

impl Sitting for Drivers<'_> {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let len = step.length(ID, &LENGTHS)?;
        let Self { options, benches, sweep, .. } = self;
        benches.iter_mut().try_for_each(|bench| bench.verify(len))?;
        let mut found = Vec::new();
        for (setting, timed, is_swept) in SETTINGS {
            let packets = of(options, PACKETS) / if is_swept { SWEPT } else { 1 };
            let before = benches.iter().map(Bench::counters).collect::<Result<Vec<_>>>()?;
            let turns = take_turns(DRIVERS.len(), of(options, ROUNDS), options.seed ^ len as u64, |index| {
                benches[index].run(timed, (len, packets), is_swept.then_some(&mut *sweep))
            })?;
            for (index, samples) in turns.into_iter().enumerate() {
                let name = DRIVERS[index].name();
                let of =
                    |setting: &str, quantity, samples| Measured::new(setting, name, len, quantity, samples);
                found.push(of(setting, Quantity::Latency, samples));
                if !is_swept && timed != Timed::Awakened {
                    let (before, after) = (before[index], benches[index].counters()?);
                    let packets = (after.sent - before.sent + after.received - before.received).max(1);
                    let copied = after.copied_out - before.copied_out + after.copied_in - before.copied_in;
                    let calls = after.management_calls - before.management_calls;
                    found.push(of(&format!("{setting}: {COPIED}"), Quantity::Bytes, vec![copied / packets]));
                    found.push(of(&format!("{setting}: {CALLS}"), Quantity::Bytes, vec![calls / packets]));
                }
            }
        }
        Ok(found)
    }
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let found =
        Found(SETTINGS.map(|(setting, ..)| Reading::of(measurements, ID, setting, Quantity::Latency)));
    let is_measured = !found.0[0].lengths(names()).is_empty();
    let judgements = [
        found.reception(),
        found.small_packets(),
        found.shared_ring(),
        found.streams(),
        found.slopes([0, 1], |ratio| (0.8..=1.25).contains(&ratio), "about 1"),
        found.slopes([3, 4], |ratio| (1.4..=2.0).contains(&ratio), "1.7"),
    ];
    let judgements = if is_measured { Ok(judgements.into()) } else { Err("Nothing was measured.") };
    let amounts = |(what, at): (&str, usize)| {
        let setting = format!("{}: {what}", SETTINGS[at].0);
        Reading::of(measurements, ID, &setting, Quantity::Bytes).table(setting, "driver", names())
    };
    let figure = |(reading, (setting, ..)): (&Reading<'_>, (&str, Timed, bool))| {
        let name = format!("{ID}-{}", slug(setting));
        let title = format!("Time of a packet, {setting}");
        reading.figure(&name, &title, "time of a packet in µs", Scale::Linear, names())
    };
    Conclusion {
        figures: found.0.iter().zip(SETTINGS).filter_map(figure).collect(),
        tables: if is_measured {
            let times = found.0.iter().zip(SETTINGS).map(|(reading, (setting, ..))| {
                reading.table(format!("Time of a packet in µs (medians), {setting}"), "driver", names())
            });
            times.chain([(COPIED, 0), (COPIED, 1), (CALLS, 0), (CALLS, 1)].map(amounts)).collect()
        } else {
            Vec::new()
        },
        verdicts: findings(&DECLARATION, judgements),
        notes: vec![
            "The card's memory is ordinary memory, cached as all is, and its processor is a CPU of the host's. A card wakes up the application by an \
             eventfd where the paper's adapter raised an interrupt."
                .to_owned(),
            "Between an application and these drivers there is no kernel: none of them makes a system call for a packet, where each of the paper's made one, but \
             for those that manage buffers. What is called a system call here is a read or a write of a pipe in which the numbers of free buffers lie."
                .to_owned(),
            "Caches swept: 64 MiB are stored into before each packet, so that its data is in no cache at first. The paper turned its caches off."
                .to_owned(),
        ],
    }
}

fn names() -> [&'static str; DRIVERS.len()] {
    DRIVERS.map(Driver::name)
}

/// The median times, for each of [`SETTINGS`].
struct Found<'m>([Reading<'m>; SETTINGS.len()]);

impl Found<'_> {
    fn at(&self, setting: usize, driver: Driver, len: u64) -> std::result::Result<f64, String> {
        let found = self.0[setting].at(driver.name(), len);
        found.ok_or_else(|| format!("{}, {len} bytes, was not measured.", driver.name()))
    }

    /// One driver's time as a share of another's, at each length.
    fn shares(&self, setting: usize, of: Driver, to: Driver) -> std::result::Result<Vec<(u64, f64)>, String> {
        let share = |len: usize| {
            let len = len as u64;
            Ok((len, self.at(setting, of, len)? / self.at(setting, to, len)?))
        };
        LENGTHS.into_iter().map(share).collect()
    }

    fn reception(&self) -> Judgement {
        let ratios = |setting: usize| {
            let of = |driver: Driver| {
                let each = LENGTHS.map(|len| {
                    Ok::<_, String>(self.at(setting, driver, len as u64)? / self.at(0, driver, len as u64)?)
                });
                let mut each = each.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
                each.sort_by(f64::total_cmp);
                Ok::<_, String>(each[each.len() / 2])
            };
            DRIVERS.into_iter().map(of).collect::<std::result::Result<Vec<_>, _>>()
        };
        let (asleep, awake) = (ratios(2)?, ratios(1)?);
        let list = |all: &[f64]| all.iter().map(|one| significant(*one)).collect::<Vec<_>>().join(", ");
        let found = format!(
            "{} times, in the order of the drivers, where the application sleeps; {} times where the packet is there.",
            list(&asleep),
            list(&awake)
        );
        Ok((asleep.iter().all(|ratio| (1.5..=3.0).contains(ratio)), found))
    }

    fn small_packets(&self) -> Judgement {
        let found = |setting: usize| {
            let shares = self.shares(setting, CALLING, ONE)?;
            let is_beaten = shares.iter().filter(|(len, _)| *len <= 256).all(|(_, share)| *share > 1.0);
            let from = shares.iter().rev().take_while(|(_, share)| *share < 1.0).last();
            let from =
                from.map_or_else(|| "at no length".to_owned(), |(len, _)| format!("from {len} bytes on"));
            let tiny = significant(shares[0].1);
            Ok::<_, String>((is_beaten, format!("{tiny} times with {TINY} bytes, and {from}")))
        };
        let [(sending, sent), (receiving, received)] = [found(0)?, found(1)?];
        let text = format!(
            "Without a copy, by system calls, a packet takes of the time with one copy, sending: {sent}; receiving: {received}."
        );
        Ok((sending && receiving, text))
    }

    fn shared_ring(&self) -> Judgement {
        let worst = |setting: usize| {
            let shares = self.shares(setting, SHARING, ONE)?;
            Ok::<_, String>(shares.into_iter().map(|(_, share)| share).fold(0.0, f64::max))
        };
        let [sending, receiving] = [worst(0)?, worst(1)?];
        let found = format!(
            "Without a copy, by shared ring, a packet takes at most {} times the time with one copy, sending, and {} times, receiving.",
            significant(sending),
            significant(receiving)
        );
        Ok((sending < 1.0 && receiving < 1.0, found))
    }

    fn streams(&self) -> Judgement {
        let ratio = |setting: usize| {
            Ok::<_, String>(self.at(setting, Driver::Two, TINY)? / self.at(setting, ONE, TINY)?)
        };
        let [sending, receiving] = [ratio(0)?, ratio(1)?];
        let [sent, received] = [sending, receiving].map(significant);
        let found = format!("{sent} times, sending, and {received} times, receiving, with {TINY} bytes.");
        Ok(([sending, receiving].iter().all(|ratio| (1.5..=2.5).contains(ratio)), found))
    }

    /// The cost of a byte by two copies as a multiple of that by one, sending and receiving.
    fn slopes(&self, settings: [usize; 2], holds: fn(f64) -> bool, paper: &str) -> Judgement {
        let slope = |setting: usize, driver: Driver| {
            let line = fit(&self.0[setting].medians(driver.name())).map(|fit| fit.line.factor);
            line.filter(|slope| *slope > 0.0).ok_or_else(|| format!("{} has no slope.", driver.name()))
        };
        let ratio = |setting| Ok::<_, String>(slope(setting, Driver::Two)? / slope(setting, ONE)?);
        let [sending, receiving] = [ratio(settings[0])?, ratio(settings[1])?];
        let [sent, received] = [sending, receiving].map(significant);
        let found = format!("{sent} times, sending, and {received} times, receiving; in the paper {paper}.");
        Ok((holds(sending) && holds(receiving), found))
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{made, run};
    use super::*;
    use crate::findings::Verdict;

    /// What the paper has found, in its proportions.
    #[test]
    fn the_papers_own_findings_bear_out_its_claims() {
        let time = |setting: usize, driver: Driver, len: f64| {
            let (copies, fixed) = match driver {
                Driver::Two => ([1.1, 1.7][setting / 3], 400.0),
                Driver::One => (1.0, 200.0),
                CALLING => (0.2, 440.0),
                Driver::None(_) => (0.2, 150.0),
            };
            (fixed + copies * len * 0.5) * if matches!(setting, 1 | 2 | 4) { 2.0 } else { 1.0 }
        };
        let all = SETTINGS.into_iter().enumerate().flat_map(|(at, (setting, ..))| {
            DRIVERS.into_iter().flat_map(move |driver| {
                LENGTHS.map(move |len| (setting, driver.name(), len as u64, time(at, driver, len as f64)))
            })
        });
        let points = all.map(|(setting, name, len, us)| made(setting, name, Quantity::Latency, (len, us)));
        let verdicts = conclude(&run(ID, points)).verdicts;
        let found = verdicts.iter().map(|finding| (finding.verdict, &finding.claim)).collect::<Vec<_>>();
        assert!(found.iter().all(|(verdict, _)| *verdict == Verdict::Holds), "{verdicts:?}");
    }
}
