//! The services under test, and a client's interface whose thresholds do not depend on the machine.

use genie::channel::{ConnectOptions, Directory, Listener, Running, ServeOptions};
use genie::mechanism::{Config, Costs, Granularity, GranuleKind, Passing, Space, Thresholds};
use genie::service::{Input, Output};
use genie::{Buffer, Connect, Incoming, Interface, Limits, Migrant, Server, ServerHandle};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) tags: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Point {
    pub(crate) x: f32,
    pub(crate) y: f32,
    pub(crate) z: f32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum StoreError {
    Full { room: u64 },
    Refused(String),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the store says {self:?}")
    }
}

/// Small arguments and results of all kinds.
#[genie::service]
pub(crate) trait Small {
    fn rename(&self, header: &Header, name: &str, tag: Option<String>) -> Result<Header, StoreError>;
    #[plain]
    fn mirror(&self, #[plain] point: Point, #[plain] factor: &f32) -> Point;
    #[plain]
    fn root(&self, number: f64) -> Result<f64, StoreError>;
    fn nothing(&self);
    fn caller(&self, request: &Incoming) -> u64;
    fn panics(&self);
    fn text(&self, len: u32) -> String;
    fn r#type(&self, r#in: u8) -> u8;
}

pub(crate) struct Smalls;

impl Small for Smalls {
    fn rename(&self, header: &Header, name: &str, tag: Option<String>) -> Result<Header, StoreError> {
        if name.is_empty() {
            return Err(StoreError::Refused(header.name.clone()));
        }
        let tags = header.tags.iter().cloned().chain(tag).collect();
        Ok(Header { id: header.id + 1, name: name.to_owned(), tags })
    }

    fn mirror(&self, point: Point, factor: &f32) -> Point {
        Point { x: -point.x * factor, y: -point.y * factor, z: -point.z * factor }
    }

    fn root(&self, number: f64) -> Result<f64, StoreError> {
        if number < 0.0 { Err(StoreError::Full { room: 7 }) } else { Ok(number.sqrt()) }
    }

    fn nothing(&self) {}

    fn caller(&self, request: &Incoming) -> u64 {
        request.client().id.number()
    }

    fn panics(&self) {
        panic!("the store is on fire");
    }

    fn text(&self, len: u32) -> String {
        "x".repeat(len as usize)
    }

    fn r#type(&self, r#in: u8) -> u8 {
        r#in + 1
    }
}

/// Bulk arguments of all kinds.
#[genie::service]
pub(crate) trait Bulk {
    fn sum(&self, data: &[u8]) -> u64;
    fn invert(&self, data: &[u8], limit: u64, inverted: &mut [u8]) -> Result<usize, StoreError>;
    fn scale(&self, factor: f32, points: &[Point], scaled: &mut [Point]) -> u64;
    fn lend(&self, #[scheme(emulated_share)] data: Buffer, is_wanted: bool) -> Result<u64, StoreError>;
    fn fill(&self, byte: u8, #[input] frame: Buffer) -> Result<(), StoreError>;
    fn send_away(&self, data: Migrant) -> u64;
    fn fetch(&self, #[input] data: Migrant, byte: u8) -> u64;
    fn copied(&self, #[scheme(copy)] data: &[u8]) -> u64;
}

pub(crate) struct Bulks;

fn sum(data: &Output<'_>) -> u64 {
    let mut sum = 0;
    data.for_each_chunk(|bytes| sum += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    sum
}

impl Bulk for Bulks {
    fn sum(&self, data: Output<'_>) -> u64 {
        sum(&data)
    }

    fn invert(&self, data: Output<'_>, limit: u64, mut inverted: Input<'_>) -> Result<usize, StoreError> {
        let mut done = 0;
        data.for_each_chunk(|bytes| {
            done += inverted.append(&bytes.iter().map(|byte| !byte).collect::<Vec<_>>());
        });
        let room = inverted.len() as u64;
        if data.len() as u64 > limit { Err(StoreError::Full { room }) } else { Ok(done) }
    }

    fn scale(&self, factor: f32, points: Output<'_, Point>, mut scaled: Input<'_, Point>) -> u64 {
        let scale = |point: &Point| Point { x: point.x * factor, y: point.y * factor, z: point.z * factor };
        points.for_each_chunk(|chunk| {
            scaled.append(&chunk.iter().map(scale).collect::<Vec<_>>());
        });
        scaled.actual() as u64
    }

    fn lend(&self, data: Output<'_>, is_wanted: bool) -> Result<u64, StoreError> {
        if is_wanted { Ok(sum(&data)) } else { Err(StoreError::Refused("not wanted".to_owned())) }
    }

    fn fill(&self, byte: u8, mut frame: Input<'_>) -> Result<(), StoreError> {
        frame.data().fill(byte);
        frame.set_actual(frame.len());
        Ok(())
    }

    fn send_away(&self, data: Output<'_>) -> u64 {
        sum(&data)
    }

    fn fetch(&self, mut data: Input<'_>, byte: u8) -> u64 {
        data.append(&vec![byte; data.len()]) as u64
    }

    fn copied(&self, data: Output<'_>) -> u64 {
        sum(&data)
    }
}

/// An interface that never copies where it need not, over granules of 4 KiB.
pub(crate) fn interface() -> Interface {
    let granularity = Granularity::Only(GranuleKind::Base);
    let config = Config { granularity, limit: 64 << 20, ..Config::default() };
    let space = Space::new(&config).expect("a space");
    Interface::new(
        Passing::new(space, Costs::default()).with_thresholds(Thresholds::ALWAYS),
        Limits::default(),
    )
}

pub(crate) fn small(genie: &Interface) -> SmallClient {
    SmallClient::new(genie, ServerHandle::new(SmallServer::new(Smalls))).expect("a client")
}

pub(crate) fn bulk(genie: &Interface) -> BulkClient {
    BulkClient::new(genie, ServerHandle::new(BulkServer::new(Bulks))).expect("a client")
}

/// A server behind a channel, in threads of this process.
pub(crate) struct Served {
    pub(crate) server: ServerHandle,
    _running: Running,
    _scratch: tempfile::TempDir,
}

pub(crate) fn serve(genie: &Interface, server: impl Server) -> Served {
    let scratch = tempfile::tempdir().expect("a folder");
    let directory = Directory::at(scratch.path().join("run")).expect("a directory");
    let listener =
        Listener::bind_in(&directory, "served", server, ServeOptions::default()).expect("a server");
    let running = listener.start().expect("threads");
    let server = genie.connect_with(&directory, "served", &ConnectOptions::default()).expect("a channel");
    Served { server, _running: running, _scratch: scratch }
}
