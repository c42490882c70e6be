//! Mapped files, parts of which are written like buffers, without being copied.
//!
//! Why: a file's pages are in memory already, and nobody uses them for anything else: they can be passed to a socket or a pipe
//! as they are.
//! How: the file is mapped for loads. To write a part of it has the kernel pass the file's pages (`sendfile`), or copy them
//! where it cannot. To a channel, which passes pages of its pool alone, the bytes are copied into a buffer.
//! Trust: whoever may write to the file decides what is read from it. What is stored into it after a part was written may
//! still be seen by the reader, until that has read it (weak integrity; SMLI TR-95-39 §5.5 says so of all buffers). A file
//! that is shortened reads as zeros here.
//! Limits: loads alone; as many mappings as [`View`]s.
//! Source: SMLI TR-95-39 §3.3, §5.3 (uf_mmap).

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use genie_memory::Data;
use genie_sys::shared::PAGE;
use genie_sys::view::View;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::{Channel, Pool};

/// A part of a file, mapped, whose bytes can be written like those of a buffer.
#[derive(Debug)]
pub struct Mapped {
    pool: Pool,
    file: OwnedFd,
    view: View,
    offset: u64,
    len: usize,
}

impl Pool {
    /// Maps `len` bytes of a file from `offset` on, a multiple of 4096.
    ///
    /// # Errors
    /// [`Error::TooShort`]: the length is 0; [`Error::Io`] (EINVAL): the offset is not a multiple of 4096. Those of `mmap`.
    ///
    /// # Cost
    /// Two system calls; no memory but the file's.
    #[doc(alias = "uf_mmap")]
    pub fn map(&self, file: impl AsFd, offset: u64, len: usize) -> Result<Mapped> {
        self.ensure_own()?;
        if len == 0 {
            return Err(Error::TooShort { asked: 1, len: 0 });
        }
        if !offset.is_multiple_of(PAGE as u64) {
            let error = genie_sys::Error::new("mmap", format!("a file from byte {offset} on"), Errno::INVAL);
            return Err(error.with_remedy("begin at a multiple of the page's size").into());
        }
        let copy =
            rustix::io::fcntl_dupfd_cloexec(&file, 0).map_err(|errno| Error::io("fcntl(F_DUPFD)", errno))?;
        Ok(Mapped { pool: self.clone(), view: View::open(file, offset, len)?, file: copy, offset, len })
    }
}

impl Mapped {
    /// The first address, for programs that load from there. Where the file has become shorter, zeros are there.
    pub fn addr(&self) -> usize {
        self.view.span(0, 1).addr()
    }

    /// How many bytes are mapped.
    #[expect(clippy::len_without_is_empty, reason = "what is mapped is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`Error::TooShort`]: they are not all mapped, or the file has become shorter.
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let range = self.checked(offset..offset.saturating_add(bytes.len()))?;
        Data::of_view(&self.view, range).copy_to(bytes);
        let too_short = Error::TooShort { asked: bytes.len(), len: 0 };
        if self.view.is_broken() { Err(too_short) } else { Ok(()) }
    }

    /// Writes a part of the file to a descriptor; returns how many bytes were written, which is all unless the descriptor
    /// does not block. The mapping stays.
    ///
    /// # Errors
    /// [`Error::TooShort`]: the part is not all mapped, or the file has ended. [`Error::WouldBlock`], and those of
    /// `sendfile`; nothing was written.
    ///
    /// # Cost
    /// A system call for each 2 GiB; to sockets and pipes no byte is copied.
    #[doc(alias = "sendfile")]
    pub fn write(&self, fd: impl AsFd, range: Range<usize>) -> Result<usize> {
        let (start, end) = (self.checked(range.clone())?.start, range.end);
        let mut at = start;
        while at < end {
            let mut from = self.offset + at as u64;
            match rustix::fs::sendfile(&fd, &self.file, Some(&mut from), end - at) {
                Ok(0) if at == start => return Err(Error::TooShort { asked: end - start, len: 0 }),
                Ok(0) => break,
                Ok(sent) => at += sent,
                Err(Errno::INTR) => {}
                // Not all files and descriptors can do that.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    return self.write_copied(fd, at..end).map(|copied| at - start + copied);
                }
                Err(_) if at > start => break,
                Err(errno) => return Err(Error::io("sendfile", errno)),
            }
        }
        Ok(at - start)
    }

    fn write_copied(&self, fd: impl AsFd, range: Range<usize>) -> Result<usize> {
        let (start, mut at) = (range.start, range.start);
        while at < range.end {
            let part = at..range.end.min(at + (256 << 10));
            let fbuf = self.copied(part)?;
            match self.pool.write(&fd, fbuf) {
                Ok(written) => at += written,
                Err(unwritten) if at + unwritten.written > start => return Ok(at + unwritten.written - start),
                Err(unwritten) => return Err(unwritten.error),
            }
        }
        Ok(at - start)
    }

    /// Writes a part of the file to a channel, copied into a buffer.
    ///
    /// # Errors
    /// As [`Mapped::copy_to`] and [`Channel::write`].
    pub fn write_to_channel(&self, channel: &Channel, range: Range<usize>) -> Result<usize> {
        Ok(channel.write(self.copied(self.checked(range)?)?)?)
    }

    fn copied(&self, range: Range<usize>) -> Result<crate::Fbuf> {
        let mut fbuf = self.pool.allocate(range.len())?;
        self.copy_to(range.start, &mut fbuf)?;
        Ok(fbuf)
    }

    fn checked(&self, range: Range<usize>) -> Result<Range<usize>> {
        let is_inside = range.start <= range.end && range.end <= self.len;
        let left = self.len.saturating_sub(range.start);
        if is_inside { Ok(range) } else { Err(Error::TooShort { asked: range.len(), len: left }) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::Config;

    fn pool() -> Pool {
        Pool::new(Config { limit: 4 << 20, ..Config::default() }).unwrap()
    }

    fn file(len: usize) -> (std::fs::File, Vec<u8>) {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at / 11 + at) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        (file, bytes)
    }

    #[test]
    fn parts_of_a_file_are_written_to_pipes_sockets_and_files() {
        let (pool, (file, bytes)) = (pool(), file(200_000));
        let mapped = pool.map(&file, 4096, 195_904).unwrap();
        let (mut read, write) = std::io::pipe().unwrap();
        let mut found = vec![0; 10_000];
        assert_eq!(mapped.write(&write, 1..10_001).unwrap(), 10_000);
        read.read_exact(&mut found).unwrap();
        assert!(found == bytes[4097..14_097], "pipe");
        let (one, mut other) = UnixStream::pair().unwrap();
        assert_eq!(mapped.write(&one, 185_904..195_904).unwrap(), 10_000);
        other.read_exact(&mut found).unwrap();
        assert!(found == bytes[190_000..], "socket");
        let target = tempfile::tempfile().unwrap();
        assert_eq!(mapped.write(&target, 0..195_904).unwrap(), 195_904);
        assert_eq!(pool.get(&target).unwrap().map(|fbuf| fbuf.len()), None, "it stands at its end");
        let mut all = vec![0; 195_904];
        target.read_exact_at(&mut all, 0).unwrap();
        assert!(all == bytes[4096..], "file");
    }

    #[test]
    fn a_pipe_gets_the_files_own_pages() {
        let (pool, (file, _)) = (pool(), file(4096));
        let mapped = pool.map(&file, 0, 4096).unwrap();
        let (mut read, write) = std::io::pipe().unwrap();
        mapped.write(&write, 0..4096).unwrap();
        file.write_all_at(b"later", 0).unwrap();
        let mut found = [0; 5];
        read.read_exact(&mut found).unwrap();
        assert_eq!(&found, b"later", "had they been copied, this would be what was there before");
    }

    #[test]
    fn what_is_not_mapped_or_not_there_is_refused() {
        let (pool, (file, bytes)) = (pool(), file(10_000));
        let mapped = pool.map(&file, 0, 10_000).unwrap();
        let (_read, write) = std::io::pipe().unwrap();
        assert!(matches!(
            mapped.write(&write, 9_000..10_001),
            Err(Error::TooShort { asked: 1001, len: 1000 })
        ));
        let mut found = [0; 100];
        mapped.copy_to(50, &mut found).unwrap();
        assert_eq!(found, bytes[50..150]);
        file.set_len(0).unwrap();
        assert!(mapped.copy_to(0, &mut found).is_err() && mapped.write(&write, 0..10).is_err());
        assert!(pool.map(&file, 100, 1).is_err() && pool.map(&file, 0, 0).is_err());
    }
}
