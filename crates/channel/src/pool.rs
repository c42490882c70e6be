//! Pools: the memory that a server lends one client.
//!
//! How: a pool is memory objects of the client's granule size, of the best pages that this machine has then, made for this
//! client alone: the first ones with the welcome, others when the client asks for more. The server keeps no descriptor of
//! them and maps nothing: the client announces them like its own objects, when it first puts data there.
//! Where the client has granules of both sizes, so has its pool. An object whose length is a multiple of 2 MiB is for the
//! larger granules, any other for those of 4 KiB; and so a question for a number of bytes says which granules are lacking.
//! Limits: [`ServeOptions::pool`](super::ServeOptions::pool) bytes at first, [`hard_pool`](super::ServeOptions::hard_pool)
//! in all, [`pools`](super::ServeOptions::pools) for all clients together, with what is kept of their outputs, and a part of what this process's memory cgroup
//! leaves. What counts is what is lent now; lent memory is never taken back before its client leaves.
//! Source: thesis §5.2, §7.2.

use std::sync::Arc;

use genie_sys::{GranuleKind, Object, cgroup};

use crate::primitive::{AtomicUsize, Ordering};

/// The part of a mixed pool that granules of 4 KiB have at first.
const SMALL: usize = 8;

/// The part of what the process's memory cgroup leaves that a client is lent at first, and at once later: other clients are to
/// have some, too.
const FIRST_PART: usize = 8;
const MORE_PART: usize = 2;
/// The part of that cgroup's limit that pools leave alone, and the most that they do: clients that are yet to come have rings there.
const RINGS_PART: u64 = 4;
const RINGS_MOST: u64 = 128 << 20;

/// What one client is lent.
#[derive(Debug)]
pub(super) struct Pool {
    granules: GranuleKind,
    /// The client has granules of 4 KiB besides.
    is_mixed: bool,
    lent: usize,
    most: usize,
    /// What all clients are lent, and what is kept of their outputs; and the most that it may be.
    together: (Arc<AtomicUsize>, usize),
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.together.0.fetch_sub(self.lent, Ordering::Relaxed);
    }
}

impl Pool {
    /// Nothing yet, and at most `most` bytes, or what others leave of the most that all are lent `together`.
    pub(super) fn new(
        granules: GranuleKind,
        is_mixed: bool,
        most: usize,
        together: (Arc<AtomicUsize>, usize),
    ) -> Self {
        Self { granules, is_mixed, lent: 0, most, together }
    }

    /// How many bytes more may be lent. One thread lends to all clients, so nobody else takes them meanwhile.
    fn left(&self) -> usize {
        let (lent, most) = &self.together;
        self.most.saturating_sub(self.lent).min(most.saturating_sub(lent.load(Ordering::Relaxed)))
    }

    /// Makes the first objects, of at most `len` bytes together: of each kind one, as long as there is memory for.
    pub(super) fn lend_first(&mut self, len: usize) -> Vec<Object> {
        let len = len.min(room() / FIRST_PART);
        let granule = self.granules.size();
        let large = if self.is_mixed { (len - len / SMALL) / granule * granule } else { len };
        let lent = [
            (large > 0).then(|| self.lend(large)),
            (large < len).then(|| self.lend(small((len - large).saturating_sub(GranuleKind::Base.size())))),
        ];
        lent.into_iter().flatten().flatten().collect()
    }

    /// Makes an object of at most `len` bytes, as long as there is memory for; `None` where there is none.
    pub(super) fn lend(&mut self, len: usize) -> Option<Object> {
        let is_small = self.is_mixed && !len.is_multiple_of(self.granules.size());
        let kind = if is_small { GranuleKind::Base } else { self.granules };
        // The client would take the memory at once; what is lent is to be had from this process's cgroup.
        let allocated =
            |kind, len| Object::create(kind, len).and_then(|object| object.allocate().map(|()| object));
        let create = |len| kind.of_its_size().iter().find_map(|kind| allocated(*kind, len).ok());
        self.lend_by(kind.size(), len.min(room() / MORE_PART), create)
    }

    fn lend_by(
        &mut self,
        granule: usize,
        len: usize,
        create: impl Fn(usize) -> Option<Object>,
    ) -> Option<Object> {
        let is_small = granule < self.granules.size();
        let whole = |len: usize| match len / granule * granule {
            len if is_small && len.is_multiple_of(self.granules.size()) => len.saturating_sub(granule),
            len => len,
        };
        let wanted = len.checked_next_multiple_of(granule).unwrap_or(usize::MAX);
        let mut len = whole(wanted.min(self.left()));
        while len > 0 {
            if let Some(object) = create(len) {
                self.lent += len;
                self.together.0.fetch_add(len, Ordering::Relaxed);
                return Some(object);
            }
            // Memory may be scarce; to a smaller pool, clients add more of their own.
            len = whole(len / 2);
        }
        None
    }
}

/// How many bytes pools may take without the process being killed, and without new clients being refused.
fn room() -> usize {
    cgroup::tightest().map_or(usize::MAX, |cgroup| {
        let kept = RINGS_MOST.min(cgroup.limit / RINGS_PART);
        cgroup.left().saturating_sub(kept) as usize
    })
}

/// At least `len` bytes, as a number that stands for granules of 4 KiB where there are granules of both sizes.
pub(super) fn small(len: usize) -> usize {
    let (small, large) = (GranuleKind::Base.size(), GranuleKind::Huge.size());
    let whole = len.max(1).checked_next_multiple_of(small).unwrap_or(usize::MAX - large);
    if whole.is_multiple_of(large) { whole + small } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = GranuleKind::Base.size();

    fn alone(granules: GranuleKind, is_mixed: bool, most: usize) -> Pool {
        Pool::new(granules, is_mixed, most, (Arc::default(), usize::MAX))
    }

    fn len(object: Option<Object>) -> Option<usize> {
        object.map(|object| object.len() / PAGE)
    }

    #[test]
    fn no_more_is_lent_than_is_allowed() {
        let mut pool = alone(GranuleKind::Base, false, 10 * PAGE + 100);
        assert_eq!(len(pool.lend(3 * PAGE + 1)), Some(4), "whole granules");
        assert_eq!(len(pool.lend(0)), None);
        assert_eq!(len(pool.lend(usize::MAX)), Some(6), "what is left");
        assert_eq!(len(pool.lend(1)), None);
        assert_eq!(len(alone(GranuleKind::Base, false, 0).lend(1)), None);
    }

    #[test]
    fn a_pool_for_a_client_with_granules_of_both_sizes_has_both() {
        const HUGE: usize = GranuleKind::Huge.size();
        let mut pool = alone(GranuleKind::Huge, true, 32 * HUGE);
        let mut lend =
            |granule, len| pool.lend_by(granule, len, |len| Object::create(GranuleKind::Base, len).ok());
        assert_eq!(len(lend(HUGE, 3 * HUGE)), Some(3 * 512));
        let odd = small(2 * HUGE);
        assert_eq!(len(lend(PAGE, odd)), Some(2 * 512 + 1), "no multiple of the larger size");
        let left = 27 * 512 - 1;
        assert_eq!(len(lend(PAGE, 100 * HUGE)), Some(left), "all that is left");
        assert_eq!([small(0), small(1), small(PAGE + 1), small(HUGE)], [PAGE, PAGE, 2 * PAGE, HUGE + PAGE]);
        let first = alone(GranuleKind::Base, false, 8 * PAGE).lend_first(4 * PAGE);
        assert_eq!(first.iter().map(Object::len).collect::<Vec<_>>(), [4 * PAGE], "of one size");
    }

    #[test]
    fn where_memory_is_short_half_as_much_is_tried() {
        let mut pool = alone(GranuleKind::Base, false, 100 * PAGE);
        let short = |most: usize| {
            move |len: usize| (len <= most * PAGE).then(|| Object::create(GranuleKind::Base, len).unwrap())
        };
        assert_eq!(len(pool.lend_by(PAGE, 20 * PAGE, short(6))), Some(5));
        assert_eq!(len(pool.lend_by(PAGE, 20 * PAGE, short(0))), None);
        assert_eq!(
            len(pool.lend_by(PAGE, 100 * PAGE, short(95))),
            Some(95),
            "and counts against what is allowed"
        );
        assert_eq!(len(pool.lend(PAGE)), None);
    }

    #[test]
    fn all_clients_together_are_lent_no_more_than_is_allowed_and_what_one_gives_back_is_lent_again() {
        let lent = Arc::new(AtomicUsize::new(0));
        let pool = || Pool::new(GranuleKind::Base, false, 10 * PAGE, (Arc::clone(&lent), 12 * PAGE));
        let (mut first, mut second) = (pool(), pool());
        assert_eq!(len(first.lend(8 * PAGE)), Some(8));
        assert_eq!(len(second.lend(8 * PAGE)), Some(4), "what the first one leaves");
        assert_eq!(len(second.lend(PAGE)), None);
        drop(first);
        assert_eq!(len(second.lend(8 * PAGE)), Some(6), "what one client may be lent");
        drop(second);
        assert_eq!(lent.load(Ordering::Relaxed), 0);
    }
}
