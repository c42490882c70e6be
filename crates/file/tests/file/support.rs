//! Shared with the tests of `io`: patterns, the SKIP line, and interfaces of each configuration.
#![allow(dead_code, reason = "these tests use a part of it")]

#[path = "../../../io/tests/support/bytes.rs"]
pub(crate) mod bytes;
#[path = "../../../io/tests/support/machine.rs"]
pub(crate) mod machine;
#[path = "../../../io/tests/support/setup.rs"]
pub(crate) mod setup;
