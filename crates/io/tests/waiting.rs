//! Waiting for servers in other processes, in every way there is: by blocking, by descriptor, by doing something else;
//! with many clients, servers and threads, and with rings that are too small. Client and server share this process here,
//! which changes nothing about the way their records go.

#[path = "waiting/blocking.rs"]
mod blocking;
#[path = "waiting/claims.rs"]
mod claims;
#[path = "waiting/complaints.rs"]
mod complaints;
#[path = "waiting/completers.rs"]
mod completers;
#[path = "waiting/crowds.rs"]
mod crowds;
#[path = "waiting/descriptors.rs"]
mod descriptors;
#[path = "waiting/interfaces.rs"]
mod interfaces;
#[path = "waiting/late.rs"]
mod late;
#[path = "waiting/loops.rs"]
mod loops;
#[path = "waiting/polls.rs"]
mod polls;
#[path = "waiting/rings.rs"]
mod rings;
#[path = "waiting/room.rs"]
mod room;
#[path = "waiting/stage.rs"]
mod stage;
