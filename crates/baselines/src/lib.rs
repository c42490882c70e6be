//! Baselines: other means by which a client's data reaches another process and comes back, measured beside the schemes.
//!
//! Why: the gain of a scheme shows only beside the means that people use today, and beside limits that no scheme can beat,
//! measured on the same machine and in the same minutes.
//! How: each baseline is a pair of ends, the client's here and the service's in the peer process. Data passed out reaches
//! memory that the peer may read; the peer reads it if data is to be touched, and acknowledges it. Data passed in is written
//! by the peer if data is to be touched, and ends up where the client may read it. Baselines that copy do copy all of it.
//! Beside them are [`BareRings`], which Genie's drivers of network interfaces are measured beside.
//! Limits: the polled ones need a second CPU, and are left out where there is none.

mod ends;
mod exchange;
#[cfg(feature = "peers")]
mod iceoryx;
mod limits;
mod line;
mod means;
mod measuring;
mod memory;
mod peer;
mod process_vm;
mod rings;
mod shared;
mod stream;
#[cfg(feature = "peers")]
mod zeromq;

pub use exchange::{LONGEST_OF_MANY, MESSAGE};
pub use means::{Kind, Means, Waiting};
pub use measuring::{Baselines, Exchanged, Passing, mean_of_empty};
pub use peer::{ROLE, run};
pub use rings::BareRings;
