//! Tables: how they get room, or an error instead of it.
//!
//! Why: a program whose addresses are limited (`ulimit -v`) may have no room for a table that must grow, and Rust ends the
//! process where a vector cannot.
//! How: the tables of a space that grow with its memory are given room before anything is changed.
//! Limits: the nodes of maps, of some hundred bytes, and short lists are made without asking.

use genie_sys::Errno;

use crate::Result;

/// Makes room for entries of a table up to number `len`, exclusively.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) with ENOMEM; the table is as it was.
pub(crate) fn reserve<T>(table: &mut Vec<T>, len: usize) -> Result<()> {
    table.try_reserve(len.saturating_sub(table.len())).map_err(|_| refused(len * size_of::<T>()))
}

#[cold]
fn refused(bytes: usize) -> crate::Error {
    genie_sys::Error::new("malloc", format!("a table of {bytes} bytes"), Errno::NOMEM)
        .with_remedy("free memory, or raise the limit on addresses: `ulimit -v`")
        .into()
}
