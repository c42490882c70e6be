//! Questions to the kernel about its network, and its answers (rtnetlink).
//!
//! Why: neighbours, routes and interfaces are the kernel's; the crates for netlink that have sockets bring a runtime, or unsafe code.
//! How: messages are those of `netlink-packet-route`; a socket is rustix's. The kernel has answered when sending returns, so
//! nothing waits long.
//! Trust: only the kernel, and processes with CAP_NET_ADMIN, can send to such a socket. A message that this crate cannot read, since the
//! kernel is newer, is passed over.
//! Limits: a message of 64 KiB, which is more than the kernel makes.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use genie_sys::{Errno, Error, Result};
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

/// A socket to the kernel, in the network namespace of the thread that has opened it.
pub(crate) struct Netlink {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens one that also hears of changes in the `groups` (bits of RTMGRP).
    pub(crate) fn open(groups: u32) -> Result<Self> {
        let failed = |call| move |errno| Error::new(call, "a netlink socket", errno);
        let kind = (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC);
        // NETLINK_ROUTE is protocol 0.
        let socket = socket_with(kind.0, kind.1, kind.2, None).map_err(failed("socket"))?;
        bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(failed("bind"))?;
        Ok(Self { socket, buffer: vec![0; 64 << 10] })
    }

    /// Sends a message, and returns all that the kernel answers. `what` says in errors what was asked for.
    pub(crate) fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: &str,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        let failed = |errno| Error::new("netlink", what, errno);
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty()).map_err(failed)?;
        let mut answers = Vec::new();
        loop {
            for payload in self.receive(RecvFlags::empty()).map_err(failed)? {
                match payload {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => {
                        return match error.code {
                            None => Ok(answers),
                            Some(code) => Err(failed(Errno::from_raw_os_error(-code.get()))),
                        };
                    }
                    _ => {}
                }
            }
        }
    }

    /// The next changes, without waiting for them.
    ///
    /// # Errors
    /// EAGAIN: there are none. ENOBUFS: some were lost.
    pub(crate) fn changes(&mut self) -> std::result::Result<Vec<RouteNetlinkMessage>, Errno> {
        let payloads = self.receive(RecvFlags::DONTWAIT)?.into_iter();
        Ok(payloads
            .filter_map(|payload| match payload {
                NetlinkPayload::InnerMessage(change) => Some(change),
                _ => None,
            })
            .collect())
    }

    /// The messages of one datagram.
    fn receive(
        &mut self,
        flags: RecvFlags,
    ) -> std::result::Result<Vec<NetlinkPayload<RouteNetlinkMessage>>, Errno> {
        let (len, _) = rustix::io::retry_on_intr(|| recv(&self.socket, &mut self.buffer[..], flags))?;
        let mut rest = &self.buffer[..len];
        let mut messages = Vec::new();
        while let Some((len, _)) = rest.split_first_chunk() {
            let len = (u32::from_ne_bytes(*len) as usize).clamp(size_of::<u32>(), rest.len());
            messages.extend(NetlinkMessage::deserialize(&rest[..len]).map(|message| message.payload).ok());
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(messages)
    }
}

impl fmt::Debug for Netlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netlink").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// It is readable when something has changed.
impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
