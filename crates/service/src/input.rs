//! Bulk arguments that a server fills.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_memory::DataMut;
use zerocopy::IntoBytes;

use crate::output::uneven;
use crate::{Output, PlainData};

/// How many bytes of an input are to be passed, which the reply reports. Only one [`Input`] changes it, so that no order is needed.
#[derive(Debug)]
pub(crate) struct Actual(AtomicUsize);

/// Beside the number of bytes, which is never so large: the method has asked for the memory, and has yet to say how many values
/// are to be passed.
const OWED: usize = 1 << (usize::BITS - 1);

impl Actual {
    pub(crate) const fn none() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The number of bytes; none where the method has not said it, as it had to.
    pub(crate) fn told(&self) -> Option<usize> {
        let told = self.0.load(Ordering::Relaxed);
        (told & OWED == 0).then_some(told)
    }

    /// The number of bytes as far as it was told.
    fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed) & !OWED
    }

    fn owe(&self) {
        self.0.fetch_or(OWED, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn tell(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// What a method of a server gets for an argument `&mut [T]`: memory to be filled with values for the client.
///
/// Shape: room for `len()` values of plain data, in memory that becomes the client's, as the argument's scheme says. What is
/// [appended](Input::append) is passed, and the client's memory behind it stays as it was. If the method fails, nothing is
/// passed. Memory that the client shares is filled in place, so that it may hold anything then.
#[derive(Debug)]
pub struct Input<'r, T = u8> {
    data: DataMut<'r>,
    actual: &'r Actual,
    item: PhantomData<fn(T)>,
}

impl<'r, T: PlainData> Input<'r, T> {
    pub(crate) fn new(data: DataMut<'r>, actual: &'r Actual) -> Result<Self, String> {
        uneven::<T>(data.len()).map_or(Ok(Self { data, actual, item: PhantomData }), Err)
    }

    /// For how many values there is room, passed ones included.
    pub fn len(&self) -> usize {
        self.data.len() / size_of::<T>()
    }

    /// Whether there is no room at all.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// How many values will be passed: all up to the one that was appended last.
    pub fn actual(&self) -> usize {
        self.actual.bytes() / size_of::<T>()
    }

    /// Says how many values will be passed, of those that were stored through [`Input::data`].
    ///
    /// # Panics
    /// When there is no room for as many.
    pub fn set_actual(&mut self, count: usize) {
        let len = self.len();
        assert!(count <= len, "{count} values are to be passed, and there is room for {len}");
        self.actual.tell(count * size_of::<T>());
    }

    /// Appends `values` to what will be passed, as many as there is room for; returns how many.
    pub fn append(&mut self, values: &[T]) -> usize {
        let count = values.len().min(self.len() - self.actual());
        self.rest().copy_from(values[..count].as_bytes());
        self.actual.add(count * size_of::<T>());
        count
    }

    /// Appends values of another argument, as many as there is room for; returns how many.
    pub fn append_output(&mut self, values: &Output<'_, T>) -> usize {
        let count = values.len().min(self.len() - self.actual());
        self.rest().copy_data(values.data());
        self.actual.add(count * size_of::<T>());
        count
    }

    /// All of the memory, for what [`DataMut`] can do with it, such as to fill it from a file; [`Input::set_actual`] then says
    /// how many values are to be passed, those that were appended before included. A method that returns without that has made a
    /// mistake, even if it appends, and the call fails by [`genie_io::Error::Untold`].
    pub fn data(&self) -> &DataMut<'r> {
        self.actual.owe();
        &self.data
    }

    /// What has not been appended to.
    fn rest(&self) -> DataMut<'_> {
        self.data.part(self.actual.bytes()..self.data.len())
    }
}
