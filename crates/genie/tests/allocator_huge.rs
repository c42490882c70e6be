//! A program whose large allocations are of huge pages: output from them is protected while it is pending.

use std::sync::Arc;

use genie::mechanism::{GranuleKind, Protection};
use genie::{Incoming, Interface, Out, Reason, RequestId, Server, ServerHandle, Service, ServiceId};
use genie_sys::lock::Mutex;
use image::{ImageBuffer, Rgba};

#[path = "../../sys/tests/skip/mod.rs"]
mod skip;

#[global_allocator]
static ALLOCATOR: genie::Allocator = genie::Allocator::new().granules(GranuleKind::Huge).threshold(1 << 20);

/// A server that keeps every request.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<Incoming>>>);

static SERVICES: [Service; 1] = [Service::new("keep", true, false)];

impl Server for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.lock().push(request);
    }

    fn abort(&self, _: RequestId) {}
}

/// Once, such a program could open no interface on a machine without free huge pages: neither its allocations nor what the
/// interface needs for itself were to be had.
#[test]
fn a_submitted_picture_is_not_copied_and_may_be_painted_over_at_once() {
    let test = "a_submitted_picture_is_not_copied_and_may_be_painted_over_at_once";
    let mut picture = ImageBuffer::from_pixel(2048, 2048, Rgba([1u8, 2, 3, 4]));
    let genie = Interface::open().expect("an interface");
    if genie.space().region_at(picture.as_ptr().addr(), 16 << 20).is_none() {
        a_picture_of_the_systems_memory_is_copied(&genie, &mut picture);
        return skip::skip(test, "8 huge pages of 2 MiB are not free");
    }
    if genie.space().protection() != Protection::Full {
        return skip::skip(test, "the kernel grants no userfaultfd that catches the kernel's own stores");
    }
    let keeper = Keeper::default();
    let server = ServerHandle::new(keeper.clone());
    let request = genie.request(&server, ServiceId(0)).out(Out::emulated_copy(&picture));
    let pending = request.submit().expect("a request");
    picture.put_pixel(0, 0, Rgba([9; 4]));
    let request = keeper.0.lock().pop().expect("a request");
    let sent = ImageBuffer::from_pixel(2048, 2048, Rgba([1u8, 2, 3, 4]));
    assert!(request.output(0).expect("the data").mismatch(&sent).is_none(), "the output changed");
    request.reply(Ok(()));
    let receipt = pending.sync().expect("a reply").buffers[0].elements[0].receipt;
    assert_eq!((receipt.copied, receipt.referenced, receipt.protected), (0, 8, 8), "{receipt}");
    assert_eq!(receipt.faults, 1, "{receipt}");
    genie.space().check().expect("the tables add up");
}

/// Where the reserve is empty, memory is the system's, which the interface passes as any foreign memory.
fn a_picture_of_the_systems_memory_is_copied(
    genie: &Interface,
    picture: &mut ImageBuffer<Rgba<u8>, Vec<u8>>,
) {
    let keeper = Keeper::default();
    let server = ServerHandle::new(keeper.clone());
    let request = genie.request(&server, ServiceId(0)).out(Out::emulated_copy(&*picture));
    let pending = request.submit().expect("a request");
    picture.put_pixel(0, 0, Rgba([9; 4]));
    let request = keeper.0.lock().pop().expect("a request");
    let sent = ImageBuffer::from_pixel(2048, 2048, Rgba([1u8, 2, 3, 4]));
    assert!(request.output(0).expect("the data").mismatch(&sent).is_none(), "the output changed");
    request.reply(Ok(()));
    let receipt = pending.sync().expect("a reply").buffers[0].elements[0].receipt;
    assert_eq!((receipt.copied, receipt.reason), (16 << 20, Some(Reason::Foreign)), "{receipt}");
    assert_eq!(genie.space().made_of().reserved, 0, "the interface's own memory is of other pages");
    genie.space().check().expect("the tables add up");
}
