//! Which party runs on which CPU, and how parties that share a CPU wait.
//!
//! How: the device has a CPU of its own wherever there are two, next to the sender's, as a network works beside the
//! processor. With three CPUs the receiver has one, too, as it had in the papers; with two CPUs the receiver shares the
//! sender's, and whichever of the two waits hands the CPU over.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How long a party with a CPU of its own spins: longer than anything that it waits for.
const OWN_CPU: Duration = Duration::from_millis(50);

/// The parties' CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seats {
    /// The CPU of the sender, which is the process that measures.
    pub sender: usize,
    /// The device's CPU.
    pub device: usize,
    /// The receiver's CPU.
    pub receiver: usize,
}

impl Seats {
    /// The seats on these CPUs.
    ///
    /// # Errors
    /// There are no CPUs.
    pub fn among(cpus: &[usize]) -> Result<Self> {
        match *cpus {
            [] => Err(Error::NoCpu),
            [only] => Ok(Self { sender: only, device: only, receiver: only }),
            [device, sender] => Ok(Self { sender, device, receiver: sender }),
            [.., receiver, device, sender] => Ok(Self { sender, device, receiver }),
        }
    }

    /// Whether sender and receiver share one CPU.
    pub fn clients_share(self) -> bool {
        self.sender == self.receiver
    }

    /// Whether the device shares a CPU with its clients.
    pub fn device_shares(self) -> bool {
        self.device == self.sender
    }

    /// How long the device looks for requests, and clients for replies, before they sleep.
    pub(crate) fn spin(self) -> Duration {
        if self.device_shares() { Duration::ZERO } else { OWN_CPU }
    }

    /// Which party is where, as a sentence for a report.
    pub fn sentence(self) -> &'static str {
        match (self.device_shares(), self.clients_share()) {
            (true, _) => {
                "All parties shared one CPU and handed it over, so that nothing overlapped and every wait \
                 includes switches between processes."
            }
            (false, true) => {
                "Sender and receiver shared one CPU and handed it over; the device had the other one, and spun. \
                 Handing over is part of the latency wherever the device is quicker."
            }
            (false, false) => "Sender, device and receiver had a CPU each, and spun.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_has_a_cpu_of_its_own_as_soon_as_there_are_two_and_the_receiver_as_there_are_three() {
        assert!(Seats::among(&[]).is_err());
        let seats = |cpus: &[usize]| Seats::among(cpus).unwrap();
        assert!(seats(&[4]).device_shares() && seats(&[4]).clients_share());
        assert!(!seats(&[1, 2]).device_shares() && seats(&[1, 2]).clients_share());
        assert_eq!(seats(&[1, 2]).sender, 2, "the last one serves the fewest interrupts");
        let many = seats(&[0, 1, 2, 3]);
        assert_eq!((many.receiver, many.device, many.sender), (1, 2, 3));
        assert!(!many.device_shares() && !many.clients_share());
    }
}
