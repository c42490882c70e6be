//! Rings of an interface whose frames are the data of UDP datagrams, since others than those are left to the kernel.

use std::os::fd::BorrowedFd;

use genie_memory::Data;
use genie_net::Frame;
use genie_net::driver::{Counters, Rings, Xdp};
use genie_net::namespaces::End;
use genie_net::packet::{Between, Header, Hosts};
use genie_sys::Errno;

/// The port at either end.
const PORT: u16 = 7;
/// How long the headers are.
pub(super) const HEADERS: usize = 42;

/// The rings of one end of a link, which leads to another.
pub(super) struct Enveloped {
    rings: Xdp,
    header: Header,
}

impl Enveloped {
    /// Takes the rings of the first of these ends.
    ///
    /// # Errors
    /// The interface is gone.
    pub(super) fn new(mut rings: Xdp, [here, there]: [&End; 2]) -> Result<Self, Errno> {
        rings.claim(PORT, true)?;
        let stations = Between { from: here.interface.station, to: there.interface.station };
        let hosts = Hosts::V4(Between { from: here.v4, to: there.v4 });
        let header = Header { stations, hosts, ports: Between { from: PORT, to: PORT }, len: 0, checksum: 0 };
        Ok(Self { rings, header })
    }
}

impl Rings for Enveloped {
    fn put(&mut self, frame: &Data<'_>) -> Result<bool, Errno> {
        let len = u16::try_from(frame.len()).map_err(|_| Errno::MSGSIZE)?;
        let headers = Header { len, ..self.header }.build().map_err(|_| Errno::MSGSIZE)?;
        let mut all = Data::from(&headers[..]);
        all.append(frame.clone());
        self.rings.put(&all)
    }

    fn room(&mut self) -> Result<usize, Errno> {
        self.rings.room()
    }

    fn send(&mut self) -> Result<(), Errno> {
        self.rings.send()
    }

    fn take(&mut self, most: usize, see: &mut dyn FnMut(&Frame<'_>)) -> Result<usize, Errno> {
        self.rings.take(most, &mut |frame| see(&frame.clone().behind(HEADERS)))
    }

    fn claim(&mut self, port: u16, is_ours: bool) -> Result<(), Errno> {
        self.rings.claim(port, is_ours)
    }

    fn has_frames(&self) -> bool {
        self.rings.has_frames()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.rings.descriptor()
    }

    fn counters(&self) -> Counters {
        self.rings.counters()
    }
}
