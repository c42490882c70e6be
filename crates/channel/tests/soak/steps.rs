//! Steps: what a client does, one after the other. Each verifies every byte that comes, and that nothing else has changed.

use std::time::Duration;

use genie_io::{Failed, In, Out, Reply};
use genie_passing::Scheme;
use genie_passing::model::{Allocation, Integrity};

use crate::client::Client;
use crate::crowd::crowd;
use crate::flight::Flight;
use crate::forks::fork;
use crate::order::{EXCHANGE, GIVE, TAKE};
use crate::random::Random;
use crate::support::bytes::{pattern, same};

/// One step.
pub(crate) fn step(client: &Client, random: &mut Random) {
    let Some(mut flight) = Flight::choose(client, random) else {
        return std::thread::sleep(Duration::from_millis(2));
    };
    let len = length(random);
    // If there is no memory, nothing is done.
    let _ = match random.below(17) {
        16 => fork(&flight, random),
        0..3 => put(&flight, random, len),
        3..6 => get(&flight, random, len),
        6 => put_foreign(&flight, len),
        7 => put_shared(&flight, random, len),
        8 => get_shared(&flight, random, len),
        9 | 10 => put_migrant(&flight, random, len),
        11 => get_migrant(&flight, random, len),
        12 => exchange(&flight, random, len),
        13 | 14 => crowd(client, random),
        _ => at_the_limit(&mut flight, random),
    };
}

/// Lengths of all sizes, and those around a granule's.
fn length(random: &mut Random) -> usize {
    let most = random.choose(&[1, 64, 4096, 70_000, 300_000, 1 << 20, 3 << 20, 5 << 20]);
    let around = random.choose(&[4096, 65_536, 2 << 20]);
    if random.once_in(6) { around - 1 + random.below(3) } else { 1 + random.below(most) }
}

pub(crate) fn native(random: &mut Random) -> Scheme {
    scheme(random, Allocation::Native)
}

fn migrant(random: &mut Random) -> Scheme {
    scheme(random, Allocation::Migrant)
}

fn scheme(random: &mut Random, allocation: Allocation) -> Scheme {
    let fits: Vec<Scheme> =
        Scheme::ALL.into_iter().filter(|scheme| scheme.allocation() == allocation).collect();
    random.choose(&fits)
}

fn share(random: &mut Random) -> Scheme {
    random.choose(&[Scheme::Share, Scheme::EmulatedShare])
}

/// Where in its buffer data begins: often not where a granule does.
fn offset(random: &mut Random) -> usize {
    random.choose(&[0, 0, 0, 1, 100, 4090])
}

/// Output of borrowed bytes, which are overwritten as soon as it returns.
fn put(flight: &Flight<'_>, random: &mut Random, len: usize) -> Option<()> {
    let (scheme, offset) = (native(random), offset(random));
    let mut buffer = flight.client.buffer(offset + len)?;
    let bytes = pattern(flight.order.seed, len);
    buffer[offset..].copy_from_slice(&bytes);
    let request = flight.request(TAKE).out(Out::borrowed(scheme, &buffer[offset..]));
    let came = request.argument(flight.argument()).send();
    let _ = flight.land("put", scheme, came);
    same(&buffer[offset..], &bytes, "what was put out is as it was");
    // The server may have more time than the request had.
    buffer.fill(0xa5);
    Some(())
}

/// Output of memory that is not the interface's.
fn put_foreign(flight: &Flight<'_>, len: usize) -> Option<()> {
    let mut bytes = pattern(flight.order.seed, len);
    let request = flight.request(TAKE).out(Out::emulated_copy(&bytes));
    let came = request.argument(flight.argument()).send();
    let _ = flight.land("put of foreign memory", Scheme::EmulatedCopy, came);
    bytes.fill(0x5a);
    Some(())
}

/// Input into borrowed bytes.
fn get(flight: &Flight<'_>, random: &mut Random, len: usize) -> Option<()> {
    let (scheme, offset) = (native(random), offset(random));
    let mut buffer = flight.client.buffer(offset + len)?;
    let before = pattern(random.next(), buffer.len());
    buffer.copy_from_slice(&before);
    let request = flight.request(GIVE).input(In::borrowed(scheme, &mut buffer[offset..]));
    let came = request.argument(flight.argument()).send();
    let came = flight.land("get", scheme, came);
    verify_sent(flight, scheme, [&buffer, &before], offset, came.ok().map(|reply| reply.actual()));
    Some(())
}

/// Verifies the buffer of an input that was sent. Where the buffer was shared and the request failed, the server may have
/// stored into the bytes that were passed.
fn verify_sent(
    flight: &Flight<'_>,
    scheme: Scheme,
    [found, before]: [&[u8]; 2],
    offset: usize,
    actual: Option<usize>,
) {
    match (scheme.integrity(), actual) {
        (Integrity::Weak, None) => same(&found[..offset], &before[..offset], "bytes beside shared ones"),
        _ => verify_input(flight, found, before, offset, actual),
    }
}

/// Verifies that the passed bytes are in the buffer, and around them the bytes that were there before. If nothing was
/// passed, all bytes must be as before.
pub(crate) fn verify_input(
    flight: &Flight<'_>,
    found: &[u8],
    before: &[u8],
    offset: usize,
    actual: Option<usize>,
) {
    let mut expected = before.to_vec();
    if let Some(actual) = actual {
        assert_eq!(actual, flight.order.actual(found.len() - offset), "{:?}", flight.order);
        expected[offset..offset + actual].copy_from_slice(&pattern(flight.order.answer(), actual));
    }
    same(found, &expected, format_args!("{:?}, {actual:?} bytes passed", flight.order));
}

fn put_shared(flight: &Flight<'_>, random: &mut Random, len: usize) -> Option<()> {
    let scheme = share(random);
    let mut buffer = flight.client.buffer(len)?;
    let bytes = pattern(flight.order.seed, len);
    buffer.copy_from_slice(&bytes);
    let came = flight.request(TAKE).out(Out::owned(scheme, buffer)).argument(flight.argument()).send();
    let back = returned(flight.land("put", scheme, came), Reply::take_buffer, Failed::take_buffer);
    if let Some(buffer) = back {
        same(&buffer, &bytes, "what was shared for output");
    }
    Some(())
}

fn get_shared(flight: &Flight<'_>, random: &mut Random, len: usize) -> Option<()> {
    let scheme = share(random);
    let mut buffer = flight.client.buffer(len)?;
    let before = pattern(random.next(), len);
    buffer.copy_from_slice(&before);
    let came = flight.request(GIVE).input(In::owned(scheme, buffer)).argument(flight.argument()).send();
    let came = flight.land("get", scheme, came);
    // After a failure the server may have written any part of it.
    if let Ok(mut reply) = came {
        let actual = reply.actual();
        let buffer = reply.take_buffer().expect("what was shared comes back");
        verify_input(flight, &buffer, &before, 0, Some(actual));
    }
    Some(())
}

/// The buffer that came back by value, after a success or a failure; after a success it always does.
fn returned<T>(
    came: Result<Reply, Failed>,
    of_reply: impl Fn(&mut Reply) -> Option<T>,
    of_failed: impl Fn(&mut Failed) -> Option<T>,
) -> Option<T> {
    match came {
        // Until the server is done, an anticipated request keeps what it was given.
        Ok(mut reply) => {
            let back = of_reply(&mut reply);
            assert!(back.is_some() || reply.anticipated, "what was given by value comes back");
            back
        }
        Err(mut failed) => of_failed(&mut failed),
    }
}

fn put_migrant(flight: &Flight<'_>, random: &mut Random, len: usize) -> Option<()> {
    let scheme = migrant(random);
    let mut buffer = flight.client.migrant(len, scheme.integrity() == Integrity::Strong)?;
    let bytes = pattern(flight.order.seed, len);
    buffer.copy_from_slice(&bytes);
    let came = flight.request(TAKE).out(Out::migrant(scheme, buffer)).argument(flight.argument()).send();
    match flight.land("put", scheme, came) {
        Ok(mut reply) => assert!(reply.take_migrant().is_none(), "what was moved is gone"),
        Err(mut failed) => {
            if let Some(buffer) = failed.take_migrant() {
                same(&buffer, &bytes, "what was to be moved");
            }
        }
    }
    Some(())
}

fn get_migrant(flight: &Flight<'_>, random: &mut Random, len: usize) -> Option<()> {
    let scheme = migrant(random);
    let came = flight.request(GIVE).input(In::migrant(scheme, len)).argument(flight.argument()).send();
    let mut reply = flight.land("get", scheme, came).ok()?;
    let actual = flight.order.actual(len);
    assert_eq!(reply.actual(), actual, "{:?}", flight.order);
    if actual > 0 {
        let buffer = reply.take_migrant().expect("a region arrives");
        same(&buffer[..actual], &pattern(flight.order.answer(), actual), "what was moved here");
    }
    Some(())
}

/// Both directions in one request.
fn exchange(flight: &Flight<'_>, random: &mut Random, len: usize) -> Option<()> {
    let (scheme, back) = (native(random), native(random));
    let (mut output, mut input) = (flight.client.buffer(len)?, flight.client.buffer(len)?);
    output.copy_from_slice(&pattern(flight.order.seed, len));
    let before = pattern(random.next(), len);
    input.copy_from_slice(&before);
    let request = flight.request(EXCHANGE).out(Out::borrowed(scheme, &output)).argument(flight.argument());
    let came = flight.land("exchange", scheme, request.input(In::borrowed(back, &mut input)).send());
    output.fill(0x3c);
    verify_sent(flight, back, [&input, &before], 0, came.ok().map(|reply| reply.buffers[1].actual));
    Some(())
}

/// Asks for more than there can be, for other limits, or for the end of all earlier requests.
fn at_the_limit(flight: &mut Flight<'_>, random: &mut Random) -> Option<()> {
    if random.once_in(3) {
        flight.flush();
        return Some(());
    }
    flight.is_too_large = true;
    if random.once_in(2) {
        flight.adjust(random.choose(&[16 << 20, 24 << 20, 48 << 20]), 8 + random.below(12) as u32);
        return Some(());
    }
    let bytes = vec![0; 41 << 20];
    let came = flight.request(TAKE).out(Out::copy(&bytes)).argument(flight.argument()).send();
    assert!(flight.land("put of too much", Scheme::Copy, came).is_err(), "there is no room for that");
    Some(())
}
