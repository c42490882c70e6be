//! The program's buffers and mapped files, by their addresses.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use genie_sys::lock::Mutex;

use crate::c::failure::Failure;
use crate::{Error, Fbuf, Mapped};

/// What is the program's, by the address of its first page.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<BTreeMap<usize, Held>>);

#[derive(Debug)]
enum Held {
    Fbuf(Fbuf),
    Mapped(Arc<Mapped>),
}

/// What a program wants to write.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A buffer, whose data is what is to be written. It has left the table.
    Fbuf(Fbuf, Whole),
    /// A part of a file.
    Mapped(Arc<Mapped>, Range<usize>),
}

/// Which part of a buffer was its data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    start: usize,
    end: usize,
}

impl Buffers {
    /// Makes a buffer the program's; returns the address of its data.
    pub(crate) fn add(&self, fbuf: Fbuf) -> usize {
        let addr = fbuf.as_ptr().addr();
        self.0.lock().insert(addr - fbuf.headroom(), Held::Fbuf(fbuf));
        addr
    }

    /// Makes a buffer the program's again, all of whose data is, or what was not written of it.
    pub(crate) fn put_back(&self, mut fbuf: Fbuf, whole: Whole, written: usize) {
        let start = if written > 0 { fbuf.headroom() } else { whole.start };
        // It fails for a buffer of which nothing came back.
        if fbuf.set_data(start, whole.end.saturating_sub(start)).is_ok() {
            self.add(fbuf);
        }
    }

    /// Takes what the program wants to write.
    pub(crate) fn take(&self, addr: usize, len: usize) -> Result<Taken, Failure> {
        let mut all = self.0.lock();
        let (start, at) = match find(&mut all, addr)? {
            (start, Held::Fbuf(fbuf)) => {
                let at = addr - (start + fbuf.headroom());
                ensure_enough(len, fbuf.len() - at)?;
                (start, at)
            }
            (start, Held::Mapped(mapped)) => {
                ensure_enough(len, mapped.len() - (addr - start))?;
                return Ok(Taken::Mapped(Arc::clone(mapped), addr - start..addr - start + len));
            }
        };
        let Some(Held::Fbuf(mut fbuf)) = all.remove(&start) else { return Err(unknown(addr)) };
        let whole = Whole { start: fbuf.headroom(), end: fbuf.headroom() + fbuf.len() };
        fbuf.set_data(whole.start + at, len)?;
        Ok(Taken::Fbuf(fbuf, whole))
    }

    /// Takes a buffer, whole, of which `len` bytes from `addr` on are the program's.
    pub(crate) fn take_fbuf(&self, addr: usize, len: usize) -> Result<Fbuf, Failure> {
        match self.take(addr, len)? {
            Taken::Fbuf(fbuf, _) => Ok(fbuf),
            Taken::Mapped(..) => Err(Failure::misuse(format!("a file is mapped at {addr:#x}: use uf_unmap"))),
        }
    }

    pub(crate) fn add_mapped(&self, mapped: Mapped) -> usize {
        let addr = mapped.addr();
        self.0.lock().insert(addr, Held::Mapped(Arc::new(mapped)));
        addr
    }

    /// Takes a mapping out, all of it.
    pub(crate) fn remove_mapped(&self, addr: usize, len: usize) -> Result<(), Failure> {
        let mut all = self.0.lock();
        match find(&mut all, addr)? {
            (start, Held::Mapped(mapped)) if (start, mapped.len()) == (addr, len) => {}
            (_, Held::Mapped(_)) => {
                return Err(Failure::misuse("uf_unmap takes all that uf_mmap has mapped"));
            }
            (_, Held::Fbuf(_)) => {
                return Err(Failure::misuse(format!("there is an fbuf at {addr:#x}: use uf_deallocate")));
            }
        }
        all.remove(&addr);
        Ok(())
    }
}

/// What an address lies in.
fn find(all: &mut BTreeMap<usize, Held>, addr: usize) -> Result<(usize, &mut Held), Failure> {
    let found = all.range_mut(..=addr).next_back().map(|(start, held)| (*start, held));
    let (start, held) = found.ok_or_else(|| unknown(addr))?;
    let (first, len) = match held {
        Held::Fbuf(fbuf) => (start + fbuf.headroom(), fbuf.len()),
        Held::Mapped(mapped) => (start, mapped.len()),
    };
    if (first..first + len.max(1)).contains(&addr) { Ok((start, held)) } else { Err(unknown(addr)) }
}

fn ensure_enough(asked: usize, len: usize) -> Result<(), Failure> {
    if asked <= len { Ok(()) } else { Err(Error::TooShort { asked, len }.into()) }
}

fn unknown(addr: usize) -> Failure {
    Error::NotAnFbuf { addr }.into()
}
