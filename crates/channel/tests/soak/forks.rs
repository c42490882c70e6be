//! Forks: a client forks while its threads are at work, and the child uses what it has inherited.
//!
//! Why: a fork copies handles, but not the things that they stand for. Whatever a child does with its copies must end in
//! errors, never in a signal, and its parent must not notice.
#![allow(unsafe_code, reason = "forks; a child uses and drops copies of what its parent has, and exits")]

use std::mem::ManuallyDrop;

use genie_io::{Error, Failed, In, Interface, Out, Pending, Reply, Request};
use genie_memory::Buffer;
use genie_passing::Scheme;

use crate::child::{ExitOutcome, fork_child};
use crate::flight::Flight;
use crate::order::{GIVE, TAKE};
use crate::random::Random;
use crate::support::bytes::{pattern, same};

/// What a child does.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Send,
    Submit,
    Allocate,
    Sync,
    Abort,
    Touch,
    Drop,
}

const DEEDS: [Deed; 7] =
    [Deed::Send, Deed::Submit, Deed::Allocate, Deed::Sync, Deed::Abort, Deed::Touch, Deed::Drop];

/// Forks with a request pending, and a buffer; then the parent goes on.
pub(crate) fn fork(flight: &Flight<'_>, random: &mut Random) -> Option<()> {
    let client = flight.client;
    let (mut input, mut buffer) = (client.buffer(5000)?, client.buffer(5000)?);
    let bytes = pattern(random.next(), buffer.len());
    buffer.copy_from_slice(&bytes);
    let request = flight.request(GIVE).input(In::emulated_copy(&mut input)).argument(flight.argument());
    let pending = match request.submit() {
        Ok(pending) => pending,
        Err(failed) => {
            let _ = flight.land("get over a fork", Scheme::EmulatedCopy, Err(failed));
            return Some(());
        }
    };
    let interface = client.interface.clone();
    let mut copies = ManuallyDrop::new(Copies { pending: Some(pending), buffer, interface });
    let deed = random.choose(&DEEDS);
    // SAFETY: the child uses copies that its parent does not see, and exits without a look at what it has dropped. It takes
    // none of the locks that other threads held at the fork: what acts on the parent's behalf is inert before it does, and the
    // C library's allocator is made ready for children.
    let child = unsafe { fork_child(|| copies.act(deed, flight).into()) }.expect("a child");
    client.count(&format!("forks: {deed:?}").to_lowercase());
    assert_eq!(child.wait().expect("the child's end"), ExitOutcome::Code(1), "a child, {deed:?}");
    let Copies { pending, buffer, .. } = ManuallyDrop::into_inner(copies);
    same(&buffer, &bytes, "what was there before a fork");
    let _ = flight.land("get over a fork", Scheme::EmulatedCopy, pending.expect("the parent's").sync());
    Some(())
}

/// What a child has copies of.
struct Copies<'i> {
    pending: Option<Pending<'i>>,
    buffer: Buffer,
    interface: Interface,
}

impl<'i> Copies<'i> {
    /// Does it in the child; returns whether that went as it should.
    fn act(&mut self, deed: Deed, flight: &Flight<'_>) -> bool {
        let is_inherited =
            |came: Result<Reply, Failed>| came.is_err_and(|failed| failed.error == Error::Inherited);
        let mut pending = || self.pending.take().expect("it is not taken");
        match deed {
            Deed::Send => is_inherited(self.request(flight).send()),
            Deed::Submit => {
                self.request(flight).submit().is_err_and(|failed| failed.error == Error::Inherited)
            }
            Deed::Allocate => self.interface.allocate(5000).is_err(),
            Deed::Sync => is_inherited(pending().sync()),
            Deed::Abort => is_inherited(pending().abort()),
            Deed::Touch => {
                let is_zero = self.buffer.iter().all(|byte| *byte == 0);
                self.buffer.fill(0x77);
                is_zero && self.buffer[0] == 0x77
            }
            Deed::Drop => {
                // SAFETY: the child exits without looking at any of them again.
                drop(unsafe { std::ptr::read(self) });
                true
            }
        }
    }

    fn request<'f>(&self, flight: &'f Flight<'_>) -> Request<'f, 'f, 'i> {
        flight.request(TAKE).out(Out::copy(b"nothing")).argument(flight.argument())
    }
}
