//! The programs of a pipeline: what each does with the standard descriptors, and what it reports.

use std::ffi::{CStr, c_int, c_void};
use std::io::Write;
use std::path::Path;
use std::ptr::null_mut;

use genie_fbufs::c::calls::{uf_allocate, uf_allocate_for, uf_deallocate, uf_get, uf_read, uf_write};
use genie_fbufs::c::channels::{UF_PASSES_FBUFS, UF_PASSES_INPUT, uf_close, uf_explain, uf_set_nonblocking};
use genie_fbufs::c::failure::uf_error_text;
use genie_fbufs::c::pipes::uf_take_over;
use genie_fbufs::c::streams::uf_fdopen;

use super::{COUNT, LENGTH, PART, said};

/// Plays the role of one program of a pipeline, with the standard descriptors.
pub(super) fn play(role: &str) {
    match role {
        "source" => source(COUNT, LENGTH),
        "source-of-many" => source(4 * COUNT, LENGTH / 4),
        "lines" => lines(true),
        "lines-unasked" => lines(false),
        "filter" => filter(),
        "sink" => sink(0),
        "part" => read_part(PART),
        "part-and-close" => {
            read_part(PART);
            // SAFETY: the library's descriptor.
            unsafe { assert_eq!(uf_close(0), 0) };
        }
        "nothing" => read_part(0),
        "rest" => sink(PART),
        "killed" => be_killed_in_a_read(),
        "rest-of-killed" => sink(said(&reported(), "killed at ")[0].parse().unwrap()),
        "reader-of-lines" => read_lines(),
        "endless" => endless(),
        "short" => read_some(),
        role => panic!("no role {role}"),
    }
}

fn report(line: &str) {
    let path = std::env::var_os("REPORT").unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(Path::new(&path)).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// What has been reported so far; nothing before the first role has reported something.
fn reported() -> String {
    std::fs::read_to_string(std::env::var_os("REPORT").unwrap()).unwrap_or_default()
}

pub(super) fn sentence() -> String {
    // SAFETY: a string until this thread's next failure.
    unsafe { CStr::from_ptr(uf_error_text()) }.to_string_lossy().into_owned()
}

/// Where an address is: the object that is mapped there, and the place in the object.
fn place(address: *const c_void) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
    for line in maps.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-').unwrap();
        if (number(start)..number(end)).contains(&address.addr()) {
            return format!("{}:{:x}", fields[4], number(fields[2]) + address.addr() - number(start));
        }
    }
    panic!("nothing is mapped at {address:?}")
}

pub(super) fn bytes(at: usize) -> u8 {
    (at * 31 + 7) as u8
}

/// Writes a buffer at a time, by reference as soon as that is possible, and reports where each lay.
fn source(count: usize, length: usize) {
    // SAFETY: the descriptor, buffers and lengths are those that the calls gave and were given.
    unsafe {
        assert_eq!(uf_take_over(1), 0, "{}", sentence());
        for at in 0..count {
            let buffer = uf_allocate_for(1, length);
            assert!(!buffer.is_null(), "{}", sentence());
            buffer.cast::<u8>().write_bytes(bytes(at * length / LENGTH), length);
            let (is_passed, here) = (uf_explain(1, null_mut()) & UF_PASSES_FBUFS != 0, place(buffer));
            assert_eq!(uf_write(1, buffer, length), length as isize, "{}", sentence());
            report(&format!("written {at} {} {here}", if is_passed { "passed" } else { "copied" }));
        }
        assert_eq!(uf_set_nonblocking(1, 1), -1);
        assert_eq!(uf_close(1), 0);
    }
}

/// Passes on what it reads, by what it has read.
fn filter() {
    let mut buffer = null_mut();
    // SAFETY: as above.
    unsafe {
        assert_eq!((uf_take_over(0), uf_take_over(1)), (0, 0));
        loop {
            let count = uf_get(0, &mut buffer);
            assert!(count >= 0, "{}", sentence());
            if count == 0 {
                break;
            }
            assert_eq!(uf_write(1, buffer, count as usize), count, "{}", sentence());
        }
    }
}

/// Reads all, and reports where the buffers lay that came by reference.
fn sink(from: usize) {
    let (mut total, mut buffer) = (from, null_mut());
    // SAFETY: as above.
    unsafe {
        assert_eq!(uf_take_over(0), 0);
        loop {
            let count = uf_get(0, &mut buffer);
            assert!(count >= 0, "{}", sentence());
            if count == 0 {
                break;
            }
            let count = count as usize;
            let found = std::slice::from_raw_parts(buffer.cast::<u8>(), count);
            assert!(
                (0..count).step_by(1000).all(|at| found[at] == bytes((total + at) / LENGTH)),
                "at {total}"
            );
            let is_passed = uf_explain(0, null_mut()) & UF_PASSES_INPUT != 0;
            if is_passed && count == LENGTH && total % LENGTH == 0 {
                report(&format!("read {} {}", total / LENGTH, place(buffer)));
            }
            total += count;
            uf_deallocate(buffer, count);
        }
        report(&format!("sink {total}"));
    }
}

/// Reads so many bytes, of the last buffer a part, and ends.
fn read_part(most: usize) {
    let (mut total, mut buffer) = (0, null_mut());
    // SAFETY: as above.
    unsafe {
        assert_eq!(uf_take_over(0), 0);
        while total < most {
            let count = uf_read(0, &mut buffer, most - total);
            assert!(count > 0, "{}", sentence());
            let found = std::slice::from_raw_parts(buffer.cast::<u8>(), count as usize);
            assert!((0..found.len()).all(|at| found[at] == bytes((total + at) / LENGTH)), "at {total}");
            total += count as usize;
            uf_deallocate(buffer, count as usize);
        }
    }
}

/// Reads until buffers are passed, then a part of one, and is killed while the next part of it is copied: a page of that is not there.
fn be_killed_in_a_read() {
    extern "C" fn kill(_: c_int) {
        // SAFETY: no memory is touched.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    let (mut total, mut buffer) = (0, null_mut());
    let mut last = String::new();
    // SAFETY: as above; nothing uses the page that is taken away but the library's copy, and no other thread the environment.
    unsafe {
        // With traps, the library would make the page accessible again.
        std::env::remove_var("GENIE_FBUFS_TRAPS");
        assert_eq!(uf_take_over(0), 0);
        while last.is_empty() || total % LENGTH != 0 {
            let count = uf_get(0, &mut buffer);
            assert!(count > 0, "{}", sentence());
            total += count as usize;
            if count as usize == LENGTH && uf_explain(0, null_mut()) & UF_PASSES_INPUT != 0 {
                last = place(buffer);
            }
            // Kept, so that the next one lies elsewhere.
        }
        let next = format!("written {} passed ", total / LENGTH);
        let next = loop {
            if let Some(next) = said(&reported(), &next).first() {
                break next.to_string();
            }
            std::thread::yield_now();
        };
        let offset = |place: &str| isize::from_str_radix(place.split_once(':').unwrap().1, 16).unwrap();
        let page = buffer.wrapping_byte_offset(offset(&next) - offset(&last) + 16384);
        let first = uf_read(0, &mut buffer, 1000);
        assert_eq!(first, 1000, "{}", sentence());
        report(&format!("killed at {}", total + 1000));
        libc::signal(libc::SIGSEGV, kill as *const () as usize);
        assert_eq!(libc::mprotect(page, 4096, libc::PROT_NONE), 0);
        uf_read(0, &mut buffer, 100_000);
    }
    report("not killed");
}

fn lines(takes_over: bool) {
    // SAFETY: as above; a stream of the C library's.
    unsafe {
        if takes_over {
            assert_eq!(uf_take_over(1), 0, "{}", sentence());
        }
        let stream = uf_fdopen(1, c"w".as_ptr());
        assert!(!stream.is_null(), "{}", sentence());
        for at in 0..100_000 {
            let line = format!("line {at}\n");
            assert_eq!(libc::fwrite(line.as_ptr().cast(), 1, line.len(), stream), line.len());
        }
        assert_eq!(libc::fflush(stream), 0);
        report(&format!("lines {}", uf_explain(1, null_mut()) & UF_PASSES_FBUFS));
        assert_eq!(libc::fclose(stream), 0);
    }
}

fn read_lines() {
    // SAFETY: as above.
    unsafe {
        assert_eq!(uf_take_over(0), 0, "{}", sentence());
        let stream = uf_fdopen(0, c"r".as_ptr());
        assert!(!stream.is_null(), "{}", sentence());
        let mut line = [0u8; 100];
        for at in 0..100_000 {
            assert!(!libc::fgets(line.as_mut_ptr().cast(), 100, stream).is_null(), "line {at}");
            let found = CStr::from_bytes_until_nul(&line).unwrap().to_str().unwrap();
            assert_eq!(found, format!("line {at}\n"));
        }
        assert!(libc::fgets(line.as_mut_ptr().cast(), 100, stream).is_null());
        assert_eq!(libc::feof(stream), 1);
        report("all lines");
    }
}

/// Writes until nobody reads.
fn endless() {
    // SAFETY: as above. Rust ignores SIGPIPE, of which this is to die as other programs do.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        assert_eq!(uf_take_over(1), 0);
        loop {
            let buffer = uf_allocate(LENGTH);
            assert!(!buffer.is_null(), "{}", sentence());
            if uf_write(1, buffer, LENGTH) < 0 {
                report("an error instead of SIGPIPE");
                libc::_exit(1);
            }
        }
    }
}

/// Reads until buffers are passed, and ends.
fn read_some() {
    let mut buffer = null_mut();
    // SAFETY: as above.
    unsafe {
        assert_eq!(uf_take_over(0), 0);
        while uf_explain(0, null_mut()) & UF_PASSES_INPUT == 0 {
            assert!(uf_get(0, &mut buffer) > 0, "{}", sentence());
        }
    }
    report("read some");
}
