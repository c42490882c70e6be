//! What a request through the C interface takes beside the same one from Rust: `cargo bench -p genie-capi`.
//!
//! How: both take turns, in one thread on one CPU, at a server whose thread is on another CPU. Each turn connects anew, since
//! the second of two clients of one server is served later than the first. A turn is some batches of requests.
//! Prints, in nanoseconds, the medians of a request and between which times the middle half of the batches lies; and the same of the
//! differences between each two turns that follow each other, since a machine's speed may change from one pair to the next.

#![allow(unsafe_code, reason = "it calls the C interface")]

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::Instant;

use genie_capi::connect::{io_connect, io_disconnect};
use genie_capi::memory::{io_allocate, io_free};
use genie_capi::request::io_request;
use genie_capi::types::{
    BufferHeader, IO_COPY, IO_EMULATED_COPY, IO_FOREVER, IO_HELD, IO_OUT, Location, NativeLocation,
    ScatterGather,
};
use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_io::servers::memory;
use genie_io::{Interface, Out};
use genie_passing::Scheme;
use rustix::thread::{CpuSet, sched_setaffinity};

const BATCH: u32 = 500;
/// Batches of a turn, of which the first ones warm up.
const BATCHES: usize = 15;
const WARM_UP: usize = 5;
const TURNS: usize = 40;

fn main() {
    let scratch = tempfile::tempdir().expect("a folder");
    // SAFETY: this is the only thread.
    unsafe { std::env::set_var("GENIE_RUNTIME_DIR", scratch.path().join("run")) };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    pin(cpus - 1);
    let server = memory::Memory::customized();
    let _running = Listener::bind("cost", server, ServeOptions::default()).expect("a name").start();
    pin(0);
    let genie = Interface::open().expect("an interface");
    println!("{:36} {:>22} {:>22} {:>20}", "ns a request", "Rust", "C", "more");
    for (what, scheme, len) in [
        ("no buffer", None, 0),
        ("output of 64 bytes by copy", Some((Scheme::Copy, IO_COPY)), 64),
        ("output of 64 KiB by emulated copy", Some((Scheme::EmulatedCopy, IO_EMULATED_COPY)), 64 << 10),
    ] {
        let (mut rust, mut c, mut more) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let from_rust = rust_turn(&genie, scheme.map(|(scheme, _)| scheme), len);
            let from_c = c_turn(scheme.map(|(_, scheme)| scheme), len);
            more.push(quartiles(from_c.clone())[1] - quartiles(from_rust.clone())[1]);
            rust.extend(from_rust);
            c.extend(from_c);
        }
        let [rust, c, more] = [rust, c, more].map(|times| spread(quartiles(times)));
        println!("{what:36} {rust:>22} {c:>22} {more:>20}");
    }
}

fn rust_turn(genie: &Interface, scheme: Option<Scheme>, len: usize) -> Vec<f64> {
    let directory = Directory::open().expect("a directory");
    let server = genie.connect_with(&directory, "cost", &ConnectOptions::default()).expect("a server");
    let bytes = genie.allocate(len.max(1)).expect("a buffer");
    batches(|| {
        let request = genie.request(&server, memory::NULL);
        let request = match scheme {
            Some(scheme) => request.out(Out::borrowed(scheme, &bytes[..len])),
            None => request,
        };
        drop(request.send().expect("a reply"));
    })
}

fn c_turn(scheme: Option<u32>, len: usize) -> Vec<f64> {
    let mut server = 0;
    // SAFETY: the name is a string, and the server's place is valid.
    assert_eq!(unsafe { io_connect(0, c"cost".as_ptr(), 0, &mut server) }, 0);
    let addr = io_allocate(0, len.max(1));
    let mut element = ScatterGather {
        scheme: scheme.unwrap_or_default(),
        flags: IO_HELD,
        location: Location { native: NativeLocation { addr, lender: 0 } },
        length: len,
        next_sg: null_mut(),
        receiptp: null_mut(),
    };
    let mut header = BufferHeader {
        out_arg_length: 0,
        out_arg: null::<c_void>(),
        in_arg_length: 0,
        in_arg: null_mut(),
        in_arg_actual: 0,
        first_sg: &mut element,
        direction: IO_OUT,
        actual_lengthp: null_mut(),
        totalp: null_mut(),
    };
    let headers = [&raw mut header];
    let count = usize::from(scheme.is_some());
    let times = batches(|| {
        // SAFETY: the header and its element are valid, and so is the data.
        let returned =
            unsafe { io_request(server, memory::NULL.0, count, headers.as_ptr(), IO_FOREVER, null_mut()) };
        assert_eq!(returned, 0);
    });
    assert_eq!((io_free(addr), io_disconnect(server)), (0, 0));
    times
}

/// Nanoseconds that a request takes, for each batch of a turn.
fn batches(act: impl Fn()) -> Vec<f64> {
    let batch = |_| {
        let begun = Instant::now();
        (0..BATCH).for_each(|_| act());
        begun.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
    };
    (0..BATCHES).map(batch).skip(WARM_UP).collect()
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("a CPU");
}

fn quartiles(mut times: Vec<f64>) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| times[times.len() * quarter / 4])
}

fn spread([low, median, high]: [f64; 3]) -> String {
    format!("{median:.0} ({low:.0} to {high:.0})")
}
