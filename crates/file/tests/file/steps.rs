//! Long fetches and stores, which go in steps: they are told of, and end where they are given up.

use genie_conformance::bytes::{pattern, same};
use genie_file::{self as file, File};
use genie_io::{In, Incoming, Out, RequestId, Server, ServerHandle, Service};
use genie_passing::Scheme;
use genie_sys::lock::Mutex;

use crate::Files;

const STEP: usize = 4 << 20;

/// A file server that gets to a request when that is given up.
struct Late(File, Mutex<Option<Incoming>>);

impl Server for Late {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn services(&self) -> &[Service] {
        self.0.services()
    }

    fn request(&self, request: Incoming) {
        *self.1.lock() = Some(request);
    }

    fn abort(&self, _request: RequestId) {
        let request = self.1.lock().take();
        self.0.request(request.expect("a request"));
    }
}

#[test]
fn what_is_long_is_whole_and_what_is_given_up_ends_with_a_step() {
    let files = Files::new(4);
    let bytes = pattern(6, 2 * STEP + 77);
    assert_eq!(files.try_store("long", 0, &bytes).expect("stored"), bytes.len());
    same(&std::fs::read(files.path("long")).expect("a file"), &bytes, "what was stored");
    same(&files.fetch("long", 0, 3 * STEP), &bytes, "what was fetched");
    same(&files.fetch("long", 5, STEP), &bytes[5..5 + STEP], "one step");

    let late = ServerHandle::new(Late(files.file.clone(), Mutex::default()));
    let buffer = files.interface.allocate(3 * STEP).expect("a buffer");
    let place = file::at("long", 1);
    let request = files.interface.request(&late, file::FETCH).argument(&place);
    let pending = request.input(In::owned(Scheme::EmulatedCopy, buffer)).submit().expect("a request");
    assert_eq!(pending.progress(0), 0);
    let mut reply = pending.abort().expect("a step");
    assert_eq!(reply.actual(), STEP);
    let buffer = reply.take_buffer().expect("the buffer");
    same(&buffer[..STEP], &bytes[1..=STEP], "one step");
    assert!(buffer[STEP..].iter().all(|byte| *byte == 0), "nothing beyond it");

    let place = file::at("part", 0);
    let request = files.interface.request(&late, file::STORE).argument(&place);
    let pending = request.out(Out::copy(&bytes)).submit().expect("a request");
    assert_eq!(pending.abort().expect("a step").actual(), STEP);
    same(&std::fs::read(files.path("part")).expect("a file"), &bytes[..STEP], "one step");
}
