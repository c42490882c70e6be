//! What every test of this floor needs: interfaces of each configuration, a server that does as it is told, patterns,
//! page frames, and the SKIP line.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod bytes;
pub(crate) mod holder;
pub(crate) mod machine;
pub(crate) mod setup;
pub(crate) mod transport;
