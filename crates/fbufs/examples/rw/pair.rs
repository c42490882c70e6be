//! Round trips between two processes.
//!
//! How: the first process allocates a buffer, writes it and reads it back; the second reads and writes. Beside it, the same
//! with `write` and `read`, over a pair of pipes and over Unix sockets. The means take turns in blocks of rounds, so that none
//! is measured while the other process sleeps at another one's descriptor.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use genie_fbufs::{Channel, Config, Error, Pool};
use genie_sys::socket::Listener;

use crate::{BLOCKS, LENS, Outcome, ROUNDS, line, table, time};

/// The first process.
pub(crate) fn run() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let pool = Pool::new(Config::default())?;
    let listener = Listener::bind(&directory.path().join("fbufs"))?;
    let sockets = std::os::unix::net::UnixListener::bind(directory.path().join("unix"))?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(directory.path())
        .stdin(Stdio::from(pool.descriptor()?))
        .spawn()?;
    genie_sys::poll::readable(&listener, None)?;
    let channel = pool.accept(&listener)?.ok_or("nobody came")?;
    let mut unix = sockets.accept()?.0;
    let mut there = pipe_of(&sockets)?;
    table("round trips between two processes");
    for len in LENS {
        let mut samples: [Vec<f64>; 3] = Default::default();
        let mut bytes = vec![0; len];
        for _ in 0..BLOCKS {
            time(
                &mut samples[0],
                || {
                    channel.write(pool.allocate(len)?).map_err(Error::from)?;
                    drop(channel.read(usize::MAX)?);
                    Ok(())
                },
                || Ok(()),
            )?;
            time(
                &mut samples[1],
                || {
                    there.1.write_all(&bytes)?;
                    Ok(there.0.read_exact(&mut bytes)?)
                },
                || Ok(()),
            )?;
            time(
                &mut samples[2],
                || {
                    unix.write_all(&bytes)?;
                    Ok(unix.read_exact(&mut bytes)?)
                },
                || Ok(()),
            )?;
        }
        line(len, samples, None);
    }
    drop((channel, unix, there));
    child.wait()?;
    Ok(())
}

/// Two pipes with the child, which sends their ends here.
fn pipe_of(sockets: &std::os::unix::net::UnixListener) -> Outcome<(std::fs::File, std::fs::File)> {
    let socket = genie_sys::socket::Socket::connect(
        &sockets.local_addr()?.as_pathname().ok_or("no path")?.with_file_name("pipes"),
    )?;
    let received = socket.receive(&mut [0])?;
    let [read, write]: [OwnedFd; 2] = received.descriptors.try_into().map_err(|_| "no pipes")?;
    Ok((read.into(), write.into()))
}

/// The second process.
pub(crate) fn echo(directory: &std::path::Path) -> Outcome<()> {
    let pool = Pool::join(std::io::stdin().as_fd().try_clone_to_owned()?, Config::default())?;
    let pipes = Listener::bind(&directory.join("pipes"))?;
    let channel: Channel = pool.connect(&directory.join("fbufs"))?;
    let mut unix = UnixStream::connect(directory.join("unix"))?;
    genie_sys::poll::readable(&pipes, None)?;
    let socket = pipes.accept()?.ok_or("nobody came")?;
    let ((mut from, theirs), (back, mut to)) = (std::io::pipe()?, std::io::pipe()?);
    socket.send(&[1], &[back.as_fd(), theirs.as_fd()])?;
    drop((back, theirs));
    for len in LENS {
        let mut bytes = vec![0; len];
        for _ in 0..BLOCKS {
            for _ in 0..ROUNDS {
                let fbuf = channel.read(usize::MAX)?.ok_or("the other end is gone")?;
                channel.write(fbuf).map_err(Error::from)?;
            }
            for _ in 0..ROUNDS {
                from.read_exact(&mut bytes)?;
                to.write_all(&bytes)?;
            }
            for _ in 0..ROUNDS {
                unix.read_exact(&mut bytes)?;
                unix.write_all(&bytes)?;
            }
        }
    }
    Ok(())
}
