//! Messages that begin and end a channel: hello and welcome, limits, refusal and goodbye.

use std::borrow::Cow;
use std::time::Duration;

use genie_io::Service;
use genie_memory::Mapping;
use genie_ring::Layout;
use genie_sys::GranuleKind;

use super::bounds::{MAX_DESCRIPTORS, MAX_SENTENCE, MAX_SERVICES, WELCOME_DESCRIPTORS};
use super::layout::{EndingHead, HelloHead, LimitsPart, ServiceHead, WelcomeHead};
use super::part::{
    Part, check_arena, fixed, flag, granule, lens, name, read_granule, read_head, read_lens, read_list,
    read_name,
};
use crate::wire::cursor::Cursor;
use crate::wire::{Malformed, TooLarge, count, cut};

/// What a client says of itself and wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version that the client speaks.
    pub version_min: u16,
    /// The newest version that the client speaks.
    pub version_max: u16,
    /// Its name, for people.
    pub name: String,
    /// The client's process number in its own namespace, for people. The socket knows the true number.
    pub pid: u32,
    /// The kind of pages that its granules are; of the larger ones, if there are two sizes.
    pub granule: GranuleKind,
    /// Whether there are granules of 4 KiB besides.
    pub mixed: bool,
    /// The first address of its alias arena, number 0.
    pub alias_base: u64,
    /// The length of that arena in bytes.
    pub alias_len: u64,
    /// Whether the server may map nothing, and is to copy.
    pub untrusted: bool,
    /// What the client would like to have pending at once.
    pub limits: Limits,
}

/// Limits on a client's pending requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all pending requests together.
    pub pending_bytes: u64,
    /// The number of pending requests.
    pub pending_requests: u32,
}

/// What a server says of itself and grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The version that both speak from now on.
    pub version: u16,
    /// The server's name.
    pub name: String,
    /// Tells this run of the server from other runs under the same name.
    pub instance: u64,
    /// What the client may have pending at once.
    pub limits: Limits,
    /// How long the server may take over an abort, in whole milliseconds.
    pub abort_timeout: Duration,
    /// The layout of the rings' object.
    pub rings: Layout,
    /// When the client's objects are mapped.
    pub mapping: Mapping,
    /// How the server reaches the client's data.
    pub trust: Trust,
    /// The lengths of the pool's objects, at most 14, in the order of their descriptors.
    pub pool: Vec<u64>,
    /// The services, numbered by their place.
    pub services: Vec<Service>,
}

/// How a server reaches a client's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The server maps the objects that the client announces.
    Mapped = 0,
    /// The kernel copies for the server; nothing is announced.
    Copied = 1,
}

/// Why a channel was refused, or has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The reason, for programs.
    pub reason: Reason,
    /// A sentence for an operator; what exceeds [`MAX_SENTENCE`] bytes is cut off.
    pub sentence: String,
}

/// Reasons for an ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The sender is done.
    Closing,
    /// There is no version that both speak.
    Version,
    /// The peer sent something that it must not send.
    Malformed,
    /// There are too many clients.
    Busy,
    /// An object or a descriptor is not acceptable.
    Object,
    /// The peer's kind of granules does not suit.
    Granule,
    /// Memory, addresses or descriptors have run out.
    Exhausted,
    /// The peer did not answer in time.
    Silent,
    /// The peer wants a way to reach data that is not offered.
    Trust,
    /// The peer has no right to connect.
    Permission,
    /// A reason that this version does not know, by its number.
    Other(u16),
}

impl Reason {
    /// The known reasons in the order of their codes, which start at 1.
    const KNOWN: [Self; 10] = [
        Self::Closing,
        Self::Version,
        Self::Malformed,
        Self::Busy,
        Self::Object,
        Self::Granule,
        Self::Exhausted,
        Self::Silent,
        Self::Trust,
        Self::Permission,
    ];

    fn code(self) -> u16 {
        let known = (1..).zip(Self::KNOWN).find(|(_, known)| *known == self);
        match (known, self) {
            (_, Self::Other(code)) => code,
            (known, _) => known.map_or(0, |(code, _)| code),
        }
    }

    fn of(code: u16) -> Self {
        let known = Self::KNOWN.get(usize::from(code).wrapping_sub(1));
        known.copied().unwrap_or(Self::Other(code))
    }
}

impl Part for Hello {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let (name_len, name) = name::<u8>(&self.name)?;
        let head = HelloHead {
            version_min: self.version_min.into(),
            version_max: self.version_max.into(),
            pid: self.pid.into(),
            alias_base: self.alias_base.into(),
            alias_len: self.alias_len.into(),
            limits: self.limits.into(),
            granule: granule(self.granule),
            untrusted: self.untrusted.into(),
            name: name_len,
            mixed: self.mixed.into(),
        };
        fixed(bytes, head);
        bytes.extend_from_slice(name);
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (at, head) = read_head::<HelloHead>(cursor, "a hello")?;
        let (version_min, version_max) = (head.version_min.get(), head.version_max.get());
        if version_min > version_max {
            let what =
                format!("a hello offers the versions from {version_min} to {version_max}, which are none");
            return Err(at.malformed(what));
        }
        let granule = read_granule(&at, head.granule)?;
        let (alias_base, alias_len) = (head.alias_base.get(), head.alias_len.get());
        check_arena(&at, granule, alias_base, alias_len)?;
        let untrusted = flag(&at, "untrusted", head.untrusted)?;
        let mixed = flag(&at, "mixed", head.mixed)?;
        if mixed && granule.size() == GranuleKind::Base.size() {
            return Err(at.malformed("a hello's granules are of one size, and mixed".to_owned()));
        }
        Ok(Self {
            version_min,
            version_max,
            name: read_name(cursor, "a client's name", head.name)?,
            pid: head.pid.get(),
            granule,
            mixed,
            alias_base,
            alias_len,
            untrusted,
            limits: head.limits.into(),
        })
    }
}

impl Part for Welcome {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let pool_max = MAX_DESCRIPTORS - WELCOME_DESCRIPTORS;
        let pool: u16 = count("objects of a pool", self.pool.len(), pool_max)?;
        let services: u16 = count("services", self.services.len(), MAX_SERVICES)?;
        let timeout_ms = usize::try_from(self.abort_timeout.as_millis()).unwrap_or(usize::MAX);
        let timeout_ms: u32 = count("milliseconds for an abort", timeout_ms, u32::MAX as usize)?;
        let (name_len, name) = name::<u16>(&self.name)?;
        let head = WelcomeHead {
            version: self.version.into(),
            mapping: (self.mapping == Mapping::Transient).into(),
            trust: self.trust as u8,
            instance: self.instance.into(),
            limits: self.limits.into(),
            abort_timeout_ms: timeout_ms.into(),
            lines: self.rings.lines.into(),
            area: self.rings.area.into(),
            pool: pool.into(),
            services: services.into(),
            name: name_len.into(),
        };
        fixed(bytes, head);
        lens(bytes, &self.pool);
        bytes.extend_from_slice(name);
        self.services.iter().try_for_each(|offer| offer.write(bytes))
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (at, head) = read_head::<WelcomeHead>(cursor, "a welcome")?;
        let mapping = if flag(&at, "mapping", head.mapping)? { Mapping::Transient } else { Mapping::Cached };
        let trust = if flag(&at, "trust", head.trust)? { Trust::Copied } else { Trust::Mapped };
        let pool = read_lens(cursor, head.pool.get())?;
        let name = read_name(cursor, "a server's name", head.name)?;
        Ok(Self {
            version: head.version.get(),
            name,
            instance: head.instance.get(),
            limits: head.limits.into(),
            abort_timeout: Duration::from_millis(head.abort_timeout_ms.get().into()),
            rings: Layout { lines: head.lines.get(), area: head.area.get() },
            mapping,
            trust,
            pool,
            services: read_list(cursor, "services", head.services.get(), MAX_SERVICES)?,
        })
    }
}

/// Makes sure that a message can carry a service.
///
/// # Errors
/// Its name is longer than [`MAX_NAME`](genie_io::carrier::MAX_NAME), or has control characters.
pub fn check_service(service: &Service) -> Result<(), TooLarge> {
    service.write(&mut Vec::new())
}

impl Part for Service {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let (name_len, name) = name::<u8>(&self.name)?;
        let (reads, writes) = (self.reads.into(), self.writes.into());
        let head = ServiceHead { reads, writes, zero: 0, name: name_len, zeros: [0.into(); 2] };
        fixed(bytes, head);
        bytes.extend_from_slice(name);
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (at, head) = read_head::<ServiceHead>(cursor, "a service")?;
        let reads = flag(&at, "reads", head.reads)?;
        let writes = flag(&at, "writes", head.writes)?;
        if head.zero != 0 || head.zeros.iter().any(|zero| zero.get() != 0) {
            return Err(at.malformed("a service's spare bytes are not 0"));
        }
        let name = Cow::Owned(read_name(cursor, "a service's name", head.name)?);
        Ok(Self { name, reads, writes })
    }
}

impl Part for Limits {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        fixed(bytes, LimitsPart::from(*self));
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        cursor.fixed::<LimitsPart>("limits").map(|part| (*part).into())
    }
}

impl From<Limits> for LimitsPart {
    fn from(limits: Limits) -> Self {
        Self { pending_bytes: limits.pending_bytes.into(), pending_requests: limits.pending_requests.into() }
    }
}

impl From<LimitsPart> for Limits {
    fn from(part: LimitsPart) -> Self {
        Self { pending_bytes: part.pending_bytes.get(), pending_requests: part.pending_requests.get() }
    }
}

impl Part for Ending {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let sentence = cut(&self.sentence, MAX_SENTENCE);
        let len: u16 = count("bytes of a sentence", sentence.len(), MAX_SENTENCE)?;
        fixed(bytes, EndingHead { reason: self.reason.code().into(), sentence: len.into() });
        bytes.extend_from_slice(sentence.as_bytes());
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (_, head) = read_head::<EndingHead>(cursor, "an ending")?;
        let sentence = cursor.text("a sentence about an ending", head.sentence.get().into(), MAX_SENTENCE)?;
        Ok(Self { reason: Reason::of(head.reason.get()), sentence: sentence.to_owned() })
    }
}
