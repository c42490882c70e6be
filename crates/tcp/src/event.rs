//! What a connection tells its client.

/// What has happened. `Readable` is told again when more has come; the others are told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// The connection is established.
    Connected,
    /// There is data, or the end of it, to be taken.
    Readable,
    /// The peer sends no more. What it has sent before is still to be taken.
    PeerFinished,
    /// Something was sent again [`Config::retransmissions_told`](crate::Config::retransmissions_told) times without an answer: R1 of RFC 9293
    /// §3.8.3. The connection goes on.
    Unresponsive,
    /// The network says that the peer cannot be reached; it may be again (RFC 9293 §3.9.2.2). The connection goes on.
    Unreachable(Unreachable),
    /// The connection is over.
    Ended(Ended),
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// Both sides have sent all they had, and know it.
    #[error("the connection was closed by both sides")]
    Closed,
    /// The peer has reset it.
    #[error("the peer reset the connection: what was not acknowledged is lost")]
    Reset,
    /// The peer has refused it: nobody listens there.
    #[error("the peer refused the connection: nothing listens at its port")]
    Refused,
    /// The peer has acknowledged nothing for as long as it may.
    #[error("the peer acknowledged nothing for the time allowed: what was not acknowledged may be lost")]
    TimedOut,
    /// A router says that packets cannot get there, before the connection was established.
    #[error("the network refused to carry the connection's packets")]
    NoRoute,
    /// This side gave it up.
    #[error("this side aborted the connection")]
    Aborted,
}

/// What a message of ICMP says about a segment that was sent, but for what Path MTU Discovery uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unreachable {
    /// It may pass: network or host unreachable, source route failed, time exceeded, a parameter problem (MUST-56).
    Soft,
    /// It will not: protocol or port unreachable, or forbidden (SHLD-26). Of an established connection it is believed no more than the
    /// soft ones (RFC 5927 §5.2).
    Hard,
}
