//! Inputs forwarded in one process: data in a subcontractor's own buffer reaches the client as if the client had asked that
//! server.
//!
//! Source: thesis §7.5.

mod supplied;

use std::sync::Arc;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_conformance::{assert_idle, checked};
use genie_io::servers::memory::{Memory, SOURCE};
use genie_io::{
    Failed, In, Incoming, Interface, Pending, RequestId, Server, ServerError, ServerHandle, Service,
    ServiceId,
};
use genie_memory::{Backing, Data};
use genie_passing::model::Allocation;
use genie_passing::{Overlays, Reason, Receipt, Scheme};
use genie_sys::lock::Mutex;

use super::{Fixture, LEN};
use crate::on_each_kind;
use crate::support::bytes::{pattern, same};
use crate::support::holder::{Answer, Command, HOLD};
use crate::support::relay::{Manner, Relay};

on_each_kind! {
    a_subcontractors_buffer_becomes_the_clients,
    a_buffer_goes_up_through_several_contractors,
    every_scheme_takes_a_subcontractors_buffer,
    memory_is_made_when_a_subcontractor_needs_it,
    a_device_of_a_subcontractors_fills_the_clients_granules,
    a_transfer_of_a_subcontractors_holds_up_the_contractors_reply,
    a_contractor_that_looks_sees_the_subcontractors_buffer,
    a_buffer_that_is_worked_on_once_more_is_copied,
    a_part_is_copied_and_says_so,
    a_client_elsewhere_is_copied_for_and_the_receipt_says_so,
    a_failed_subcontract_leaves_the_input_to_the_next,
    a_failed_subcontract_leaves_what_the_contractor_has_overlaid,
}

/// A contractor that does as the test says.
struct Contractor<F> {
    services: [Service; 1],
    serve: F,
}

/// The contractor's only service.
const ASK: ServiceId = ServiceId(0);

impl<F: Fn(&mut Incoming) -> Result<(), ServerError> + Send + Sync + 'static> Contractor<F> {
    /// One that neither reads nor writes.
    fn blind(serve: F) -> Self {
        Self { services: [Service::new("ask", false, false)], serve }
    }

    fn seeing(serve: F) -> Self {
        Self { services: [Service::new("ask", true, true)], serve }
    }
}

impl<F: Fn(&mut Incoming) -> Result<(), ServerError> + Send + Sync + 'static> Server for Contractor<F> {
    fn name(&self) -> &str {
        "contractor"
    }

    fn services(&self) -> &[Service] {
        &self.services
    }

    fn request(&self, mut request: Incoming) {
        let result = (self.serve)(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {}
}

/// The receipts of subcontracts.
type Receipts = Arc<Mutex<Vec<Receipt>>>;

/// Has the memory server `to` fill a part of input buffer 0 with a byte.
fn fill(
    interface: &Interface,
    to: &ServerHandle,
    request: &mut Incoming,
    part: std::ops::Range<usize>,
    byte: u8,
    receipts: &Receipts,
) -> Result<(), ServerError> {
    let fragment = request.fragment(0, part)?;
    let asked = interface.request(to, SOURCE).input(In::fragment(fragment)).argument(&[byte]).send();
    let reply = asked.map_err(|failed| ServerError::new(failed.to_string()))?;
    receipts.lock().push(reply.buffers[0].elements[0].receipt);
    Ok(())
}

/// A memory server with two buffers of its own, for as much as clients ask for.
fn pooled(fixture: &Fixture, len: usize) -> ServerHandle {
    ServerHandle::new(Memory::pooled(fixture.interface.space(), 0, len, 2).expect("memory for the pool"))
}

/// A server that forwards requests as they are.
fn relay(fixture: &Fixture, to: &ServerHandle) -> ServerHandle {
    let to = vec![to.clone()];
    ServerHandle::new(Relay::new(fixture.interface.clone(), to, Manner::Plain, None))
}

/// A fixture of its own, with a pooled holder.
fn with_pool(fixture: &Fixture) -> Option<Fixture> {
    let own = super::open(fixture.name, fixture.kind)?;
    Some(own.pooled(0, LEN))
}

/// Submits an input of `LEN` bytes to a relay.
fn submit<'b>(fixture: &Fixture, relay: &ServerHandle, bytes: &'b mut [u8]) -> Pending<'b> {
    let request = fixture.interface.request(relay, HOLD).input(In::emulated_copy(bytes));
    request.room(8).submit().expect("a request")
}

/// How many bytes the relay says were copied for it.
fn copied_in_the_middle(argument: &[u8]) -> u64 {
    u64::from_le_bytes(argument.try_into().expect("8 bytes"))
}

fn a_subcontractors_buffer_becomes_the_clients(fixture: &Fixture) {
    let Some(fixture) = with_pool(fixture) else { return };
    let relay = relay(&fixture, fixture.holder.server());
    pass_up(&fixture, &relay);
}

fn a_buffer_goes_up_through_several_contractors(fixture: &Fixture) {
    let Some(fixture) = with_pool(fixture) else { return };
    let first = relay(&fixture, fixture.holder.server());
    let second = relay(&fixture, &first);
    pass_up(&fixture, &relay(&fixture, &second));
}

fn pass_up(fixture: &Fixture, relay: &ServerHandle) {
    let mut buffer = fixture.buffer(1);
    let before = fixture.frames(&buffer);
    let data = pattern(2, LEN);
    let pending = submit(fixture, relay, &mut buffer);
    let arrived = fixture.holder.arrival();
    let overlay =
        fixture.holder.input_frames(arrived, fixture.granule()).expect("frames were visible before");
    assert!(overlay.iter().all(|frame| !before.contains(frame)), "the holder's buffer is its own");
    fixture.holder.deliver(arrived, &data);
    let reply = pending.sync().expect("a reply");
    assert_eq!(fixture.frames(&buffer), overlay, "the client has the subcontractor's pages");
    same(&buffer, &data, "the data");
    let receipt = reply.buffers[0].elements[0].receipt;
    assert_eq!((receipt.copied, receipt.swapped as usize), (0, fixture.granules()), "{receipt}");
    assert_eq!(copied_in_the_middle(reply.argument()), 0);
    // The next one finds the client's former pages in the pool.
    drop(reply);
    let pending = submit(fixture, relay, &mut buffer);
    let arrived = fixture.holder.arrival();
    assert_eq!(fixture.holder.input_frames(arrived, fixture.granule()), Some(before));
    fixture.holder.deliver(arrived, &data);
    pending.sync().expect("a reply");
    drop(buffer);
    assert_idle(&fixture.interface, fixture.granules());
}

fn every_scheme_takes_a_subcontractors_buffer(fixture: &Fixture) {
    let len = 2 * fixture.granule() - 100;
    let relay = relay(fixture, &pooled(fixture, 2 * fixture.granule()));
    for (byte, scheme) in (1..).zip(Scheme::ALL) {
        let request = fixture.interface.request(&relay, SOURCE);
        let request = match scheme.allocation() {
            Allocation::Migrant => request.input(In::migrant(scheme, len)),
            Allocation::Native => request.input(In::owned(scheme, fixture.buffer(3)).part(0..len)),
        };
        let mut reply =
            request.argument(&[byte]).send().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        assert_eq!(reply.actual(), len, "{scheme}");
        assert!(reply.receipt().swapped > 0 || matches!(scheme, Scheme::Copy | Scheme::Move), "{scheme}");
        match reply.take_migrant() {
            Some(region) => same(&region, &vec![byte; len], scheme),
            None => same(&reply.take_buffer().expect("the buffer")[..len], &vec![byte; len], scheme),
        }
        checked(fixture.interface.space());
    }
    drop(relay);
    assert_idle(&fixture.interface, 0);
}

fn memory_is_made_when_a_subcontractor_needs_it(fixture: &Fixture) {
    let relay = relay(fixture, fixture.holder.server());
    let mut buffer = fixture.buffer(4);
    let before = fixture.frames(&buffer);
    let system = || checked(fixture.interface.space()).system;
    let pending = submit(fixture, &relay, &mut buffer);
    let arrived = fixture.holder.arrival();
    assert_eq!(system(), 0, "nobody has asked for memory");
    let system_frames = fixture.holder.input_frames(arrived, fixture.granule());
    assert_eq!(system() as usize, fixture.granules());
    let data = pattern(5, LEN);
    fixture.holder.deliver(arrived, &data);
    assert_eq!(pending.sync().expect("a reply").receipt().copied, 0);
    same(&buffer, &data, "the data");
    assert_eq!(Some(fixture.frames(&buffer)), system_frames);
    assert_ne!(fixture.frames(&buffer), before);
    drop(buffer);
    assert_idle(&fixture.interface, 0);
}

fn a_device_of_a_subcontractors_fills_the_clients_granules(fixture: &Fixture) {
    let relay = relay(fixture, fixture.holder.server());
    let mut buffer = fixture.buffer(6);
    let before = fixture.frames(&buffer);
    let pending = submit(fixture, &relay, &mut buffer);
    let arrived = fixture.holder.arrival();
    let data = pattern(7, LEN);
    let link = Command::Outboard { buffer: 0, bytes: data.clone() };
    assert_eq!(fixture.holder.command(arrived, link), Answer::Done);
    fixture.holder.set_actual(arrived, LEN);
    fixture.holder.reply(arrived);
    let reply = pending.sync().expect("a reply");
    same(&buffer, &data, "the data");
    assert_eq!(fixture.frames(&buffer), before, "the device has written to the client's own granules");
    assert_eq!((reply.receipt().copied, reply.receipt().swapped), (0, 0));
    drop(buffer);
    assert_idle(&fixture.interface, 0);
}

/// The relay does not wait for the reply to its own request: what it replies takes effect when the device is done.
fn a_transfer_of_a_subcontractors_holds_up_the_contractors_reply(fixture: &Fixture) {
    let to = fixture.holder.server().clone();
    let interface = fixture.interface.clone();
    let hasty = ServerHandle::new(Contractor::blind(move |request| {
        let fragment = request.fragment(0, 0..request.len(0))?;
        drop(interface.request(&to, HOLD).input(In::fragment(fragment)).submit().expect("a request"));
        Ok(request.set_actual(0, request.len(0))?)
    }));
    let (mut buffer, data) = (fixture.buffer(21), pattern(22, LEN));
    let request = fixture.interface.request(&hasty, ASK).input(In::emulated_copy(&mut buffer));
    let pending = request.submit().expect("a request");
    let arrived = fixture.holder.arrival();
    assert_eq!(fixture.holder.command(arrived, Command::BeginTransfer { buffer: 0 }), Answer::Done);
    fixture.holder.set_actual(arrived, LEN);
    fixture.holder.reply(arrived);
    assert_eq!(fixture.holder.command(arrived, Command::WritePinned { bytes: data.clone() }), Answer::Done);
    assert!(!pending.is_replied(), "the device is at work");
    assert_eq!(fixture.holder.command(arrived, Command::EndTransfer { error: None }), Answer::Done);
    let reply = pending.sync().expect("a reply");
    same(&buffer, &data, "the data");
    assert_eq!((reply.receipt().copied, reply.receipt().swapped as usize), (0, fixture.granules()));
    drop((hasty, buffer));
    assert_idle(&fixture.interface, 0);
}

fn a_contractor_that_looks_sees_the_subcontractors_buffer(fixture: &Fixture) {
    let Some(fixture) = with_pool(fixture) else { return };
    let (interface, to, granule) =
        (fixture.interface.clone(), fixture.holder.server().clone(), fixture.granule());
    let looked: Arc<Mutex<Option<Vec<u64>>>> = Arc::default();
    let look = Arc::clone(&looked);
    let contractor = ServerHandle::new(Contractor::seeing(move |request| {
        let fragment = request.fragment(0, 0..request.len(0))?;
        let asked = interface.request(&to, HOLD).input(In::fragment(fragment)).send();
        request.set_actual(0, asked.map_err(|failed: Failed| failed.error)?.actual())?;
        let seen = request.ready(0)?;
        *look.lock() = frames_of(&seen, granule);
        seen.part(0..1).fill(b'!');
        Ok(())
    }));
    let mut buffer = fixture.buffer(8);
    let data = pattern(9, LEN);
    let (reply, overlay) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let request = fixture.interface.request(&contractor, ASK);
            request.input(In::emulated_copy(&mut buffer)).send()
        });
        let arrived = fixture.holder.arrival();
        let overlay = fixture.holder.input_frames(arrived, granule).expect("frames were visible before");
        fixture.holder.deliver(arrived, &data);
        (asking.join().expect("no panic").expect("a reply"), overlay)
    });
    assert_eq!(looked.lock().as_ref(), Some(&overlay), "the contractor saw it");
    assert_eq!(fixture.frames(&buffer), overlay, "and the client has it");
    assert_eq!((reply.receipt().copied, reply.receipt().swapped as usize), (0, fixture.granules()));
    assert_eq!(buffer[0], b'!', "with what the contractor has changed");
    same(&buffer[1..], &data[1..], "the rest");
    drop((contractor, buffer));
    assert_idle(&fixture.interface, fixture.granules());
}

fn frames_of(data: &Data<'_>, granule: usize) -> Option<Vec<u64>> {
    data.to_vec();
    let frames = |part: Backing<'_>| crate::support::machine::frames(part.addr(), part.len(), granule);
    let each = data.backings().map(frames);
    each.collect::<Option<Vec<_>>>().map(|frames| frames.concat())
}

fn a_buffer_that_is_worked_on_once_more_is_copied(fixture: &Fixture) {
    let len = 2 * fixture.granule();
    let (interface, to, receipts) = (fixture.interface.clone(), pooled(fixture, len), Receipts::default());
    let noted = Arc::clone(&receipts);
    let contractor = ServerHandle::new(Contractor::blind(move |request| {
        let all = 0..request.len(0);
        fill(&interface, &to, request, all.clone(), 1, &noted)?;
        fill(&interface, &to, request, 10..20, 2, &noted)?;
        fill(&interface, &to, request, all.clone(), 3, &noted)?;
        fill(&interface, &to, request, all.end - 5..all.end, 4, &noted)?;
        Ok(request.set_actual(0, all.end)?)
    }));
    for scheme in [Scheme::Copy, Scheme::EmulatedCopy, Scheme::EmulatedShare] {
        let request = fixture.interface.request(&contractor, ASK);
        let request = request.input(In::owned(scheme, fixture.buffer(10)).part(0..len));
        let mut reply = request.send().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        let mut expected = vec![3; len];
        expected[len - 5..].fill(4);
        same(&reply.take_buffer().expect("the buffer")[..len], &expected, scheme);
        assert!(reply.receipt().copied >= len, "{scheme}: what was in the first overlay buffer");
    }
    let receipts = std::mem::take(&mut *receipts.lock());
    let copied: Vec<_> = receipts.iter().map(|receipt| (receipt.copied, receipt.reason)).collect();
    let once =
        [(0, None), (10, Some(Reason::Overlaid)), (len, Some(Reason::Overlaid)), (5, Some(Reason::Overlaid))];
    assert_eq!(copied, once.repeat(3));
    drop(contractor);
    assert_idle(&fixture.interface, 0);
}

fn a_part_is_copied_and_says_so(fixture: &Fixture) {
    let len = 3 * fixture.granule();
    let (interface, to, receipts) = (fixture.interface.clone(), pooled(fixture, len), Receipts::default());
    let noted = Arc::clone(&receipts);
    // Of two elements, the first and a part of the second, and then the rest: no fragment is one element.
    let contractor = ServerHandle::new(Contractor::blind(move |request| {
        let (all, cut) = (request.len(0), request.len(0) / 2 + 7);
        fill(&interface, &to, request, 0..cut, 1, &noted)?;
        fill(&interface, &to, request, cut..all, 2, &noted)?;
        Ok(request.set_actual(0, all)?)
    }));
    let (mut first, mut second) = (fixture.buffer(11), fixture.buffer(12));
    let request = fixture.interface.request(&contractor, ASK);
    let request = request.input(In::emulated_copy(&mut first[..len / 2]));
    request.and_input(In::emulated_copy(&mut second[..len / 2])).send().expect("a reply");
    assert!(first[..len / 2].iter().all(|byte| *byte == 1));
    assert!(second[..7].iter().all(|byte| *byte == 1) && second[7..len / 2].iter().all(|byte| *byte == 2));
    let receipts = std::mem::take(&mut *receipts.lock());
    let copied: Vec<_> = receipts.iter().map(|receipt| (receipt.copied, receipt.reason)).collect();
    let half = len / 2;
    assert_eq!(copied, [(half + 7, Some(Reason::Overlaid)), (half - 7, Some(Reason::Overlaid))]);
    drop((contractor, first, second));
    assert_idle(&fixture.interface, 0);
}

fn a_client_elsewhere_is_copied_for_and_the_receipt_says_so(fixture: &Fixture) {
    let len = 2 * fixture.granule();
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let (interface, receipts) = (fixture.interface.clone(), Receipts::default());
    let noted = Arc::clone(&receipts);
    let options =
        ServeOptions { pool: 4 * fixture.granule(), private_pool: 2 * len, ..ServeOptions::default() };
    let listener = Listener::claim_in(&directory, "contractor", options).expect("a name");
    let private = listener.private_pool().expect("memory");
    let to = ServerHandle::new(Memory::pooled(private, 0, len, 1).expect("memory for the pool"));
    let contractor = Contractor::blind(move |request: &mut Incoming| {
        let all = request.len(0);
        fill(&interface, &to, request, 0..all, 5, &noted)?;
        Ok(request.set_actual(0, all)?)
    });
    let _running = listener.serve(contractor).and_then(|serving| serving.start()).expect("threads");
    let options = ConnectOptions::default();
    let server = fixture.interface.connect_with(&directory, "contractor", &options).expect("a connection");
    let mut buffer = fixture.buffer(13);
    let request = fixture.interface.request(&server, ASK).input(In::emulated_copy(&mut buffer[..len]));
    let reply = request.send().expect("a reply");
    assert_eq!((reply.receipt().copied, reply.receipt().swapped as usize), (0, len / fixture.granule()));
    assert!(buffer[..len].iter().all(|byte| *byte == 5));
    let receipts = receipts.lock();
    assert_eq!((receipts[0].copied, receipts[0].reason), (len, Some(Reason::Overlaid)));
}

fn a_failed_subcontract_leaves_the_input_to_the_next(fixture: &Fixture) {
    let Some(fixture) = with_pool(fixture) else { return };
    let (interface, receipts) = (fixture.interface.clone(), Receipts::default());
    let (failing, next) = (fixture.holder.server().clone(), pooled(&fixture, LEN));
    let noted = Arc::clone(&receipts);
    let contractor = ServerHandle::new(Contractor::blind(move |request| {
        let all = 0..request.len(0);
        let fragment = request.fragment(0, all.clone())?;
        let asked = interface.request(&failing, HOLD).input(In::fragment(fragment)).send();
        asked.expect_err("it fails");
        fill(&interface, &next, request, all.clone(), 6, &noted)?;
        Ok(request.set_actual(0, all.end)?)
    }));
    let mut buffer = fixture.buffer(14);
    let reply = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let request = fixture.interface.request(&contractor, ASK);
            request.input(In::emulated_copy(&mut buffer)).send()
        });
        let arrived = fixture.holder.arrival();
        fixture.holder.write(arrived, 0, &pattern(15, LEN));
        fixture.holder.fail(arrived, "the disk is full");
        asking.join().expect("no panic").expect("a reply")
    });
    assert!(buffer.iter().all(|byte| *byte == 6));
    assert_eq!((reply.receipt().copied, reply.receipt().swapped as usize), (0, fixture.granules()));
    drop((contractor, buffer));
    assert_idle(&fixture.interface, fixture.granules());
}

/// What a contractor had overlaid was lost as soon as it forwarded the element: the client got whatever was in the memory that was
/// made for the other server.
fn a_failed_subcontract_leaves_what_the_contractor_has_overlaid(fixture: &Fixture) {
    let len = 2 * fixture.granule();
    let overlays = Overlays::reserve(fixture.interface.space(), 0, len, 1).expect("memory for the pool");
    let data = Arc::new(pattern(16, len));
    let failing = Contractor::seeing(|request: &mut Incoming| {
        request.ready(0)?;
        Err(ServerError::new("the disk is full"))
    });
    let (interface, failing) = (fixture.interface.clone(), ServerHandle::new(failing));
    let (pool, bytes) = (overlays.clone(), Arc::clone(&data));
    let contractor = ServerHandle::new(Contractor::seeing(move |request| {
        let overlay = pool.allocate().expect("a buffer of the pool");
        overlay.data().copy_from(&bytes);
        request.overlay(0, 0, overlay)?;
        let fragment = request.fragment(0, 0..request.len(0))?;
        interface.request(&failing, ASK).input(In::fragment(fragment)).send().expect_err("it fails");
        Ok(request.set_actual(0, request.len(0))?)
    }));
    for scheme in [Scheme::Copy, Scheme::EmulatedCopy, Scheme::EmulatedShare] {
        let request = fixture.interface.request(&contractor, ASK);
        let request = request.input(In::owned(scheme, fixture.buffer(17)).part(0..len));
        let mut reply = request.send().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        same(&reply.take_buffer().expect("the buffer")[..len], &data, scheme);
        assert_eq!(overlays.free(), 1, "{scheme}: the overlay buffer is the contractor's again");
    }
    drop((contractor, overlays));
    assert_idle(&fixture.interface, 0);
}
