//! What every test of this floor needs: interfaces of each configuration, servers that do as they are told, here and in
//! other processes, patterns, page frames, and the SKIP line.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod bytes;
pub(crate) mod channel;
pub(crate) mod heap;
pub(crate) mod holder;
pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod peer;
pub(crate) mod relay;
pub(crate) mod setup;
pub(crate) mod transport;
