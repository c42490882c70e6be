//! What every test of this floor needs besides the conformance suite's holder and configurations: servers in other processes, and
//! servers that forward.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

pub(crate) mod channel;
pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod peer;
pub(crate) mod relay;
pub(crate) mod transport;

pub(crate) use genie_conformance::{bytes, holder};
