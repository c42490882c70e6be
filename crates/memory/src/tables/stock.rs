//! Stocks: the granules of each pool, and which of them are free.
//!
//! How: a space has a pool of its own and one for each of its lenders. Each granule belongs to one pool, wherever it is;
//! when it is freed, it goes back to that pool's free list. A *fixed* pool's granules are those of its lender's object, whatever
//! their entries say (`frames`).
//! Invariants: a free list holds granules of its own pool only. Granules of a lender that is gone belong to the space's
//! own pool, whatever their entries say: names of lenders are never reused.
//! Source: thesis §5.2 (lender mechanism).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::LenderId;
use crate::tables::runs::FreeRuns;

/// A function that was left here by the code that speaks with a lender.
pub(crate) struct Tell<F: ?Sized>(pub(crate) Arc<F>);

impl<F: ?Sized> fmt::Debug for Tell<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}

/// One pool's granules, and the functions that tell its lender's party of shortages and losses.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// Those that nothing holds.
    pub(crate) free: FreeRuns,
    /// How many belong to the pool.
    pub(crate) size: u32,
    /// Whether its granules are those of its lender's object, wherever they are: they are taken by their numbers, come back from
    /// anywhere, and no others do.
    pub(crate) is_fixed: bool,
    /// Called with the bytes asked for when the pool is exhausted.
    pub(crate) on_shortage: Option<Tell<dyn Fn(usize) + Send + Sync>>,
    /// Called when the lender has taken memory away.
    pub(crate) on_loss: Option<Tell<dyn Fn() + Send + Sync>>,
}

/// All pools' granules.
#[derive(Debug, Default)]
pub(crate) struct Stocks {
    pub(crate) own: Stock,
    lenders: BTreeMap<LenderId, Stock>,
    /// How many are fixed.
    fixed: usize,
}

impl Stocks {
    pub(crate) fn add(&mut self, lender: LenderId) {
        self.lenders.insert(lender, Stock::default());
    }

    pub(crate) fn remove(&mut self, lender: LenderId) -> Option<Stock> {
        let removed = self.lenders.remove(&lender);
        self.fixed -= usize::from(removed.as_ref().is_some_and(|stock| stock.is_fixed));
        removed
    }

    /// Makes the pool of a lender, which has no granules yet, a fixed one.
    pub(crate) fn fix(&mut self, lender: LenderId) {
        if let Some(stock) = self.lenders.get_mut(&lender) {
            self.fixed += usize::from(!std::mem::replace(&mut stock.is_fixed, true));
        }
    }

    /// Whether some pool is fixed.
    pub(crate) fn any_fixed(&self) -> bool {
        self.fixed > 0
    }

    /// The pool of a lender that is not gone.
    pub(crate) fn get(&self, lender: LenderId) -> Option<&Stock> {
        if lender == LenderId::OWN { Some(&self.own) } else { self.lenders.get(&lender) }
    }

    pub(crate) fn get_mut(&mut self, lender: LenderId) -> Option<&mut Stock> {
        if lender == LenderId::OWN { Some(&mut self.own) } else { self.lenders.get_mut(&lender) }
    }

    /// The pool of a lender that is not gone, and not the space itself.
    pub(crate) fn lender(&mut self, lender: LenderId) -> Option<&mut Stock> {
        self.lenders.get_mut(&lender)
    }

    /// The pool that granules of `lender` belong to.
    pub(crate) fn of(&mut self, lender: LenderId) -> &mut Stock {
        match self.lenders.get_mut(&lender) {
            Some(stock) => stock,
            None => &mut self.own,
        }
    }

    /// Whether the pool of a lender is fixed.
    pub(crate) fn is_fixed(&self, lender: LenderId) -> bool {
        self.get(lender).is_some_and(|stock| stock.is_fixed)
    }

    /// Whose pool the granules of `lender` belong to.
    pub(crate) fn owner(&self, lender: LenderId) -> LenderId {
        if self.lenders.contains_key(&lender) { lender } else { LenderId::OWN }
    }

    /// Whether buffers may be allocated from the lender's pool.
    pub(crate) fn is_live(&self, lender: LenderId) -> bool {
        self.get(lender).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LenderId, &Stock)> {
        std::iter::once((LenderId::OWN, &self.own)).chain(self.lenders.iter().map(|(id, stock)| (*id, stock)))
    }
}
