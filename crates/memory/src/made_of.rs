//! What a space's own memory is made of.
//!
//! Why: granules of one size cost the more, the more small pages they consist of, and which pages a space gets is the
//! machine's choice, object by object.

use std::fmt;

use crate::space::Space;

/// Bytes of a space's own objects, by the pages that they were made of. A later loss of huge pages (the kernel divides
/// collapsed ones to swap them out) is not noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MadeOf {
    /// In huge pages of the machine's reserve.
    pub reserved: usize,
    /// In huge pages to which the kernel has collapsed small ones.
    pub collapsed: usize,
    /// In pages of 4 KiB, whatever the granule size.
    pub small: usize,
}

impl Space {
    /// What the space's own memory is made of now. Nothing, in a child made by fork.
    pub fn made_of(&self) -> MadeOf {
        let mut made_of = MadeOf::default();
        if self.is_inherited() {
            return made_of;
        }
        for space in self.each() {
            for object in space.core().lock().objects.own() {
                match object.kind() {
                    genie_sys::GranuleKind::Huge => made_of.reserved += object.len(),
                    _ => made_of.collapsed += object.huge_bytes(),
                }
                made_of.small += object.len() - object.huge_bytes();
            }
        }
        made_of
    }
}

impl fmt::Display for MadeOf {
    /// The kinds of which there are any: `32 MiB reserved, 8 MiB collapsed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds =
            [(self.reserved, "reserved"), (self.collapsed, "collapsed"), (self.small, "in 4 KiB pages")];
        let mut before = "";
        for (bytes, name) in kinds.into_iter().filter(|(bytes, _)| *bytes > 0) {
            write!(f, "{before}{} MiB {name}", bytes >> 20)?;
            before = ", ";
        }
        Ok(())
    }
}
