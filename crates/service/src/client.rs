//! A client's connection: which of its methods the server has, and under which numbers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_io::{Interface, ServerHandle, ServiceId};
use serde::de::DeserializeOwned;

use crate::call::{Arguments, Call};
use crate::codec::{Decode, Serde};
use crate::error::{Error, Mismatch, Never};
use crate::signature::{DESCRIBE, LONGEST, Method};

/// No server has a service of this number, since a server has at most 256.
const NO_SERVICE: ServiceId = ServiceId(u32::MAX);

/// What a generated client holds.
#[derive(Debug, Clone)]
pub struct Connected {
    interface: Interface,
    server: ServerHandle,
    methods: &'static [Method],
    services: Arc<[Result<ServiceId, Mismatch>]>,
}

impl Connected {
    /// Looks up the methods, once for all calls.
    pub fn new(
        interface: &Interface,
        server: ServerHandle,
        methods: &'static [Method],
    ) -> Result<Self, Error> {
        let asked_until = Instant::now() + TELLING;
        let find = |method| find(interface, &server, method, asked_until);
        let services: Arc<[_]> = methods.iter().map(find).collect();
        match services.first() {
            Some(Err(first)) if services.iter().all(Result::is_err) => Err(Error::Mismatch(first.clone())),
            _ => Ok(Self { interface: interface.clone(), server, methods, services }),
        }
    }

    /// Begins a call of the method `number`.
    #[inline(always)]
    pub fn call<'c, 'o, 'i, R, E, C>(
        &'c self,
        number: usize,
        arguments: Arguments,
    ) -> Call<'c, 'o, 'i, R, E, C>
    where
        C: for<'r> Decode<'r, R>,
        E: DeserializeOwned,
    {
        let (service, mismatch) = match &self.services[number] {
            Ok(service) if !arguments.is_refused() => (*service, None),
            found => (NO_SERVICE, found.as_ref().err()),
        };
        let request = self.interface.request(&self.server, service);
        Call::new(request, arguments, self.methods[number].name, mismatch)
    }

    /// The server.
    pub fn server(&self) -> &ServerHandle {
        &self.server
    }
}

/// The number of a method's service, if the server has the method with the same types.
fn find(
    interface: &Interface,
    server: &ServerHandle,
    method: &Method,
    asked_until: Instant,
) -> Result<ServiceId, Mismatch> {
    if let Ok(service) = server.service(&method.service) {
        return Ok(service);
    }
    let names = || server.services().iter().map(|service| service.name.split('#').next().unwrap_or_default());
    let name = || server.name().to_owned();
    if server.service(method.name).is_ok() {
        return Err(Mismatch::Untyped { server: name(), method: method.name });
    }
    match names().position(|name| name == method.name) {
        Some(number) => Err(Mismatch::Signature {
            server: name(),
            method: method.name,
            servers: described(interface, server, number, asked_until),
            clients: method.signature.clone(),
        }),
        None => {
            let services = names().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
            Err(Mismatch::Absent { server: name(), method: method.name, services })
        }
    }
}

/// How long a server may take to tell all signatures that differ.
const TELLING: Duration = Duration::from_secs(5);

/// What the server says of its service `number` until `asked_until`, as far as it is readable: it may say anything, or nothing.
fn described(interface: &Interface, server: &ServerHandle, number: usize, asked_until: Instant) -> String {
    let named = server.services()[number].name.clone().into_owned();
    let left = asked_until.saturating_duration_since(Instant::now());
    let Some(describe) = server.service(DESCRIBE).ok().filter(|_| !left.is_zero()) else { return named };
    let arguments = Arguments::default().and::<Serde, u32>(&(number as u32));
    let request = interface.request(server, describe).timeout(left);
    let shown = |c: char| if c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    match Call::<String, Never>::new(request, arguments, DESCRIBE, None).send() {
        Ok(reply) => reply.value.chars().take(LONGEST).map(shown).collect(),
        Err(_) => named,
    }
}
