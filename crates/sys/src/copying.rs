//! Copying and filling memory that others may store into meanwhile.
//!
//! Why: two threads may fill the same bytes at once, and a peer may store into bytes that are just copied out. `memcpy`
//! and whatever the compiler makes of a copy are ordinary loads and stores, and ordinary accesses that race are undefined
//! behaviour. Instructions that the compiler does not see into are not: each byte that is copied is then a byte that
//! somebody stored there. What the compiler does not see it can neither repeat nor leave out, either.
//! How: in assembly, at all lengths, on x86-64 (`assembly.rs`); elsewhere by atomic loads and stores (`atomic.rs`), and so under
//! Miri and the sanitizers (`cfg(sanitized)`), which do not see what assembly does.
//! Limits: other processors than x86-64 copy a word at a time where both places have the same alignment, else a byte at a
//! time.
#![allow(
    unsafe_code,
    reason = "copies between addresses that the caller vouches for, by instructions that Rust has no name for"
)]

#[cfg(all(target_arch = "x86_64", not(miri), not(sanitized)))]
mod assembly;
#[cfg(not(all(target_arch = "x86_64", not(miri), not(sanitized))))]
mod atomic;

#[cfg(all(target_arch = "x86_64", not(miri), not(sanitized)))]
pub(crate) use assembly::{copy, copy_in, fill, load_line};
#[cfg(not(all(target_arch = "x86_64", not(miri), not(sanitized))))]
pub(crate) use atomic::{copy, copy_in, fill, load_line};

/// The words that are loaded in one step. Sums that alternated word by word would stay in memory, each waiting for its
/// last store.
pub(crate) type Line = [u64; 8];

#[cfg(test)]
mod tests;
