//! What the code that `service` generates uses. It is no interface of its own, and changes with the attribute.

use std::convert::Infallible;

use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use crate::call::Arguments;
pub use crate::client::Connected;
pub use crate::codec::{Plain, Serde};
pub use crate::server::{Taken, answer, describe};
pub use crate::signature::{Method, Parameter, services};
pub use genie_io::{In, Incoming, Interface, Out, RequestId, Server, ServerError, ServerHandle, Service};
pub use genie_memory::Direction;
pub use genie_passing::Scheme;
use genie_sys::PerProcess;

/// Methods that are described once in a process.
pub type Methods = PerProcess<Vec<Method>>;

/// The methods, which `describe` describes the first time.
#[inline]
pub fn described(methods: &'static Methods, describe: impl FnOnce() -> Vec<Method>) -> &'static [Method] {
    let Ok(methods) = methods.get(|_| Ok::<_, Infallible>(describe()));
    methods
}

/// The bytes of plain data.
#[inline(always)]
pub fn bytes<T: IntoBytes + Immutable>(values: &[T]) -> &[u8] {
    values.as_bytes()
}

/// The bytes of plain data, to be filled.
#[inline(always)]
pub fn bytes_mut<T: FromBytes + IntoBytes>(values: &mut [T]) -> &mut [u8] {
    values.as_mut_bytes()
}

/// The shapes of types.
pub mod shape {
    pub use crate::shape::{Shape, Types, input, output, plain, serde};
}
