//! The program that says which of an interface's frames are ours: whole UDP datagrams to our hosts, and to ports that were claimed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

use genie_sys::bpf::{Assembly, Bytes, Condition, Label, Program, Register, Sockets, Verdict, Width};

const PORTS: u32 = 1 << 16;
/// IP's number of the protocol.
const UDP: i32 = 17;

/// The kernel's numbers of `bpf_redirect_map`, `bpf_xdp_adjust_head` and `bpf_xdp_adjust_meta`.
pub(crate) const REDIRECT: i32 = 51;
const ADJUST_HEAD: i32 = 44;
const ADJUST_META: i32 = 54;
/// Where the kernel's `struct xdp_md` has the beginning of the metadata, and the queue.
const METADATA: i16 = 8;
const QUEUE: i16 = 16;

pub(crate) const FRAME: Register = 2;
pub(crate) const VALUE: Register = 3;
const END: Register = 4;
const CONTEXT: Register = 6;
/// How long a datagram's headers are.
const HEADERS: Register = 7;

/// How long the metadata of a frame is whose headers were taken off: a word, and the longest headers, in whole words.
pub(super) const SPLIT: usize = 68;

/// Which host and port of a datagram: where they are in its headers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    /// The sender's.
    From,
    /// The receiver's.
    To,
}

/// Ports whose datagrams are ours: a byte for each, at the number that its two bytes in a header are when they are loaded.
#[derive(Debug)]
pub(super) struct Ports(Bytes);

impl Ports {
    /// None.
    pub(super) fn none() -> genie_sys::Result<Self> {
        Bytes::create(PORTS).map(Self)
    }

    /// Says whether a port is ours.
    pub(super) fn set(&self, port: u16, is_ours: bool) {
        self.0.bytes()[usize::from(port.to_be())].store(is_ours.into(), Ordering::Relaxed);
    }
}

/// Assembles and loads the program. What is not ours passes on to the kernel: also what has IP options, extension headers or a VLAN tag, is
/// a fragment, or is shorter than its headers; and what is ours, of a queue that has no socket. Headers of the frames of the queue
/// `splits` are taken off ([`split`]).
pub(super) fn load(
    hosts: &[IpAddr],
    ports: &Ports,
    sockets: &Sockets,
    frags: bool,
    splits: Option<u32>,
) -> genie_sys::Result<Program> {
    let mut code = Assembly::default();
    let [pass, ours, drop] = [(); 3].map(|()| code.label());
    look(&mut code, hosts, Side::To, pass, ours);
    code.place(ours);
    code.load_bytes(1, &ports.0);
    code.add_register(1, VALUE);
    code.load(Width::Byte, VALUE, 1, 0);
    code.jump_if(VALUE, Condition::Equal, 0, pass);
    if let Some(queue) = splits {
        split(&mut code, queue, pass, drop);
    }
    code.load_sockets(1, sockets);
    code.load(Width::Word, 2, CONTEXT, QUEUE);
    // The verdict where the queue has no socket.
    code.set(3, Verdict::Pass as i32);
    code.call(REDIRECT);
    code.exit();
    end(&mut code, pass, Verdict::Pass);
    if splits.is_some() {
        end(&mut code, drop, Verdict::Drop);
    }
    Program::load(&code.finish(), frags)
}

/// Has a whole datagram from or to one of these hosts go on to `ours` with the port of that side, as it is in the header, and all else to
/// `pass`.
pub(crate) fn look(code: &mut Assembly, hosts: &[IpAddr], side: Side, pass: Label, ours: Label) {
    code.copy(CONTEXT, 1);
    code.load(Width::Word, FRAME, CONTEXT, 0);
    code.load(Width::Word, END, CONTEXT, 4);
    require(code, 42, pass);
    code.load(Width::Half, VALUE, FRAME, 12);
    let v4: Vec<_> = hosts
        .iter()
        .filter_map(|host| if let IpAddr::V4(host) = host { Some(*host) } else { None })
        .collect();
    let v6: Vec<_> = hosts
        .iter()
        .filter_map(|host| if let IpAddr::V6(host) = host { Some(*host) } else { None })
        .collect();
    let [to_v4, to_v6] = [(); 2].map(|()| code.label());
    // The kernel refuses code to which nothing leads.
    if !v4.is_empty() {
        code.jump_if(VALUE, Condition::Equal, network(0x0800), to_v4);
    }
    if !v6.is_empty() {
        code.jump_if(VALUE, Condition::Equal, network(0x86dd), to_v6);
    }
    code.jump(pass);
    if !v4.is_empty() {
        code.place(to_v4);
        look_at_v4(code, &v4, side, pass, ours);
    }
    if !v6.is_empty() {
        code.place(to_v6);
        look_at_v6(code, &v6, side, pass, ours);
    }
}

/// Has a frame over IPv4 go on to `ours` with its port, as it is in the header.
fn look_at_v4(code: &mut Assembly, hosts: &[Ipv4Addr], side: Side, pass: Label, ours: Label) {
    // Version 4, and five words of header: no options.
    code.load(Width::Byte, VALUE, FRAME, 14);
    code.jump_if(VALUE, Condition::Unequal, 0x45, pass);
    code.load(Width::Byte, VALUE, FRAME, 23);
    code.jump_if(VALUE, Condition::Unequal, UDP, pass);
    // More fragments follow, or came before.
    code.load(Width::Half, VALUE, FRAME, 20);
    code.jump_if(VALUE, Condition::AnyBit, network(0x3fff), pass);
    let found = code.label();
    code.load(Width::Word, VALUE, FRAME, 26 + 4 * side as i16);
    for host in hosts {
        code.jump_if(VALUE, Condition::Equal, i32::from_ne_bytes(host.octets()), found);
    }
    code.jump(pass);
    code.place(found);
    code.set(HEADERS, 42);
    code.load(Width::Half, VALUE, FRAME, 34 + 2 * side as i16);
    code.jump(ours);
}

/// The same over IPv6.
fn look_at_v6(code: &mut Assembly, hosts: &[Ipv6Addr], side: Side, pass: Label, ours: Label) {
    require(code, 62, pass);
    code.load(Width::Byte, VALUE, FRAME, 20);
    code.jump_if(VALUE, Condition::Unequal, UDP, pass);
    let found = code.label();
    for host in hosts {
        let next = code.label();
        for (word, at) in host.octets().chunks_exact(4).zip((22 + 16 * side as i16..).step_by(4)) {
            code.load(Width::Word, VALUE, FRAME, at);
            let word = i32::from_ne_bytes(word.try_into().expect("four bytes"));
            code.jump_if(VALUE, Condition::Unequal, word, next);
        }
        code.jump(found);
        code.place(next);
    }
    code.jump(pass);
    code.place(found);
    code.set(HEADERS, 62);
    code.load(Width::Half, VALUE, FRAME, 54 + 2 * side as i16);
    code.jump(ours);
}

/// Takes the headers off a frame of a queue, so that its data begins where a buffer does. They become metadata, [`SPLIT`] bytes, which the
/// kernel stores in front of the data, and which begin with a word: how long the headers are. A frame stays whole if it has so little data
/// that no Ethernet header would be left, or the device knows no metadata.
fn split(code: &mut Assembly, queue: u32, pass: Label, drop: Label) {
    let whole = code.label();
    // Nobody else finds a frame without headers.
    code.load(Width::Word, VALUE, CONTEXT, QUEUE);
    code.jump_if(VALUE, Condition::Unequal, queue as i32, pass);
    // Where there is none, it is said to begin behind the frame's first byte.
    code.load(Width::Word, VALUE, CONTEXT, METADATA);
    code.jump_if_greater(VALUE, FRAME, whole);
    // Another program's would be taken for ours.
    code.jump_if_greater(FRAME, VALUE, pass);
    code.copy(1, CONTEXT);
    code.copy(2, HEADERS);
    code.call(ADJUST_HEAD);
    code.jump_if(0, Condition::Unequal, 0, whole);
    // The headers lie in front of the data still.
    code.copy(1, CONTEXT);
    code.set(2, -(SPLIT as i32));
    code.call(ADJUST_META);
    code.jump_if(0, Condition::Unequal, 0, drop);
    code.load(Width::Word, 1, CONTEXT, METADATA);
    code.load(Width::Word, FRAME, CONTEXT, 0);
    code.copy(VALUE, 1);
    code.add_value(VALUE, 4);
    code.jump_if_greater(VALUE, FRAME, drop);
    code.store(1, HEADERS);
    code.place(whole);
}

/// Where what goes on to `at` ends, with this verdict.
pub(crate) fn end(code: &mut Assembly, at: Label, verdict: Verdict) {
    code.place(at);
    code.set(0, verdict as i32);
    code.exit();
}

/// Two bytes, as they are loaded from a header.
pub(crate) fn network(number: u16) -> i32 {
    number.to_be().into()
}

/// Has frames pass whose first `len` bytes are not all there.
pub(crate) fn require(code: &mut Assembly, len: i32, pass: Label) {
    code.copy(VALUE, FRAME);
    code.add_value(VALUE, len);
    code.jump_if_greater(VALUE, END, pass);
}

#[cfg(test)]
mod tests;
