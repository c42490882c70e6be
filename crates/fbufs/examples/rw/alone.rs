//! The paper's micro-benchmarks, in one process.
#![allow(unsafe_code, reason = "calls the interface for C, and maps files as programs do that do not use it")]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr::null_mut;
use std::time::Instant;

use genie_fbufs::c::calls::{uf_allocate, uf_deallocate, uf_mmap, uf_read, uf_unmap, uf_write};
use genie_fbufs::c::channels::uf_pair;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{BLOCKS, LENS, Outcome, ROUNDS, line, median, table, time};

const MIB: usize = 1 << 20;

/// What the benchmarks write to and read from.
struct Means {
    channel: [c_int; 2],
    pipe: (PipeReader, PipeWriter),
    unix: (UnixStream, UnixStream),
}

pub(crate) fn run() -> Outcome<()> {
    let mut channel = [0; 2];
    // SAFETY: room for two numbers.
    ensure(unsafe { uf_pair(channel.as_mut_ptr()) } == 0)?;
    let mut means = Means { channel, pipe: std::io::pipe()?, unix: UnixStream::pair()? };
    discard(&mut means)?;
    loopback(&mut means)?;
    mapwr(&mut means)
}

fn discard(Means { channel: [to, from], pipe, unix }: &mut Means) -> Outcome<()> {
    table("discard: uf_allocate and uf_write, beside write");
    for len in LENS {
        let (mut samples, bytes): ([Vec<f64>; 3], _) = (Default::default(), vec![0; len]);
        let mut back = vec![0; len];
        for _ in 0..BLOCKS {
            time(&mut samples[0], || put(*to, len), || get(*from, len))?;
            time(&mut samples[1], || Ok(pipe.1.write_all(&bytes)?), || Ok(pipe.0.read_exact(&mut back)?))?;
            time(&mut samples[2], || Ok(unix.0.write_all(&bytes)?), || Ok(unix.1.read_exact(&mut back)?))?;
        }
        line(len, samples, Some(34));
    }
    Ok(())
}

fn loopback(Means { channel: [to, from], pipe, unix }: &mut Means) -> Outcome<()> {
    table("loopback: uf_allocate, uf_write, uf_read and uf_deallocate, beside write and read");
    for len in LENS {
        let (mut samples, mut bytes): ([Vec<f64>; 3], _) = (Default::default(), vec![0; len]);
        let mut through = |to: &mut dyn Write, from: &mut dyn Read| {
            to.write_all(&bytes)?;
            Ok(from.read_exact(&mut bytes)?)
        };
        for _ in 0..BLOCKS {
            time(&mut samples[0], || put(*to, len).and_then(|()| get(*from, len)), || Ok(()))?;
            time(&mut samples[1], || through(&mut pipe.1, &mut pipe.0), || Ok(()))?;
            time(&mut samples[2], || through(&mut unix.0, &mut unix.1), || Ok(()))?;
        }
        line(len, samples, Some(31));
    }
    Ok(())
}

/// Maps a file and writes it: a part of the benchmark's length alone, and all of a MiB in parts of that length.
fn mapwr(Means { pipe, unix, .. }: &mut Means) -> Outcome<()> {
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().write_all_at(&vec![1; MIB], 0)?;
    for whole in [None, Some(MIB)] {
        let what = whole.map_or("that much of a file", |_| "a file of 1 MiB, in parts; for a part");
        println!(
            "\nmapwr: open, uf_mmap, uf_write, uf_unmap and close of {what}; beside mmap, write, munmap"
        );
        println!("        pipe: fbufs  standard    %   unix: fbufs  standard    %   the paper: %");
        for len in LENS {
            let (mut samples, file): ([Vec<f64>; 4], _) = (Default::default(), file.path());
            let whole = whole.unwrap_or(len);
            for _ in 0..BLOCKS * ROUNDS * len / whole {
                let mut in_parts = |index: usize, fbufs, to: &dyn AsFd, from: &mut dyn Read| {
                    samples[index].push(map_and_write(file, fbufs, to.as_fd(), from, len, whole)?);
                    Outcome::Ok(())
                };
                in_parts(0, true, &pipe.1, &mut pipe.0)?;
                in_parts(1, false, &pipe.1, &mut pipe.0)?;
                in_parts(2, true, &unix.0, &mut unix.1)?;
                in_parts(3, false, &unix.0, &mut unix.1)?;
            }
            let [pipe, pipe_std, unix, unix_std] = samples.map(median);
            let of = |passed, copied| format!("{passed:8.2} {copied:9.2} {:4.0}", 100.0 * passed / copied);
            let paper = if len == 8 << 10 { "68" } else { "" };
            println!("{len:<10} {} {:5}{} {paper:>14}", of(pipe, pipe_std), "", of(unix, unix_std));
        }
    }
    Ok(())
}

/// Returns the time in us for each part.
fn map_and_write(
    path: &Path,
    fbufs: bool,
    to: BorrowedFd<'_>,
    from: &mut dyn Read,
    len: usize,
    whole: usize,
) -> Outcome<f64> {
    let (start, mut back) = (Instant::now(), [0; 64 << 10]);
    let file = File::open(path)?;
    let addr = if fbufs { map_fbufs(&file, whole)? } else { map(&file, whole)? };
    let mut time = start.elapsed();
    for at in (0..whole).step_by(len) {
        let start = Instant::now();
        if fbufs {
            ensure(uf_write(to.as_raw_fd(), addr.wrapping_byte_add(at), len) == len as isize)?;
        } else {
            // SAFETY: mapped above; nobody shortens the file.
            let part = unsafe { std::slice::from_raw_parts(addr.wrapping_byte_add(at).cast::<u8>(), len) };
            ensure(rustix::io::write(to, part)? == len)?;
        }
        time += start.elapsed();
        from.read_exact(&mut back[..len])?;
    }
    let start = Instant::now();
    // SAFETY: what was mapped is unmapped once, and used no more.
    ensure(if fbufs { uf_unmap(addr, whole) == 0 } else { unsafe { munmap(addr, whole) }.is_ok() })?;
    drop(file);
    Ok((time + start.elapsed()).as_secs_f64() * 1e6 / (whole / len) as f64)
}

fn map_fbufs(file: &File, len: usize) -> Outcome<*mut c_void> {
    let addr = uf_mmap(null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
    ensure(addr.addr() != usize::MAX).map(|()| addr.cast())
}

fn map(file: &File, len: usize) -> Outcome<*mut c_void> {
    // SAFETY: mapped where the kernel finds room.
    Ok(unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }?)
}

fn ensure(is_done: bool) -> Outcome<()> {
    if is_done { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

fn put(fd: c_int, len: usize) -> Outcome<()> {
    ensure(uf_write(fd, uf_allocate(len), len) == len as isize)
}

fn get(fd: c_int, len: usize) -> Outcome<()> {
    let mut fbuf: *mut c_void = null_mut();
    // SAFETY: room for an address.
    ensure(unsafe { uf_read(fd, &mut fbuf, len) } == len as isize)?;
    ensure(uf_deallocate(fbuf, len).is_null())
}
