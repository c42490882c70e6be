//! The region table: which slots each region has, and what is on record of it.
//!
//! Source: thesis §1.1.1 (regions), §3.3 (marks).

use std::ops::Range;

use crate::credit::Credit;
use crate::reinstatement::Reinstatement;
use crate::tables::room::reserve;
use crate::tables::runs::Run;
use crate::{Mark, Result};

/// Names a region; never reused within a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId {
    pub(crate) index: u32,
    generation: u32,
}

/// What is on record of one region.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) slots: Run,
    /// The addresses at which the client may store and load, now or later. The region's other bytes are nobody's, and hold
    /// whatever was there before: a delivery need not keep them.
    pub(crate) used: Range<usize>,
    /// Whether a request may have referenced its granules, or put others in their places.
    #[cfg_attr(not(feature = "allocator"), allow(dead_code, reason = "only the allocator asks"))]
    pub(crate) passed: bool,
    pub(crate) mark: Mark,
    pub(crate) credit: Credit,
    pub(crate) reinstatement: Reinstatement,
    /// Write faults taken in it.
    pub(crate) faults: u32,
    /// Requests for which it is wired.
    pub(crate) wirings: u32,
    generation: u32,
}

/// All regions of a space.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    table: Vec<Option<Region>>,
    vacant: Vec<u32>,
    generation: u32,
}

impl Regions {
    /// Makes room for one more, which can then be added and removed without fail.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        if self.vacant.is_empty() {
            let len = self.table.len() + 1;
            reserve(&mut self.table, len)?;
            reserve(&mut self.vacant, len)?;
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, slots: Run, used: Range<usize>, mark: Mark) -> RegionId {
        self.generation = self.generation.wrapping_add(1);
        let region = Region {
            slots,
            used,
            passed: false,
            mark,
            credit: Credit::default(),
            reinstatement: Reinstatement::default(),
            faults: 0,
            wirings: 0,
            generation: self.generation,
        };
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.table.push(None);
            self.table.len() as u32 - 1
        });
        self.table[index as usize] = Some(region);
        RegionId { index, generation: self.generation }
    }

    /// The region, if it still exists.
    pub(crate) fn get(&self, id: RegionId) -> Option<&Region> {
        self.table.get(id.index as usize)?.as_ref().filter(|region| region.generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: RegionId) -> Option<&mut Region> {
        self.table.get_mut(id.index as usize)?.as_mut().filter(|region| region.generation == id.generation)
    }

    /// The region that slot tables call `index`.
    pub(crate) fn at(&mut self, index: u32) -> Option<&mut Region> {
        self.table.get_mut(index as usize)?.as_mut()
    }

    /// The name of the region that slot tables call `index`.
    pub(crate) fn id(&self, index: u32) -> Option<RegionId> {
        let region = self.table.get(index as usize)?.as_ref()?;
        Some(RegionId { index, generation: region.generation })
    }

    pub(crate) fn remove(&mut self, id: RegionId) -> Option<Region> {
        self.get(id)?;
        self.vacant.push(id.index);
        self.table[id.index as usize].take()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Region)> {
        (0..).zip(&self.table).filter_map(|(index, region)| Some((index, region.as_ref()?)))
    }
}
