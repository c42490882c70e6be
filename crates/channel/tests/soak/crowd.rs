//! Crowds: many requests that are pending together, at several servers, each ended in a way of its own.

use std::time::Duration;

use genie_io::{In, Out, Pending};
use genie_memory::Buffer;
use genie_passing::Scheme;

use crate::client::Client;
use crate::flight::Flight;
use crate::order::{GIVE, TAKE};
use crate::random::Random;
use crate::steps::{native, verify_input};
use crate::support::bytes::{pattern, same};

/// The longest buffer.
const LONGEST: usize = 700_000;

/// One request of a crowd.
struct Member<'c, 'i> {
    flight: Flight<'c>,
    scheme: Scheme,
    is_input: bool,
    /// The bytes that the buffer holds if no data is passed.
    before: Vec<u8>,
    /// Present until the request is ended, if there was room for it.
    pending: Option<Pending<'i>>,
}

/// A request that is over.
struct Over<'c> {
    flight: Flight<'c>,
    is_input: bool,
    before: Vec<u8>,
    /// Bytes passed, by a success.
    actual: Option<usize>,
}

/// Makes the requests, ends them, and verifies all buffers.
pub(crate) fn crowd(client: &Client, random: &mut Random) -> Option<()> {
    // Each buffer takes a granule at least.
    let most = if client.granule() > 1 << 20 { 5 } else { 16 };
    let count = 2 + random.below(most);
    let buffers: Option<Vec<Buffer>> = (0..count).map(|_| client.buffer(1 + random.below(LONGEST))).collect();
    let mut buffers = buffers?;
    let members = buffers.iter_mut().map(|buffer| Member::submit(client, buffer, random)).collect();
    let over = end_all(members, random);
    for (buffer, over) in buffers.iter().zip(over) {
        match over {
            Some(over) if over.is_input => verify_input(&over.flight, buffer, &over.before, 0, over.actual),
            Some(over) => same(buffer, &over.before, "what was stored after an output"),
            None => {}
        }
    }
    Some(())
}

/// Ends the requests in any order; returns them in the order of their buffers.
fn end_all<'c>(members: Vec<Option<Member<'c, '_>>>, random: &mut Random) -> Vec<Option<Over<'c>>> {
    let mut over: Vec<Option<Over<'c>>> = members.iter().map(|_| None).collect();
    let mut left: Vec<_> = members.into_iter().enumerate().collect();
    while !left.is_empty() {
        let (index, member) = left.swap_remove(random.below(left.len()));
        over[index] = member.map(|member| member.end(random));
    }
    over
}

impl<'c, 'i> Member<'c, 'i> {
    /// Makes the request; `None` if the server is not there.
    fn submit(client: &'c Client, buffer: &'i mut Buffer, random: &mut Random) -> Option<Self> {
        let flight = Flight::choose(client, random)?;
        let (scheme, is_input) = (native(random), random.once_in(2));
        let before = pattern(random.next(), buffer.len());
        let submitted = if is_input {
            buffer.copy_from_slice(&before);
            let request = flight.request(GIVE).input(In::borrowed(scheme, buffer));
            request.argument(flight.argument()).submit()
        } else {
            buffer.copy_from_slice(&pattern(flight.order.seed, before.len()));
            let request = flight.request(TAKE).out(Out::borrowed(scheme, buffer));
            let submitted = request.argument(flight.argument()).submit();
            // The server gets the bytes that were there before.
            buffer.copy_from_slice(&before);
            submitted
        };
        let pending = submitted.map_err(|failed| flight.land("submission", scheme, Err(failed))).ok();
        Some(Self { flight, scheme, is_input, before, pending })
    }

    fn end(mut self, random: &mut Random) -> Over<'c> {
        let actual = self.pending.take().and_then(|pending| self.end_pending(pending, random));
        Over { flight: self.flight, is_input: self.is_input, before: self.before, actual }
    }

    /// Ends the request; returns how many bytes were passed, if it succeeded.
    fn end_pending(&mut self, pending: Pending<'_>, random: &mut Random) -> Option<usize> {
        let kind = if self.is_input { "get among others" } else { "put among others" };
        let came = match random.below(8) {
            0 => {
                self.flight.client.count("replies not waited for");
                return None;
            }
            1 => {
                self.flight.is_aborted = true;
                pending.abort()
            }
            2 => {
                pending.wait(Duration::from_millis(random.below(5) as u64));
                self.flight.is_aborted = true;
                pending.abort()
            }
            3 if self.is_input => {
                self.peek(&pending);
                pending.sync()
            }
            // The descriptor tells of channels alone.
            4 if self.flight.is_remote() => {
                self.flight.client.watch(&pending);
                pending.sync()
            }
            _ => pending.sync(),
        };
        Some(self.flight.land(kind, self.scheme, came).ok()?.actual())
    }

    fn peek(&self, pending: &Pending<'_>) {
        let mut bytes = [0; 100];
        // If there is nothing to be seen, the reply says why.
        if let Ok(counts) = pending.peek(&mut [&mut bytes]) {
            let seen = counts[0];
            same(&bytes[..seen], &pattern(self.flight.order.answer(), seen), "what was seen of an input");
        }
    }
}
