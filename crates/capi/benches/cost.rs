//! What a request through the C interface takes beside the same one from Rust: `cargo bench -p genie-capi`.
//!
//! How: batches of both in turns, in one thread on one CPU, of a server whose thread is on another CPU, by the same channel kind.
//! Prints the medians of a request and between which times the middle half of the batches lies, in nanoseconds.

#![allow(unsafe_code, reason = "it calls the C interface")]

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::time::Instant;

use genie_capi::interface::io_connect;
use genie_capi::memory::io_allocate;
use genie_capi::request::io_request;
use genie_capi::types::{
    BufferHeader, IO_COPY, IO_EMULATED_COPY, IO_FOREVER, IO_HELD, IO_OUT, Location, NativeLocation,
    ScatterGather,
};
use genie_io::channel::directory::Directory;
use genie_io::channel::{ConnectOptions, Listener, ServeOptions};
use genie_io::servers::memory;
use genie_io::{Interface, Out};
use genie_passing::Scheme;
use rustix::thread::{CpuSet, sched_setaffinity};

const BATCH: u32 = 500;
const BATCHES: usize = 301;

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
    let directory = Directory::open().expect("a directory");
    let rust = genie.connect_with(&directory, "cost", &ConnectOptions::default()).expect("a server");
    let (name, mut c) = (CString::new("cost").expect("a name"), 0);
    // SAFETY: the name ends with a zero, and the server's place is valid.
    assert_eq!(unsafe { io_connect(0, name.as_ptr(), 0, &mut c) }, 0);

    println!("{:36} {:>22} {:>22} {:>6}", "ns a request", "Rust", "C", "more");
    for (what, scheme, len) in [
        ("no buffer", None, 0),
        ("output of 64 bytes by copy", Some((Scheme::Copy, IO_COPY)), 64),
        ("output of 64 KiB by emulated copy", Some((Scheme::EmulatedCopy, IO_EMULATED_COPY)), 64 << 10),
    ] {
        let bytes = genie.allocate(len.max(1)).expect("a buffer");
        let by_rust = || {
            let request = genie.request(&rust, memory::NULL);
            let request = match scheme {
                Some((scheme, _)) => request.out(Out::borrowed(scheme, &bytes[..len])),
                None => request,
            };
            drop(request.send().expect("a reply"));
        };
        let mut element = ScatterGather {
            scheme: scheme.map_or(0, |(_, scheme)| scheme),
            flags: IO_HELD,
            location: Location { native: NativeLocation { addr: io_allocate(0, len.max(1)), lender: 0 } },
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
        };
        let headers = [&raw mut header];
        let count = usize::from(scheme.is_some());
        let by_c = || {
            // SAFETY: the header and its element are valid, and so is the data.
            let returned =
                unsafe { io_request(c, memory::NULL.0, count, headers.as_ptr(), IO_FOREVER, null_mut()) };
            assert_eq!(returned, 0);
        };
        let (mut rusts, mut cs) = (Vec::new(), Vec::new());
        for turn in 0..BATCHES + 20 {
            let (rust, c) = (timed(by_rust), timed(by_c));
            // The first turns warm up.
            if turn >= 20 {
                rusts.push(rust);
                cs.push(c);
            }
        }
        let mut more: Vec<f64> = cs.iter().zip(&rusts).map(|(c, rust)| c - rust).collect();
        println!(
            "{what:36} {:>22} {:>22} {:>6.0}",
            spread(&mut rusts),
            spread(&mut cs),
            quartiles(&mut more)[1]
        );
    }
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("a CPU");
}

/// Nanoseconds that one of many takes.
fn timed(act: impl Fn()) -> f64 {
    let begun = Instant::now();
    (0..BATCH).for_each(|_| act());
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
}

fn quartiles(times: &mut [f64]) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| times[times.len() * quarter / 4])
}

fn spread(times: &mut [f64]) -> String {
    let [low, median, high] = quartiles(times);
    format!("{median:.0} ({low:.0} to {high:.0})")
}
