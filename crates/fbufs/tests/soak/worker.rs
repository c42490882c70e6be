//! A worker of the soak.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use genie_fbufs::{Channel, Error, Fbuf, Pool};
use genie_sys::lock::Mutex;
use genie_sys::poll::readable;
use genie_sys::socket::Listener;

use crate::random::Random;
use crate::{WORKERS, config};

const PAGE: usize = 4096;
/// Buffers that a worker holds at most.
const HELD: usize = 40;
/// The first bytes of each page: the stamp of the buffer, and its length.
const STAMP: usize = 16;

#[test]
#[ignore = "run by the soak, in processes of their own"]
fn work_until_killed() {
    let Ok(index) = std::env::var("WORKER") else { return };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let variable = |name: &str| std::env::var(name).unwrap();
    let directory = PathBuf::from(variable("WORKERS_DIRECTORY"));
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let random = Random::new(variable("WORKER_SEED").parse().unwrap());
    Worker::new(index.parse().unwrap(), &directory, Pool::join(descriptor, config()).unwrap(), random).work();
}

struct Worker {
    index: usize,
    directory: PathBuf,
    pool: Pool,
    random: Random,
    held: VecDeque<Fbuf>,
    /// Buffers that came from the last worker.
    got: u64,
    to_next: Option<Channel>,
    /// A thread that waits for the next worker, which may be stopped.
    connecting: Option<JoinHandle<Option<Channel>>>,
    from_last: Arc<Mutex<Option<Channel>>>,
}

impl Worker {
    fn new(index: usize, directory: &Path, pool: Pool, random: Random) -> Self {
        let from_last = Arc::new(Mutex::new(None));
        let path = directory.join(index.to_string());
        let _ = std::fs::remove_file(&path);
        let listener = Listener::bind(&path).unwrap();
        std::thread::spawn({
            let (pool, from_last) = (pool.clone(), Arc::clone(&from_last));
            move || accept(&listener, &pool, &from_last)
        });
        let directory = directory.to_owned();
        Self {
            index,
            directory,
            pool,
            random,
            held: VecDeque::new(),
            got: 0,
            to_next: None,
            connecting: None,
            from_last,
        }
    }

    fn work(mut self) {
        let done = self.directory.join(format!("{}.done", self.index));
        for steps in 0u64.. {
            match self.random.below(10) {
                0..4 => self.allocate(),
                4..6 => self.free(),
                6..8 => self.pass(),
                _ => self.get(),
            }
            if steps % 200 == 0 {
                // Whole, or not at all.
                let fresh = done.with_extension("new");
                std::fs::write(&fresh, format!("{steps} {}", self.got)).unwrap();
                std::fs::rename(&fresh, &done).unwrap();
            }
        }
    }

    fn allocate(&mut self) {
        if self.held.len() == HELD {
            self.free();
        }
        let most = 1 << self.random.below(20);
        let len = STAMP + self.random.below(most);
        let mut fbuf = match self.pool.allocate(len) {
            Ok(fbuf) => fbuf,
            // The others hold the rest.
            Err(Error::Exhausted { .. }) => return self.free(),
            Err(error) => panic!("allocating {len} bytes: {error}"),
        };
        stamp(&mut fbuf, self.random.next());
        self.held.push_back(fbuf);
    }

    fn take(&mut self) -> Option<Fbuf> {
        let at = self.random.below(self.held.len().max(1));
        let fbuf = self.held.swap_remove_back(at)?;
        check(&fbuf);
        Some(fbuf)
    }

    fn free(&mut self) {
        drop(self.take());
    }

    fn pass(&mut self) {
        let Some(channel) = &self.to_next else { return self.connect() };
        let at = self.random.below(self.held.len().max(1));
        let Some(fbuf) = self.held.swap_remove_back(at) else { return };
        check(&fbuf);
        match channel.try_write(fbuf).map_err(|unwritten| *unwritten) {
            Ok(_) => {}
            Err(unwritten) if matches!(unwritten.error, Error::WouldBlock) => {
                self.held.push_back(unwritten.fbuf)
            }
            Err(unwritten) if matches!(unwritten.error, Error::Closed) => self.to_next = None,
            Err(unwritten) => panic!("passing a buffer: {unwritten}"),
        }
    }

    fn connect(&mut self) {
        if self.connecting.as_ref().is_some_and(JoinHandle::is_finished) {
            self.to_next = self.connecting.take().and_then(|thread| thread.join().unwrap());
        } else if self.connecting.is_none() {
            let next = self.directory.join(((self.index + 1) % WORKERS).to_string());
            let pool = self.pool.clone();
            // The next worker may be dead, or not there yet.
            self.connecting = Some(std::thread::spawn(move || pool.connect(&next).ok()));
        }
    }

    fn get(&mut self) {
        let mut from_last = self.from_last.lock();
        let Some(channel) = &*from_last else { return };
        match channel.try_read(usize::MAX) {
            Ok(Some(fbuf)) => {
                check(&fbuf);
                self.got += 1;
                if self.held.len() < HELD {
                    self.held.push_back(fbuf);
                }
            }
            Ok(None) => *from_last = None,
            Err(Error::WouldBlock) => {}
            Err(error) => panic!("getting a buffer: {error}"),
        }
    }
}

/// Makes a channel with each worker that comes, in place of the last one.
fn accept(listener: &Listener, pool: &Pool, from_last: &Mutex<Option<Channel>>) {
    loop {
        readable(listener, None).unwrap();
        match pool.accept(listener) {
            Ok(Some(channel)) => *from_last.lock() = Some(channel),
            // The worker that came is dead by now.
            Ok(None) | Err(Error::System(_)) => {}
            Err(error) => panic!("accepting: {error}"),
        }
    }
}

/// Writes a stamp into each page that has room for it.
fn stamp(fbuf: &mut Fbuf, stamp: u64) {
    let len = fbuf.len() as u64;
    for page in fbuf.chunks_mut(PAGE).filter(|page| page.len() >= STAMP) {
        page[..8].copy_from_slice(&stamp.to_le_bytes());
        page[8..STAMP].copy_from_slice(&len.to_le_bytes());
    }
}

fn check(fbuf: &Fbuf) {
    let expected: [u8; STAMP] = fbuf[..STAMP].try_into().unwrap();
    let len = u64::from_le_bytes(std::array::from_fn(|byte| expected[8 + byte]));
    assert_eq!(len, fbuf.len() as u64, "the buffer's length, as it was stamped");
    let mut pages = fbuf.chunks(PAGE).filter(|page| page.len() >= STAMP);
    assert!(
        pages.all(|page| page[..STAMP] == expected),
        "somebody else was given a page of a buffer of {len} bytes"
    );
}
