//! The driver by packet socket, for interfaces and kernels that refuse AF_XDP.
//!
//! Why: it needs no more than CAP_NET_RAW, and works with every interface that has an Ethernet's frames, the loopback interface too.
//! How: rings of [`genie_sys::packet`]. The kernel copies each frame into a slot of the ring as it comes. Of a frame that goes, a device
//! reads what lies in the slot; a veth pair and the loopback interface copy it.
//! A frame whose sender's kernel has left the checksum to a device is shown as [`Frame::unsummed`].
//! Whole UDP datagrams come to the ports that are claimed; everything else is the kernel's alone. The kernel has these datagrams as well,
//! and would tell their sender that nobody has the port. So a claim holds the port there, too, by an ordinary socket that drops all it gets.
//! Trust: frames are anybody's.
//! Limits: a claimed port takes a descriptor for each host. Datagrams that their sender's kernel has left to be cut into packets
//! (UDP_SEGMENT on a veth pair) are dropped and counted as unfit. What is sent while the interface has no link is dropped, as it is by AF_XDP.
//! Programs that listen at the interface see what comes, and nothing of what goes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use genie_memory::Data;
use genie_sys::Errno;
use genie_sys::packet::{Filter, Packets};

use super::claims::Claims;
use super::interfaces::{self, Interface};
use super::{Counters, Error, Rings};
use crate::Frame;

/// After how many looks in vain it is verified that the interface is still there, which takes two system calls.
const LOOKS: u32 = 256;

/// A packet socket of an interface.
#[derive(Debug)]
pub struct PacketSocket {
    packets: Packets,
    interface: Interface,
    claims: Claims,
    counters: Counters,
    /// Why the interface did not take all when frames were sent last.
    held_up: Option<Errno>,
    /// How often it was looked for frames in vain.
    looks: u32,
}

impl PacketSocket {
    /// Opens a packet socket of an interface in the namespace of this thread, for datagrams to `hosts`.
    ///
    /// # Errors
    /// What the process lacks, or that the interface is not there or down.
    pub fn open(interface: &str, hosts: &[IpAddr]) -> Result<Self, Error> {
        let failed = |source| Error::of(interface, source);
        let found = interfaces::interface(interface).map_err(failed)?;
        Ok(Self {
            packets: Packets::open(interface, found.index, found.mtu as usize).map_err(failed)?,
            claims: Claims::of(&found, hosts),
            interface: found,
            counters: Counters::default(),
            held_up: None,
            looks: 0,
        })
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }
}

impl Rings for PacketSocket {
    fn put(&mut self, frame: &Data<'_>) -> Result<bool, Errno> {
        let len = frame.len();
        let is_put = self.packets.put(len, |slot| {
            frame.copy_to(slot);
        })?;
        if is_put {
            self.counters.sent += 1;
            self.counters.sent_bytes += len as u64;
            self.counters.copied_by_kernel += len as u64;
        }
        Ok(is_put)
    }

    fn room(&mut self) -> Result<usize, Errno> {
        self.packets.has_room().map(usize::from)
    }

    fn send(&mut self) -> Result<(), Errno> {
        let sent = match self.packets.send() {
            // Otherwise the ring would be full of these, until there is a link.
            Err(Errno::NOBUFS) if !self.packets.has_link() => {
                self.packets.take_back();
                Ok(())
            }
            sent => sent,
        };
        self.held_up = sent.err().filter(|errno| matches!(*errno, Errno::AGAIN | Errno::NOBUFS));
        sent
    }

    fn take(&mut self, most: usize, see: &mut dyn FnMut(&Frame<'_>)) -> Result<usize, Errno> {
        if self.held_up.is_some() {
            // If it is in vain again, the next look is another try.
            let _ = self.send();
        }
        let Self { packets, counters, .. } = self;
        let before = counters.received;
        for _ in 0..most {
            let is_taken = packets.take(|came| {
                counters.copied_by_kernel += came.bytes.len() as u64;
                if came.is_unfit {
                    counters.unfit += 1;
                    return;
                }
                counters.received += 1;
                counters.received_bytes += came.bytes.len() as u64;
                let frame = Frame::new(Data::from(came.bytes));
                see(&if came.is_unsummed { frame.unsummed() } else { frame });
            })?;
            if is_taken {
                self.looks = 0;
            } else {
                self.looks += 1;
                break;
            }
        }
        if self.looks >= LOOKS {
            self.looks = 0;
            self.packets.verify()?;
        }
        Ok((self.counters.received - before) as usize)
    }

    fn claim(&mut self, port: u16, is_ours: bool) -> Result<(), Errno> {
        self.claims.set(port, is_ours)?;
        let ports: BTreeSet<_> = self.claims.ports().collect();
        self.packets.filter(&Filter::udp(self.claims.hosts(), &ports))
    }

    fn has_frames(&self) -> bool {
        // What is held up for want of the kernel's memory goes soon: whoever waits is to look again.
        self.packets.has_frames() || self.held_up == Some(Errno::AGAIN)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.packets.as_fd()
    }

    fn counters(&self) -> Counters {
        Counters { dropped: self.packets.dropped(), ..self.counters }
    }

    fn copied(&self) -> u64 {
        self.counters.sent_bytes + self.counters.copied_by_kernel
    }
}
