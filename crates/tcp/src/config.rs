//! What a connection can be told before it begins.

use std::time::Duration;

/// How a connection's congestion window grows and shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// RFC 5681, the standard's.
    Reno,
    /// RFC 9438, which is what most hosts do: quicker where the product of bandwidth and delay is large.
    #[default]
    Cubic,
}

/// When an idle peer is asked whether it is still there (RFC 9293 §3.8.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// After how long without a segment from the peer. The RFC's default is two hours.
    pub idle: Duration,
    /// How long after an unanswered probe the next one follows.
    pub interval: Duration,
    /// After how many unanswered probes the connection is given up; one lost answer never ends it.
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// What a connection is told before it begins. Lengths are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How long an IP packet may be on the way out, and on the way in: MMS_S and MMS_R of RFC 9293 §3.7.1 with the IP header.
    pub mtu: u16,
    /// How much of the peer's data may be unread, out of order or unconfirmed: RCV.BUFF. At most 1 GiB.
    pub receive_capacity: u32,
    /// How many references to such data may be held: a peer that sends single bytes runs into this one. What comes beyond it is dropped, and
    /// sent again by the peer.
    pub pieces: usize,
    /// How many references a segment that is sent may have, as the adapter's lists allow; a segment with more of them ends earlier.
    pub gather: usize,
    /// Whether short data waits while something is unacknowledged (RFC 9293 §3.7.4).
    pub nagle: bool,
    /// How long an acknowledgment may wait for data, or for the next segment. Zero acknowledges each segment; half a second or more is taken
    /// for a little less (MUST-40).
    pub ack_delay: Duration,
    /// Whether what the client takes is acknowledged only when it says so ([`Connection::confirm`](crate::Connection::confirm)), and not
    /// when it arrives.
    pub acknowledge_on_confirmation: bool,
    /// How the congestion window moves.
    pub algorithm: Algorithm,
    /// Whether windows beyond 64 KiB are offered and accepted (RFC 7323).
    pub window_scaling: bool,
    /// The same of timestamps (RFC 7323).
    pub timestamps: bool,
    /// The same of selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// The shortest retransmission timeout. RFC 6298 §2.4 says one second; like other hosts, 200 ms are taken, which suits
    /// acknowledgments that are delayed by less.
    pub rto_min: Duration,
    /// The longest (RFC 6298 §2.5: 60 s or more).
    pub rto_max: Duration,
    /// How long data may stay unacknowledged before the connection is given up: R2, or the user timeout (RFC 9293 §3.8.3, §3.10.8).
    pub user_timeout: Duration,
    /// The same, of a SYN: at least three minutes by the RFC.
    pub connect_timeout: Duration,
    /// After how many retransmissions the client is told ([`Event::Unresponsive`](crate::Event::Unresponsive)): R1.
    pub retransmissions_told: u32,
    /// Whether, and when, an idle peer is probed. Not by default.
    pub keep_alive: Option<KeepAlive>,
    /// How long a segment may live in the network. A connection lingers in TIME-WAIT for twice as long.
    pub msl: Duration,
    /// The Differentiated Services field of the connection's packets, six bits.
    pub dscp: u8,
    /// How many routers its packets may pass.
    pub hop_limit: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mtu: 1500,
            receive_capacity: 1 << 20,
            pieces: 4096,
            gather: 16,
            nagle: true,
            ack_delay: Duration::from_millis(40),
            acknowledge_on_confirmation: false,
            algorithm: Algorithm::default(),
            window_scaling: true,
            timestamps: true,
            sack: true,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(60),
            user_timeout: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(180),
            retransmissions_told: 3,
            keep_alive: None,
            msl: Duration::from_secs(30),
            dscp: 0,
            hop_limit: 64,
        }
    }
}

/// The shortest data that a full segment may have, whatever the peer or a router says: what any IPv4 packet may carry.
const MSS_LEAST: u16 = 48;

impl Config {
    /// How many bits the windows that are offered are shifted, so that 16 bits reach the capacity (RFC 7323 §2.3).
    pub(crate) fn window_shift(&self) -> u8 {
        (0..14).find(|&shift| self.receive_capacity >> shift <= u32::from(u16::MAX)).unwrap_or(14)
    }

    /// The MSS that is announced: the MTU without fixed headers (RFC 9293 §3.7.1, MUST-67).
    pub(crate) fn mss(&self, v6: bool) -> u16 {
        self.mtu.saturating_sub(fixed_headers(v6)).max(MSS_LEAST)
    }

    /// The longest data of segments that are sent, without room for options, to a peer that announces `theirs`, or nothing (MUST-15,
    /// MUST-16).
    pub(crate) fn send_mss(&self, v6: bool, theirs: Option<u16>) -> u16 {
        let theirs = theirs.unwrap_or(if v6 { 1220 } else { 536 });
        theirs.min(self.mss(v6)).max(MSS_LEAST)
    }

    /// The longest data of segments over a path that brings packets of `mtu`.
    pub(crate) fn path_mss(v6: bool, mtu: u16) -> u16 {
        let least = if v6 { 1280 } else { 68 };
        mtu.max(least).saturating_sub(fixed_headers(v6)).max(MSS_LEAST)
    }
}

/// The headers of IP and TCP without options.
fn fixed_headers(v6: bool) -> u16 {
    if v6 { 60 } else { 40 }
}
