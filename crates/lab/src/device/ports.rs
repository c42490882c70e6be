//! The ports of a device, at which senders or receivers wait in the order in which they came.
//!
//! Invariants: at one port either senders or receivers wait, never both.
//! Limits: [`WAITING_MAX`] requests in all.

/// How many requests may wait.
pub(super) const WAITING_MAX: usize = 1024;

/// Which side of a transfer a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Sender,
    Receiver,
}

/// What happens to a request that comes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Met<R> {
    /// The request meets a request of the other side: these are the sender's and the receiver's.
    Pair(R, R),
    /// The request waits.
    Waits,
    /// There is no room to wait.
    Full(R),
}

/// The ports, of requests of any kind.
#[derive(Debug)]
pub(super) struct Ports<R> {
    /// The waiting requests, with their ports and sides, in the order in which they came.
    waiting: Vec<(u32, Side, R)>,
}

impl<R> Default for Ports<R> {
    fn default() -> Self {
        Self { waiting: Vec::new() }
    }
}

impl<R> Ports<R> {
    /// Takes a request for a port.
    pub(super) fn meet(&mut self, port: u32, side: Side, request: R) -> Met<R> {
        let meets = |(at, other, _): &(u32, Side, R)| *at == port && *other != side;
        if let Some(index) = self.waiting.iter().position(meets) {
            let (_, _, other) = self.waiting.remove(index);
            return match side {
                Side::Sender => Met::Pair(request, other),
                Side::Receiver => Met::Pair(other, request),
            };
        }
        if self.waiting.len() >= WAITING_MAX {
            return Met::Full(request);
        }
        self.waiting.push((port, side, request));
        Met::Waits
    }

    /// Takes out the requests for which `goes` is true.
    pub(super) fn remove(&mut self, goes: impl Fn(&R) -> bool) -> Vec<R> {
        self.waiting.extract_if(.., |(_, _, request)| goes(request)).map(|(_, _, request)| request).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_meet_in_order_and_ports_do_not_mix() {
        let mut ports = Ports::default();
        assert_eq!(ports.meet(1, Side::Receiver, "r1"), Met::Waits);
        assert_eq!(ports.meet(1, Side::Receiver, "r2"), Met::Waits);
        assert_eq!(ports.meet(2, Side::Sender, "s1"), Met::Waits);
        assert_eq!(ports.meet(1, Side::Sender, "s2"), Met::Pair("s2", "r1"));
        assert_eq!(ports.meet(1, Side::Sender, "s3"), Met::Pair("s3", "r2"));
        assert_eq!(ports.meet(1, Side::Sender, "s4"), Met::Waits);
        assert_eq!(ports.meet(2, Side::Receiver, "r3"), Met::Pair("s1", "r3"));
        assert_eq!(ports.meet(1, Side::Receiver, "r4"), Met::Pair("s4", "r4"));
        assert!(ports.waiting.is_empty());
    }

    #[test]
    fn what_is_removed_is_met_no_more_and_leaves_room() {
        let mut ports = Ports::default();
        for number in 0..WAITING_MAX {
            assert_eq!(ports.meet(number as u32 % 3, Side::Sender, number), Met::Waits);
        }
        assert_eq!(ports.meet(0, Side::Sender, WAITING_MAX), Met::Full(WAITING_MAX));
        assert_eq!(ports.remove(|number| *number < 3), [0, 1, 2]);
        assert_eq!(ports.meet(0, Side::Receiver, 9999), Met::Pair(3, 9999));
        assert_eq!(ports.waiting.len(), WAITING_MAX - 4);
    }
}
