//! Bulk arguments that a server reads.
//!
//! Trust: a client may change what it shares while the server reads, so values are copied out, never borrowed.

use std::marker::PhantomData;
use std::ops::Range;

use genie_memory::Data;
use zerocopy::IntoBytes;

use crate::PlainData;

/// Bytes that are copied out at a time.
const CHUNK: usize = 16 << 10;

/// What a method of a server gets for an argument `&[T]`: the client's values, to be read.
///
/// Shape: values of plain data, one behind the other, in the client's own memory or a copy of it, as the argument's scheme
/// says. They may lie in several pieces and at any address: values are copied to where they are used, so that their alignment
/// does not matter, and a client that changes them meanwhile harms nobody.
#[derive(Debug, Clone)]
pub struct Output<'r, T = u8> {
    data: Data<'r>,
    item: PhantomData<fn() -> T>,
}

/// What is wrong with bytes that should be values of a type, if anything: the number of bytes is no multiple of the size.
pub(crate) fn uneven<T>(len: usize) -> Option<String> {
    const { assert!(size_of::<T>() > 0, "a slice of values without bytes has nothing to pass") };
    let each = size_of::<T>();
    (!len.is_multiple_of(each))
        .then(|| format!("its {len} bytes are no whole number of values of {each} bytes"))
}

impl<'r, T: PlainData> Output<'r, T> {
    pub(crate) fn new(data: Data<'r>) -> Result<Self, String> {
        uneven::<T>(data.len()).map_or(Ok(Self { data, item: PhantomData }), Err)
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.data.len() / size_of::<T>()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The bytes, for what [`Data`] can do with them: write them to a file, add them up.
    pub fn data(&self) -> &Data<'r> {
        &self.data
    }

    /// The values in `range`.
    ///
    /// # Panics
    /// When `range` goes beyond the values.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let len = self.len();
        assert!(range.start <= range.end && range.end <= len, "values {range:?} are asked for of {len}");
        let bytes = range.start * size_of::<T>()..range.end * size_of::<T>();
        Self { data: self.data.part(bytes), item: PhantomData }
    }

    /// The value at `index`, or none behind the last one.
    pub fn get(&self, index: usize) -> Option<T> {
        let mut value = T::new_zeroed();
        let is_there = index < self.len();
        is_there.then(|| {
            self.part(index..index + 1).data.copy_to(value.as_mut_bytes());
            value
        })
    }

    /// Copies values to `values`, from the beginning on and as many as both have; returns how many.
    pub fn copy_to(&self, values: &mut [T]) -> usize {
        let count = self.len().min(values.len());
        self.data.copy_to(values[..count].as_mut_bytes());
        count
    }

    /// All values, in a vector.
    pub fn to_vec(&self) -> Vec<T> {
        let mut values = zeroed(self.len());
        self.copy_to(&mut values);
        values
    }

    /// Shows all values to `see`, in order, up to 16 KiB of them at a time.
    ///
    /// # Cost
    /// Each value is copied once, into memory that stays in the CPU's cache: less than to load it from where it is.
    pub fn for_each_chunk(&self, mut see: impl FnMut(&[T])) {
        let len = self.len();
        let most = (CHUNK / size_of::<T>()).clamp(1, len.max(1));
        let mut chunk = zeroed(most);
        for start in (0..len).step_by(most) {
            let count = self.part(start..len.min(start + most)).copy_to(&mut chunk);
            see(&chunk[..count]);
        }
    }
}

fn zeroed<T: PlainData>(len: usize) -> Vec<T> {
    T::new_vec_zeroed(len).expect("there is memory for as many values as a client has")
}
