//! Linux calls as safe types: memory objects, mappings, userfaultfd, futex, process memory and /proc.
//!
//! Why: everything above this floor reasons about granules and references; only here is it known that a granule is a
//! page of a memfd and that write protection is an ioctl.
//! Trust: nothing that a peer sends reaches this floor unchecked.
//! Limits: Linux 5.19 or later (write protection by userfaultfd on shared and huge-paged memory).

mod error;

pub mod arena;
pub mod futex;
pub mod inspect;
pub mod machine;
pub mod object;
pub mod probe;
pub mod process;
pub mod span;
pub mod userfault;

pub use arena::{Access, Arena};
pub use error::{Error, Result};
pub use object::{GranuleKind, Object};
pub use rustix::io::Errno;
pub use span::Span;
