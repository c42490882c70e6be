//! The fixed parts of control messages, byte for byte as docs/channel.md shows them.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::parts;

parts! {
    /// The first part of every message; `len` counts what follows it.
    Head { magic: [u8; 8], version: U16, kind: U16, len: U32 }

    /// The fixed part of a hello; the name follows.
    HelloHead {
        version_min: U16,
        version_max: U16,
        pid: U32,
        alias_base: U64,
        alias_len: U64,
        limits: LimitsPart,
        granule: u8,
        untrusted: u8,
        name: u8,
        mixed: u8,
    }

    /// The fixed part of a welcome; the lengths of the pool's objects, the name and the services follow.
    WelcomeHead {
        version: U16,
        mapping: u8,
        trust: u8,
        instance: U64,
        limits: LimitsPart,
        abort_timeout_ms: U32,
        lines: U32,
        area: U32,
        pool: U16,
        services: U16,
        name: U16,
    }

    /// The fixed part of a service; the name follows.
    ServiceHead { reads: u8, writes: u8, zero: u8, name: u8, zeros: [U64; 2] }

    /// Limits on what may be pending.
    LimitsPart { pending_bytes: U64, pending_requests: U32 }

    /// The fixed part of a refusal or goodbye; the sentence follows.
    EndingHead { reason: U16, sentence: U16 }

    /// An object of the client, and where it is in an arena.
    ObjectPart { arena: U16, writable: u8, zero: u8, id: U64, start: U64, len: U64 }

    /// An arena of the client.
    ArenaPart { number: U16, granule: u8, zero: u8, base: U64, len: U64 }

    /// The fixed part of a message that adds to the pool; the objects' lengths follow.
    PoolHead { count: U16 }

    /// The fixed part of a question for a layout; the argument follows.
    LayoutWantedHead { service: U16, argument: U16 }

    /// A layout of input buffers.
    LayoutPart { preferred: u8, offset: U64, len: U64, header: U64, trailer: U64 }

    /// The fixed part of a status; the name, the services and the clients follow.
    StatusHead {
        instance: U64,
        uptime_ms: U64,
        pid: U32,
        clients_total: U32,
        clients: U16,
        services: U16,
        name: U16,
    }

    /// The fixed part of a client in a status; the name follows.
    ClientHead { pid: U32, limits: LimitsPart, name: u8 }

    /// The fixed part of a server's traffic; the clients' counts follow.
    TrafficHead { departed: CountsPart, clients: U16 }

    /// What was passed for one client.
    ClientCountsPart { client: U64, counts: CountsPart }

    /// What was passed for one client, or several.
    CountsPart {
        requests: U64,
        failures: U64,
        out_copied: U64,
        out_passed: U64,
        in_copied: U64,
        in_passed: U64,
    }
}
