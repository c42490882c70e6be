//! Drivers of the kernel's interfaces, on links of their own (`genie_net::namespaces`), and the link that makes servers of them.

#[path = "../../../sys/tests/child/mod.rs"]
mod child;
mod front;
mod hostile;
#[allow(dead_code, reason = "the hosts of other tests have more than is used here")]
#[path = "../datagram/hosts.rs"]
mod hosts;
mod link;
mod namespaces;
mod native;
mod neighbours;
mod packet_socket;
#[path = "../datagram/peer.rs"]
mod peer;
#[path = "../../../sys/tests/proc/mod.rs"]
mod proc;
mod raw;
mod siege;
#[path = "../datagram/sight.rs"]
mod sight;
mod spies;
mod udp;
mod xdp;

use siege::play;
