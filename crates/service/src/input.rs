//! Bulk arguments that a server fills.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_memory::DataMut;
use zerocopy::IntoBytes;

use crate::output::uneven;
use crate::{Output, PlainData};

/// What a method of a server gets for an argument `&mut [T]`: memory to be filled with values for the client.
///
/// Shape: room for `len()` values of plain data, in memory that becomes the client's, as the argument's scheme says. What is
/// [appended](Input::append) is passed, and the client's memory behind it stays as it was. If the method fails, nothing is
/// passed. Memory that the client shares is filled in place, so that it may hold anything then.
#[derive(Debug)]
pub struct Input<'r, T = u8> {
    data: DataMut<'r>,
    /// Bytes to be passed, which the reply reports. Only this value changes it, so that no order is needed.
    actual: &'r AtomicUsize,
    item: PhantomData<fn(T)>,
}

impl<'r, T: PlainData> Input<'r, T> {
    pub(crate) fn new(data: DataMut<'r>, actual: &'r AtomicUsize) -> Result<Self, String> {
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
        self.actual.load(Ordering::Relaxed) / size_of::<T>()
    }

    /// Says how many values will be passed, of those that were stored through [`Input::data`].
    ///
    /// # Panics
    /// When there is no room for as many.
    pub fn set_actual(&mut self, count: usize) {
        let len = self.len();
        assert!(count <= len, "{count} values are to be passed, and there is room for {len}");
        self.actual.store(count * size_of::<T>(), Ordering::Relaxed);
    }

    /// Appends `values` to what will be passed, as many as there is room for; returns how many.
    pub fn append(&mut self, values: &[T]) -> usize {
        let count = values.len().min(self.len() - self.actual());
        self.rest().copy_from(values[..count].as_bytes());
        self.set_actual(self.actual() + count);
        count
    }

    /// Appends values of another argument, as many as there is room for; returns how many.
    pub fn append_output(&mut self, values: &Output<'_, T>) -> usize {
        let count = values.len().min(self.len() - self.actual());
        self.rest().copy_data(values.data());
        self.set_actual(self.actual() + count);
        count
    }

    /// All of the memory, for what [`DataMut`] can do with it, such as to fill it from a file; [`Input::set_actual`] then says
    /// how many values are to be passed.
    pub fn data(&self) -> &DataMut<'r> {
        &self.data
    }

    /// What has not been appended to.
    fn rest(&self) -> DataMut<'_> {
        self.data.part(self.actual.load(Ordering::Relaxed)..self.data.len())
    }
}
