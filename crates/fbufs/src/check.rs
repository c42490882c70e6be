//! The check that a pool's bit string and heads belong together.

use std::sync::atomic::Ordering;

use crate::Pool;
use crate::bits::{self, PER_WORD};
use crate::error::{Error, Result};
use crate::holder::Head;
use crate::words::Words;

impl Pool {
    /// Checks that each page is free, or in one run that somebody has; returns how many bytes are free. Other members may
    /// allocate and free meanwhile; words that are locked when they are looked at are waited for.
    ///
    /// # Errors
    /// [`Error::Spoilt`]: a page is in two runs, in a run and free, or in neither. [`Error::WouldBlock`]: a word stays locked,
    /// since its member is stopped, or has died and no [`Pool::sweep`] came after.
    ///
    /// # Cost
    /// A look at each page in use.
    pub fn check(&self) -> Result<usize> {
        self.ensure_own()?;
        let words = &self.0.words;
        (0..words.in_use()).try_for_each(|word| words.check(word))?;
        Ok(self.free())
    }
}

impl Words {
    /// As [`Pool::check`], of one word.
    pub(crate) fn check(&self, word: usize) -> Result<()> {
        let locked = self.lock(word, 20).ok_or(Error::WouldBlock)?;
        let (mut held, mut overlap) = (0, 0);
        for first in 0..PER_WORD {
            let head = self.at(self.layout.head(word * PER_WORD + first)).load(Ordering::Acquire);
            if let Some(head) = Head::of(head, first) {
                let mask = bits::mask(first, head.count);
                overlap |= held & mask;
                held |= mask;
            }
        }
        let is_whole = overlap == 0 && self.bits(word) == !held;
        drop(locked);
        if is_whole { Ok(()) } else { Err(Error::Spoilt { what: "the bit string" }) }
    }
}
