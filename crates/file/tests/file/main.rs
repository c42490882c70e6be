//! The file server: every byte is compared with `std::fs`, the kernel's count of bytes read proves the cache, and no client
//! gets out of the root.

mod cache;
mod confinement;
mod mapped;
mod promises;
mod ranges;
mod refusals;
mod schemes;
mod steps;
mod trees;
mod uploads;

use genie_conformance::{Guard, Setup};
use genie_passing::Thresholds;
use std::path::{Path, PathBuf};
use std::time::Duration;

use genie_file::{self as file, File};
use genie_io::{Failed, In, Interface, Limits, Out, Reply, ServerError, ServerHandle, ServiceId};
use genie_memory::GranuleKind;

/// A server of a fresh directory, and a client.
struct Files {
    directory: tempfile::TempDir,
    file: File,
    handle: ServerHandle,
    interface: Interface,
}

impl Files {
    /// With a client that needs nothing of the machine.
    fn new(cache_blocks: usize) -> Self {
        let setup = Setup { guard: Guard::Never, ..Setup::plain(GranuleKind::Base) };
        let interface =
            setup.interface("file", 64 << 20, Limits::default(), Thresholds::ALWAYS).expect("an interface");
        Self::with(interface, cache_blocks)
    }

    fn with(interface: Interface, cache_blocks: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        std::fs::create_dir(&root).expect("the root");
        let file = File::open(&root, cache_blocks * file::BLOCK).expect("a server");
        let handle = ServerHandle::new(file.clone());
        Self { directory, file, handle, interface }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// The path of a file for `std::fs`.
    fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Makes a file by `std::fs`.
    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("a file");
    }

    /// Makes a file by `std::fs`, and waits until it may be cached.
    fn write_settled(&self, name: &str, bytes: &[u8]) {
        self.write(name, bytes);
        settle();
    }

    fn try_fetch(&self, path: impl AsRef<Path>, offset: u64, len: usize) -> Result<Vec<u8>, ServerError> {
        let mut bytes = vec![0xaa; len];
        let place = file::at(path, offset);
        let request = self.interface.request(&self.handle, file::FETCH);
        let actual = request.input(In::copy(&mut bytes)).argument(&place).send().map_err(refused)?.actual();
        assert!(
            bytes[actual..].iter().all(|byte| *byte == 0xaa),
            "bytes beyond the actual length are untouched"
        );
        bytes.truncate(actual);
        Ok(bytes)
    }

    #[track_caller]
    fn fetch(&self, path: &str, offset: u64, len: usize) -> Vec<u8> {
        self.try_fetch(path, offset, len).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn try_store(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) -> Result<usize, ServerError> {
        let place = file::at(path, offset);
        let request = self.interface.request(&self.handle, file::STORE);
        Ok(request.out(Out::copy(bytes)).argument(&place).send().map_err(refused)?.actual())
    }

    #[track_caller]
    fn store(&self, path: &str, offset: u64, bytes: &[u8]) {
        self.try_store(path, offset, bytes).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Asks for a service that passes no data.
    fn ask(&self, service: ServiceId, path: impl AsRef<Path>) -> Result<Reply, ServerError> {
        let place = file::at(path, 0);
        let request = self.interface.request(&self.handle, service);
        request.argument(&place).room(file::Attributes::LEN).send().map_err(refused)
    }

    #[track_caller]
    fn stat(&self, path: &str) -> file::Attributes {
        let reply = self.ask(file::STAT, path).unwrap_or_else(|error| panic!("{path}: {error}"));
        file::Attributes::from_bytes(reply.argument()).expect("attributes")
    }

    fn size(&self, path: &str) -> u64 {
        self.stat(path).size
    }

    /// Asks for a service that passes arguments both ways and no data.
    fn tell(&self, service: ServiceId, argument: &[u8], room: usize) -> Result<Vec<u8>, ServerError> {
        let request = self.interface.request(&self.handle, service);
        let reply = request.argument(argument).room(room).send().map_err(refused)?;
        Ok(reply.argument().to_vec())
    }

    fn checksum(&self, path: &str, offset: u64, len: u64) -> Result<(u64, file::Checksum), ServerError> {
        let reply = self.tell(file::CHECKSUM, &file::range(path, offset, len), file::CHECKSUM_ROOM)?;
        Ok(file::Checksum::from_reply(&reply).expect("a checksum"))
    }
}

fn refused(failed: Failed) -> ServerError {
    match failed.error {
        genie_io::Error::Server(error) => error,
        other => panic!("the server should have refused, but: {other}"),
    }
}

/// Waits until the files made so far are old enough to be cached.
fn settle() {
    std::thread::sleep(Duration::from_millis(40));
}

/// Tells other threads to stop when the test is over, be it by a panic.
struct Stop<'s>(&'s std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
