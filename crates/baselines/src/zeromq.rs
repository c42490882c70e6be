//! ZeroMQ over Unix-domain sockets, request and reply, by the `zeromq` crate.
//!
//! How: a message is a frame of 64 bytes and, where there is data, a frame of data. Frames own their bytes: data to be sent
//! is copied into a frame, received data is used in its frame.
//! Limits: the crate is an implementation of its own, on tokio; the implementation of libzmq may be quicker or slower.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use zeromq::{RepSocket, ReqSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::ends::Setting;
use super::exchange::{Ask, Asked, Kept, MESSAGE, Message, nonsense};
use super::memory::{Memory, View};
use genie_lab::peer::Watch;

/// How often a waiting client looks whether the peer is still there.
const LOOK_AFTER: Duration = Duration::from_millis(200);

fn endpoint(setting: &Setting) -> String {
    format!("ipc://{}/zeromq", setting.folder)
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// The client's side.
pub(crate) struct Client {
    /// Connected when the peer first serves this baseline: an end acts only while its side waits for it.
    socket: Option<ReqSocket>,
    endpoint: String,
    runtime: Runtime,
    own: Vec<u8>,
    received: Option<ZmqMessage>,
    watch: Watch,
}

impl Client {
    pub(crate) fn open(setting: &Setting, watch: Watch) -> io::Result<Self> {
        let (runtime, endpoint, own) = (runtime()?, endpoint(setting), vec![0; setting.longest]);
        Ok(Self { socket: None, endpoint, runtime, own, received: None, watch })
    }

    /// Sends a message, and waits for the answer.
    fn send(&mut self, message: ZmqMessage) -> io::Result<ZmqMessage> {
        let Self { socket, endpoint, runtime, watch, .. } = self;
        runtime.block_on(async {
            let socket = match socket {
                Some(socket) => socket,
                None => {
                    let mut new = ReqSocket::new();
                    new.connect(endpoint).await.map_err(failed)?;
                    socket.insert(new)
                }
            };
            socket.send(message).await.map_err(failed)?;
            loop {
                match tokio::time::timeout(LOOK_AFTER, socket.recv()).await {
                    Ok(received) => return received.map_err(failed),
                    Err(_) => watch.check()?,
                }
            }
        })
    }
}

impl super::ends::Client for Client {
    fn prepare(&mut self, len: usize, touch: &mut dyn FnMut(Memory<'_>)) -> io::Result<()> {
        touch(Memory::Bytes(&mut self.own[..len]));
        Ok(())
    }

    fn exchange(&mut self, ask: Ask, len: usize) -> io::Result<Message> {
        let received =
            self.send(compose(&Message::ask(ask, len, 0), ask.takes().then(|| &self.own[..len])))?;
        let answer = parse(&received)?;
        if ask.gives() {
            data(&received, len)?;
            self.received = Some(received);
        }
        Ok(answer)
    }

    fn finish(&mut self, len: usize, touch: &mut dyn FnMut(View<'_>)) {
        let received = self.received.take();
        touch(View::Bytes(received.as_ref().and_then(|frames| data(frames, len).ok()).unwrap_or_default()));
    }
}

/// The peer's side.
pub(crate) struct Peer {
    socket: RepSocket,
    runtime: Runtime,
    received: ZmqMessage,
}

impl Peer {
    pub(crate) fn open(setting: &Setting) -> io::Result<Self> {
        let runtime = runtime()?;
        let mut socket = RepSocket::new();
        runtime.block_on(socket.bind(&endpoint(setting))).map_err(failed)?;
        Ok(Self { socket, runtime, received: ZmqMessage::from("") })
    }

    fn send(&mut self, message: &Message, data: Option<&[u8]>) -> io::Result<()> {
        self.runtime.block_on(self.socket.send(compose(message, data))).map_err(failed)
    }
}

impl super::ends::Peer for Peer {
    fn next(&mut self) -> io::Result<Message> {
        self.received = self.runtime.block_on(self.socket.recv()).map_err(failed)?;
        parse(&self.received)
    }

    fn taken(&mut self, asked: &Asked) -> io::Result<View<'_>> {
        data(&self.received, asked.len).map(View::Bytes)
    }

    /// In any case, the data that the peer gives is copied from the data that it keeps.
    fn give(&mut self, asked: &Asked, kept: &Kept) -> io::Result<()> {
        self.send(&Message::answer(0, asked.len), Some(&kept.data[..asked.len]))
    }

    fn answer(&mut self, found: u64) -> io::Result<()> {
        self.send(&Message::answer(found, 0), None)
    }
}

fn compose(message: &Message, data: Option<&[u8]>) -> ZmqMessage {
    let mut whole = ZmqMessage::from(message.bytes().to_vec());
    if let Some(data) = data {
        whole.push_back(data.to_vec().into());
    }
    whole
}

fn parse(message: &ZmqMessage) -> io::Result<Message> {
    let frame = message.get(0).and_then(|frame| frame.first_chunk::<MESSAGE>());
    frame.map(Message::from_bytes).ok_or_else(nonsense)
}

fn data(message: &ZmqMessage, len: usize) -> io::Result<&[u8]> {
    message.get(1).and_then(|frame| frame.get(..len)).ok_or_else(nonsense)
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("ZeroMQ: {error}"))
}
