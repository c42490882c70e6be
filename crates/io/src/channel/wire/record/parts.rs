//! Parts: what a record has several of, read once to be checked, and then as they are wanted.

use std::marker::PhantomData;

use crate::channel::wire::Malformed;
use crate::channel::wire::cursor::Cursor;

/// A part of a record.
pub(in crate::channel::wire) trait Part<'a>: Sized {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Malformed>;
}

/// Parts of a record that was checked, in order.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a, T> {
    cursor: Cursor<'a>,
    left: u16,
    part: PhantomData<T>,
}

impl<'a, T> Parts<'a, T> {
    /// So many parts from here on, which the caller checks by reading them.
    #[inline(always)]
    pub(super) fn new(cursor: Cursor<'a>, left: u16) -> Self {
        Self { cursor, left, part: PhantomData }
    }
}

impl<'a, T: Part<'a>> Iterator for Parts<'a, T> {
    type Item = T;

    #[inline(always)]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        // It was read before, when the record was decoded, so this cannot fail.
        T::read(&mut self.cursor).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl<'a, T: Part<'a>> ExactSizeIterator for Parts<'a, T> {}
