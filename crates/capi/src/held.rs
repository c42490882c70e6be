//! Requests that io_server has brought, until they are replied to.
//!
//! Invariants: what the program was shown of a request stays where it is as long as the request is held.

use std::ffi::CString;
use std::ops::Range;

use genie_io::{Anticipated, Fragment, Incoming, ServerError};
use genie_memory::Direction;
use genie_passing::Chain;

use crate::failure::Failure;
use crate::given::{checked, text};
use crate::messages::{IO_REQUEST, Message, ReplyMessage, ServerBuffer};
use crate::pinned::Pin;
use crate::shown::Shown;
use crate::taken::Taken;
use crate::types::{IO_IN, IO_OUT};

/// A request that io_server has brought, with what the program was shown of it.
#[derive(Debug)]
pub(crate) struct Held {
    stage: Stage,
    client_name: CString,
    buffers: Vec<ServerBuffer>,
    segments: Vec<Shown>,
    /// The buffers of which parts were forwarded, by their numbers: others may have filled them.
    forwarded: Vec<usize>,
    /// The inputs whose data the server has in memory of its own, and what the program was shown of that.
    supplied: Vec<(usize, Vec<Shown>)>,
    /// How many bytes are final, of each buffer up to the last of which the program has said so.
    come: Vec<usize>,
}

/// How far a request is.
#[derive(Debug)]
enum Stage {
    Due(Incoming),
    /// Its client has the reply; it is held for its outputs.
    Anticipated(#[expect(dead_code, reason = "holds the outputs")] Anticipated),
    /// On the way from one to the other, or with a thread that does with it what may take long.
    Moving,
}

impl Stage {
    /// The request, which has to be replied to.
    ///
    /// # Errors
    /// It was, in anticipation.
    fn due(&mut self) -> Result<&mut Incoming, Failure> {
        match self {
            Self::Due(incoming) => Ok(incoming),
            Self::Anticipated(_) => Err(Failure::misuse(
                "the request was replied to in anticipation, and only its outputs are left",
            )),
            Self::Moving => {
                Err(Failure::new(libc::EBUSY, "another thread is in io_keep or io_outboard with the request"))
            }
        }
    }
}

// SAFETY: the pointers are to what vectors of the same value hold, or to the request's memory, which may be used in any thread.
// All else, the request above all, is `Send` by itself.
unsafe impl Send for Held {}

impl Held {
    pub(crate) fn new(incoming: Incoming) -> Box<Self> {
        let mut held = Box::new(Self {
            client_name: CString::new(incoming.client().name.clone()).unwrap_or_default(),
            buffers: Vec::new(),
            segments: Vec::new(),
            forwarded: Vec::new(),
            supplied: Vec::new(),
            come: Vec::new(),
            stage: Stage::Moving,
        });
        for index in 0..incoming.buffers() {
            let segments = incoming.output(index).map(|data| Shown::new(data.segments())).unwrap_or_default();
            let is_input = incoming.direction(index).is_ok_and(|direction| direction == Direction::In);
            held.buffers.push(ServerBuffer {
                direction: if is_input { IO_IN } else { IO_OUT },
                length: incoming.len(index),
                segc: segments.count(),
                segv: segments.first(),
            });
            held.segments.push(segments);
        }
        held.stage = Stage::Due(incoming);
        held
    }

    /// What the program sees of it when it comes.
    pub(crate) fn message(&self) -> Message {
        let Stage::Due(incoming) = &self.stage else { return Message::of(IO_REQUEST) };
        let client = incoming.client();
        Message {
            service: incoming.service().0,
            request: incoming.id().number(),
            client: client.id.number(),
            pid: client.pid,
            uid: client.uid,
            client_name: self.client_name.as_ptr(),
            argument: incoming.argument().as_ptr().cast(),
            argument_length: incoming.argument().len(),
            room: incoming.room(),
            bufc: self.buffers.len(),
            bufv: self.buffers.as_ptr(),
            ..Message::of(IO_REQUEST)
        }
    }

    pub(crate) fn ensure_due(&mut self) -> Result<(), Failure> {
        self.stage.due().map(|_| ())
    }

    pub(crate) fn is_aborted(&self) -> bool {
        matches!(&self.stage, Stage::Due(incoming) if incoming.is_aborted())
    }

    /// A part of a buffer, to be forwarded.
    pub(crate) fn fragment(&mut self, buffer: usize, range: Range<usize>) -> Result<Fragment, Failure> {
        let fragment = self.stage.due()?.fragment(buffer, range)?;
        self.forwarded.push(buffer);
        Ok(fragment)
    }

    /// Makes an input ready, and shows the program where it is.
    pub(crate) fn ready(&mut self, buffer: usize) -> Result<(), Failure> {
        let is_input = |shown: &&ServerBuffer| shown.direction == IO_IN;
        if self.buffers.get(buffer).filter(is_input).is_some_and(|shown| shown.segc > 0) {
            return Ok(()); // another thread may be at work by what it was shown
        }
        let found = Shown::new(self.stage.due()?.ready(buffer)?.segments());
        let shown = &mut self.buffers[buffer];
        (shown.segc, shown.segv) = (found.count(), found.first());
        self.segments[buffer] = found;
        Ok(())
    }

    /// How many elements a buffer has, and how long one of them is.
    pub(crate) fn elements(&mut self, buffer: usize, element: usize) -> Result<(usize, usize), Failure> {
        let incoming = self.stage.due()?;
        incoming.direction(buffer)?;
        Ok((incoming.elements(buffer), incoming.element_len(buffer, element)))
    }

    /// Overlays the buffers that `take` gives on an element of an input.
    pub(crate) fn overlay(
        &mut self,
        (buffer, element): (usize, usize),
        take: impl FnOnce() -> Result<Vec<Taken>, Failure>,
    ) -> Result<(), Failure> {
        let incoming = self.stage.due()?;
        incoming.ensure_unready(buffer, element)?;
        let (overlays, shown): (Vec<_>, _) = take()?.into_iter().map(Taken::into_parts).unzip();
        incoming.overlay(buffer, element, overlays.into_iter().flatten().collect::<Chain>())?;
        self.note_supplied(buffer, shown);
        Ok(())
    }

    /// Pins a part of a buffer. An input is shown to the program then as a whole.
    pub(crate) fn pin(&mut self, buffer: usize, range: Range<usize>) -> Result<Pin, Failure> {
        let pin = Pin::new(self.stage.due()?, buffer, range)?;
        if self.buffers[buffer].direction == IO_IN {
            self.ready(buffer)?;
        }
        Ok(pin)
    }

    /// Tells the client how many bytes of a buffer are final.
    pub(crate) fn progress(&mut self, buffer: usize, length: usize) -> Result<(), Failure> {
        if length > 0 && self.is_unfilled(buffer) {
            return Err(unfilled(buffer));
        }
        self.stage.due()?.progress(buffer, length)?;
        self.come.resize(self.come.len().max(buffer + 1), 0);
        self.come[buffer] = length;
        Ok(())
    }

    /// Whether a buffer is an input that nobody can have filled.
    fn is_unfilled(&self, buffer: usize) -> bool {
        let is_unready = |shown: &ServerBuffer| shown.direction == IO_IN && shown.segc == 0;
        let is_supplied = || self.supplied.iter().any(|(supplied, _)| *supplied == buffer);
        self.buffers.get(buffer).is_some_and(is_unready)
            && !self.forwarded.contains(&buffer)
            && !is_supplied()
    }

    /// Gives the request to a thread that does with it what may take long.
    pub(crate) fn part_with(&mut self) -> Result<Incoming, Failure> {
        self.ensure_due()?;
        match std::mem::replace(&mut self.stage, Stage::Moving) {
            Stage::Due(incoming) => Ok(incoming),
            Stage::Anticipated(_) | Stage::Moving => unreachable!("it was looked at above"),
        }
    }

    /// Takes the request back.
    pub(crate) fn take_back(&mut self, incoming: Incoming) {
        self.stage = Stage::Due(incoming);
    }

    /// Notes that an output was kept. The segments that the program was shown stay in memory.
    pub(crate) fn note_kept(&mut self, buffer: usize) {
        self.buffers[buffer].segc = 0;
    }

    /// Notes that data of the server's own takes the place of an input's memory, and what the program was shown of it.
    pub(crate) fn note_supplied(&mut self, buffer: usize, shown: Vec<Shown>) {
        self.supplied.push((buffer, shown));
    }

    /// Whether the request can be replied to in anticipation.
    ///
    /// # Errors
    /// The client awaits inputs, or buffers that it gave by value; or the request has been replied to.
    pub(crate) fn ensure_anticipable(&mut self) -> Result<(), Failure> {
        match self.stage.due()?.may_be_anticipated() {
            true => Ok(()),
            false => Err(Failure::misuse(
                "the client awaits inputs, or buffers that it gave by value: reply when the request is done",
            )),
        }
    }

    /// Replies with success, and keeps the outputs, as [`Held::ensure_anticipable`] allows. Takes locks of Genie's.
    pub(crate) fn anticipate(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Moving) {
            Stage::Due(incoming) => incoming.anticipate().map_or_else(Stage::Due, Stage::Anticipated),
            stage => stage,
        };
    }

    /// Ends the request: by this reply, if it has had none. Takes locks of Genie's.
    pub(crate) fn end(self, result: Result<(), ServerError>) {
        let Stage::Due(incoming) = self.stage else { return };
        // Where another server was to fill an input, this may be the error of that server's request, and what it said was final may not
        // have come.
        let is_forwarded = self.forwarded.iter().any(|buffer| self.buffers[*buffer].direction == IO_IN);
        match &result {
            // What is final of a request that is let go passes.
            Err(error) if error.code == libc::ECANCELED && !is_forwarded && incoming.is_aborted() => {
                drop(incoming);
            }
            _ => incoming.reply(result),
        }
    }

    /// Notes what a reply says; the outer error is the caller's. Of a request that has had its reply nothing is noted.
    ///
    /// # Safety
    /// The message's pointers are valid.
    pub(crate) unsafe fn complete(
        &mut self,
        message: &ReplyMessage,
    ) -> Result<Result<(), ServerError>, Failure> {
        if let Stage::Anticipated(_) = self.stage {
            return Ok(Ok(()));
        }
        self.ensure_due()?;
        if message.error < 0 {
            return Err(Failure::misuse(format!("the error {} is no errno", message.error)));
        }
        if message.error != 0 {
            let text = match message.error_text.is_null() {
                true => std::io::Error::from_raw_os_error(message.error).to_string(),
                // SAFETY: the caller vouches for the string.
                false => unsafe { text(message.error_text) }?.to_owned(),
            };
            return Ok(Err(ServerError { code: message.error, message: text }));
        }
        let count = self.buffers.len();
        if message.actualc > 0 && message.actualv.is_null() {
            return Err(Failure::misuse("the list of actual lengths is missing: actualv is NULL".to_owned()));
        }
        if message.actualc > count {
            return Err(Failure::misuse(format!("{} actual lengths for {count} buffers", message.actualc)));
        }
        let come = |index: usize| self.come.get(index).copied().filter(|come| *come > 0);
        let actual = |index| {
            // SAFETY: the caller vouches for so many lengths.
            let told = (index < message.actualc).then(|| unsafe { message.actualv.add(index).read() });
            told.filter(|length| *length != usize::MAX).or(come(index))
        };
        // All is looked at before any of it counts.
        for (index, buffer) in self.buffers.iter().enumerate() {
            let is_unfilled = self.is_unfilled(index);
            let Some(actual) = actual(index) else {
                if buffer.direction == IO_OUT || is_unfilled {
                    continue;
                }
                return Err(Failure::misuse(format!(
                    "buffer {index} is an input that was made ready, overlaid, linked or forwarded, and the reply has no actual length \
                     for it: say in actualv how many bytes of it came, if only 0"
                )));
            };
            if actual > buffer.length {
                let length = buffer.length;
                return Err(Failure::misuse(format!("{actual} bytes of buffer {index}, which has {length}")));
            }
            if actual > 0 && is_unfilled {
                return Err(unfilled(index));
            }
            if let Some(come) = come(index).filter(|come| actual < *come) {
                return Err(genie_io::Error::Backwards { come, actual }.into());
            }
        }
        // SAFETY: the caller vouches for the argument.
        let argument = unsafe { checked(message.argument.cast_mut(), message.argument_length)?.read() };
        let incoming = self.stage.due()?;
        // First what may be refused: the actual length of a buffer of which a part is final makes more of it final.
        if let Err(too_long) = incoming.set_argument(argument) {
            return Ok(Err(too_long.into()));
        }
        for index in 0..count {
            incoming.set_actual(index, actual(index).unwrap_or(0))?;
        }
        Ok(Ok(()))
    }
}

fn unfilled(buffer: usize) -> Failure {
    Failure::misuse(format!(
        "buffer {buffer} is an input: call io_ready and fill it first, or overlay buffers of yours"
    ))
}
