//! The engine: executes the tables' operations over a space.
//!
//! How: [`Passing::output`] and [`Passing::input`] first convert the scheme where it cannot or should not take effect
//! (foreign memory, short data), then run the columns of `tables` one operation after the other, each a call of the
//! memory crate. The transfer owns what the operations take, and gives it back when it is dropped, so that an aborted
//! request leaves nothing behind.
//! Source: thesis §7.4.

use std::sync::Arc;

use genie_memory::{Config, Protection, Space};

use crate::{Costs, Reason, Recorder, Scheme, Thresholds};

/// Passes data between one client's buffers and system buffers. Cloning makes another handle to the same engine.
#[derive(Debug, Clone)]
pub struct Passing(Arc<Engine>);

#[derive(Debug, Clone)]
struct Engine {
    space: Space,
    costs: Costs,
    thresholds: Thresholds,
    recorder: Option<&'static Recorder>,
}

impl Passing {
    /// Passes data in `space`, with thresholds and the order in which system buffers are reused derived from `costs`.
    pub fn new(space: Space, costs: Costs) -> Self {
        let thresholds = Thresholds::derive(&costs, space.granule());
        space.set_replacement_cost(costs.replacement.at(space.granule()) as u64);
        space.set_recycling(costs.recycling());
        Self(Arc::new(Engine { space, costs, thresholds, recorder: None }))
    }

    /// Makes a space and passes data in it, with the costs stored for this machine, or, the first time, with those of a
    /// short calibration.
    ///
    /// # Errors
    /// As [`Space::new`], or the calibration ran out of memory.
    pub fn open(config: &Config) -> genie_memory::Result<Self> {
        let space = Space::new(config)?;
        let costs = crate::calibration::load_or_measure(&space)?;
        Ok(Self::new(space, costs))
    }

    /// Overrides the thresholds.
    #[must_use]
    pub fn with_thresholds(mut self, thresholds: Thresholds) -> Self {
        Arc::make_mut(&mut self.0).thresholds = thresholds;
        self
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

    /// The costs.
    pub fn costs(&self) -> &Costs {
        &self.0.costs
    }

    /// The thresholds in force.
    pub fn thresholds(&self) -> &Thresholds {
        &self.0.thresholds
    }

    /// The recorder of operations' times, if there is one.
    pub fn recorder(&self) -> Option<&'static Recorder> {
        self.0.recorder
    }

    /// What an output of native memory by `scheme` is converted to, and why, as far as this can be told without the
    /// space's tables. Memory among the regions' addresses may still not be in one region.
    pub(crate) fn convert_output(&self, scheme: Scheme, addr: usize, len: usize) -> (Scheme, Option<Reason>) {
        match self.convert_foreign(scheme, addr) {
            // Where nothing can be protected, the threshold would convert every length, and hide the true reason.
            (Scheme::EmulatedCopy, None) if matches!(self.space().protection(), Protection::None(_)) => {
                (Scheme::Copy, Some(Reason::Unprotectable))
            }
            (Scheme::EmulatedCopy, None) if len < self.thresholds().output => {
                (Scheme::Copy, Some(Reason::Short))
            }
            converted => converted,
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

    /// How an emulated-copy output is cut: the numbers of bytes copied from the first granule, referenced, and copied
    /// from the last granule. The part on an edge is copied when it is shorter than t_o and something else is
    /// referenced.
    pub(crate) fn cut(&self, addr: usize, len: usize) -> [usize; 3] {
        let granule = self.space().granule();
        let offset = addr & (granule - 1);
        let end = (offset + len) & (granule - 1);
        let head = if offset == 0 { 0 } else { granule - offset };
        if head >= len || head + end >= len {
            return [0, len, 0];
        }
        let short = |edge: usize| if edge < self.thresholds().output { edge } else { 0 };
        let (head, tail) = (short(head), short(end));
        [head, len - head - tail, tail]
    }

    /// What protecting an output of `len` bytes saves over copying it, in nanoseconds.
    pub(crate) fn saving(&self, len: usize) -> u64 {
        let costs = self.costs();
        let whole = len.next_multiple_of(self.space().granule());
        (costs.copyin.at(len) + costs.system_buffer.at(len) - costs.protecting(whole)).max(0.0) as u64
    }
}
