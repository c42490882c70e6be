//! Input from a device's own memory: every scheme takes it, and emulated copy without a system buffer. A device may transfer it by itself,
//! after the server's reply, or when it is asked to.
//!
//! Source: thesis §6.6 to §6.8, §7.4.4.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use genie_io::{
    Error, Failed, In, Incoming, Pending, Reply, RequestId, Server, ServerError, ServerHandle, Service,
    ServiceId, Transfer,
};
use genie_memory::{Data, DataMut};
use genie_passing::model::{Allocation, Integrity};
use genie_passing::{Outboard, Scheme};
use genie_sys::lock::Mutex;

use super::schemes::{buffer_len, filled, replied, slices, strong_native, submit_out};
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::setup::fresh_seed;

/// A device with memory of its own.
#[derive(Default)]
struct Device {
    bytes: Vec<u8>,
    actual: usize,
    fails: bool,
    /// The number of bytes after which each transfer ends with an error.
    breaks_after: Option<usize>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    transferred: AtomicUsize,
    deallocated: AtomicUsize,
}

/// One buffer in the device's memory.
#[derive(Debug)]
struct DeviceBuffer {
    bytes: Vec<u8>,
    breaks_after: Option<usize>,
    counts: Arc<Counts>,
}

impl Outboard for DeviceBuffer {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn may_fail(&self) -> bool {
        self.breaks_after.is_some()
    }

    fn data(&self) -> Option<Data<'_>> {
        (!self.may_fail()).then(|| Data::from(&self.bytes[..]))
    }

    fn transfer(&mut self, offset: usize, into: DataMut<'_>) -> io::Result<()> {
        let most = self.breaks_after.unwrap_or(usize::MAX);
        let end = self.bytes.len().min(offset.saturating_add(most));
        let stored = into.copy_from(&self.bytes[offset..end]);
        self.counts.transferred.fetch_add(stored, Ordering::Relaxed);
        match stored < into.len() {
            true => Err(io::Error::other("a cable came off")),
            false => Ok(()),
        }
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        self.counts.deallocated.fetch_add(1, Ordering::Relaxed);
    }
}

struct Driver(Mutex<Device>);

static SERVICES: [Service; 1] = [Service::new("receive", false, true)];

impl Server for Driver {
    fn name(&self) -> &str {
        "driver"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let device = self.0.lock();
        let each = device.bytes.len() / request.elements(0);
        let last = request.elements(0) - 1;
        let linked = device.bytes.chunks(each).enumerate().try_for_each(|(element, bytes)| {
            let breaks_after = device.breaks_after.map(|most| if element < last { each } else { most });
            let counts = Arc::clone(&device.counts);
            request.outboard(
                0,
                element,
                Box::new(DeviceBuffer { bytes: bytes.to_vec(), breaks_after, counts }),
            )
        });
        let said = linked.and_then(|()| request.set_actual(0, device.actual));
        let failure = device.fails.then(|| ServerError::new("the device failed"));
        drop(device);
        request.reply(match failure {
            Some(failure) => Err(failure),
            None => said.map_err(ServerError::from),
        });
    }

    fn abort(&self, _request: RequestId) {}
}

/// A driver whose device holds `bytes` and passes `actual` of them; and what it counts.
fn driver(bytes: &[u8], actual: usize, fails: bool) -> (ServerHandle, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let device =
        Device { bytes: bytes.to_vec(), actual, fails, counts: Arc::clone(&counts), ..Device::default() };
    (ServerHandle::new(Driver(Mutex::new(device))), counts)
}

/// A driver whose device transfers that many of `bytes`, and then fails if there are more.
fn breaking_driver(bytes: &[u8], breaks_after: usize) -> ServerHandle {
    let breaks_after = Some(breaks_after);
    let device = Device { bytes: bytes.to_vec(), actual: bytes.len(), breaks_after, ..Device::default() };
    ServerHandle::new(Driver(Mutex::new(device)))
}

/// Submits an input into borrowed bytes.
fn receive<'b>(t: &Scene, driver: &ServerHandle, scheme: Scheme, bytes: &'b mut [u8]) -> Pending<'b> {
    let request = t.interface().request(driver, ServiceId(0));
    request.input(In::borrowed(scheme, bytes)).submit().unwrap_or_else(|failed| panic!("{scheme}: {failed}"))
}

pub(crate) fn data_comes_from_outboard_memory(t: &Scene) {
    for scheme in Scheme::ALL {
        for slice in slices(t) {
            let what = format!("{scheme} into {slice:?}");
            let data = pattern(fresh_seed(), slice.len());
            let (driver, counts) = driver(&data, data.len(), false);
            let request = t.interface().request(&driver, ServiceId(0));
            if scheme.allocation() == Allocation::Migrant {
                let reply = request.input(In::migrant(scheme, data.len())).send();
                let mut reply = reply.unwrap_or_else(|failed| panic!("{what}: {failed}"));
                same(&reply.take_migrant().expect("a region"), &data, &what);
            } else {
                let (buffer, mut expected) = filled(t);
                expected[slice.clone()].copy_from_slice(&data);
                let reply = request.input(In::owned(scheme, buffer).part(slice)).send();
                let mut reply = reply.unwrap_or_else(|failed| panic!("{what}: {failed}"));
                same(&reply.take_buffer().expect("the buffer"), &expected, &what);
                if scheme == Scheme::EmulatedCopy {
                    assert_eq!((reply.receipt().copied, reply.receipt().swapped), (0, 0), "{what}");
                }
            }
            assert_eq!(counts.deallocated.load(Ordering::Relaxed), 1, "{what}: the device's buffer is free");
            assert_eq!(counts.transferred.load(Ordering::Relaxed), data.len(), "{what}: bytes transferred");
        }
    }
}

pub(crate) fn no_more_than_said_comes_from_outboard_memory(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            for actual in [0, slice.len() / 2, slice.len() - 1] {
                let what = format!("{scheme}: {actual} bytes into {slice:?}");
                let data = pattern(fresh_seed(), slice.len());
                let (driver, _) = driver(&data, actual, false);
                let (mut buffer, mut expected) = filled(t);
                replied(receive(t, &driver, scheme, &mut buffer[slice.clone()]));
                expected[slice.start..slice.start + actual].copy_from_slice(&data[..actual]);
                same(&buffer, &expected, &what);
            }
        }
    }
    // A device that says more than it has is not believed.
    for scheme in strong_native() {
        let (driver, _) = driver(&[7; 100], 101, false);
        let (mut buffer, before) = filled(t);
        let error = receive(t, &driver, scheme, &mut buffer).sync().expect_err("too much was said").error;
        assert!(matches!(error, Error::Passing(_)), "{scheme}: {error}");
        same(&buffer, &before, scheme);
    }
}

pub(crate) fn a_failed_transfer_changes_nothing(t: &Scene) {
    for scheme in strong_native() {
        let (mut buffer, before) = filled(t);
        let (driver, counts) = driver(&vec![1; before.len()], before.len(), true);
        receive(t, &driver, scheme, &mut buffer).sync().expect_err("the device failed");
        same(&buffer, &before, scheme);
        assert_eq!(counts.deallocated.load(Ordering::Relaxed), 1, "{scheme}");
        if scheme == Scheme::EmulatedCopy {
            assert_eq!(counts.transferred.load(Ordering::Relaxed), 0, "{scheme} waits for success");
        }
    }
}

pub(crate) fn a_transfer_that_breaks_off_changes_nothing(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            let what = format!("{scheme} into {slice:?}");
            let data = pattern(fresh_seed(), slice.len());
            let driver = breaking_driver(&data, data.len() / 2);
            let (mut buffer, before) = filled(t);
            let mut heap = vec![7; data.len()];
            let mut other = t.interface().allocate(data.len()).expect("a buffer");
            broke_off(receive(t, &driver, scheme, &mut buffer[slice.clone()]).sync(), &what);
            let pending = receive(t, &driver, scheme, &mut buffer[slice.clone()]);
            broke_off(pending.redirect([&mut heap[..]]), &what);
            let pending = receive(t, &driver, scheme, &mut buffer[slice.clone()]);
            broke_off(pending.redirect([&mut other[..]]), &what);
            let pending = receive(t, &driver, scheme, &mut buffer[slice.clone()]);
            pending.peek(&mut [&mut vec![0; data.len()]]).expect_err("nothing to peek at");
            broke_off(pending.sync(), &what);
            same(&buffer, &before, &what);
            assert!(heap.iter().all(|byte| *byte == 7), "{what}: the heap");
            assert!(other.iter().all(|byte| *byte == 0), "{what}: another buffer");
        }
    }
}

/// Takes the error of a device whose cable came off.
#[track_caller]
fn broke_off(result: Result<Reply, Failed>, what: &str) {
    let error = result.map(drop).expect_err("a part of the data is missing").error;
    assert!(error.to_string().contains("a cable came off"), "{what}: {error}");
}

pub(crate) fn of_several_inputs_none_is_delivered_when_one_breaks_off(t: &Scene) {
    let half = buffer_len(t) / 2;
    for scheme in strong_native() {
        let data = pattern(fresh_seed(), 2 * half);
        let driver = breaking_driver(&data, half - 1);
        let (mut buffer, before) = filled(t);
        let (one, two) = buffer.split_at_mut(half);
        let request = t.interface().request(&driver, ServiceId(0)).input(In::borrowed(scheme, one));
        broke_off(request.and_input(In::borrowed(scheme, two)).send(), scheme.name());
        same(&buffer, &before, scheme);
    }
}

pub(crate) fn a_device_that_may_fail_has_its_data_swapped(t: &Scene) {
    let (mut buffer, before) = filled(t);
    let data = pattern(fresh_seed(), before.len());
    let driver = breaking_driver(&data, data.len());
    let reply = replied(receive(t, &driver, Scheme::EmulatedCopy, &mut buffer));
    let granules = t.setup().granules() as u32;
    assert_eq!((reply.receipt().copied, reply.receipt().swapped), (0, granules));
    same(&buffer, &data, "the buffer");
}

pub(crate) fn data_from_outboard_memory_can_be_redirected(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            let data = pattern(fresh_seed(), slice.len());
            let (driver, _) = driver(&data, data.len(), false);
            let (mut buffer, before) = filled(t);
            let mut heap = vec![0; data.len()];
            let pending = receive(t, &driver, scheme, &mut buffer[slice.clone()]);
            pending.redirect([&mut heap[..]]).expect("data");
            same(&heap, &data, format_args!("{scheme}, to the heap"));
            let mut other = t.interface().allocate_at(9, data.len()).expect("a buffer");
            let pending = receive(t, &driver, scheme, &mut buffer[slice.clone()]);
            pending.redirect([&mut other[..]]).expect("data");
            same(&other, &data, format_args!("{scheme}, to another buffer"));
            same(&buffer, &before, format_args!("{scheme}: the buffer named in the request"));
        }
    }
}

pub(crate) fn data_from_outboard_memory_can_be_peeked_at(t: &Scene) {
    for scheme in strong_native() {
        let data = pattern(fresh_seed(), buffer_len(t));
        let (driver, counts) = driver(&data, data.len(), false);
        let (mut buffer, _) = filled(t);
        let pending = receive(t, &driver, scheme, &mut buffer);
        let mut peeked = [0; 64];
        assert_eq!(pending.peek(&mut [&mut peeked]), Ok(vec![64]), "{scheme}");
        same(&peeked, &data[..64], format_args!("{scheme}, peeked"));
        let transferred = if scheme == Scheme::EmulatedCopy { 0 } else { data.len() };
        assert_eq!(counts.transferred.load(Ordering::Relaxed), transferred, "{scheme}: read where it lies");
        replied(pending);
        same(&buffer, &data, scheme);
    }
}

pub(crate) fn output_pending_hides_data_from_outboard_memory(t: &Scene) {
    for scheme in strong_native() {
        for input in strong_native() {
            let (mut buffer, before) = filled(t);
            let pending = submit_out(t, scheme, &buffer);
            let data = pattern(fresh_seed(), before.len() - 2);
            let (driver, _) = driver(&data, data.len(), false);
            let last = before.len() - 1;
            replied(receive(t, &driver, input, &mut buffer[1..last]));
            same(&buffer[1..last], &data, format_args!("{scheme}, then {input}"));
            same(&t.holder().read(pending.id()), &before, format_args!("{scheme}, then {input}: the output"));
            t.holder().reply(pending.id());
            replied(pending);
        }
    }
}

/// A driver whose device transfers by itself: what it is to fill goes to whoever plays the device.
struct Starter(Sender<Transfer>);

impl Server for Starter {
    fn name(&self) -> &str {
        "starter"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let (len, elements) = (request.len(0), request.elements(0));
        let ranges = (0..elements).map(|element| len * element / elements..len * (element + 1) / elements);
        let transfers: Result<Vec<_>, _> = ranges.map(|range| request.begin_transfer(0, range)).collect();
        request.set_actual(0, len).expect("all of it");
        request.reply(Ok(()));
        let transfers = transfers.expect("memory");
        transfers.into_iter().for_each(|transfer| self.0.send(transfer).expect("a device"));
    }

    fn abort(&self, _request: RequestId) {}
}

/// A driver that only starts transfers, and its device's end.
fn starter() -> (ServerHandle, Receiver<Transfer>) {
    let (sender, device) = channel();
    (ServerHandle::new(Starter(sender)), device)
}

/// Two packets go to one buffer, the later one first. The server has replied long before.
pub(crate) fn the_last_of_several_transfers_ends_the_request(t: &Scene) {
    for scheme in strong_native() {
        for wrong in [None, Some(0), Some(1)] {
            let what = format!("{scheme}, packet {wrong:?} is damaged");
            let (mut buffer, before) = filled(t);
            let data = pattern(fresh_seed(), before.len());
            let (driver, device) = starter();
            let (one, two) = buffer.split_at_mut(before.len() / 2);
            let request = t.interface().request(&driver, ServiceId(0)).input(In::borrowed(scheme, one));
            let pending = request.and_input(In::borrowed(scheme, two)).submit().expect("a request");
            let packets = device.try_iter().zip(data.chunks(before.len() / 2)).enumerate();
            let mut packets: Vec<_> = packets.collect();
            let mut transfer_next = || {
                let (number, (transfer, bytes)) = packets.pop().expect("a packet");
                transfer.data().copy_from(bytes);
                transfer.end(if wrong == Some(number) { Err("damaged".into()) } else { Ok(()) });
            };
            transfer_next();
            assert!(!pending.wait(Duration::from_millis(2)), "{what}: one packet is under way");
            let result = thread::scope(|scope| {
                scope.spawn(transfer_next);
                pending.sync()
            });
            assert_eq!(result.is_ok(), wrong.is_none(), "{what}");
            same(&buffer, if wrong.is_none() { &data } else { &before }, &what);
        }
    }
}

/// A device sums its data while it transfers it, as Medusa and Afterburner do, and finds the sum wrong. Whether the client's buffer has
/// changed depends on the scheme that the client has asked for, and the receipt says so.
pub(crate) fn wrong_sums_spoil_buffers_by_weak_integrity_alone(t: &Scene) {
    for scheme in [Scheme::EmulatedCopy, Scheme::EmulatedShare] {
        for asks in [false, true] {
            let what = format!("{scheme}, the device is asked: {asks}");
            let (buffer, mut expected) = filled(t);
            let data = pattern(fresh_seed(), expected.len());
            let (starter, device) = starter();
            let driver = if asks { breaking_driver(&data, data.len() - 1) } else { starter };
            let request = t.interface().request(&driver, ServiceId(0)).input(In::owned(scheme, buffer));
            let pending = request.submit().expect("a request");
            for transfer in device.try_iter() {
                transfer.data().part(0..data.len() - 1).copy_from(&data);
                transfer.end(Err("the sum is wrong".into()));
            }
            let mut failed = pending.sync().map(drop).expect_err("the sum is wrong");
            let receipt = failed.buffers[0].elements[0].receipt;
            assert_eq!(receipt.effective, scheme, "{what}");
            if scheme.integrity() == Integrity::Weak {
                let stored = data.len() - 1;
                expected[..stored].copy_from_slice(&data[..stored]);
            }
            same(&failed.take_buffer().expect("the buffer"), &expected, &what);
        }
    }
}
