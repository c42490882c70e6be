//! Attacks: a hostile client or server, in a process of its own, does what no honest peer does, by way of the channel's own
//! layouts. Its victim ends that channel, or withstands the attack, and goes on with all other peers; nothing is left
//! behind.
//!
//! How: the victim is in the test's process, with an honest peer, and the attacker is the test binary run once more
//! ([`attacker`]). After each attack the [`scene`] makes sure that the honest peers still pass data over the channel that
//! they had, and over new channels, that the client's accounts are in order, and that there are as many descriptors,
//! mappings and threads as before.
//! Source: docs/channel.md, Trust.

mod support;

#[path = "trust/attacked.rs"]
mod attacked;
#[path = "trust/attacker.rs"]
mod attacker;
#[path = "trust/client.rs"]
mod client;
#[path = "trust/descriptors.rs"]
mod descriptors;
#[path = "trust/floods.rs"]
mod floods;
#[path = "trust/fuse.rs"]
mod fuse;
#[path = "trust/kept.rs"]
mod kept;
#[path = "trust/losses.rs"]
mod losses;
#[path = "trust/memory.rs"]
mod memory;
#[path = "trust/missing.rs"]
mod missing;
#[path = "trust/records.rs"]
mod records;
#[path = "trust/replies.rs"]
mod replies;
#[path = "trust/scene.rs"]
mod scene;
#[path = "trust/server.rs"]
mod server;
#[path = "trust/shown.rs"]
mod shown;
#[path = "trust/silence.rs"]
mod silence;
#[path = "trust/untrusted.rs"]
mod untrusted;
#[path = "trust/welcomes.rs"]
mod welcomes;
