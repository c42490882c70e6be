//! Sweeps: experiments in which subjects take turns at passing data, one length after the other, in one setting or several.
//!
//! How: an experiment describes what it varies. A step is one length in one setting; in it all subjects take turns. The
//! parties are opened once in a sitting, and again where a setting has other granules.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::turns::{Subject, Turns, WARM_UP};
use crate::error::{Error, Result};
use crate::experiment::{Options, Sitting, Step};
use crate::interface::Granule;
use crate::length;
use crate::measurement::Measured;
use crate::parties::{Parties, Route, Stage};

/// More rounds than this give no more information.
const ROUNDS_MOST: usize = 300;

/// The description of a sweep.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The experiment's id.
    pub(super) id: &'static str,
    /// The settings, in the order in which they are measured.
    pub(super) settings: Vec<Setting>,
    /// The subjects that take turns, with data of any length.
    pub(super) subjects: Vec<Subject>,
    /// How often each subject has its turn in a step: as often as its setting's seconds allow, within these bounds.
    pub(super) rounds: RangeInclusive<usize>,
    /// Whether some of the rounds measure I/O processing.
    pub(super) processing: bool,
    /// The seed for the order of the turns.
    pub(super) seed: u64,
}

/// The settings that some steps have in common.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// The figure's name; empty where there is one setting.
    pub(super) name: String,
    pub(super) granule: Granule,
    /// What is between the clients, for each group of parties that subjects name.
    pub(super) routes: Vec<Route>,
    /// The lengths of the data, in the order in which they are measured.
    pub(super) lengths: Vec<usize>,
    /// How long one step may take, as far as the bounds of the number of rounds allow.
    pub(super) seconds: f64,
}

impl Setting {
    /// The only setting of an experiment.
    pub(super) fn only(options: &Options, routes: Vec<Route>, lengths: &[usize], seconds: f64) -> Self {
        let (name, lengths) = (String::new(), lengths.to_vec());
        Self { name, granule: options.granule, routes, lengths, seconds }
    }

    fn step(&self, len: usize) -> String {
        match self.name.as_str() {
            "" => length::format(len),
            name => format!("{name}, {}", length::format(len)),
        }
    }

    /// About how long an operation takes, with storing and comparing its data and waiting for the network.
    fn operation(&self, len: usize) -> Duration {
        let network =
            self.routes.first().map_or(Duration::ZERO, |route| route.medium().rate().time(len as u64));
        Duration::from_nanos(80_000 + len as u64 / 2) + network
    }
}

impl Sweep {
    /// Subjects whose latency alone is measured. Rounds are `smoke` in a smoke
    /// run, which shows that it works; otherwise at least `least`.
    pub(super) fn new(
        id: &'static str,
        options: &Options,
        settings: Vec<Setting>,
        subjects: Vec<Subject>,
        (smoke, least): (usize, usize),
    ) -> Self {
        let rounds = if options.smoke { smoke..=smoke } else { least..=ROUNDS_MOST };
        Self { id, settings, subjects, rounds, processing: false, seed: options.seed }
    }

    fn all(&self) -> impl Iterator<Item = (&Setting, usize)> {
        self.settings.iter().flat_map(|setting| setting.lengths.iter().map(move |len| (setting, *len)))
    }

    /// About how long a round takes, and how many there are.
    fn rounds(&self, setting: &Setting, len: usize) -> (Duration, usize) {
        let round = setting.operation(len) * self.subjects.len() as u32;
        (round, fitting(setting.seconds, round, &self.rounds))
    }

    /// The steps of a sitting.
    pub(super) fn steps(&self) -> Vec<Step> {
        let step = |(setting, len): (&Setting, usize)| {
            let (round, count) = self.rounds(setting, len);
            Step { name: setting.step(len), seconds: round.as_secs_f64() * (WARM_UP + count) as f64 }
        };
        self.all().map(step).collect()
    }

    /// A sitting.
    pub(super) fn sit(self) -> Seated {
        Seated { sweep: self, open: None }
    }

    fn open(&self, (granule, routes): &Shared) -> Result<Vec<Parties>> {
        let alike = self.all().filter(|(setting, _)| setting.granule == *granule);
        let stage = Stage::open(*granule, alike.map(|(_, len)| len).max().unwrap_or_default(), routes)?;
        let parties = routes.iter().map(|route| Parties::join(&stage, *route)).collect();
        stage.close();
        parties
    }
}

/// How many rounds fit into the time, within the bounds.
fn fitting(seconds: f64, round: Duration, bounds: &RangeInclusive<usize>) -> usize {
    ((seconds / round.as_secs_f64()) as usize).clamp(*bounds.start(), *bounds.end())
}

/// What the settings have in common that have the same parties.
type Shared = (Granule, Vec<Route>);

/// A sitting under way.
#[derive(Debug)]
pub(super) struct Seated {
    sweep: Sweep,
    /// The parties, and for which settings they serve.
    open: Option<(Shared, Vec<Parties>)>,
}

impl Sitting for Seated {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let Self { sweep, open } = self;
        let found = sweep.all().find(|(setting, len)| setting.step(*len) == step.name);
        let unknown = || Error::NoSuchStep { experiment: sweep.id, step: step.name.clone() };
        let (setting, len) = found.ok_or_else(unknown)?;
        if !setting.routes.iter().all(|route| route.medium().is_there()) {
            return Ok(Vec::new());
        }
        let shared = (setting.granule, setting.routes.clone());
        if open.as_ref().is_none_or(|(of, _)| *of != shared) {
            // The memory of the old parties is freed before that of the new ones is allocated.
            *open = None;
        }
        let (_, parties) = match open {
            Some(open) => open,
            none => {
                let parties = sweep.open(&shared)?;
                none.insert((shared, parties))
            }
        };
        let turns = Turns {
            setting: &setting.name,
            len,
            subjects: &sweep.subjects,
            rounds: sweep.rounds(setting, len).1,
            processing: sweep.processing,
            seed: sweep.seed ^ len as u64,
        };
        turns.take(parties)
    }
}

#[cfg(test)]
mod tests {
    use genie_net::Rate;

    use super::*;

    #[test]
    fn rounds_fill_the_time_within_bounds() {
        let ms = Duration::from_millis(1);
        let count = |smoke, seconds, round| {
            let options = Options { smoke, granule: Granule::Base, seed: 1 };
            fitting(seconds, round, &Sweep::new("", &options, Vec::new(), Vec::new(), (3, 6)).rounds)
        };
        assert_eq!(count(false, 1.0, 8 * ms), 125);
        assert_eq!(count(false, 1.0, 800 * ms), 6);
        assert_eq!(count(false, 100.0, 8 * ms), ROUNDS_MOST);
        assert_eq!(count(true, 100.0, ms), 3);
    }

    #[test]
    fn a_step_is_named_by_its_setting_where_there_are_several() {
        let options = Options { smoke: true, granule: Granule::Base, seed: 1 };
        let only = Setting::only(&options, vec![Route::Device(Rate::Unlimited)], &[4096], 1.0);
        assert_eq!(only.step(4096), "4 KiB");
        assert_eq!(Setting { name: "unlimited".to_owned(), ..only }.step(64), "unlimited, 64 B");
    }
}
