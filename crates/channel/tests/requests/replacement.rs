//! Stores after `submit`: memory for replacing granules is kept from the start; otherwise the output is copied, or refused.
//!
//! A store into a buffer under output used to wait for a free granule until the server let go, even after the request's
//! timeout had been reported, and even if memory had been freed meanwhile. But `submit` promises that the buffer can be used
//! at once.

use std::time::{Duration, Instant};

use genie_conformance::{Setup, assert_idle};
use genie_io::{Error, Interface, Limits, Out, Pending};
use genie_memory::{Buffer, GranuleKind};
use genie_passing::{Reason, Scheme, Thresholds};

use crate::support::bytes::{pattern, same};
use crate::support::holder::{HOLD, Holder};

const GRANULE: usize = 4096;
const TIMEOUT: Duration = Duration::from_millis(20);

/// A client with so many granules of memory, whose requests may time out, and a server that keeps requests.
fn client(test: &str, granules: usize, timeout: Option<Duration>) -> Option<(Interface, Holder)> {
    let limits = Limits { timeout, abort_timeout: TIMEOUT, ..Limits::default() };
    let setup = Setup::allowed(GranuleKind::Base);
    let interface = setup.interface(test, granules * GRANULE, limits, Thresholds::ALWAYS)?;
    Some((interface, Holder::in_process(None)))
}

fn hoard(interface: &Interface) -> Vec<Buffer> {
    std::iter::from_fn(|| interface.allocate(GRANULE).ok()).collect()
}

fn submit(
    interface: &Interface,
    holder: &Holder,
    bytes: &[u8],
) -> Result<Pending<'static>, genie_io::Failed> {
    let request = interface.request(holder.handle(), HOLD);
    request.out(Out::emulated_copy(bytes)).submit()
}

/// Stores into a buffer, and fails when that takes so long that it must be waiting for something.
fn store(buffer: &mut Buffer, byte: u8) {
    std::thread::scope(|scope| {
        let storing = scope.spawn(|| buffer.fill(byte));
        let end = Instant::now() + Duration::from_secs(20);
        while !storing.is_finished() {
            if Instant::now() > end {
                eprintln!("a store waits for something that does not come");
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_store_finds_memory_whoever_took_the_rest_and_after_the_timeout() {
    let test = "a_store_finds_memory_whoever_took_the_rest_and_after_the_timeout";
    let Some((interface, holder)) = client(test, 12, Some(TIMEOUT)) else { return };
    let mut buffers = [(); 2].map(|()| interface.allocate(2 * GRANULE).expect("a buffer"));
    for (seed, buffer) in (0..).zip(&mut buffers) {
        buffer.copy_from_slice(&pattern(seed, 2 * GRANULE));
    }
    let [at_once, late] = &mut buffers;
    let first = submit(&interface, &holder, at_once).expect("memory for its stores");
    let second = submit(&interface, &holder, late).expect("memory for its stores");
    let hoarded = hoard(&interface);
    assert_eq!(hoarded.len(), 4, "four granules are kept");
    let ids = [first.id(), second.id()];
    store(at_once, 1);
    for pending in [first, second] {
        assert_eq!(pending.sync().expect_err("no reply").error, Error::TimedOut { timeout: TIMEOUT });
    }
    store(late, 1);
    for (seed, id) in (0..).zip(ids) {
        same(&holder.read(id), &pattern(seed, 2 * GRANULE), "what the server has still");
    }
    let statistics = interface.space().statistics();
    assert_eq!((statistics.waits, statistics.replacements), (0, 4), "{statistics:?}");
    ids.into_iter().for_each(|id| holder.reply(id));
    drop((hoarded, buffers));
    assert_idle(&interface, 0);
}

#[test]
fn output_that_could_not_be_stored_into_is_copied_and_says_why() {
    let test = "output_that_could_not_be_stored_into_is_copied_and_says_why";
    let Some((interface, holder)) = client(test, 5, None) else { return };
    // On three granules, of which a copy fills two.
    let mut buffer = interface.space().allocate_at(GRANULE / 2, 2 * GRANULE).expect("a buffer");
    buffer.copy_from_slice(&pattern(3, 2 * GRANULE));
    let pending = submit(&interface, &holder, &buffer).expect("memory for a copy");
    store(&mut buffer, 1);
    same(&holder.read(pending.id()), &pattern(3, 2 * GRANULE), "what the server sees");
    holder.reply(pending.id());
    let receipt = pending.sync().expect("a reply").buffers[0].elements[0].receipt;
    assert_eq!((receipt.asked, receipt.effective), (Scheme::EmulatedCopy, Scheme::Copy));
    assert_eq!((receipt.copied, receipt.reason), (2 * GRANULE, Some(Reason::Irreplaceable)));
    assert_eq!(interface.space().statistics().faults, 0, "nothing was protected");
    drop(buffer);
    assert_idle(&interface, 0);
}

#[test]
fn with_memory_for_neither_stores_nor_a_copy_a_request_is_refused_before_anything_moves() {
    let test = "with_memory_for_neither_stores_nor_a_copy_a_request_is_refused_before_anything_moves";
    let Some((interface, holder)) = client(test, 6, None) else { return };
    let mut buffer = interface.allocate(2 * GRANULE).expect("a buffer");
    buffer.copy_from_slice(&pattern(4, 2 * GRANULE));
    let mut hoarded = hoard(&interface);
    let refused = submit(&interface, &holder, &buffer).expect_err("no memory");
    assert!(refused.error.to_string().contains("free buffers or raise the limit"), "{}", refused.error);
    assert!(holder.held().is_empty(), "the server has never seen it");
    same(&buffer, &pattern(4, 2 * GRANULE), "the client's buffer");
    store(&mut buffer, 5);
    hoarded.truncate(2);
    let pending = submit(&interface, &holder, &buffer).expect("memory for its stores");
    assert!(hoard(&interface).is_empty(), "it is kept");
    store(&mut buffer, 6);
    assert!(holder.read(pending.id()).iter().all(|byte| *byte == 5));
    holder.reply(pending.id());
    pending.sync().expect("a reply");
    drop((hoarded, buffer));
    assert_idle(&interface, 0);
}
