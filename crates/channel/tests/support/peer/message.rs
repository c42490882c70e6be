//! What a test and its peer say to each other: a line of JSON, with bytes beside it that as text would be long.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::support::holder::{Answer, Command};
use crate::support::relay::Manner;

/// What a test asks of a peer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Open a server.
    Open(Opening),
    /// Tell which arrivals at the holder it holds, once so many have happened.
    Held {
        expected: usize,
    },
    Aborted,
    SetObliging(bool),
    Command {
        arrival: usize,
        command: Command,
    },
    /// Verify that no request is pending at any of the servers opened here.
    Idle,
    /// Try to read a byte of another process.
    Read {
        pid: u32,
        addr: usize,
    },
    /// Be a client: send this many bytes to a holder and ask for as many, by emulated copy, and wait for nothing.
    Send {
        directory: PathBuf,
        server: String,
        len: usize,
    },
}

/// How a server is to be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Bytes lent to each client.
    pub(crate) pool: usize,
    /// Bytes that each may be lent in all.
    pub(crate) hard_pool: usize,
    /// Whether clients' memory is mapped only while a request needs it.
    pub(crate) transient: bool,
    pub(crate) pending_bytes: usize,
    pub(crate) pending_requests: u32,
    /// How long it may take to let an aborted request go, in milliseconds.
    pub(crate) abort_timeout: u64,
}

/// Which server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Kind {
    Memory(Option<Pooled>),
    Holder {
        pooled: Option<Pooled>,
        /// A file in which aborts are noted, and the server's name there.
        log: Option<(PathBuf, String)>,
    },
    Relay {
        /// (directory, name) of the servers that requests are forwarded to.
        to: Vec<(PathBuf, String)>,
        manner: Manner,
        log: Option<(PathBuf, String)>,
    },
}

/// Buffers of a server's own.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Pooled {
    pub(crate) len: usize,
    pub(crate) count: usize,
}

/// What a peer tells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    Done,
    Failed(String),
    Arrivals(Vec<usize>),
    Answer(Answer),
}

impl Opening {
    /// A server that keeps to the limits that nobody reaches, and whose pool does not grow.
    pub(crate) fn new(name: &str, kind: Kind, pool: usize) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            pool,
            hard_pool: pool,
            transient: false,
            pending_bytes: 1 << 30,
            pending_requests: 256,
            abort_timeout: 100,
        }
    }
}

/// A message with bytes beside its text.
pub(super) trait Message: Serialize + DeserializeOwned {
    /// Those bytes.
    fn bytes(&mut self) -> Option<&mut Vec<u8>>;
}

impl Message for Ask {
    fn bytes(&mut self) -> Option<&mut Vec<u8>> {
        let Self::Command { command, .. } = self else { return None };
        match command {
            Command::Write { bytes, .. }
            | Command::WritePinned { bytes }
            | Command::Outboard { bytes, .. }
            | Command::SetArgument { argument: bytes } => Some(bytes),
            _ => None,
        }
    }
}

impl Message for Told {
    fn bytes(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Self::Answer(Answer::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }
}

pub(super) fn send<M: Message>(stream: &mut impl Write, mut message: M) -> io::Result<()> {
    let bytes = message.bytes().map(std::mem::take).unwrap_or_default();
    let text = serde_json::to_vec(&message)?;
    let lengths = [text.len() as u64, bytes.len() as u64].map(u64::to_le_bytes).concat();
    stream.write_all(&[&lengths[..], &text].concat())?;
    stream.write_all(&bytes)
}

/// The next message; none when the other side has hung up.
pub(super) fn receive<M: Message>(stream: &mut impl Read) -> io::Result<Option<M>> {
    let mut lengths = [[0; 8]; 2];
    match stream.read_exact(lengths.as_flattened_mut()) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let [text, bytes] = lengths.map(|len| vec![0; u64::from_le_bytes(len) as usize]);
    let (mut text, mut bytes) = (text, bytes);
    stream.read_exact(&mut text)?;
    stream.read_exact(&mut bytes)?;
    let mut message: M = serde_json::from_slice(&text)?;
    if let Some(place) = message.bytes() {
        *place = bytes;
    }
    Ok(Some(message))
}
