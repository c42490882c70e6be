//! Modules: one that puts headers in front, and one that counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use genie_fbufs::{Block, Message};

use super::stream::{Module, Next, Queue, Way};

/// Puts a header in front of each message that goes down: in its first block's headroom, or in a block of its own that is linked in front.
/// Takes it off each message that comes up, and drops those that do not begin with it.
#[derive(Debug, Clone)]
pub struct Headers(Vec<u8>);

impl Headers {
    /// All messages have the same header.
    pub fn new(header: &[u8]) -> Self {
        Self(header.to_vec())
    }
}

impl Module for Headers {
    fn put(&mut self, mut message: Message, _queue: &mut Queue, next: &mut Next<'_>) {
        let header = &self.0;
        match next.way() {
            Way::Down => {
                if !message.blocks_mut().next().is_some_and(|first| first.prepend(header)) {
                    let mut linked = Message::from(Block::of(header.clone()));
                    linked.append(message);
                    message = linked;
                }
                next.put(message);
            }
            Way::Up => {
                let begins = message.blocks().flat_map(|block| block.iter()).take(header.len());
                if begins.eq(header) && message.trim_front(header.len()).is_ok() {
                    next.put(message);
                }
            }
        }
    }
}

/// Counts what passes. Clones have the same counts.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<[[AtomicU64; 2]; 2]>);

impl Counts {
    /// How many messages have passed on this way, and how many bytes.
    pub fn get(&self, way: Way) -> (u64, u64) {
        // Relaxed: counts order nothing else.
        let [messages, bytes] = self.0[way as usize].each_ref().map(|count| count.load(Ordering::Relaxed));
        (messages, bytes)
    }
}

impl Module for Counts {
    fn put(&mut self, message: Message, _queue: &mut Queue, next: &mut Next<'_>) {
        let [messages, bytes] = &self.0[next.way() as usize];
        messages.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
        next.put(message);
    }
}
