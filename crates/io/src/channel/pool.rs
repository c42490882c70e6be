//! Pools: the memory that a server lends one client.
//!
//! How: a pool is memory objects of the client's kind of granules, made for this client alone: the first one with the
//! welcome, others when the client asks for more. The server keeps no descriptor of them and maps nothing: the client
//! announces them like its own objects, when it first puts data there.
//! Limits: [`ServeOptions::pool`](super::ServeOptions::pool) bytes at first, [`hard_pool`](super::ServeOptions::hard_pool)
//! in all. Lent memory is never taken back.
//! Source: thesis §5.2, §7.2.

use genie_sys::{GranuleKind, Object, Result};

/// What one client is lent.
#[derive(Debug)]
pub(super) struct Pool {
    granules: GranuleKind,
    lent: usize,
    most: usize,
}

impl Pool {
    /// Nothing yet, and at most `most` bytes.
    pub(super) fn new(granules: GranuleKind, most: usize) -> Self {
        Self { granules, lent: 0, most }
    }

    /// Makes an object of at most `len` bytes, as long as there is memory for; `None` where there is none.
    pub(super) fn lend(&mut self, len: usize) -> Option<Object> {
        let granules = self.granules;
        self.lend_by(len, |len| Object::create(granules, len))
    }

    fn lend_by(&mut self, len: usize, create: impl Fn(usize) -> Result<Object>) -> Option<Object> {
        let granule = self.granules.size();
        let wanted = len.checked_next_multiple_of(granule).unwrap_or(usize::MAX);
        let mut len = wanted.min(self.most.saturating_sub(self.lent)) / granule * granule;
        while len > 0 {
            if let Ok(object) = create(len) {
                self.lent += len;
                return Some(object);
            }
            // Huge pages may be scarce; with a smaller pool, clients use more of their own memory.
            len = len / 2 / granule * granule;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use genie_sys::{Errno, Error};

    use super::*;

    const PAGE: usize = GranuleKind::Base.size();

    fn len(object: Option<Object>) -> Option<usize> {
        object.map(|object| object.len() / PAGE)
    }

    #[test]
    fn no_more_is_lent_than_is_allowed() {
        let mut pool = Pool::new(GranuleKind::Base, 10 * PAGE + 100);
        assert_eq!(len(pool.lend(3 * PAGE + 1)), Some(4), "whole granules");
        assert_eq!(len(pool.lend(0)), None);
        assert_eq!(len(pool.lend(usize::MAX)), Some(6), "what is left");
        assert_eq!(len(pool.lend(1)), None);
        assert_eq!(len(Pool::new(GranuleKind::Base, 0).lend(1)), None);
    }

    #[test]
    fn where_memory_is_short_half_as_much_is_tried() {
        let mut pool = Pool::new(GranuleKind::Base, 100 * PAGE);
        let short = |most: usize| {
            move |len: usize| match len > most * PAGE {
                true => Err(Error::new("mmap", "huge pages", Errno::NOMEM)),
                false => Object::create(GranuleKind::Base, len),
            }
        };
        assert_eq!(len(pool.lend_by(20 * PAGE, short(6))), Some(5));
        assert_eq!(len(pool.lend_by(20 * PAGE, short(0))), None);
        assert_eq!(len(pool.lend_by(100 * PAGE, short(95))), Some(95), "and counts against what is allowed");
        assert_eq!(len(pool.lend(PAGE)), None);
    }
}
