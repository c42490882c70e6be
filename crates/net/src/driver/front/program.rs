//! The programs of a front: which client a datagram is for, and what a client may send.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use genie_sys::Result;
use genie_sys::bpf::{Assembly, Bytes, Condition, Exits, Program, Verdict, Width};

use crate::driver::interfaces::Interface;
use crate::driver::xdp::program::{FRAME, REDIRECT, Side, VALUE, end, look, network, require};

const PORTS: u32 = 1 << 16;
/// A client sends by the only exit that there is.
pub(super) const EXIT: u32 = 0;

/// Which client has a port: its number, or zero. Each is where the port's two bytes in a header lead when they are loaded.
#[derive(Debug)]
pub(super) struct Table(Bytes);

impl Table {
    pub(super) fn empty() -> Result<Self> {
        Bytes::create(PORTS).map(Self)
    }

    /// Says whose a port is.
    pub(super) fn set(&self, port: u16, client: u8) {
        self.0.bytes()[usize::from(port.to_be())].store(client, Ordering::Relaxed);
    }
}

/// For the interface: a datagram for a client's port leaves by the exit of that client's number, and all else is the kernel's.
pub(super) fn inward(hosts: &[IpAddr], table: &Table, exits: &Exits) -> Result<Program> {
    let mut code = Assembly::default();
    let [pass, ours] = [(); 2].map(|()| code.label());
    look(&mut code, hosts, Side::To, pass, ours);
    code.place(ours);
    code.load_bytes(1, &table.0);
    code.add_register(1, VALUE);
    code.load(Width::Byte, 2, 1, 0);
    code.jump_if(2, Condition::Equal, 0, pass);
    code.load_exits(1, exits);
    // The verdict where the client has just gone.
    code.set(3, Verdict::Pass as i32);
    code.call(REDIRECT);
    code.exit();
    end(&mut code, pass, Verdict::Pass);
    // The kernel refuses the exits of a program for frames in several buffers to any other one, so all are such programs.
    Program::load(&code.finish(), true)
}

/// For the front's end of a client's link: datagrams from the interface's station and hosts, and from a port of this client's, leave by the
/// exit. Questions for stations come to the front. All else is dropped, and counted in `refused`, but for what kernels send by themselves
/// over IPv6.
pub(super) fn outward(
    interface: &Interface,
    client: u8,
    table: &Table,
    exit: &Exits,
    refused: &Bytes,
) -> Result<Program> {
    let mut code = Assembly::default();
    let [other, ours, refuse, drop, pass] = [(); 5].map(|()| code.label());
    look(&mut code, &interface.hosts, Side::From, other, ours);
    code.place(ours);
    code.load_bytes(1, &table.0);
    code.add_register(1, VALUE);
    code.load(Width::Byte, VALUE, 1, 0);
    code.jump_if(VALUE, Condition::Unequal, client.into(), refuse);
    let [a, b, c, d, e, f] = interface.station;
    code.load(Width::Word, VALUE, FRAME, 6);
    code.jump_if(VALUE, Condition::Unequal, i32::from_ne_bytes([a, b, c, d]), refuse);
    code.load(Width::Half, VALUE, FRAME, 10);
    code.jump_if(VALUE, Condition::Unequal, u16::from_ne_bytes([e, f]).into(), refuse);
    code.load_exits(1, exit);
    code.set(2, EXIT as i32);
    code.set(3, Verdict::Drop as i32);
    code.call(REDIRECT);
    code.exit();
    code.place(other);
    require(&mut code, 14, drop);
    code.load(Width::Half, VALUE, FRAME, 12);
    code.jump_if(VALUE, Condition::Equal, network(0x0806), pass);
    code.jump_if(VALUE, Condition::Unequal, network(0x86dd), refuse);
    require(&mut code, 55, drop);
    code.load(Width::Byte, VALUE, FRAME, 20);
    code.jump_if(VALUE, Condition::Equal, 17, refuse);
    code.jump_if(VALUE, Condition::Unequal, 58, drop);
    // A neighbour solicitation.
    code.load(Width::Byte, VALUE, FRAME, 54);
    code.jump_if(VALUE, Condition::Equal, 135, pass);
    code.jump(drop);
    code.place(refuse);
    code.load_bytes(1, refused);
    code.set(2, 1);
    code.count(1, 2);
    end(&mut code, drop, Verdict::Drop);
    end(&mut code, pass, Verdict::Pass);
    Program::load(&code.finish(), true)
}

#[cfg(test)]
mod tests;
