//! Memory objects, regions and the copy-avoidance mechanisms of chapters 3 and 4 of the thesis.
//!
//! Why: passing data without copying means passing *pages*, and pages have owners, readers and earlier contents. This
//! crate keeps the tables (which granule is where, who references it) and has the five mechanisms: transient output
//! copy-on-write, page swapping, input alignment, region caching and region hiding.
//! How: a [`Space`] owns memory objects. Its *windows* are the addresses that clients use; its *aliases* show every
//! granule of every object at a fixed address, where servers work. A buffer changes hands by changing which granule a
//! window shows; aliases never change.
//!
//! ```text
//!   windows   | buffer A: g3 g4 | buffer B: g9 | ...      what the client sees; granules come and go, may be read-only
//!   aliases   | g0 g1 g2 g3 g4 g5 g6 g7 g8 g9 ... |        what servers see; granule n always at base + n * size
//! ```
//!
//! Invariants ([`Space::check`]): each granule is in exactly one of a region, a system buffer, its pool's free list, or
//! deferral until its last reference goes. A granule with a pending output is never stored into through its window.
//! Source: thesis chapters 3 and 4.

mod aliases;
#[cfg(feature = "allocator")]
mod allocator;
mod backing;
mod borrow;
mod check;
mod credit;
mod data;
mod delivery;
mod direction;
mod error;
mod faults;
mod fork;
mod frames;
mod immigrating;
mod lenders;
mod locked;
mod losses;
mod made_of;
mod mark;
mod migrant;
mod mirror;
mod mixed;
mod objects;
mod pool;
mod recycling;
mod reference;
mod region;
mod registrars;
mod reinstatement;
mod replacement;
mod segments;
mod shared_object;
mod shortage;
mod space;
mod stand_ins;
mod swap;
mod system;
mod tables;
mod tcow;
mod views;
mod wire;

#[cfg(feature = "allocator")]
pub use allocator::Allocator;
pub use backing::Backing;
pub use borrow::Kept;
pub use check::{CheckFailed, Usage};
pub use data::{Data, DataMut};
pub use delivery::{Delivery, Part, Passed, Swapped};
pub use direction::Direction;
pub use error::{Error, Result};
pub use fork::Inheritance;
pub use frames::Frames;
pub use genie_sys::{GranuleKind, Inode, Object, Span};
pub use immigrating::Immigrating;
pub use lenders::PoolSize;
pub use made_of::MadeOf;
pub use mark::Mark;
pub use migrant::{Emigrating, Migrant};
pub use mirror::{Extent, Extents, Known, Mapped, Mapping, Mirror, Quota, WeakMirror};
pub use recycling::Recycling;
pub use reference::{Reference, Released};
pub use region::Buffer;
pub use registrars::{Registrar, Registration, TellLater, is_quiet};
pub use segments::{Segments, part};
pub use shared_object::{ObjectId, SharedObject};
pub use space::Space;
pub use space::config::{Config, Faults, Granularity, Protection, Statistics};
pub use system::SystemBuffer;
pub use tables::granule::GranuleId;
pub use tables::lender::LenderId;
pub use tables::regions::RegionId;
pub use tcow::Stakes;
pub use views::SystemBytes;
pub use wire::Wired;
