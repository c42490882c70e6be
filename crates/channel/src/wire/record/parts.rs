//! Parts of which a record has several: they are read once to be checked, and again when they are needed.

use std::marker::PhantomData;

use crate::wire::Malformed;
use crate::wire::cursor::Cursor;

/// A part of a record.
pub(in crate::wire) trait Part<'a>: Sized {
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
    /// `left` parts from `cursor` on. The caller checks them by reading them.
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
        // The part was read before, when the record was decoded, so this can't fail.
        T::read(&mut self.cursor).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl<'a, T: Part<'a>> ExactSizeIterator for Parts<'a, T> {}
