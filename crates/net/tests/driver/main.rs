//! Drivers of the kernel's interfaces, on links of their own (`genie_net::namespaces`), and the link that makes servers of them.

mod link;
mod namespaces;
mod packet_socket;
