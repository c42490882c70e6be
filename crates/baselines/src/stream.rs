//! Baselines that copy twice, through the kernel: Unix-domain stream sockets, pipes, loopback TCP.
//!
//! How: message and data are written together by one call, and read together by one call, as far as the kernel takes and
//! gives them at once. The kernel's buffers have their default sizes. Blocking variants sleep in read and write; polled ones
//! call them again and again, on descriptors that do not block.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;

use genie_lab::transport::Transport;

use super::ends::{Client, Peer};
use super::exchange::{Ask, Asked, Kept, MESSAGE, Message, nonsense};
use super::means::{Kind, Waiting};
use super::memory::{Memory, View};

/// One end: a descriptor to read from and one to write to, which may be the same socket.
#[derive(Debug)]
pub(crate) struct Stream {
    reader: File,
    writer: File,
}

impl Stream {
    /// Takes an end, from which it reads and to which it writes.
    pub(crate) fn attach(mut descriptors: Vec<OwnedFd>, waiting: Waiting) -> io::Result<Self> {
        let (Some(writer), Some(reader)) = (descriptors.pop(), descriptors.pop()) else {
            return Err(nonsense());
        };
        for end in [&reader, &writer] {
            rustix::io::ioctl_fionbio(end, waiting == Waiting::Polled)?;
        }
        Ok(Self { reader: reader.into(), writer: writer.into() })
    }

    /// Makes both ends of a kind, each a descriptor to read from and one to write to: the client's, and the peer's.
    pub(crate) fn pair(kind: Kind) -> io::Result<[Vec<OwnedFd>; 2]> {
        match kind {
            Kind::Pipe => Transport::Pipe,
            Kind::TcpLoopback => Transport::Tcp,
            _ => Transport::UnixSocket,
        }
        .open()
    }

    /// Writes a message and the data that follows it.
    fn send(&mut self, message: &Message, data: &[u8]) -> io::Result<()> {
        let bytes = message.bytes();
        let mut slices = [IoSlice::new(&bytes), IoSlice::new(data)];
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.writer.write_vectored(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) => again(error)?,
            }
        }
        Ok(())
    }

    /// Reads a message and, to the beginning of `data`, the bytes that follow it.
    fn receive(&mut self, data: &mut [u8]) -> io::Result<Message> {
        let mut bytes = [0; MESSAGE];
        let mut done = 0;
        let mut whole = MESSAGE;
        while done < whole {
            let read = if done < MESSAGE {
                let (message, data) = (&mut bytes[done..], &mut data[..]);
                self.reader.read_vectored(&mut [IoSliceMut::new(message), IoSliceMut::new(data)])
            } else {
                self.reader.read(&mut data[done - MESSAGE..whole - MESSAGE])
            };
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(error) => again(error)?,
            }
            if done >= MESSAGE && whole == MESSAGE {
                whole += Message::from_bytes(&bytes).follows(data.len())?;
            }
        }
        Ok(Message::from_bytes(&bytes))
    }
}

/// Returns the error, unless it means "not yet".
fn again(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock => {
            std::hint::spin_loop();
            Ok(())
        }
        ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// An end with its side's buffer.
#[derive(Debug)]
pub(crate) struct Buffered {
    stream: Stream,
    buffer: Vec<u8>,
}

impl Buffered {
    pub(crate) fn new(stream: Stream, longest: usize) -> Self {
        Self { stream, buffer: vec![0; longest] }
    }
}

impl Client for Buffered {
    fn prepare(&mut self, len: usize, touch: &mut dyn FnMut(Memory<'_>)) -> io::Result<()> {
        touch(Memory::Bytes(&mut self.buffer[..len]));
        Ok(())
    }

    fn exchange(&mut self, ask: Ask, len: usize) -> io::Result<Message> {
        let sent = if ask.takes() { len } else { 0 };
        self.stream.send(&Message::ask(ask, len, 0), &self.buffer[..sent])?;
        self.stream.receive(&mut self.buffer[..if ask.gives() { len } else { 0 }])
    }

    fn finish(&mut self, len: usize, touch: &mut dyn FnMut(View<'_>)) {
        touch(View::Bytes(&self.buffer[..len]));
    }
}

impl Peer for Buffered {
    fn next(&mut self) -> io::Result<Message> {
        self.stream.receive(&mut self.buffer)
    }

    fn taken(&mut self, asked: &Asked) -> io::Result<View<'_>> {
        Ok(View::Bytes(&self.buffer[..asked.len]))
    }

    fn give(&mut self, asked: &Asked, kept: &Kept) -> io::Result<()> {
        let data = &mut self.buffer[..asked.len];
        if let Some(bytes) = kept.to_write(asked) {
            data.copy_from_slice(bytes);
        }
        self.stream.send(&Message::answer(0, asked.len), data)
    }

    fn answer(&mut self, found: u64) -> io::Result<()> {
        self.stream.send(&Message::answer(found, 0), &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ends::Service;

    #[test]
    fn data_longer_than_the_kernels_buffers_arrives_whole() {
        for kind in [Kind::UnixStream, Kind::Pipe, Kind::TcpLoopback] {
            for waiting in [Waiting::Blocking, Waiting::Polled] {
                let [client, peer] = Stream::pair(kind).unwrap();
                let mut client = Buffered::new(Stream::attach(client, waiting).unwrap(), 1 << 20);
                let data: Vec<u8> = (0..1 << 20).map(|at| (at * 7 / 3) as u8).collect();
                let kept = Kept { data: data.clone() };
                let service = std::thread::spawn(move || {
                    Buffered::new(Stream::attach(peer, waiting).unwrap(), 1 << 20).serve(&kept)
                });
                client.prepare(1 << 20, &mut |memory| memory.fill(&data)).unwrap();
                assert_eq!(client.exchange(Ask::Check, 1 << 20).unwrap().difference(), None, "{kind:?}");
                client.prepare(1 << 20, &mut |memory| memory.fill(&vec![0; 1 << 20])).unwrap();
                client.exchange(Ask::Fetch, 1 << 20).unwrap();
                client.finish(1 << 20, &mut |view| assert_eq!(view.difference(&data), None, "{kind:?}"));
                client.exchange(Ask::Leave, 0).unwrap();
                service.join().unwrap().unwrap();
            }
        }
    }

    #[test]
    fn a_peer_that_goes_is_an_error() {
        let [client, peer] = Stream::pair(Kind::UnixStream).unwrap();
        let mut client = Buffered::new(Stream::attach(client, Waiting::Polled).unwrap(), 64);
        drop(peer);
        assert!(client.exchange(Ask::Nothing, 0).is_err());
    }
}
