//! iceoryx2 publish-subscribe, polled: with samples that are used in place, and with a copy into each sample, as in a
//! program whose data is in ordinary memory.
//!
//! How: as iceoryx2's own benchmark does, one topic each way, of one publisher, one subscriber and a queue for one sample. A sample
//! is a message of 64 bytes and the data that follows it. Both ends are connected before the first message. Data that is passed many
//! times has topics of its own, whose samples are nothing but data, copied into a loaned sample. Their queue does not overflow: the
//! publisher waits for room, by which nothing is lost. A sample without data ends them.
//! Limits: iceoryx2's safe calls fill a whole sample with zeros before they give it out for use in place. An output's cycle
//! includes the time of that filling, its latency does not; an input's latency includes it where the peer touches nothing.

use std::io;
use std::time::{Duration, Instant};

use iceoryx2::config::Config;
use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::port::{BackpressureAction, BackpressureInfo};
use iceoryx2::prelude::{ServiceName, SignalHandlingMode, ipc, set_log_level};
use iceoryx2::sample::Sample;
use iceoryx2::sample_mut::SampleMut;

use super::ends::Setting;
use super::exchange::{Ask, Asked, Kept, LONGEST_OF_MANY, MESSAGE, Message, nonsense};
use super::line::spin;
use super::means::{Kind, Means};
use super::memory::{Memory, View};
use genie_lab::peer::Watch;

/// How long a queue may be full of samples of which the subscriber takes none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Both topics, from one side.
#[derive(Debug)]
struct Ends {
    // Declared in the order in which they are to go.
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    _node: Node<ipc::Service>,
}

impl Ends {
    /// Opens this side's ends, for exchanges.
    fn open(means: Means, setting: &Setting, to: &str, from: &str) -> io::Result<Self> {
        Self::with_queue(means, setting, [to, from], MESSAGE + setting.longest, None)
    }

    /// Opens this side's ends, for data that is passed many times.
    fn of_many(means: Means, setting: &Setting, to: &str, from: &str) -> io::Result<Self> {
        let topics = [&format!("many-{to}")[..], &format!("many-{from}")];
        Self::with_queue(means, setting, topics, setting.longest.min(LONGEST_OF_MANY), Some(setting.queue))
    }

    /// Opens ends for samples of at most `longest` bytes. The publisher waits for room in a queue of this length, if there is one;
    /// otherwise a sample takes the place of the one before.
    fn with_queue(
        means: Means,
        setting: &Setting,
        [to, from]: [&str; 2],
        longest: usize,
        queue: Option<usize>,
    ) -> io::Result<Self> {
        set_log_level(iceoryx2::prelude::LogLevel::Fatal);
        let mut config = Config::default();
        let root = setting.folder.as_str().try_into().map_err(failed)?;
        config.global.set_root_path(&root);
        config.global.prefix = prefix(means, setting)?.as_str().try_into().map_err(failed)?;
        let node = NodeBuilder::new()
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .config(&config)
            .create::<ipc::Service>()
            .map_err(failed)?;
        let topic = |direction: &str| {
            let name = ServiceName::new(&format!("{}/{}/{direction}", setting.folder, means.name()));
            let builder = node.service_builder(&name.map_err(failed)?).publish_subscribe::<[u8]>();
            let builder = builder.max_publishers(1).max_subscribers(1).history_size(0);
            let builder = builder.subscriber_max_buffer_size(queue.unwrap_or(1));
            builder.enable_safe_overflow(queue.is_none()).open_or_create().map_err(failed)
        };
        let to = topic(to)?;
        let publisher = to.publisher_builder().initial_max_slice_len(longest);
        let publisher = publisher.set_backpressure_handler(wait_for_room).create();
        let subscriber = topic(from)?.subscriber_builder().create();
        Ok(Self {
            publisher: publisher.map_err(failed)?,
            subscriber: subscriber.map_err(failed)?,
            _node: node,
        })
    }

    /// Gets a sample for a message and `len` bytes of data.
    fn loan(&self, len: usize) -> io::Result<SampleMut<ipc::Service, [u8], ()>> {
        self.publisher.loan_slice(MESSAGE + len).map_err(failed)
    }

    /// Connects to the ends that the other side has opened meanwhile.
    fn connect(&self) -> io::Result<()> {
        self.publisher.update_connections().map_err(failed)?;
        self.subscriber.has_samples().map(drop).map_err(failed)
    }

    /// Copies bytes into a sample, and publishes it.
    fn copy(&self, bytes: &[u8]) -> io::Result<()> {
        let sample = self.publisher.loan_slice_uninit(bytes.len()).map_err(failed)?;
        sample.write_from_slice(bytes).send().map(drop).map_err(failed)
    }

    /// Waits for the next sample.
    fn receive(&self, watch: Option<&Watch>) -> io::Result<Sample<ipc::Service, [u8], ()>> {
        spin(watch, || self.subscriber.receive().map_err(failed))
    }
}

/// Removes from /dev/shm what iceoryx2 leaves behind there; it always leaves something.
#[derive(Debug)]
struct Remains(String);

impl Drop for Remains {
    fn drop(&mut self) {
        let Ok(all) = std::fs::read_dir("/dev/shm") else { return };
        for entry in all.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.0) {
                // A file that cannot be removed goes when the machine restarts.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// The client's side.
#[derive(Debug)]
pub(crate) struct Client {
    loaned: Option<SampleMut<ipc::Service, [u8], ()>>,
    received: Option<Sample<ipc::Service, [u8], ()>>,
    /// Where data is copied: a message and the data after it, in the client's own memory.
    own: Option<Vec<u8>>,
    ends: Ends,
    many: Ends,
    watch: Watch,
    _remains: Remains,
}

impl Client {
    pub(crate) fn open(means: Means, setting: &Setting, watch: Watch) -> io::Result<Self> {
        let [to, from] = ["to-peer", "to-client"];
        let (ends, many) = (Ends::open(means, setting, to, from)?, Ends::of_many(means, setting, to, from)?);
        let own = (means.kind == Kind::IceoryxCopy).then(|| vec![0; MESSAGE + setting.longest]);
        let remains = Remains(prefix(means, setting)?);
        Ok(Self { loaned: None, received: None, own, ends, many, watch, _remains: remains })
    }

    /// Connects to the ends that the peer has opened meanwhile.
    pub(crate) fn connect(&self) -> io::Result<()> {
        self.ends.connect()?;
        self.many.connect()
    }

    /// Publishes what was prepared, with a message before it.
    fn publish(&mut self, message: &Message, len: usize) -> io::Result<()> {
        let bytes = message.bytes();
        if let Some(own) = &mut self.own {
            own[..MESSAGE].copy_from_slice(&bytes);
            return self.ends.copy(&own[..MESSAGE + len]);
        }
        let mut sample = self.loaned.take().ok_or_else(nonsense)?;
        sample.payload_mut()[..MESSAGE].copy_from_slice(&bytes);
        sample.send().map(drop).map_err(failed)
    }
}

impl super::ends::Client for Client {
    fn prepare(&mut self, len: usize, touch: &mut dyn FnMut(Memory<'_>)) -> io::Result<()> {
        self.received = None;
        match &mut self.own {
            Some(own) => touch(Memory::Bytes(&mut own[MESSAGE..MESSAGE + len])),
            None => {
                self.loaned = None;
                let mut sample = self.ends.loan(len)?;
                touch(Memory::Bytes(&mut sample.payload_mut()[MESSAGE..]));
                self.loaned = Some(sample);
            }
        }
        Ok(())
    }

    fn exchange(&mut self, ask: Ask, len: usize) -> io::Result<Message> {
        self.received = None;
        let message = Message::ask(ask, len, 0);
        if ask.takes() {
            self.publish(&message, len)?;
        } else {
            self.ends.copy(&message.bytes())?;
        }
        let sample = self.ends.receive(Some(&self.watch))?;
        let answer = parse(&sample)?;
        match &mut self.own {
            Some(own) if ask.gives() => own[MESSAGE..MESSAGE + len].copy_from_slice(data(&sample, len)?),
            None if ask.gives() => self.received = Some(sample),
            _ => {}
        }
        Ok(answer)
    }

    fn finish(&mut self, len: usize, touch: &mut dyn FnMut(View<'_>)) {
        match (&self.own, self.received.take()) {
            (Some(own), _) => touch(View::Bytes(&own[MESSAGE..MESSAGE + len])),
            (None, Some(sample)) => touch(View::Bytes(data(&sample, len).unwrap_or_default())),
            (None, None) => touch(View::Bytes(&[])),
        }
    }

    fn keeps_data(&self) -> bool {
        self.own.is_some()
    }

    fn pass_many(&mut self, data: &[u8], count: usize) -> io::Result<(Duration, u64)> {
        self.exchange(Ask::TakeMany, data.len())?;
        let start = Instant::now();
        (0..count).try_for_each(|_| self.many.copy(data))?;
        self.many.copy(&[])?;
        let answer = parse(&self.ends.receive(Some(&self.watch))?)?;
        Ok((start.elapsed(), answer.sum()))
    }
}

/// The peer's side.
#[derive(Debug)]
pub(crate) struct Peer {
    received: Option<Sample<ipc::Service, [u8], ()>>,
    ends: Ends,
    many: Ends,
    /// Whether the peer's data is in memory of its own, to be copied into samples.
    copies: bool,
    /// A message and the data after it, in the peer's own memory.
    own: Vec<u8>,
    /// Whether `own` holds the data that the peer keeps.
    filled: bool,
}

impl Peer {
    pub(crate) fn open(means: Means, setting: &Setting) -> io::Result<Self> {
        let [to, from] = ["to-client", "to-peer"];
        let (ends, many) = (Ends::open(means, setting, to, from)?, Ends::of_many(means, setting, to, from)?);
        let copies = means.kind == Kind::IceoryxCopy;
        Ok(Self {
            received: None,
            ends,
            many,
            copies,
            own: vec![0; MESSAGE + setting.longest],
            filled: false,
        })
    }
}

impl super::ends::Peer for Peer {
    fn next(&mut self) -> io::Result<Message> {
        let sample = self.ends.receive(None)?;
        let message = parse(&sample);
        self.received = Some(sample);
        message
    }

    fn taken(&mut self, asked: &Asked) -> io::Result<View<'_>> {
        data(self.received.as_deref().unwrap_or_default(), asked.len).map(View::Bytes)
    }

    /// Gives data: by a copy of the peer's own data, or in a sample. A sample that is written whole is not filled with
    /// zeros.
    fn give(&mut self, asked: &Asked, kept: &Kept) -> io::Result<()> {
        self.received = None;
        let (message, end) = (Message::answer(0, asked.len).bytes(), MESSAGE + asked.len);
        match (self.copies, kept.to_write(asked)) {
            (true, Some(bytes)) => self.own[MESSAGE..end].copy_from_slice(bytes),
            (true, None) => {}
            // The kept data is put here once and for all; copying it into the sample counts as the peer's writing.
            (false, Some(_)) if !self.filled => {
                self.own[MESSAGE..].copy_from_slice(&kept.data);
                self.filled = true;
            }
            (false, Some(_)) => {}
            (false, None) => {
                let mut sample = self.ends.loan(asked.len)?;
                sample.payload_mut()[..MESSAGE].copy_from_slice(&message);
                return sample.send().map(drop).map_err(failed);
            }
        }
        self.own[..MESSAGE].copy_from_slice(&message);
        self.ends.copy(&self.own[..end])
    }

    fn answer(&mut self, found: u64) -> io::Result<()> {
        self.received = None;
        self.ends.copy(&Message::answer(found, 0).bytes())
    }

    fn take_many(&mut self, asked: &Asked, kept: &Kept) -> io::Result<u64> {
        self.answer(0)?;
        let expected = View::Bytes(&kept.data[..asked.len]).sum();
        let mut right = 0;
        loop {
            let sample = self.many.receive(None)?;
            if sample.is_empty() {
                return Ok(right);
            }
            right += u64::from(View::Bytes(&sample).sum() == expected);
        }
    }
}

/// The beginning of the names of all files that this baseline makes in /dev/shm.
fn prefix(means: Means, setting: &Setting) -> io::Result<String> {
    let folder = std::path::Path::new(&setting.folder).file_name().and_then(|name| name.to_str());
    folder.map(|name| format!("{name}-{}-", means.name())).ok_or_else(nonsense)
}

/// What a publisher does whose subscriber's queue is full. A subscriber that was killed keeps it so.
fn wait_for_room(waiting: &BackpressureInfo) -> BackpressureAction {
    if waiting.elapsed_time < PATIENCE {
        BackpressureAction::Retry
    } else {
        BackpressureAction::DiscardDataAndFail
    }
}

fn parse(sample: &[u8]) -> io::Result<Message> {
    sample.first_chunk().map(Message::from_bytes).ok_or_else(nonsense)
}

fn data(sample: &[u8], len: usize) -> io::Result<&[u8]> {
    sample.get(MESSAGE..MESSAGE + len).ok_or_else(nonsense)
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("iceoryx2: {error}"))
}
