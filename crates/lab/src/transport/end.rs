//! One process's end of a transport.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;

use genie_fbufs::{Channel, Pool};

use super::{Calls, Means, Transport};
use crate::error::{Error, Result};

/// The length that the kernel's buffers must have where one thread writes before it reads.
const LONGEST: usize = 256 << 10;

/// An end, with what its calls need.
#[derive(Debug)]
pub(crate) enum End {
    /// Fbufs by a channel.
    Channel(Box<Channel>),
    /// Fbufs by descriptors of the kernel's.
    Fbufs { pool: Pool, reader: File, writer: File },
    /// The standard calls.
    Standard { buffer: Vec<u8>, reader: File, writer: File },
}

impl End {
    /// Takes an end of one of the kernel's transports.
    pub(super) fn of(calls: Calls, descriptors: Vec<OwnedFd>, pool: &Pool) -> Result<Self> {
        let [reader, writer]: [OwnedFd; 2] =
            descriptors.try_into().map_err(|_| Error::Peer("an end has two descriptors".to_owned()))?;
        let (reader, writer) = (reader.into(), writer.into());
        Ok(match calls {
            Calls::Standard => Self::Standard { buffer: Vec::new(), reader, writer },
            Calls::Fbufs => Self::Fbufs { pool: pool.clone(), reader, writer },
        })
    }

    /// Both ends in this process, for one thread, which writes up to 256 KiB before it reads.
    ///
    /// # Errors
    /// No transport can be had, or the kernel gives it no room for so much.
    pub(crate) fn both(means: Means, pool: &Pool) -> Result<[Self; 2]> {
        if means.transport == Transport::Channel {
            let (channel, offer) = pool.channel()?;
            return Ok([channel, pool.take(offer)?].map(|end| Self::Channel(Box::new(end))));
        }
        let ends = means.transport.open().map_err(of_transport)?;
        for descriptors in &ends {
            let writer = &descriptors[1];
            match means.transport {
                Transport::Pipe => rustix::pipe::fcntl_setpipe_size(writer, 4 * LONGEST).map(drop),
                _ => rustix::net::sockopt::set_socket_send_buffer_size(writer, LONGEST),
            }
            .map_err(|errno| of_transport(errno.into()))?;
        }
        let [one, other] = ends;
        Ok([Self::of(means.calls, one, pool)?, Self::of(means.calls, other, pool)?])
    }

    /// Writes `len` bytes: the program stores into its buffer, allocates that before if it is an fbuf, and writes it.
    pub(crate) fn write(&mut self, len: usize, store: impl FnOnce(&mut [u8])) -> Result<()> {
        match self {
            Self::Channel(channel) => {
                let mut fbuf = channel.pool().allocate(len)?;
                store(&mut fbuf);
                channel.write(fbuf).map_err(|unwritten| unwritten.error)?;
            }
            Self::Fbufs { pool, writer, .. } => {
                let mut fbuf = pool.allocate(len)?;
                store(&mut fbuf);
                pool.write(writer, fbuf).map_err(|unwritten| unwritten.error)?;
            }
            Self::Standard { buffer, writer, .. } => {
                let bytes = room(buffer, len);
                store(bytes);
                writer.write_all(bytes).map_err(of_transport)?;
            }
        }
        Ok(())
    }

    /// Reads once, at most `len` bytes; returns how many there were.
    pub(crate) fn read(&mut self, len: usize, load: impl FnOnce(&[u8]) -> Result<()>) -> Result<usize> {
        let fbuf = match self {
            Self::Channel(channel) => channel.read(len)?,
            Self::Fbufs { pool, reader, .. } => pool.read(&*reader, len)?,
            Self::Standard { buffer, reader, .. } => {
                let bytes = room(buffer, len);
                let read = reader.read(bytes).map_err(of_transport)?;
                if read == 0 {
                    return Err(gone());
                }
                return load(&bytes[..read]).map(|()| read);
            }
        };
        let fbuf = fbuf.ok_or_else(gone)?;
        load(&fbuf).map(|()| fbuf.len())
    }

    /// Reads `total` bytes, by calls for at most `len` each; `load` sees them with the place of the first one.
    pub(crate) fn read_all(
        &mut self,
        len: usize,
        total: usize,
        mut load: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < total {
            done += self.read(len.min(total - done), |bytes| load(done, bytes))?;
        }
        Ok(())
    }

    /// Reads a buffer of `len` bytes and writes it back.
    pub(super) fn echo(&mut self, len: usize) -> Result<()> {
        match self {
            Self::Channel(channel) => {
                let fbuf = channel.read(len)?.ok_or_else(gone)?;
                channel.write(fbuf).map_err(|unwritten| unwritten.error)?;
                Ok(())
            }
            Self::Standard { buffer, reader, writer } => {
                let bytes = room(buffer, len);
                reader.read_exact(bytes).and_then(|()| writer.write_all(bytes)).map_err(of_transport)
            }
            Self::Fbufs { .. } => Err(Error::Peer("buffers that come in parts are not sent back".to_owned())),
        }
    }

    /// Sends a whole file in parts: by the standard calls it is read and written; with fbufs it is mapped, and its parts are
    /// written.
    pub(crate) fn send_file(&mut self, file: &mut File, len: usize, part: usize) -> Result<()> {
        let parts = || (0..len).step_by(part).map(|at| at..len.min(at + part));
        match self {
            Self::Channel(channel) => {
                let mapped = channel.pool().map(&*file, 0, len)?;
                parts().try_for_each(|part| Ok(mapped.write_to_channel(channel, part).map(drop)?))
            }
            Self::Fbufs { pool, writer, .. } => {
                let mapped = pool.map(&*file, 0, len)?;
                parts().try_for_each(|part| Ok(mapped.write(&*writer, part).map(drop)?))
            }
            Self::Standard { buffer, writer, .. } => {
                let bytes = room(buffer, part);
                let mut copy = || {
                    loop {
                        let read = file.read(bytes)?;
                        if read == 0 {
                            return file.rewind();
                        }
                        writer.write_all(&bytes[..read])?;
                    }
                };
                copy().map_err(of_transport)
            }
        }
    }
}

/// The first `len` bytes of a program's own buffer.
fn room(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

pub(super) fn of_transport(error: io::Error) -> Error {
    Error::Peer(format!("a transport fails: {error}"))
}

fn gone() -> Error {
    Error::Peer("the other end of a transport is gone".to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::parties::pattern;
    use crate::transport::config;

    fn all() -> impl Iterator<Item = Means> {
        let both = |transport| [Means::standard(transport), Means::fbufs(transport)];
        let kernel = [Transport::Pipe, Transport::UnixSocket, Transport::Tcp].into_iter().flat_map(both);
        kernel.chain([Means::CHANNEL])
    }

    /// What is read, by calls for at most `len` bytes.
    fn read(end: &mut End, len: usize, total: usize) -> Vec<u8> {
        let mut found = Vec::new();
        end.read_all(len, total, |at, bytes| {
            assert_eq!(at, found.len());
            found.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn all_means_pass_every_byte_of_buffers_and_files() {
        let pool = Pool::new(config()).unwrap();
        let mut bytes = vec![0; 100_000];
        pattern::fill(&mut bytes, 7);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        for means in all() {
            let [mut to, mut from] = End::both(means, &pool).unwrap();
            for len in [8, 8192, LONGEST] {
                to.write(len, |bytes| pattern::fill(bytes, len as u64)).unwrap();
                let found = read(&mut from, len, len);
                assert_eq!((found.len(), pattern::mismatch(&found, len as u64)), (len, None), "{means:?}");
            }
            to.send_file(&mut file, bytes.len(), 8192).unwrap();
            assert!(read(&mut from, 8192, bytes.len()) == bytes, "{means:?}");
        }
        assert_eq!(pool.free(), pool.limit());
    }
}
