//! The engine: executes the tables' operations over a space.
//!
//! How: [`Passing::output`] and [`Passing::input`] first convert the scheme where it cannot or should not take effect
//! (foreign memory, short data), then run the columns of `tables` one operation after the other, each a call of the
//! memory crate. The transfer owns what the operations take, and gives it back when it is dropped, so that an aborted
//! request leaves nothing behind.
//! Source: thesis §7.4.

use std::ops::Range;
use std::sync::Arc;

use genie_memory::{Config, LenderId, Protection, Space, Stakes};

use crate::calibration::{self, Circumstances, Measured};
use crate::threshold::Current;
use crate::{CARRIED, Costs, Parties, Reason, Recorder, Scheme, Thresholds};

/// Passes data between one client's buffers and system buffers. Cloning makes another handle to the same engine.
#[derive(Debug, Clone)]
pub struct Passing(Arc<Engine>);

/// What keeps stores away from a transfer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Nothing.
    None,
    /// A borrow, which may end before the transfer does.
    Borrow,
    /// The transfer itself has the memory.
    Owner,
}

/// How an output of native memory is passed.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) scheme: Scheme,
    /// Why not all of it is passed by the scheme that was asked for.
    pub(crate) reason: Option<Reason>,
    /// The bytes that are referenced, unless the scheme is copy; bytes before and after them are copied.
    pub(crate) in_place: Range<usize>,
}

#[derive(Debug, Clone)]
struct Engine {
    space: Space,
    rules: Rules,
    /// Those of the space's granules of 4 KiB, where it has larger ones, too.
    small: Option<Rules>,
    /// How the costs were measured, if they were measured here.
    circumstances: Option<Circumstances>,
    recorder: Option<&'static Recorder>,
}

/// What decides how data is passed in granules of one size.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    costs: Costs,
    /// For servers in this process, and in others.
    thresholds: [Current; 2],
}

impl Rules {
    /// Derives the rules for a space's granules from their costs, and has the space follow them.
    fn derive(space: &Space, costs: Costs) -> Self {
        space.set_replacement_cost(costs.replacement.at(space.granule()) as u64);
        space.set_recycling(costs.recycling());
        let thresholds = measured(&costs, space).map(Current::new);
        Self { costs, thresholds }
    }

    /// What is at stake when an output of `len` bytes in granules of `space` is protected.
    pub(crate) fn stakes(&self, space: &Space, len: usize) -> Stakes {
        let costs = &self.costs;
        let whole = len.next_multiple_of(space.granule());
        Stakes {
            copying: (costs.copyin.at(len) + costs.system_buffer.at(len)) as u64,
            protecting: costs.protecting(whole) as u64,
        }
    }

    /// The thresholds for requests to this server.
    pub(crate) fn thresholds(&self, server: LenderId) -> Thresholds {
        self.current(server).get()
    }

    /// Whether `len` is below the threshold that `threshold` chooses.
    #[inline]
    pub(crate) fn is_short(
        &self,
        server: LenderId,
        len: usize,
        threshold: impl Fn(&Thresholds) -> usize,
    ) -> bool {
        let current = self.current(server);
        len <= CARRIED && current.exceeds_carried() || len < threshold(&current.get())
    }

    #[inline]
    fn current(&self, server: LenderId) -> &Current {
        &self.thresholds[usize::from(server != LenderId::OWN)]
    }
}

/// The thresholds that follow from the costs: for servers in this process, and in others.
fn measured(costs: &Costs, space: &Space) -> [Thresholds; 2] {
    let [here, elsewhere] = [costs, &costs.between()].map(|costs| Thresholds::derive(costs, space.granule()));
    [here, elsewhere.carrying()]
}

impl Passing {
    /// Passes data in `space`, with thresholds and the order in which system buffers are reused derived from `costs`, whatever
    /// the size of the granules.
    pub fn new(space: Space, costs: Costs) -> Self {
        let rules = Rules::derive(&space, costs.clone());
        let small = space.small().map(|small| Rules::derive(small, costs));
        Self(Arc::new(Engine { space, rules, small, circumstances: None, recorder: None }))
    }

    /// Passes data in `space`, with the costs stored for this machine, or, the first time, with those of a short calibration;
    /// granules of each size have costs of their own.
    pub fn over(space: Space) -> Self {
        let large = calibration::load_or_measure(&space.alone());
        let small = space.small().map(|small| (small, calibration::load_or_measure(small)));
        let measured = large.iter().chain(small.iter().filter_map(|(_, measured)| measured.as_ref()));
        let circumstances = measured.map(|measured| measured.circumstances).reduce(Circumstances::worse);
        let costs = |measured: Option<Measured>| measured.map(|measured| measured.costs).unwrap_or_default();
        let small = small.map(|(small, measured)| Rules::derive(small, costs(measured)));
        let rules = Rules::derive(&space, costs(large));
        Self(Arc::new(Engine { space, rules, small, circumstances, recorder: None }))
    }

    /// Makes a space and passes data in it, with the costs stored for this machine, or, the first time, with those of a
    /// short calibration.
    ///
    /// # Errors
    /// As [`Space::new`].
    pub fn open(config: &Config) -> genie_memory::Result<Self> {
        Ok(Self::over(Space::new(config)?))
    }

    /// Overrides the thresholds, whatever the size of the granules.
    #[must_use]
    pub fn with_thresholds(mut self, thresholds: Thresholds) -> Self {
        let engine = Arc::make_mut(&mut self.0);
        for rules in std::iter::once(&mut engine.rules).chain(&mut engine.small) {
            rules.thresholds = [thresholds; 2].map(Current::new);
        }
        self
    }

    /// Changes the thresholds at run time, for all handles to this engine: transfers that begin from now on heed them (thesis
    /// §13.1). `change` gets those that follow from the costs, one after the other for granules of each size, and for servers in
    /// this process and in others; what was changed before does not count.
    pub fn adjust_thresholds(&self, change: impl Fn(&mut Thresholds)) {
        let Engine { space, rules, small, .. } = &*self.0;
        for (rules, space) in [(rules, space)].into_iter().chain(small.iter().zip(space.small())) {
            for (current, mut wanted) in rules.thresholds.iter().zip(measured(&rules.costs, space)) {
                change(&mut wanted);
                current.set(wanted);
            }
        }
    }

    /// Has the time of each operation recorded, in transfers that this handle and its later clones begin.
    #[must_use]
    pub fn with_recorder(mut self, recorder: &'static Recorder) -> Self {
        Arc::make_mut(&mut self.0).recorder = Some(recorder);
        self
    }

    /// The space.
    pub fn space(&self) -> &Space {
        &self.0.space
    }

    /// The costs; those of the larger granules, where there are two sizes.
    pub fn costs(&self) -> &Costs {
        &self.0.rules.costs
    }

    /// How the costs were measured, the worse where there are two sizes of granules; none where they were given, or are unknown.
    pub fn circumstances(&self) -> Option<Circumstances> {
        self.0.circumstances
    }

    /// The thresholds in force for requests to this server; those of the larger granules, where there are two sizes.
    pub fn thresholds(&self, server: LenderId) -> Thresholds {
        self.0.rules.thresholds(server)
    }

    /// The costs of granules from which a buffer of `len` bytes comes while there is memory.
    pub fn costs_for(&self, len: usize) -> &Costs {
        &self.rules(self.space().for_len(len)).costs
    }

    /// The space that has an address, of the two that a space of two granule sizes consists of, and its rules.
    pub(crate) fn at(&self, addr: usize) -> (&Space, &Rules) {
        let space = self.space().at(addr);
        (space, self.rules(space))
    }

    /// The rules for data in granules of `space`.
    pub(crate) fn rules(&self, space: &Space) -> &Rules {
        let small = self.0.small.as_ref().filter(|_| space.granule() != self.space().granule());
        small.unwrap_or(&self.0.rules)
    }

    /// The recorder of operations' times, if there is one.
    pub fn recorder(&self) -> Option<&'static Recorder> {
        self.0.recorder
    }

    /// How an output of native memory by `scheme` is passed, as far as this can be told without referencing the memory, which may
    /// be among the regions' addresses, and still not in one region.
    pub(crate) fn decide(&self, scheme: Scheme, bytes: &[u8], hold: Hold, parties: Parties) -> Decided {
        let (addr, len) = (bytes.as_ptr().addr(), bytes.len());
        let (space, rules) = self.at(addr);
        let as_asked = Decided { scheme, reason: None, in_place: 0..len };
        let copied = |reason| Decided { scheme: Scheme::Copy, reason: Some(reason), in_place: 0..0 };
        if let Some(reason) = self.copied_for(scheme, (addr, len), hold, parties, (space, rules)) {
            return copied(reason);
        }
        match (scheme, hold) {
            (Scheme::Copy, _) => as_asked,
            (Scheme::EmulatedCopy, Hold::None) => {
                let output = rules.thresholds(parties.server).output;
                match len >= output || space.spares_copy(addr, len, rules.stakes(space, len)) {
                    true if len < output => as_asked,
                    true => Decided { in_place: self.cut(addr, len, output), ..as_asked },
                    false => copied(Reason::Short),
                }
            }
            (_, Hold::Borrow) => match (scheme, space.borrowable(addr, len)) {
                (_, kept) if kept.len() == len => as_asked,
                (Scheme::EmulatedCopy, kept) if !kept.is_empty() => Decided { in_place: kept, ..as_asked },
                _ => copied(Reason::Neighbours),
            },
            _ => as_asked,
        }
    }

    /// Why an output of native memory by `scheme` is copied, as far as its length and its place in `space` alone tell.
    #[inline]
    pub(crate) fn copied_for(
        &self,
        scheme: Scheme,
        (addr, len): (usize, usize),
        hold: Hold,
        parties: Parties,
        (space, rules): (&Space, &Rules),
    ) -> Option<Reason> {
        let is_short = || match hold {
            Hold::None => rules.is_short(parties.server, len, |t| t.output.min(t.unchanged)),
            Hold::Borrow | Hold::Owner => rules.is_short(parties.server, len, |t| t.held),
        };
        match scheme {
            Scheme::EmulatedCopy | Scheme::Share | Scheme::EmulatedShare if !space.may_hold(addr) => {
                Some(Reason::Foreign)
            }
            Scheme::EmulatedCopy if len < parties.shown_from => Some(Reason::Hidden),
            // Where nothing can be protected, the threshold would convert every length, and hide the true reason.
            Scheme::EmulatedCopy
                if hold == Hold::None && matches!(space.protection(), Protection::None(_)) =>
            {
                Some(Reason::Unprotectable)
            }
            Scheme::EmulatedCopy if is_short() => Some(Reason::Short),
            _ => None,
        }
    }

    /// Native schemes other than copy are converted for memory that can be in no region.
    pub(crate) fn convert_foreign(&self, scheme: Scheme, addr: usize) -> (Scheme, Option<Reason>) {
        match scheme {
            Scheme::EmulatedCopy | Scheme::Share | Scheme::EmulatedShare if !self.space().may_hold(addr) => {
                (Scheme::Copy, Some(Reason::Foreign))
            }
            _ => (scheme, None),
        }
    }

    /// The part of a protected output that is referenced. The part on an edge is copied when it is shorter than `t_o` and
    /// something else is referenced.
    fn cut(&self, addr: usize, len: usize, t_o: usize) -> Range<usize> {
        let granule = self.space().at(addr).granule();
        let offset = addr & (granule - 1);
        let end = (offset + len) & (granule - 1);
        let head = if offset == 0 { 0 } else { granule - offset };
        if head >= len {
            return 0..len;
        }
        let short = |edge: usize| if edge < t_o { edge } else { 0 };
        match (short(head), short(end)) {
            // Two edges that are all there is, each shorter than t_o: one call protects both.
            (head, end) if head + end >= len => 0..len,
            (head, end) => head..len - end,
        }
    }
}
