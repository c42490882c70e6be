//! Backings where data travels by itself, is kept, or is forwarded; the conformance suite has what holds for all other data.

use std::sync::Arc;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions};
use genie_conformance::machine::{Backed, backed};
use genie_io::{
    In, Incoming, Interface, Kept, Limits, Out, RequestId, Server, ServerError, ServerHandle, Service,
    ServiceId,
};
use genie_memory::{Backing, Config, Data, Direction, Granularity, GranuleKind, Inode, Space};
use genie_passing::{CARRIED, Costs, Passing, Scheme, Thresholds};
use genie_sys::lock::Mutex;

use crate::support::bytes::pattern;
use crate::support::machine::proc::object_at;

/// Notes where buffer 0 is.
const LOOK: ServiceId = ServiceId(0);
/// Notes where output 0 is, keeps it, and notes where it is then.
const KEEP: ServiceId = ServiceId(1);
/// Notes where buffer 0 is, and forwards bytes [`PART`] of it to the next server.
const FORWARD: ServiceId = ServiceId(2);

/// Whole granules, and no multiple of any.
const LEN: usize = 300_000;
const PART: std::ops::Range<usize> = 10_000..200_001;

static SERVICES: [Service; 3] =
    [Service::new("look", true, true), Service::new("keep", true, true), Service::new("forward", true, true)];

/// What the servers of a chain noted, in order.
type Notes = Arc<Mutex<Vec<Vec<Backed>>>>;

#[derive(Default)]
struct Noter {
    notes: Notes,
    kept: Mutex<Vec<Kept>>,
    next: Option<(Interface, ServerHandle)>,
}

impl Noter {
    fn note(&self, data: &Data<'_>) {
        data.sum();
        self.notes.lock().push(backed(data).unwrap_or_else(|wrong| panic!("{wrong}")));
    }

    /// Notes where data is, and asks for no descriptor: what was shown is copied when it is kept.
    fn note_unshown(&self, data: &Data<'_>) {
        data.sum();
        let part = |backing: Backing<'_>| {
            let object = backing.object().map(|(Inode { device, number }, offset)| (device, number, offset));
            assert_eq!(object, object_at(backing.addr()));
            (backing.len(), object)
        };
        self.notes.lock().push(data.backings().map(part).collect());
    }

    fn serve(&self, request: &mut Incoming) -> Result<(), ServerError> {
        match request.direction(0)? {
            Direction::Out if request.service() == KEEP => self.note_unshown(&request.output(0)?),
            Direction::Out => self.note(&request.output(0)?),
            Direction::In => {
                let data = request.ready(0)?;
                data.copy_from(&pattern(3, data.len()));
                self.note(&data);
                let len = data.len();
                request.set_actual(0, len)?;
            }
        }
        match request.service() {
            KEEP => {
                let kept = request.keep(0)?;
                self.note_unshown(&Data::from(&kept[..]));
                self.kept.lock().push(kept);
            }
            FORWARD => {
                let (interface, next) = self.next.as_ref().expect("a next server");
                let fragment = request.fragment(0, PART)?;
                let asked = interface.request(next, LOOK);
                let asked = match fragment.direction() {
                    Direction::Out => asked.out(Out::fragment(fragment)),
                    Direction::In => asked.input(In::fragment(fragment)),
                };
                asked.send().map_err(|failed| failed.error)?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Server for Noter {
    fn name(&self) -> &str {
        "noter"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = self.serve(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {}
}

fn interface() -> Interface {
    let granularity = Granularity::Only(GranuleKind::Base);
    let space = Space::new(&Config { granularity, limit: 64 << 20, ..Config::default() }).expect("a space");
    let passing = Passing::new(space, Costs::default()).with_thresholds(Thresholds::ALWAYS);
    Interface::new(passing, Limits::default())
}

/// A server that a channel leads to.
struct Reached {
    handle: ServerHandle,
    _running: Running,
    _scratch: tempfile::TempDir,
}

fn reach(interface: &Interface, noter: Noter, untrusted: bool) -> Reached {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let options = ServeOptions { untrusted, ..ServeOptions::default() };
    let serving = Listener::bind_in(&directory, "noter", noter, options).expect("a name");
    let running = serving.start().expect("threads");
    let handle =
        interface.connect_with(&directory, "noter", &ConnectOptions::default()).expect("a connection");
    Reached { handle, _running: running, _scratch: scratch }
}

fn noter(notes: &Notes) -> Noter {
    Noter { notes: Arc::clone(notes), ..Noter::default() }
}

fn noted<const N: usize>(notes: &Notes) -> [Vec<Backed>; N] {
    std::mem::take(&mut *notes.lock()).try_into().expect("that many servers")
}

/// An output of these bytes, in memory of the interface's that is given by value.
fn given(interface: &Interface, scheme: Scheme, bytes: &[u8]) -> Out<'static> {
    let mut buffer = interface.allocate(bytes.len()).expect("memory");
    buffer.copy_from_slice(bytes);
    Out::owned(scheme, buffer)
}

#[test]
fn carried_data_is_in_no_object() {
    let (interface, notes) = (interface(), Notes::default());
    let reached = reach(&interface, noter(&notes), false);
    let request = || interface.request(&reached.handle, LOOK);
    request().out(Out::copy(&[1; CARRIED])).send().expect("a reply");
    assert_eq!(noted(&notes), [[(CARRIED, None)]]);
    let mut input = [0; CARRIED];
    request().input(In::copy(&mut input)).send().expect("a reply");
    assert_eq!(noted(&notes), [[(CARRIED, None)]], "an input");
    // Beside data that is in one.
    let long = given(&interface, Scheme::EmulatedCopy, &pattern(1, LEN));
    request().out(Out::copy(&[1; 9])).and_out(long).send().expect("a reply");
    let [parts] = noted(&notes);
    assert_eq!(parts[0], (9, None), "{parts:?}");
    assert!(parts[1..].iter().all(|(_, object)| object.is_some()), "{parts:?}");
}

#[test]
fn kept_data_is_where_the_kernel_has_copied_it_or_in_no_object() {
    for untrusted in [true, false] {
        let (interface, notes) = (interface(), Notes::default());
        let reached = reach(&interface, noter(&notes), untrusted);
        for scheme in [Scheme::Copy, Scheme::EmulatedCopy, Scheme::EmulatedShare] {
            let element = given(&interface, scheme, &pattern(1, LEN));
            interface.request(&reached.handle, KEEP).out(element).send().expect("a reply");
            let [before, after] = noted(&notes);
            assert!(before.iter().all(|(_, object)| object.is_some()), "{scheme}: {before:?}");
            let expected = if untrusted { before } else { vec![(LEN, None)] };
            assert_eq!(after, expected, "{scheme}, untrusted: {untrusted}");
        }
    }
}

/// By the inode and the distance from the object's start, which are the same in both places.
#[test]
fn forwarded_data_is_in_the_object_that_the_contractor_has_it_in() {
    for place in ["one process", "two channels", "a contractor here", "a contractor elsewhere"] {
        let (notes, client, middle) = (Notes::default(), interface(), interface());
        let (first_is_here, last_is_here) = match place {
            "one process" => (true, true),
            "a contractor here" => (true, false),
            "a contractor elsewhere" => (false, true),
            _ => (false, false),
        };
        // A contractor in the client's process makes its requests by the client's interface.
        let asking = if first_is_here { client.clone() } else { middle };
        let last = (!last_is_here).then(|| reach(&asking, noter(&notes), false));
        let to = last.as_ref().map_or_else(|| ServerHandle::new(noter(&notes)), |last| last.handle.clone());
        let contractor = Noter { next: Some((asking, to)), ..noter(&notes) };
        let (here, first) = match first_is_here {
            true => (Some(ServerHandle::new(contractor)), None),
            false => (None, Some(reach(&client, contractor, false))),
        };
        let handle = here.unwrap_or_else(|| first.as_ref().expect("one of both").handle.clone());
        for scheme in [Scheme::EmulatedCopy, Scheme::EmulatedShare] {
            let element = given(&client, scheme, &pattern(1, LEN));
            client.request(&handle, FORWARD).out(element).send().expect("a reply");
            let [whole, part] = noted(&notes);
            assert_eq!(part, cut(&whole), "{place}, {scheme}");
            let input = client.allocate(LEN).expect("memory");
            client.request(&handle, FORWARD).input(In::owned(scheme, input)).send().expect("a reply");
            let [whole, part] = noted(&notes);
            // A server elsewhere fills its own pool, not what the contractor has seen.
            match place {
                "a contractor here" => assert!(part.iter().all(|(_, object)| object.is_some()), "{part:?}"),
                _ => assert_eq!(part, cut(&whole), "{place}, {scheme}: input"),
            }
        }
    }
}

/// Bytes [`PART`] of these parts.
fn cut(parts: &[Backed]) -> Vec<Backed> {
    let mut at = 0;
    let cut = |(len, object): &Backed| {
        let (start, end) = (at, at + len);
        at = end;
        let from = PART.start.clamp(start, end);
        let object = object.map(|(device, inode, offset)| (device, inode, offset + from - start));
        (PART.end.clamp(from, end) - from, object)
    };
    parts.iter().map(cut).filter(|(len, _)| *len > 0).collect()
}
