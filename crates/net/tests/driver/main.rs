//! Drivers of the kernel's interfaces, and the link that makes servers of them.

mod link;
