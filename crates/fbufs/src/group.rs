//! Groups by name: processes that join one pool without being given its descriptor.
//!
//! How: each name has a lock file in a directory of the user's, and a socket. The *keeper* of a name, one of the members, has
//! byte 0 of the file locked, and sends the pool's descriptor to whoever connects to the socket; each member has one of the
//! bytes behind. A process that finds no keeper and no member makes a new pool. When the keeper leaves or dies, which the
//! others learn from its connection and its process, one of them becomes the keeper.
//! Invariants: at one time, a name stands for one pool: a process makes one only under the keeper's lock while no member is
//! there, and a process that has joined makes sure afterwards that the keeper that it has asked was there throughout. A member
//! that lacks memory or descriptors tries again until it has some: it gives the name up only when it leaves.
//! Trust: the directory is the user's alone (0700), and both sides make sure that the other is a process of the same user.
//! Members can spoil the group's buffers, and no others (`words`).
//! Limits: 64 members; a thread for each. Lock files, which are empty, stay. A child of a keeper that was made by a bare `clone` has its
//! connections: followers in a PID namespace that does not see the keeper learn that it is gone when that child is gone, too.
//! Source: SMLI TR-95-39 §5.5 (pools for sets of processes that share a key).

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_sys::Errno;
use genie_sys::event::Event;
use genie_sys::fork::Maker;
use genie_sys::poll::Poller;
use genie_sys::process::Process;
use genie_sys::record_lock::RecordLocks;
use genie_sys::socket::{Listener, Socket};
use genie_sys::thread::{Thread, spawn};
use genie_sys::unshared::Unshared;

use crate::error::{Error, Result};
use crate::layout::MEMBERS;
use crate::{Config, Pool};

mod directory;

/// The keeper's byte of a lock file; those of members follow.
const KEEPER: u64 = 0;
/// How long a process that joins waits for a keeper.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it waits for a keeper that has taken its connection.
const ANSWER: Duration = Duration::from_secs(1);
/// How long it waits before it looks whether the keeper has died.
const LOOK: Duration = Duration::from_millis(10);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(2);
/// Between two attempts of a member that lacks memory or descriptors.
const LACKING: Duration = Duration::from_millis(100);

/// Its members have its lock.
const NO_ANSWER: &str = "it has members, of which none has answered for 10 s: continue them if they are stopped (SIGCONT), raise their limit on \
                         open files (`ulimit -n`), or end them";

/// What a member's poller calls the end of the membership.
const STOP: u64 = u64::MAX;

/// Membership of a group that has a name. Dropping it gives the name up; the pool stays as long as it is used.
#[derive(Debug)]
pub struct Group {
    pool: Pool,
    socket: PathBuf,
    stop: Event,
    thread: Option<Thread>,
    maker: Maker,
}

impl Group {
    /// Joins the group of this name, of this user's processes, or founds it, with `config`. Names are 1 to 64 of A-Z a-z 0-9
    /// . _ - without a dot in front. They are kept in `$GENIE_RUNTIME_DIR/fbufs`, else `$XDG_RUNTIME_DIR/genie-fbufs`, else
    /// `/tmp/genie-fbufs-$UID`.
    ///
    /// # Errors
    /// [`Error::Group`]: the name, or the directory, cannot be used, or members are there and do not answer for 10 s;
    /// [`Error::Full`]; those of [`Pool::new`] and [`Pool::join`].
    pub fn join(name: &str, config: Config) -> Result<Self> {
        Self::join_in(&directory::choose(), name, config)
    }

    fn join_in(directory: &Path, name: &str, config: Config) -> Result<Self> {
        let place = Place::open(directory, name)?;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(group) = place.attempt(config)? {
                return Ok(group);
            }
            if Instant::now() > end {
                return Err(failed(name, NO_ANSWER));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The group's pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether [`Group::join`] by this name would join this group again.
    pub fn is_of(&self, name: &str) -> bool {
        self.socket == directory::choose().join(name)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A child does not have the thread.
        if self.maker.is_this_process() && self.stop.signal().is_ok() {
            self.thread.take().into_iter().for_each(Thread::join);
        }
    }
}

/// Where a name is kept.
#[derive(Debug)]
struct Place {
    name: String,
    socket: PathBuf,
    locks: RecordLocks,
}

/// What a member does for the name.
enum Role {
    /// Has the connections of the others, who learn from them when it is gone.
    Keeper(Listener, Vec<Kept>),
    /// Has a connection to the keeper.
    Follower(Keeper),
}

/// The keeper, as a follower knows it.
struct Keeper {
    connection: Socket,
    /// None where it is in a PID namespace that this process does not see: its connection alone tells then that it is gone.
    process: Option<Process>,
}

impl Keeper {
    fn is_gone(&self) -> bool {
        self.connection.is_hung_up() || self.has_exited()
    }

    fn has_exited(&self) -> bool {
        self.process.as_ref().is_some_and(Process::has_exited)
    }
}

/// A keeper's connection to a follower. A child that had it would keep the follower from learning that the keeper is gone.
struct Kept {
    /// Dropped before the connection is; none where there are too many.
    _unshared: Option<Unshared>,
    connection: Socket,
}

/// What a member's thread has.
struct Member {
    place: Arc<Place>,
    descriptor: OwnedFd,
    stop: Event,
}

impl Place {
    fn open(directory: &Path, name: &str) -> Result<Arc<Self>> {
        directory::prepare(directory, name)?;
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        // No name begins with a dot, so this is no other group's socket.
        let file = options.open(directory.join(format!(".{name}.lock")));
        let file = file.map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) if is_lack(errno) => {
                Error::System(genie_sys::Error::new("open", "the group's lock file", errno))
            }
            _ => failed(name, format!("its lock file cannot be opened: {error}")),
        })?;
        let socket = directory.join(name);
        Ok(Arc::new(Self { name: name.to_owned(), socket, locks: RecordLocks::open(file)? }))
    }

    /// Founds the group, or joins it; nothing where that cannot be done now, since its keeper is changing.
    fn attempt(self: &Arc<Self>, config: Config) -> Result<Option<Group>> {
        if self.locks.try_lock(KEEPER)? {
            return match self.has_members()? {
                true => self.locks.unlock(KEEPER).map(|()| None).map_err(Error::from),
                false => self.found(config).map(Some),
            };
        }
        let Some((keeper, descriptor)) = self.ask()? else { return Ok(None) };
        let pool = Pool::join(descriptor, config)?;
        let byte = self.enter()?;
        if keeper.is_gone() {
            // Before this member was entered: others may have founded the group anew.
            self.locks.unlock(byte)?;
            return Ok(None);
        }
        self.start(pool, Role::Follower(keeper)).map(Some)
    }

    fn found(self: &Arc<Self>, config: Config) -> Result<Group> {
        let made = || {
            let (pool, _) = (Pool::new(config)?, self.enter()?);
            self.start(pool, Role::Keeper(self.listen()?, Vec::new()))
        };
        made().inspect_err(|_| {
            let _ = self.locks.unlock(KEEPER);
        })
    }

    fn start(self: &Arc<Self>, pool: Pool, role: Role) -> Result<Group> {
        let (stop, other) = Event::pair()?;
        let member = Member { place: Arc::clone(self), descriptor: pool.descriptor()?, stop: other };
        let thread = spawn("fbufs group", move || member.run(role)).map_err(|error| {
            error.with_remedy("raise the limit on threads: `ulimit -u`, or pids.max of the cgroup")
        })?;
        let socket = self.socket.clone();
        Ok(Group { pool, socket, stop, thread: Some(thread), maker: Maker::this_process() })
    }

    fn has_members(&self) -> Result<bool> {
        for member in 1..=MEMBERS as u64 {
            if self.locks.is_locked_elsewhere(member)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Enters this member; returns its byte.
    fn enter(&self) -> Result<u64> {
        for member in 1..=MEMBERS as u64 {
            if self.locks.try_lock(member)? {
                return Ok(member);
            }
        }
        Err(Error::Full { what: "members", most: MEMBERS })
    }

    /// Listens at the socket, in place of a keeper that is gone.
    fn listen(&self) -> Result<Listener> {
        if let Ok(found) = std::fs::symlink_metadata(&self.socket) {
            if !found.file_type().is_socket() {
                let why = format!("{} is no socket: remove it", self.socket.display());
                return Err(failed(&self.name, why));
            }
            let _ = std::fs::remove_file(&self.socket);
        }
        Ok(Listener::bind(&self.socket)?)
    }

    /// Asks the keeper for the pool; nothing where it is gone.
    fn ask(&self) -> Result<Option<(Keeper, OwnedFd)>> {
        let connection = match Socket::connect(&self.socket) {
            Err(error) if is_lack(error.errno) => return Err(error.into()),
            Err(_) => return Ok(None),
            Ok(connection) => connection,
        };
        self.ensure_own_user(&connection)?;
        let process = match connection.peer_process() {
            Err(error) if is_lack(error.errno) => return Err(error.into()),
            Err(_) if connection.peer()?.pid == 0 => None,
            Err(_) => return Ok(None),
            Ok(process) => Some(process),
        };
        let keeper = Keeper { connection, process };
        // A child of the keeper's may have the connection, and never answer.
        let end = Instant::now() + ANSWER;
        loop {
            // Looked at first: it may have answered before it exited.
            let is_over = keeper.has_exited() || Instant::now() >= end;
            if let Some(mut received) = keeper.connection.receive_timeout(&mut [0], LOOK)? {
                if received.is_short {
                    return Err(genie_sys::Error::new("recvmsg", "the group's pool", Errno::MFILE).into());
                }
                return Ok(received.descriptors.pop().map(|descriptor| (keeper, descriptor)));
            }
            if is_over {
                return Ok(None);
            }
        }
    }

    fn ensure_own_user(&self, socket: &Socket) -> Result<()> {
        let (uid, own) = (socket.peer()?.uid, rustix::process::geteuid().as_raw());
        let why = || format!("user {uid} has answered, and this process is user {own}'s");
        if uid == own { Ok(()) } else { Err(failed(&self.name, why())) }
    }
}

impl Member {
    fn run(self, mut role: Role) {
        loop {
            let next = match &mut role {
                Role::Keeper(listener, members) => self.keep(listener, members).map(|()| None),
                Role::Follower(keeper) => self.follow(keeper),
            };
            match next {
                Ok(Some(next)) => role = next,
                Ok(None) => return,
                // The name is not given up: whoever found it free would make a second pool. Those that join wait meanwhile.
                Err(_) if genie_sys::poll::readable(&self.stop, Some(LACKING)).unwrap_or(false) => return,
                Err(_) => {}
            }
        }
    }

    /// Sends the pool's descriptor to whoever connects, until the membership ends.
    fn keep(&self, listener: &Listener, members: &mut Vec<Kept>) -> Result<()> {
        // A child that had it would keep others waiting for an answer.
        let _unshared = Unshared::new(listener).ok();
        let poller = self.poller(&[listener.as_fd()])?;
        while wait(&poller)? {
            members.retain(|member| !member.connection.is_hung_up());
            while let Some(member) = listener.accept()? {
                let is_sent = members.len() < MEMBERS
                    && self.place.ensure_own_user(&member).is_ok()
                    && member.try_send(&[1], &[self.descriptor.as_fd()]).is_ok_and(|sent| sent);
                let kept = |connection| Kept { _unshared: Unshared::new(&connection).ok(), connection };
                members.extend(is_sent.then(|| kept(member)));
            }
        }
        members.iter().for_each(|member| member.connection.hang_up());
        Ok(())
    }

    /// Waits until the keeper is gone; returns what this member is to do then.
    fn follow(&self, keeper: &Keeper) -> Result<Option<Role>> {
        let process = keeper.process.as_ref().map(AsFd::as_fd);
        let watched: Vec<_> = process.into_iter().chain([keeper.connection.as_fd()]).collect();
        if !wait(&self.poller(&watched)?)? {
            return Ok(None);
        }
        loop {
            if self.place.locks.try_lock(KEEPER)? {
                return Ok(Some(Role::Keeper(self.place.listen()?, Vec::new())));
            }
            if let Some((keeper, _)) = self.place.ask()? {
                return Ok(Some(Role::Follower(keeper)));
            }
            if genie_sys::poll::readable(&self.stop, Some(PAUSE))? {
                return Ok(None);
            }
        }
    }

    /// Waits for one of the descriptors, or for the end of the membership.
    fn poller(&self, descriptors: &[std::os::fd::BorrowedFd<'_>]) -> Result<Poller> {
        let poller = Poller::new()?;
        poller.add(&self.stop, STOP)?;
        descriptors.iter().try_for_each(|descriptor| poller.add(descriptor, 0))?;
        Ok(poller)
    }
}

/// Waits; returns whether the membership goes on.
fn wait(poller: &Poller) -> Result<bool> {
    let mut ready = Vec::new();
    // A signal ends the wait without any.
    while ready.is_empty() {
        poller.wait(None, &mut ready)?;
    }
    Ok(ready.iter().all(|ready| ready.token != STOP))
}

/// Whether it is this process that lacks something.
fn is_lack(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)
}

fn failed(name: &str, why: impl Into<String>) -> Error {
    Error::Group { name: name.to_owned(), why: why.into() }
}

#[cfg(test)]
mod tests;
