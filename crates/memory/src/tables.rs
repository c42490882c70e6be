//! The tables of a space, which its lock guards: which granule is where, who references it, and what is kept for reuse. Nothing
//! here maps memory.

pub(crate) mod chunks;
pub(crate) mod granule;
pub(crate) mod lender;
pub(crate) mod lent_objects;
pub(crate) mod objects;
pub(crate) mod pools;
pub(crate) mod queues;
pub(crate) mod regions;
pub(crate) mod room;
pub(crate) mod runs;
pub(crate) mod shelf;
pub(crate) mod slots;
pub(crate) mod stock;

use std::collections::BTreeSet;

use crate::Recycling;
use crate::space::config::Statistics;
use granule::Granules;
use objects::Objects;
use pools::Pools;
use queues::Queues;
use regions::Regions;
use slots::Slots;

/// The tables.
pub(crate) struct State {
    pub(crate) granules: Granules,
    pub(crate) slots: Slots,
    pub(crate) regions: Regions,
    pub(crate) pools: Pools,
    pub(crate) recycling: Recycling,
    pub(crate) queues: Queues,
    /// Slots whose faulting threads wait for an output to complete.
    pub(crate) waiting: Vec<u32>,
    /// Granules of replacements that are being made.
    pub(crate) replacing: u32,
    pub(crate) objects: Objects,
    /// Granules that were lost.
    pub(crate) lost: BTreeSet<u32>,
    pub(crate) statistics: Statistics,
}

impl State {
    /// Tables of a space that has no memory yet.
    pub(crate) fn new(granules: Granules, slots: Slots, objects: Objects) -> Self {
        Self {
            granules,
            slots,
            regions: Regions::default(),
            pools: Pools::default(),
            recycling: Recycling::default(),
            queues: Queues::default(),
            waiting: Vec::new(),
            replacing: 0,
            objects,
            lost: BTreeSet::new(),
            statistics: Statistics::default(),
        }
    }
}
