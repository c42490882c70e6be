//! Input from a device's own memory: every scheme takes it, and emulated copy without a system buffer.
//!
//! Source: thesis §7.4.4.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use genie_io::{
    Error, In, Incoming, Pending, RequestId, Server, ServerError, ServerHandle, Service, ServiceId,
};
use genie_memory::Span;
use genie_passing::model::Allocation;
use genie_passing::{Outboard, Scheme};

use super::schemes::{buffer_len, filled, replied, slices, strong_native, submit_out};
use crate::support::bytes::{pattern, same};
use crate::support::setup::fresh_seed;
use crate::support::transport::Transport;

/// A device with memory of its own.
#[derive(Default)]
struct Device {
    bytes: Vec<u8>,
    actual: usize,
    fails: bool,
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
    counts: Arc<Counts>,
}

impl Outboard for DeviceBuffer {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn transfer(&mut self, offset: usize, into: Span) {
        into.copy_from(&self.bytes[offset..offset + into.len()]);
        self.counts.transferred.fetch_add(into.len(), Ordering::Relaxed);
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
        let device = self.0.lock().expect("no panic before");
        let buffer = DeviceBuffer { bytes: device.bytes.clone(), counts: Arc::clone(&device.counts) };
        let linked = request.outboard(0, 0, Box::new(buffer));
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
    let device = Device { bytes: bytes.to_vec(), actual, fails, counts: Arc::clone(&counts) };
    (ServerHandle::new(Driver(Mutex::new(device))), counts)
}

/// Submits an input into borrowed bytes.
fn receive<'b>(t: &dyn Transport, driver: &ServerHandle, scheme: Scheme, bytes: &'b mut [u8]) -> Pending<'b> {
    let request = t.interface().request(driver, ServiceId(0));
    request.input(In::borrowed(scheme, bytes)).submit().unwrap_or_else(|failed| panic!("{scheme}: {failed}"))
}

pub(crate) fn data_comes_from_outboard_memory(t: &dyn Transport) {
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

pub(crate) fn no_more_than_said_comes_from_outboard_memory(t: &dyn Transport) {
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

pub(crate) fn a_failed_transfer_changes_nothing(t: &dyn Transport) {
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

pub(crate) fn data_from_outboard_memory_can_be_redirected(t: &dyn Transport) {
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

pub(crate) fn data_from_outboard_memory_can_be_peeked_at(t: &dyn Transport) {
    for scheme in strong_native() {
        let data = pattern(fresh_seed(), buffer_len(t));
        let (driver, _) = driver(&data, data.len(), false);
        let (mut buffer, _) = filled(t);
        let pending = receive(t, &driver, scheme, &mut buffer);
        let mut peeked = [0; 64];
        assert_eq!(pending.peek(&mut [&mut peeked]), Ok(vec![64]), "{scheme}");
        same(&peeked, &data[..64], format_args!("{scheme}, peeked"));
        replied(pending);
        same(&buffer, &data, scheme);
    }
}

pub(crate) fn output_pending_hides_data_from_outboard_memory(t: &dyn Transport) {
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
