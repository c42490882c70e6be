//! Signatures: what client and server compare before a method is called.
//!
//! Why: postcard's bytes do not say what they are, so that a client and a server that were built from different versions of a
//! trait would misread each other.
//! How: a method's service is named by the method's name and a digest of its signature, which fits into a service's name
//! however long the signature is. The signature itself is told by a service of its own, when digests differ.

use genie_io::Service;

use crate::shape::{Shape, Types};

/// The service that tells a server's signatures: the last one of each typed server.
pub(crate) const DESCRIBE: &str = "#signature";

/// The most characters of a signature that a server tells.
pub(crate) const LONGEST: usize = 4096;

/// A method, as its client or its server was built.
#[derive(Debug)]
pub struct Method {
    pub(crate) name: &'static str,
    /// Its parameters and result, with the shape of their types.
    pub(crate) signature: String,
    /// The name of its service.
    pub(crate) service: String,
    reads: bool,
    writes: bool,
}

/// A parameter.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub shape: Shape,
}

impl Method {
    /// A method whose service reads outputs, and writes inputs, or does not.
    pub fn new<const N: usize>(
        name: &'static str,
        parameters: [Parameter; N],
        (value, error): (Shape, Option<Shape>),
        (reads, writes): (bool, bool),
    ) -> Self {
        let mut types = Types::default();
        let mut text = |(written, shape): Shape| shape(&mut types, written);
        let parameters = parameters.map(|parameter| format!("{}: {}", parameter.name, text(parameter.shape)));
        let returned = match (text(value), error.map(text)) {
            (value, Some(error)) => format!("Result<{value}, {error}>"),
            (value, None) => value,
        };
        let mut signature = format!("{name}({}) -> {returned}", parameters.join(", "));
        let definitions = types.definitions();
        if !definitions.is_empty() {
            signature += " where ";
            signature += &definitions.join(", ");
        }
        let service = format!("{name}#{:016x}", digest(&signature));
        Self { name, signature, service, reads, writes }
    }

    fn service(&self) -> Service {
        Service { name: self.service.clone().into(), reads: self.reads, writes: self.writes }
    }
}

/// What a server with these methods announces.
pub fn services(methods: &[Method]) -> Vec<Service> {
    let describe = Service::new(DESCRIBE, false, false);
    methods.iter().map(Method::service).chain([describe]).collect()
}

/// FNV-1a of 64 bits. It tells versions apart, and protects against nobody: a peer can claim any signature.
fn digest(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}
