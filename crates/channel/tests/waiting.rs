//! Waiting for servers in other processes, in every way there is: by blocking, by descriptor, by doing something else;
//! with many clients, servers and threads, and with rings that are too small. Client and server share this process here;
//! their records go the same way as between processes.

mod attending;
mod batches;
mod blocking;
mod claims;
mod complaints;
mod completers;
mod continuations;
mod crowds;
mod descriptors;
mod elsewhere;
pub(crate) mod fixture;
mod forwarding;
mod interfaces;
mod late;
mod loops;
mod pipelines;
mod polls;
mod relief;
mod rings;
mod room;
mod streams;
mod tasks;
