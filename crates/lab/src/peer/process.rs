//! A peer process, as the measuring program holds it.
//!
//! Invariants: the process is gone, and has been waited for, when this is dropped. It is also gone when the thread that
//! started it ends in any way: the kernel then kills it (see [`super::begin`]).

use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use genie_sys::process::{Pid, Process};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::link::Link;
use super::{COMMAND, Said};
use crate::error::{Error, Result};

/// How long a process may take to end after it failed.
const ENDING: Duration = Duration::from_secs(1);

/// This program once more, in a process of its own, which takes orders.
#[derive(Debug)]
pub struct Peer {
    child: RefCell<Child>,
    link: Link,
    watch: Watch,
}

/// Tells whether the peer still runs. Cloning makes another watch of the same process.
#[derive(Debug, Clone)]
pub struct Watch(Rc<Process>);

impl Watch {
    /// Fails when the process has ended.
    ///
    /// Cost: one system call.
    ///
    /// # Errors
    /// The process has ended.
    pub fn check(&self) -> io::Result<()> {
        if self.0.has_exited() {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the peer process has ended"));
        }
        Ok(())
    }

    /// Waits for the process to end, for as long as it may take; returns whether it has ended.
    fn wait(&self) -> bool {
        self.0.wait(Some(ENDING)).unwrap_or(false)
    }
}

impl Peer {
    /// Starts this program as a peer in a role, on `cpu` if there is one, and waits until it runs.
    ///
    /// # Errors
    /// No process can be had, or the program does not know the role.
    pub fn start(role: &str, cpu: Option<usize>) -> Result<Self> {
        let cannot = |error: io::Error| Error::Peer(format!("the peer process cannot be started: {error}"));
        let (link, theirs) = Link::pair().map_err(cannot)?;
        let program = std::env::current_exe().map_err(cannot)?;
        let mut starting = Command::new(program);
        // The peer joins this process's group once it is ready for the terminal's signals to that group.
        starting.args([COMMAND, role]).stdin(Stdio::from(theirs)).stdout(Stdio::null()).process_group(0);
        if let Some(cpu) = cpu {
            starting.args(["--cpu", &cpu.to_string()]);
        }
        let child = starting.spawn().map_err(cannot)?;
        // The command holds a copy of the peer's end; once that is gone, the peer's end closes when the peer ends.
        drop(starting);
        let pid = Pid::from_child(&child);
        let process = Process::open(pid).map_err(|error| cannot(io::Error::other(error)))?;
        let watch = Watch(Rc::new(process));
        let peer = Self { child: RefCell::new(child), link, watch };
        peer.answer("it started")?;
        Ok(peer)
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.watch.0.pid()
    }

    /// Tells whether the process runs.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Gives an order with descriptors and waits until it is carried out.
    ///
    /// # Errors
    /// The order could not be carried out, or the process has ended; `doing` says during what.
    pub fn order(&self, order: &impl Serialize, descriptors: &[BorrowedFd<'_>], doing: &str) -> Result<()> {
        self.tell(order, descriptors, doing)?;
        self.answer(doing)
    }

    /// Gives an order that gets no answer, except the messages that the order itself makes the process send.
    ///
    /// # Errors
    /// The process has ended.
    pub fn tell(&self, order: &impl Serialize, descriptors: &[BorrowedFd<'_>], doing: &str) -> Result<()> {
        self.link.send(order, descriptors).map_err(|error| self.failure(&error, doing))
    }

    /// Waits for a message that an order makes the process send.
    ///
    /// # Errors
    /// The process has ended, or sent something else.
    pub fn hear<T: DeserializeOwned>(&self, doing: &str) -> Result<T> {
        match self.link.receive::<T>() {
            Ok(Some((heard, _))) => Ok(heard),
            Ok(None) => Err(self.failure(&io::ErrorKind::UnexpectedEof.into(), doing)),
            Err(error) => Err(self.failure(&error, doing)),
        }
    }

    fn answer(&self, doing: &str) -> Result<()> {
        match self.hear(doing)? {
            Said::Ready => Ok(()),
            Said::Failed(reason) => Err(Error::Peer(reason)),
        }
    }

    /// Says why the peer could not be reached: its last message, how it ended, or the error itself.
    pub fn failure(&self, error: &io::Error, doing: &str) -> Error {
        let ended = self.watch.wait();
        if let Some(Said::Failed(reason)) = self.link.look() {
            return Error::Peer(reason);
        }
        if !ended {
            return Error::Peer(format!("the peer process cannot be reached while {doing}: {error}"));
        }
        let status = self.child.borrow_mut().try_wait();
        let how = match status {
            Ok(Some(status)) => match status.signal() {
                Some(signal) => format!("was killed by signal {signal}"),
                None => format!("ended with {status}"),
            },
            _ => "ended".to_owned(),
        };
        Error::Peer(format!("the peer process {how} while {doing}; run it again"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        // Without its link, a peer that is not in the middle of some work ends by itself and tidies up.
        self.link.close();
        self.watch.wait();
        // Errors mean that it has ended already, and been waited for.
        let _ = child.kill();
        let _ = child.wait();
    }
}
