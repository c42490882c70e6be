//! Streams of modules, which pass message blocks on by reference.
//!
//! How: messages go down to the adapter, and up to the application. On either way each module has a put procedure, which is called with each
//! message, and a queue. It passes messages on at once, or queues them until its service procedure runs.
//! Flow control: a queue is full from its high-water mark on until it has come down to its low-water mark. A service procedure goes on while
//! the next queue that is served has [room](Next::has_room); what it leaves waits, until its own queue is full.
//! Source: AT&T's STREAMS. Differs: service procedures run whenever a packet is sent or received, the last queue's first, and not by a
//! scheduler, so that no queue has to be enabled again.

use std::collections::VecDeque;

use genie_fbufs::Message;

/// From how many bytes on a queue is full, and with how many it takes more.
const MARKS: (usize, usize) = (64 << 10, 16 << 10);

/// Where messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// To the adapter: the write side.
    Down,
    /// To the application: the read side.
    Up,
}

/// A module. It runs while its network is locked, and must not wait for another thread that uses the network. What it asks of a network that
/// is locked, as its own is, is refused (EDEADLK), in place of waiting for ever; a packet of that network's which it drops leaves its buffer
/// in use until the network ends.
pub trait Module: Send {
    /// The put procedure: passes the message on to `next`, queues it in the module's queue of this way, or drops it.
    fn put(&mut self, message: Message, queue: &mut Queue, next: &mut Next<'_>);

    /// The service procedure: passes on from the queue what can go.
    fn service(&mut self, queue: &mut Queue, next: &mut Next<'_>) {
        while next.has_room()
            && let Some(message) = queue.get()
        {
            next.put(message);
        }
    }

    /// Whether it ever queues, on this way. The queue of a module that does not is passed over where room is looked for.
    fn queues(&self, _way: Way) -> bool {
        false
    }
}

/// A queue of messages.
#[derive(Debug, Default)]
pub struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    marks: (usize, usize),
    is_full: bool,
}

/// What is behind a module on a message's way.
#[derive(Debug)]
pub struct Next<'s> {
    way: Way,
    stages: &'s mut [Stage],
    end: &'s mut Queue,
}

/// Modules between an application and an adapter.
#[derive(Debug)]
pub struct Stream {
    /// The application's first.
    stages: Vec<Stage>,
    /// What the driver has to send, and what the application has to receive.
    ends: [Queue; 2],
    marks: (usize, usize),
}

struct Stage {
    module: Box<dyn Module>,
    queues: [Queue; 2],
}

impl Queue {
    fn new(marks: (usize, usize)) -> Self {
        Self { marks, ..Self::default() }
    }

    /// Puts a message behind the others.
    #[doc(alias = "putq")]
    pub fn put(&mut self, message: Message) {
        self.bytes += message.len();
        self.is_full |= self.bytes >= self.marks.0;
        self.messages.push_back(message);
    }

    /// Takes the first one.
    #[doc(alias = "getq")]
    pub fn get(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.len();
        self.is_full &= self.bytes > self.marks.1;
        Some(message)
    }

    /// The first one.
    pub fn first(&self) -> Option<&Message> {
        self.messages.front()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether no more should be put.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

impl Next<'_> {
    /// Where messages go.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Passes a message to the next module, or, behind the last one, to the driver or the application.
    #[doc(alias = "putnext")]
    pub fn put(&mut self, message: Message) {
        let Self { way, stages, end } = self;
        let split = match way {
            Way::Down => stages.split_first_mut(),
            Way::Up => stages.split_last_mut(),
        };
        match split {
            Some((Stage { module, queues }, stages)) => {
                module.put(message, &mut queues[*way as usize], &mut Next { way: *way, stages, end });
            }
            None => end.put(message),
        }
    }

    /// Whether the next queue has room that is served.
    #[doc(alias = "canputnext")]
    pub fn has_room(&self) -> bool {
        let serves = |stage: &&Stage| stage.module.queues(self.way);
        let next = match self.way {
            Way::Down => self.stages.iter().find(serves),
            Way::Up => self.stages.iter().rfind(serves),
        };
        !next.map_or(&*self.end, |stage| &stage.queues[self.way as usize]).is_full
    }
}

impl Stream {
    /// A stream without modules, whose queues are full at 64 KiB, and take more at 16 KiB.
    pub fn new() -> Self {
        Self::with_marks(MARKS.0, MARKS.1)
    }

    /// The same, with other marks in bytes.
    pub fn with_marks(high: usize, low: usize) -> Self {
        let marks = (high, low);
        Self { stages: Vec::new(), ends: [(); 2].map(|()| Queue::new(marks)), marks }
    }

    /// Pushes a module: it is the application's next one.
    #[must_use]
    pub fn push(mut self, module: impl Module + 'static) -> Self {
        let queues = [(); 2].map(|()| Queue::new(self.marks));
        self.stages.insert(0, Stage { module: Box::new(module), queues });
        self
    }

    /// What a message meets that enters the stream.
    pub(super) fn enter(&mut self, way: Way) -> Next<'_> {
        Next { way, stages: &mut self.stages, end: &mut self.ends[way as usize] }
    }

    /// What has come to the end of the stream.
    pub(super) fn end(&mut self, way: Way) -> &mut Queue {
        &mut self.ends[way as usize]
    }

    /// Whether nothing waits in any queue of that way.
    pub(super) fn is_empty(&self, way: Way) -> bool {
        let queues = self.stages.iter().map(|stage| &stage.queues[way as usize]);
        queues.chain([&self.ends[way as usize]]).all(Queue::is_empty)
    }

    /// Runs the service procedures, the last one's first, until none passes anything on.
    pub(super) fn run(&mut self, way: Way) {
        let mut is_moving = true;
        while is_moving {
            is_moving = false;
            for turn in 0..self.stages.len() {
                is_moving |= self.serve(turn, way);
            }
        }
    }

    /// Runs the service procedure that is `turn`th from the way's end; returns whether it has taken anything out of its queue.
    fn serve(&mut self, turn: usize, way: Way) -> bool {
        let count = self.stages.len();
        let at = if way == Way::Down { count - turn } else { turn };
        let (above, below) = self.stages.split_at_mut(at);
        let (stage, stages) = match way {
            Way::Down => (above.last_mut(), below),
            Way::Up => (below.first_mut(), above),
        };
        let Some(Stage { module, queues }) = stage else { return false };
        let queue = &mut queues[way as usize];
        let waiting = queue.len();
        if waiting > 0 {
            module.service(queue, &mut Next { way, stages, end: &mut self.ends[way as usize] });
        }
        queue.len() < waiting
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("queues", &self.queues).finish_non_exhaustive()
    }
}
