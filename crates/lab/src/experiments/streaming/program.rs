//! User-level streaming, as the paper has it: a program reads packets from one card, and writes them to the other one.
//!
//! How: two threads stand for the kernel's driver and the program. The driver takes a packet from its card into a block of the kernel's
//! (first copy), and wakes the program by a descriptor (an eventfd, a call for each packet). The program waits in a call for each packet, as
//! in `read`; the block is copied into its buffer (second), and, as by `write`, from there into another block (third), which its own thread
//! puts into the other card (fourth), as STREAMS does where nothing holds a message up.
//! Limits: the two are threads of one process, so the program's memory is mapped all the time, and a switch between them costs less than one
//! between processes. `write` is not a system call here. Both flatter user-level streaming.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use genie_memory::Data;
use genie_net::driver::{Card, Rings};
use genie_net::streaming::How;
use genie_sys::event::Event;
use genie_sys::lock::Mutex;
use genie_sys::machine::RealTime;
use genie_sys::poll::any_readable;
use rustix::event::EventfdFlags;

use crate::error::{Error, Result};

/// How long the program waits for a card that does not tell when it has room.
const TICK: Duration = Duration::from_millis(1);

/// Driver and program. Dropping it ends both.
pub(super) struct Program {
    kernel: Arc<Kernel>,
    threads: Vec<JoinHandle<()>>,
}

/// What both see.
struct Kernel {
    blocks: Mutex<Blocks>,
    /// Counts packets that wait for the program.
    came: OwnedFd,
    /// Wakes the driver: there is room, or it is over.
    bell: Event,
    most: usize,
    is_over: AtomicBool,
    packets: AtomicU64,
    copied: AtomicU64,
}

#[derive(Default)]
struct Blocks {
    waiting: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Program {
    /// Starts both where this thread is: the driver in real time with this priority, if there is one, and so the program.
    pub(super) fn start(
        [source, sink]: [Card; 2],
        driver: Option<i32>,
        program: Option<i32>,
    ) -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
        let failed = |error: &dyn std::fmt::Display| Error::Peer(error.to_string());
        let came = rustix::event::eventfd(0, flags).map_err(|errno| failed(&errno))?;
        let (blocks, bell) = (Mutex::default(), Event::new()?);
        let (is_over, packets, copied) = Default::default();
        let most = How::default().queue;
        let kernel = Arc::new(Kernel { blocks, came, bell, most, is_over, packets, copied });
        let mut started = Self { kernel: Arc::clone(&kernel), threads: Vec::new() };
        let (ours, theirs) = (Arc::clone(&kernel), kernel);
        started.spawn("genie-driver", driver, move || ours.drive(source))?;
        started.spawn("genie-program", program, move || theirs.stream(sink))?;
        Ok(started)
    }

    fn spawn(
        &mut self,
        name: &str,
        priority: Option<i32>,
        run: impl FnOnce() -> genie_sys::Result<()> + Send + 'static,
    ) -> Result<()> {
        let _class = priority.map(RealTime::begin).transpose()?;
        let run = move || {
            // A card that is gone has no packets that are waited for.
            let _ = run();
        };
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(spawned.map_err(|error| Error::Peer(format!("no thread: {error}")))?);
        Ok(())
    }

    /// How many packets were put into the sink, and how many bytes copied.
    pub(super) fn done(&self) -> (u64, u64) {
        let Kernel { packets, copied, .. } = &*self.kernel;
        (packets.load(Ordering::Acquire), copied.load(Ordering::Relaxed))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kernel.is_over.store(true, Ordering::Release);
        self.kernel.wake_program();
        let _ = self.kernel.bell.signal();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Kernel {
    fn wake_program(&self) {
        let _ = rustix::io::write(&self.came, &1u64.to_ne_bytes());
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// A block, with whatever was in it.
    fn block(&self) -> Vec<u8> {
        self.blocks.lock().spare.pop().unwrap_or_default()
    }

    fn free(&self) -> usize {
        self.most - self.blocks.lock().waiting.len()
    }

    /// What the kernel does when packets come.
    fn drive(&self, mut card: Card) -> genie_sys::Result<()> {
        let failed = |errno| genie_sys::Error::new("take", "a card", errno);
        while !self.is_over() {
            let took = card.take(self.free(), &mut |frame| {
                let mut block = self.block();
                block.resize(frame.len(), 0);
                frame.read(0, &mut block);
                self.copied.fetch_add(block.len() as u64, Ordering::Relaxed);
                self.blocks.lock().waiting.push_back(block);
                self.wake_program();
            });
            if took.map_err(failed)? > 0 {
                continue;
            }
            self.bell.clear()?;
            if self.is_over() {
                break;
            }
            if self.free() == 0 {
                any_readable([self.bell.as_fd()], None)?;
            } else if card.arm() && !card.has_frames() {
                any_readable([self.bell.as_fd(), card.descriptor()], None)?;
            }
        }
        Ok(())
    }

    /// What the program does.
    fn stream(&self, mut card: Card) -> genie_sys::Result<()> {
        let failed = |errno| genie_sys::Error::new("put", "a card", errno);
        let mut buffer = Vec::new();
        loop {
            // Read.
            let _ = rustix::io::read(&self.came, &mut [0; 8]);
            if self.is_over() {
                return Ok(());
            }
            let (was_full, block) = {
                let mut blocks = self.blocks.lock();
                (blocks.waiting.len() == self.most, blocks.waiting.pop_front())
            };
            let Some(block) = block else { continue };
            if was_full {
                self.bell.signal()?;
            }
            buffer.clear();
            buffer.extend_from_slice(&block);
            self.blocks.lock().spare.push(block);
            // Write.
            let mut block = self.block();
            block.clear();
            block.extend_from_slice(&buffer);
            while !card.put(&Data::from(&block[..])).map_err(failed)? {
                card.send().map_err(failed)?;
                if card.arm() && !self.is_over() {
                    any_readable([card.descriptor()], Some(TICK))?;
                }
                if self.is_over() {
                    return Ok(());
                }
            }
            card.send().map_err(failed)?;
            let len = block.len() as u64;
            self.blocks.lock().spare.push(block);
            self.copied.fetch_add(3 * len, Ordering::Relaxed);
            self.packets.fetch_add(1, Ordering::Release);
        }
    }
}
