//! What has become of datagrams, counted.

/// What has become of datagrams so far: of one port's, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that were passed to the wire.
    pub sent: u64,
    /// Datagrams that the wire has refused, or has let go.
    pub unsent: u64,
    /// Datagrams that were received by a client.
    pub received: u64,
    /// How many of their bytes the server has copied, to or from its clients' buffers; what data passing copies, receipts tell.
    pub copied: u64,
    /// How many bytes of data were read for checksums alone.
    pub summed: u64,
    /// How many were summed while they were copied, or transferred from the adapter's own memory.
    pub integrated: u64,
    /// How many the adapter has summed.
    pub by_adapter: u64,
    /// Datagrams whose sender's kernel has left their checksum to a device, and there was none: nobody has summed these.
    pub unsummed: u64,
    /// Datagrams that were dropped since their checksum was wrong.
    pub damaged: u64,
    /// Datagrams that came from elsewhere than the peer of their port.
    pub strange: u64,
    /// Datagrams that the program of their port has rejected, or of which it would take too much off ([`Open::apart`](super::Open::apart)).
    pub rejected: u64,
    /// Datagrams for which there was no room in a queue, or no memory in their client's space.
    pub full: u64,
    /// Datagrams for ports that nobody has opened, or that were closed while they waited there; 0 for a port.
    pub unclaimed: u64,
    /// Frames for other stations or hosts; 0 for a port.
    pub misled: u64,
    /// Frames that are no datagrams; 0 for a port.
    pub malformed: u64,
}

/// How many numbers there are.
const COUNT: usize = 15;
/// How long the argument is that comes back from [`STATISTICS`](super::STATISTICS).
pub const COUNTERS: usize = 8 * COUNT;

impl Counters {
    /// What a reply's argument says.
    pub fn from_reply(argument: &[u8]) -> Option<Self> {
        let (numbers, []) = argument.as_chunks() else { return None };
        let numbers: [[u8; 8]; COUNT] = numbers.try_into().ok()?;
        let mut counters = Self::default();
        counters.numbers().into_iter().zip(numbers).for_each(|(to, from)| *to = u64::from_le_bytes(from));
        Some(counters)
    }

    pub(super) fn to_reply(mut self) -> Vec<u8> {
        self.numbers().into_iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn numbers(&mut self) -> [&mut u64; COUNT] {
        let Self { sent, unsent, received, copied, summed, integrated, by_adapter, unsummed, .. } = self;
        let Self { damaged, strange, rejected, full, unclaimed, misled, malformed, .. } = self;
        [
            sent, unsent, received, copied, summed, integrated, by_adapter, unsummed, damaged, strange,
            rejected, full, unclaimed, misled, malformed,
        ]
    }
}
