//! Drivers of the kernel's interfaces, on links of their own (`genie_net::namespaces`), and the link that makes servers of them.

#[allow(dead_code, reason = "the hosts of other tests have more than is used here")]
#[path = "../datagram/hosts.rs"]
mod hosts;
mod link;
mod namespaces;
mod packet_socket;
mod udp;
