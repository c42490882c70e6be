//! Shared objects: what peers, and code that registers memory, are told of a space's memory objects.

use genie_sys::Inode;

use crate::LenderId;

/// Names a memory object of a space; never reused within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub(crate) u64);

impl ObjectId {
    /// The name as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What is said of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedObject {
    /// Its name.
    pub id: ObjectId,
    /// Where its aliases start, in bytes from [`Space::aliases_base`](crate::Space::aliases_base) on.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
    /// The lender; `None` for the space's own objects.
    pub lender: Option<LenderId>,
    /// Which object it is for the kernel, as in [`Backing::object`](crate::Backing::object).
    pub inode: Inode,
}
