//! SYN cookies: a SYN is answered without anything being kept, and the acknowledgment of the answer tells what was in the SYN.
//!
//! How: the sequence number of the answer is a message authentication code (24 bits) of both ends, the peer's sequence number, a minute and
//! which of eight lengths the peer's segments may have; the minute and the length stand beside it. Windows' scale and selective
//! acknowledgment stand in the low bits of the answer's timestamp, which the peer echoes; without timestamps, such a connection has neither.
//! Trust: an acknowledgment that was made up is taken for one of a cookie once in 2^23 times. So they are looked at only for a while after
//! cookies were sent.
//! Source: RFC 4987 §3.6.

use crate::isn::Secret;
use crate::options::{Options, Timestamps};
use crate::segment::{Header, Path};
use crate::sequence::Seq;
use crate::timers::Time;

/// What the peer's segments may be long, rounded down.
const LENGTHS: [u16; 8] = [216, 536, 1024, 1220, 1300, 1440, 1460, 8940];
/// How long a cookie is good, at least; at most twice as long.
pub(crate) const PERIOD: Time = Time::from_secs(64);
/// Bits of a timestamp that say what the peer's SYN had: a shift (15: none), and whether selective acknowledgments are taken.
const TOLD: u32 = 0b1_1111;
const NO_SHIFT: u32 = 0b1111;
const SACK: u32 = 0b1_0000;

fn period(now: Time) -> u32 {
    (now.as_secs() / PERIOD.as_secs()) as u32 & 31
}

fn code(secret: &Secret, path: &Path, peer: Seq, period: u32, length: u32) -> u32 {
    (secret.hash(2, (path, peer, period, length)) as u32) & 0xff_ffff
}

/// The sequence number that answers a SYN.
pub(crate) fn bake(secret: &Secret, path: &Path, syn: &Header, mss: u16, now: Time) -> Seq {
    let length = LENGTHS.iter().rposition(|&it| it <= mss).unwrap_or(0) as u32;
    let period = period(now);
    Seq(period << 27 | length << 24 | code(secret, path, syn.seq, period, length))
}

/// The timestamp of the answer, a little earlier than the true one, which says what the SYN had.
pub(crate) fn told_by(timestamp: u32, syn: &Options) -> u32 {
    let shift = syn.window_scale.map_or(NO_SHIFT, |it| u32::from(it.min(14)));
    let told = shift | if syn.sack_permitted { SACK } else { 0 };
    let value = timestamp & !TOLD | told;
    if Seq(value).after(Seq(timestamp)) { value.wrapping_sub(TOLD + 1) } else { value }
}

/// What the SYN had, if this acknowledgment is that of a cookie.
pub(crate) fn taste(secret: &Secret, path: &Path, ack: &Header, now: Time) -> Option<Options> {
    let cookie = (ack.ack - 1).0;
    let (baked, length) = (cookie >> 27, cookie >> 24 & 7);
    let fresh = period(now).wrapping_sub(baked) & 31 <= 1;
    if !fresh || code(secret, path, ack.seq - 1, baked, length) != cookie & 0xff_ffff {
        return None;
    }
    let mut options = Options { mss: Some(LENGTHS[length as usize]), ..Options::default() };
    if let Some(Timestamps { echo, .. }) = ack.options.timestamps {
        options.timestamps = ack.options.timestamps;
        options.sack_permitted = echo & SACK != 0;
        options.window_scale = (echo & NO_SHIFT != NO_SHIFT).then_some((echo & NO_SHIFT) as u8);
    }
    Some(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(1000);

    fn path() -> Path {
        Path { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 4000).into() }
    }

    fn acknowledging(cookie: Seq, syn: &Header, timestamps: Option<Timestamps>) -> Header {
        let options = Options { timestamps, ..Options::default() };
        Header { seq: syn.seq + 1, ack: cookie + 1, options, ..Header::default() }
    }

    #[test]
    fn an_acknowledgment_tells_what_the_syn_had() {
        let secret = Secret::random();
        let options = Options { window_scale: Some(9), sack_permitted: true, ..Options::default() };
        let syn = Header { seq: Seq(77), options, ..Header::default() };
        for (mss, rounded) in [(100, 216), (536, 536), (1459, 1440), (1460, 1460), (9000, 8940)] {
            let cookie = bake(&secret, &path(), &syn, mss, NOW);
            let timestamp = 123_456;
            let told = told_by(timestamp, &options);
            assert!(told <= timestamp && timestamp - told < 64);
            let timestamps = Some(Timestamps { value: 5, echo: told });
            let ack = acknowledging(cookie, &syn, timestamps);
            let expected = Options { mss: Some(rounded), timestamps, ..options };
            assert_eq!(taste(&secret, &path(), &ack, NOW + PERIOD), Some(expected));
            let plain = acknowledging(cookie, &syn, None);
            let expected = Options { mss: Some(rounded), ..Options::default() };
            assert_eq!(taste(&secret, &path(), &plain, NOW), Some(expected));
        }
    }

    #[test]
    fn a_cookie_is_good_for_its_path_its_peer_and_a_while() {
        let secret = Secret::from_bytes([3; 16]);
        let syn = Header { seq: Seq(77), ..Header::default() };
        let ack = acknowledging(bake(&secret, &path(), &syn, 1460, NOW), &syn, None);
        assert!(taste(&secret, &path(), &ack, NOW).is_some());
        assert!(taste(&secret, &path().reversed(), &ack, NOW).is_none());
        assert!(taste(&secret, &path(), &Header { seq: ack.seq + 1, ..ack }, NOW).is_none());
        assert!(taste(&secret, &path(), &Header { ack: ack.ack + 1, ..ack }, NOW).is_none());
        assert!(taste(&Secret::from_bytes([4; 16]), &path(), &ack, NOW).is_none());
        assert!(taste(&secret, &path(), &ack, NOW + 2 * PERIOD).is_none());
    }
}
