//! Two hosts on a link of two wires, and clients of theirs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use genie_conformance::{Buffering, Granules, Guard, Setup, checked, interface};
use genie_io::{Failed, In, Interface, Limits, Out, Pending, Reply, ServerHandle};
use genie_memory::Space;
use genie_net::adapter::{
    Approximation, EarlyDemultiplexing, Free, Layout, Outboard, Pool, Pooled, Program, SnapOff,
};
use genie_net::datagram::{Arrived, Datagrams, Open, Options, Socket};
use genie_net::{Adapter, Wire, wire};
use genie_passing::{Layout as FrameLayout, Overlays, Scheme, Thresholds};

/// Every adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Pooled,
    Splitting,
    Early,
    EarlySplitting,
    SnapOff,
    Approximation,
    /// Splitting, with frames of one memory object for buffers.
    Framed,
    Outboard,
}

pub(crate) const STATIONS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// How many buffers an adapter's pool has.
pub(crate) const SEGMENTS: usize = 64;
/// How much memory of its own an adapter has.
const OUTBOARD: usize = 1 << 20;
/// How long each is.
pub(crate) const SEGMENT: usize = 8192;

pub(crate) struct Hosts {
    pub(crate) genie: Interface,
    pub(crate) servers: [Datagrams; 2],
    pub(crate) handles: [ServerHandle; 2],
    /// The wires that lead to each.
    pub(crate) wires: [ServerHandle; 2],
}

impl Level {
    pub(crate) const ALL: [Self; 8] = [
        Self::Pooled,
        Self::Splitting,
        Self::Early,
        Self::EarlySplitting,
        Self::SnapOff,
        Self::Approximation,
        Self::Framed,
        Self::Outboard,
    ];

    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    /// Whether requests that wait are posted.
    pub(crate) fn keeps_lists(self) -> bool {
        matches!(self, Self::Early | Self::EarlySplitting | Self::SnapOff | Self::Approximation)
    }

    pub(crate) fn adapter(self, space: &Space) -> Box<dyn Adapter> {
        let layout = Layout::Program(Program::udp());
        let (len, count) = segments(space.granule());
        let pool = || Pool::reserve(space, len, count).expect("memory for the pool");
        match self {
            Self::Pooled => Box::new(Pooled::new(pool())),
            Self::Splitting => Box::new(Pooled::splitting(pool(), 42)),
            Self::Early => Box::new(EarlyDemultiplexing::new(layout, pool())),
            Self::EarlySplitting => Box::new(EarlyDemultiplexing::splitting(layout, pool())),
            Self::SnapOff => Box::new(SnapOff::new(layout, pool())),
            Self::Approximation => Box::new(Approximation::new(layout, pool())),
            Self::Framed => {
                let frames = space.make_frames(len, count).expect("memory for the frames");
                let layout = FrameLayout { headroom: 0, len, away: count / 2 };
                Box::new(Pooled::splitting(Pool::of(Overlays::framed(frames, layout)), 42))
            }
            Self::Outboard => Box::new(Outboard::new(OUTBOARD)),
        }
    }
}

/// How long an adapter's buffers in such granules are, and how many it has.
fn segments(granule: usize) -> (usize, usize) {
    if granule > SEGMENT { (64 << 10, 8) } else { (SEGMENT, SEGMENTS) }
}

/// An interface that needs nothing of the machine, whose emulated copy avoids copying always.
pub(crate) fn open() -> Interface {
    let setup = Setup::new(Granules::Base, Guard::Never, Buffering::Customized);
    let space = setup.space("datagram", 64 << 20).expect("4 KiB pages are there always");
    interface(space, Limits::default(), Thresholds::ALWAYS)
}

pub(crate) fn host(number: usize, is_v6: bool) -> IpAddr {
    match is_v6 {
        false => Ipv4Addr::new(10, 0, 0, number as u8 + 1).into(),
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number as u16 + 1).into(),
    }
}

pub(crate) fn options(number: usize) -> Options {
    let hosts = |number| [host(number, false), host(number, true)];
    let mut options = Options::new(STATIONS[number], hosts(number));
    options.mtu = wire::MTU_MAX;
    (0..2).fold(options, |options, other| {
        hosts(other).into_iter().fold(options, |options, host| options.neighbour(host, STATIONS[other]))
    })
}

impl Hosts {
    pub(crate) fn new(level: Level) -> Self {
        Self::with(level, wire::Options::default(), |_| {})
    }

    pub(crate) fn with(level: Level, wires: wire::Options, change: impl Fn(&mut Options)) -> Self {
        let genie = open();
        let servers = [0, 1].map(|number| {
            let mut options = options(number);
            change(&mut options);
            Datagrams::new(genie.clone(), level.adapter(genie.space()), options)
        });
        let wires = [0, 1].map(|number| {
            let wire = Wire::new(wires.clone(), wire::Clock::default(), servers[number].station());
            ServerHandle::new(wire.expect("a wire"))
        });
        servers[0].attach(wires[1].clone()).expect("a wire");
        servers[1].attach(wires[0].clone()).expect("a wire");
        let handles = servers.clone().map(ServerHandle::new);
        Self { genie, servers, handles, wires }
    }

    pub(crate) fn socket(&self, number: usize) -> Socket {
        self.opened(number, &Open::default())
    }

    pub(crate) fn opened(&self, number: usize, open: &Open) -> Socket {
        Socket::open(&self.genie, &self.handles[number], open).expect("a port")
    }

    /// Verifies that the books add up, and that nothing is held but the adapters' pools.
    #[track_caller]
    pub(crate) fn assert_idle(&self, level: Level) {
        // A frame that was swapped is looked for when it is needed next.
        if level == Level::Framed {
            return self.check();
        }
        let segments = if level == Level::Outboard { 0 } else { 2 * SEGMENTS * SEGMENT / 4096 };
        genie_conformance::assert_idle(&self.genie, segments);
    }

    /// Verifies that all buffers of host 1's adapter are free.
    #[track_caller]
    pub(crate) fn assert_buffers_free(&self) {
        let Free { segments, bytes } = self.servers[1].free();
        assert!(segments == SEGMENTS || bytes == OUTBOARD, "{segments} segments of {bytes} bytes are free");
    }

    #[track_caller]
    pub(crate) fn check(&self) {
        checked(self.genie.space());
    }
}

/// The address of a socket.
pub(crate) fn address(number: usize, is_v6: bool, socket: &Socket) -> SocketAddr {
    (host(number, is_v6), socket.port()).into()
}

/// An output of these bytes by any scheme.
pub(crate) fn out<'o>(genie: &Interface, scheme: Scheme, bytes: &[u8]) -> Out<'o> {
    out_at(genie, scheme, 0, bytes)
}

/// The same, from so far into a page, where the scheme leaves the place to the client.
pub(crate) fn out_at<'o>(genie: &Interface, scheme: Scheme, offset: usize, bytes: &[u8]) -> Out<'o> {
    use genie_passing::model::{Allocation, Integrity};
    if bytes.is_empty() {
        return Out::copy(&[]); // there are no empty buffers
    }
    if scheme.allocation() == Allocation::Migrant {
        let is_strong = scheme.semantics().integrity() == Integrity::Strong;
        let mut migrant = genie.allocate_migrant(bytes.len(), is_strong).expect("memory");
        migrant.copy_from_slice(bytes);
        return Out::migrant(scheme, migrant);
    }
    let mut buffer = genie.allocate_at(offset, bytes.len()).expect("memory");
    buffer.copy_from_slice(bytes);
    Out::owned(scheme, buffer)
}

/// An input of this many bytes by any scheme.
pub(crate) fn room<'i>(genie: &Interface, scheme: Scheme, len: usize) -> In<'i> {
    room_at(genie, scheme, 0, len)
}

/// The same, so far into a page, where the scheme leaves the place to the client.
pub(crate) fn room_at<'i>(genie: &Interface, scheme: Scheme, offset: usize, len: usize) -> In<'i> {
    if scheme.allocation() == genie_passing::model::Allocation::Migrant {
        return In::migrant(scheme, len);
    }
    let mut buffer = genie.allocate_at(offset, len).expect("memory");
    buffer.fill(0xee);
    In::owned(scheme, buffer)
}

/// The bytes that have come, and the reply.
pub(crate) fn taken(mut reply: Reply) -> (Vec<u8>, Reply) {
    let actual = reply.actual();
    let bytes = match (reply.take_buffer(), reply.take_migrant()) {
        (Some(buffer), _) => {
            let is_shared = matches!(
                reply.buffers[0].elements[0].receipt.effective,
                Scheme::Share | Scheme::EmulatedShare
            );
            let is_as_before = buffer[actual..].iter().all(|byte| *byte == 0xee);
            assert!(is_shared || is_as_before, "bytes behind the data were changed");
            buffer[..actual].to_vec()
        }
        (_, Some(migrant)) => migrant[..actual].to_vec(),
        _ => Vec::new(),
    };
    (bytes, reply)
}

/// What a request to receive comes to.
pub(crate) fn synced(pending: Pending<'_>) -> Result<(Reply, Arrived), Failed> {
    assert!(pending.wait(Duration::from_secs(10)), "no datagram came");
    let reply = pending.sync()?;
    let arrived = Arrived::from_reply(reply.argument()).expect("a sender");
    Ok((reply, arrived))
}
