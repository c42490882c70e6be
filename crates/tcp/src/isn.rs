//! Initial sequence numbers, and what else must not be guessed from outside.
//!
//! How: a keyed hash (SipHash-2-4) of both ends, plus a clock of four microseconds.
//! Trust: the key never leaves the host. By [`Secret::random`] it is 128 bits that the standard library has drawn from the kernel.
//! Source: RFC 9293 §3.4.1, RFC 6528; timestamps that begin elsewhere for each connection: RFC 7323 §5.4.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use siphasher::sip::SipHasher24;

use crate::segment::Path;
use crate::sequence::Seq;
use crate::timers::Time;

/// A key that only this host knows.
#[derive(Clone, Copy)]
pub struct Secret([u8; 16]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Secret")
    }
}

impl Secret {
    /// One that nobody can guess.
    pub fn random() -> Self {
        let random = RandomState::new();
        let halves = [0u8, 1].map(|half| random.hash_one(half).to_ne_bytes());
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&halves[0]);
        bytes[8..].copy_from_slice(&halves[1]);
        Self(bytes)
    }

    /// A known one, so that a test can be repeated.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The hash of something, apart for each use.
    pub(crate) fn hash(&self, used_for: u8, of: impl Hash) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write_u8(used_for);
        of.hash(&mut hasher);
        hasher.finish()
    }

    /// The initial sequence number of a connection that begins now (MUST-8, MUST-9).
    pub(crate) fn initial_sequence(&self, path: &Path, now: Time) -> Seq {
        let clock = (now.as_micros() / 4) as u32;
        Seq((self.hash(0, path) as u32).wrapping_add(clock))
    }

    /// By how much a connection's timestamps are ahead of the clock.
    pub(crate) fn timestamp_offset(&self, path: &Path) -> u32 {
        self.hash(1, path) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn path(port: u16) -> Path {
        Path { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], port).into() }
    }

    #[test]
    fn initial_sequence_numbers_follow_the_clock_and_differ_by_path_and_key() {
        let secret = Secret::from_bytes(*b"a key of 16 byte");
        let now = Duration::from_secs(1000);
        let first = secret.initial_sequence(&path(1), now);
        assert_eq!(secret.initial_sequence(&path(1), now + Duration::from_millis(4)).since(first), 1000);
        assert_ne!(first, secret.initial_sequence(&path(2), now));
        assert_ne!(first, Secret::from_bytes(*b"b key of 16 byte").initial_sequence(&path(1), now));
        assert_ne!(Secret::random().hash(0, 0), Secret::random().hash(0, 0));
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
