//! Buffers that servers keep: nobody else changes or sees them, and they are bounded.
//!
//! How: a server in this process keeps what it gets from clients of this process, and over channels, trusted and not. The client
//! then does what it can to the memory that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions};
use genie_conformance::machine::{frames, skip};
use genie_io::servers::memory::{FETCH, Memory, STORE};
use genie_io::{
    Error, Failed, In, Incoming, Interface, Kept, Limits, Out, Reply, RequestId, Server, ServerError,
    ServerHandle, Service, ServiceId,
};
use genie_memory::{Config, Direction, Granularity, GranuleKind, Space};
use genie_passing::model::Allocation;
use genie_passing::{Costs, Passing, Scheme, Thresholds};
use genie_sys::lock::Mutex;

use crate::support::bytes::{pattern, same};
use crate::support::machine::{Mapping, mappings_of, object_at, proc::while_pages_stay};

/// Keeps output 0.
const KEEP: ServiceId = ServiceId(0);
/// Keeps it, and fails.
const FAIL: ServiceId = ServiceId(1);
/// Only looks at output 0.
const LOOK: ServiceId = ServiceId(2);
/// Keeps output 0 while a part of it is pinned.
const PIN: ServiceId = ServiceId(3);

/// Long enough for whole granules, and no multiple of any.
const LEN: usize = 300_000;
const PAGE: usize = GranuleKind::Base.size();

/// A server that keeps what it gets. Cloning makes another handle.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<Found>>>);

/// What was kept, and where it was before.
struct Found {
    kept: Kept,
    places: Vec<(usize, usize)>,
    frames: Option<Vec<u64>>,
}

static SERVICES: [Service; 4] = [
    Service::new("keep", true, true),
    Service::new("fail", true, true),
    Service::new("look", true, true),
    Service::new("pin", true, true),
];

impl Keeper {
    fn serve(&self, request: &mut Incoming) -> Result<(), ServerError> {
        match request.service() {
            LOOK => drop(request.output(0)?.sum()),
            PIN => {
                let pin = request.pin_output(0, 0..request.len(0))?;
                let before = pin.data().to_vec();
                self.keep(request)?;
                self.0.lock().last_mut().expect("it was kept").kept.fill(7);
                same(&pin.data().to_vec(), &before, "what is pinned");
            }
            _ => self.keep(request)?,
        }
        if request.service() == FAIL { Err("it is closed".into()) } else { Ok(()) }
    }

    fn keep(&self, request: &mut Incoming) -> Result<(), Error> {
        let data = request.output(0)?;
        data.sum();
        let places: Vec<_> = data.segments().iter().map(|span| (span.addr(), span.len())).collect();
        let in_frames: Option<Vec<_>> = places.iter().map(|(addr, len)| frames(*addr, *len, PAGE)).collect();
        let kept = request.keep(0)?;
        self.0.lock().push(Found { kept, places, frames: in_frames.map(|all| all.concat()) });
        Ok(())
    }

    fn last(&self) -> Kept {
        self.0.lock().pop().expect("something was kept").kept
    }

    fn let_go(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}

impl Server for Keeper {
    fn name(&self) -> &str {
        "keeper"
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

/// Where the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    Mapped,
    Untrusted,
}

const PLACES: [Place; 3] = [Place::Here, Place::Mapped, Place::Untrusted];

/// The server, and where it runs.
struct Serving {
    keeper: Keeper,
    here: Option<ServerHandle>,
    elsewhere: Option<(Running, Directory)>,
    _scratch: tempfile::TempDir,
}

impl Serving {
    fn open(place: Place) -> Self {
        Self::open_with(place, ServeOptions::default())
    }

    fn open_with(place: Place, options: ServeOptions) -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let keeper = Keeper::default();
        let here = (place == Place::Here).then(|| ServerHandle::new(keeper.clone()));
        let elsewhere = (place != Place::Here).then(|| {
            let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
            let options = ServeOptions { untrusted: place == Place::Untrusted, ..options };
            let serving = Listener::bind_in(&directory, "keeper", keeper.clone(), options).expect("a name");
            (serving.start().expect("threads"), directory)
        });
        Self { keeper, here, elsewhere, _scratch: scratch }
    }

    fn client(&self) -> Client {
        self.client_with(Limits::default())
    }

    fn client_with(&self, limits: Limits) -> Client {
        let granularity = Granularity::Only(GranuleKind::Base);
        let space =
            Space::new(&Config { granularity, limit: 64 << 20, ..Config::default() }).expect("a space");
        let passing = Passing::new(space, Costs::default()).with_thresholds(Thresholds::ALWAYS);
        let interface = Interface::new(passing, limits);
        let connect = |directory| interface.connect_with(directory, "keeper", &ConnectOptions::default());
        let server = match (&self.here, &self.elsewhere) {
            (Some(here), _) => here.clone(),
            (None, elsewhere) => connect(&elsewhere.as_ref().expect("it runs").1).expect("a connection"),
        };
        Client { interface, server }
    }

    fn clients(&self) -> u32 {
        self.elsewhere.as_ref().map_or(0, |(running, _)| running.status().clients_total)
    }
}

struct Client {
    interface: Interface,
    server: ServerHandle,
}

impl Client {
    fn send(&self, service: ServiceId, element: Out<'static>) -> Result<Reply, Failed> {
        self.interface.request(&self.server, service).out(element).send()
    }

    /// An element of these bytes in memory that is given by value.
    fn given(&self, scheme: Scheme, bytes: &[u8]) -> Out<'static> {
        match scheme.allocation() {
            Allocation::Native => {
                let mut buffer = self.interface.allocate(bytes.len()).expect("memory");
                buffer.copy_from_slice(bytes);
                Out::owned(scheme, buffer)
            }
            Allocation::Migrant => {
                let is_strong = matches!(scheme, Scheme::Move | Scheme::EmulatedMove);
                let mut region = self.interface.allocate_migrant(bytes.len(), is_strong).expect("memory");
                region.copy_from_slice(bytes);
                Out::migrant(scheme, region)
            }
        }
    }

    /// Passes other bytes by all schemes, so that they come to all places that the client's and the server's pools have.
    fn goes_on(&self, serving: &Serving) {
        for scheme in Scheme::ALL {
            for _ in 0..3 {
                let element = self.given(scheme, &[0xee; LEN]);
                let sent = self.send(KEEP, element);
                sent.map(drop).unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
                drop(serving.keeper.last());
            }
        }
    }
}

#[test]
fn what_is_kept_is_the_servers_alone() {
    for place in PLACES {
        let serving = Serving::open(place);
        let client = serving.client();
        for scheme in Scheme::ALL {
            let bytes = pattern(1, LEN);
            let mut reply = client.send(KEEP, client.given(scheme, &bytes)).expect("a reply");
            let mut kept = serving.keeper.last();
            let copied = if place == Place::Untrusted { 0 } else { LEN };
            assert_eq!((kept.len(), kept.copied()), (LEN, copied), "{place:?}, {scheme}");
            kept[..100].fill(7);
            if let Some(mut buffer) = reply.take_buffer() {
                same(&buffer, &bytes, format_args!("{place:?}, {scheme}: the client's own bytes"));
                buffer.fill(8);
            }
            client.goes_on(&serving);
            assert!(kept[..100].iter().all(|byte| *byte == 7), "{place:?}, {scheme}");
            same(&kept[100..], &bytes[100..], format_args!("{place:?}, {scheme}"));
        }
        // Short data lies beside other data, and data of two elements in two places.
        client.send(KEEP, Out::copy(b"short")).expect("a reply");
        assert_eq!((&*serving.keeper.last(), serving.keeper.0.lock().len()), (&b"short"[..], 0));
        let request = client.interface.request(&client.server, KEEP).out(Out::copy(&[5; LEN]));
        request.and_out(Out::copy(b"parts")).send().expect("a reply");
        let kept = serving.keeper.last();
        assert_eq!((kept.copied(), &kept[LEN..]), (LEN + 5, &b"parts"[..]), "{place:?}");
        client.send(KEEP, Out::copy(b"")).expect("a reply");
        assert!(serving.keeper.last().is_empty(), "{place:?}");
    }
}

/// By its page frames: the kernel's copy is the only one.
#[test]
fn what_the_kernel_has_copied_is_kept_where_it_is() {
    while_pages_stay(|| {
        let serving = Serving::open(Place::Untrusted);
        let client = serving.client();
        for scheme in Scheme::ALL {
            client.send(KEEP, client.given(scheme, &pattern(2, LEN))).expect("a reply");
            let Found { kept, places, frames: before } = serving.keeper.0.lock().pop().expect("it was kept");
            assert_eq!(places, [(kept.as_ptr().addr(), LEN)], "{scheme}");
            let Some(before) = before else {
                return skip("what_the_kernel_has_copied_is_kept_where_it_is", "page frames are hidden");
            };
            assert_eq!(frames(kept.as_ptr().addr(), LEN, PAGE), Some(before), "{scheme}");
            assert_eq!(kept.copied(), 0, "{scheme}");
        }
    });
}

#[test]
fn a_kept_buffer_outlives_its_request_its_channel_and_its_client() {
    for place in PLACES {
        let serving = Serving::open(place);
        let client = serving.client();
        let bytes = pattern(4, LEN);
        for scheme in Scheme::ALL {
            client.send(KEEP, client.given(scheme, &bytes)).expect("a reply");
        }
        let keeper = serving.keeper.clone();
        drop(client);
        drop(serving);
        let all = std::mem::take(&mut *keeper.0.lock());
        assert_eq!(all.len(), Scheme::ALL.len());
        let dropping = std::thread::spawn(move || {
            for Found { mut kept, .. } in all {
                same(&kept, &bytes, format_args!("{place:?}: of a client that is gone"));
                kept.fill(7);
                assert!(kept.iter().all(|byte| *byte == 7));
            }
        });
        dropping.join().expect("any thread may drop what was kept");
    }
}

/// As one short kept buffer would otherwise keep all memory that its client has ever made the server take.
#[test]
fn of_a_client_that_is_gone_only_what_is_kept_takes_memory() {
    let serving = Serving::open(Place::Untrusted);
    let client = serving.client();
    client.send(KEEP, client.given(Scheme::Copy, &pattern(5, LEN))).expect("a reply");
    client.send(KEEP, client.given(Scheme::Copy, &[6; 8 << 20])).expect("a reply");
    client.send(KEEP, client.given(Scheme::Copy, &pattern(7, LEN))).expect("a reply");
    let [first, _, last] = [(); 3].map(|()| serving.keeper.last());
    let place = first.as_ptr().addr();
    assert!(memory_of_objects_near(place) >= 8 << 20, "it is all there");
    drop(client);
    eventually("the client has left", || serving.clients() == 0);
    let kept = 2 * LEN.next_multiple_of(PAGE);
    eventually("its memory is given back", || memory_of_objects_near(place) <= kept);
    same(&first, &pattern(7, LEN), "what is kept");
    same(&last, &pattern(5, LEN), "what is kept");
    drop(last);
    assert!(memory_of_objects_near(place) <= kept / 2, "each that is dropped gives its own back");
    same(&first, &pattern(7, LEN), "what is kept");
}

#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}, after a while");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many bytes the memory objects have that are mapped beside the one at `addr`, in one arena.
fn memory_of_objects_near(addr: usize) -> usize {
    let mappings = mappings_of(std::process::id());
    let at = mappings
        .iter()
        .position(|mapping| (mapping.start..mapping.end).contains(&addr))
        .expect("it is mapped");
    let is_near = |pair: &[Mapping]| pair[0].end == pair[1].start && pair[1].object.is_some();
    let first = (1..=at).rev().find(|index| !is_near(&mappings[index - 1..=*index])).unwrap_or(0);
    let near = mappings[first..]
        .windows(2)
        .position(|pair| !is_near(pair))
        .map_or(mappings.len(), |count| first + count + 1);
    let objects: BTreeSet<u64> = mappings[first..near]
        .iter()
        .filter_map(|mapping| mapping.object.as_ref()?.split(' ').nth(1)?.parse().ok())
        .collect();
    let files = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    let sizes = files.filter_map(|file| {
        let found = std::fs::metadata(file.ok()?.path()).ok()?;
        objects.contains(&found.ino()).then_some((found.ino(), found.blocks() as usize * 512))
    });
    sizes.collect::<BTreeMap<_, _>>().values().sum()
}

#[test]
fn what_is_kept_is_bounded_for_each_client_and_counts_until_it_is_dropped() {
    for place in PLACES {
        let limit = 10 * PAGE;
        let serving = Serving::open_with(place, ServeOptions { kept: limit, ..ServeOptions::default() });
        let limits = || Limits { kept_bytes: limit, ..Limits::default() };
        let (client, other) = (serving.client_with(limits()), serving.client_with(limits()));
        let send = |client: &Client| client.send(KEEP, client.given(Scheme::EmulatedCopy, &[9; 4 * PAGE]));
        for _ in 0..2 {
            send(&client).expect("room");
        }
        for _ in 0..3 {
            let failed = send(&client).expect_err("no more may be kept");
            let option = if place == Place::Here { "Limits::kept_bytes" } else { "ServeOptions::kept" };
            let Error::Server(error) = &failed.error else { panic!("{place:?}: {failed}") };
            assert_eq!(failed.error.errno(), 122, "{place:?}: EDQUOT");
            let said = Error::KeptTooMuch { asked: 4 * PAGE, kept: 8 * PAGE, limit, option };
            assert_eq!(error.message, said.to_string(), "{place:?}");
            assert!(failed.buffers.iter().len() > 0, "{place:?}: the client's buffer comes back");
        }
        send(&other).expect("each client has a limit of its own");
        // What the server does not keep is served all the same.
        client.send(LOOK, client.given(Scheme::EmulatedCopy, &[9; LEN])).expect("a reply");
        drop(serving.keeper.0.lock().remove(0));
        send(&client).expect("room again");
        serving.keeper.let_go();
    }
}

/// Clients that come, leave something, and go.
#[test]
fn what_is_kept_of_all_clients_is_bounded() {
    for place in [Place::Mapped, Place::Untrusted] {
        let (pool, most) = (64 * PAGE, 200 * PAGE);
        let options =
            ServeOptions { pool, hard_pool: pool, kept: most, pools: most, ..ServeOptions::default() };
        let serving = Serving::open_with(place, options);
        let mut kept = 0;
        let failed = loop {
            let client = serving.client();
            let sent = client.send(KEEP, client.given(Scheme::EmulatedCopy, &[9; 16 * PAGE]));
            drop(client);
            eventually("the client has left", || serving.clients() == 0);
            match sent {
                Ok(_) => kept += 16 * PAGE,
                Err(failed) => break failed,
            }
            assert!(kept <= most, "{place:?}");
        };
        assert!(failed.to_string().contains("ServeOptions::pools"), "{place:?}: {failed}");
        assert!(kept >= most - pool - 16 * PAGE, "{place:?}: {kept} bytes");
        serving.keeper.let_go();
        let client = serving.client();
        client.send(KEEP, client.given(Scheme::EmulatedCopy, &[9; 16 * PAGE])).expect("room again");
        serving.keeper.let_go();
    }
}

#[test]
fn a_request_that_fails_leaves_the_server_what_it_has_kept() {
    for place in PLACES {
        let serving = Serving::open(place);
        let client = serving.client();
        for scheme in Scheme::ALL {
            let bytes = pattern(10, LEN);
            let mut failed = client.send(FAIL, client.given(scheme, &bytes)).expect_err("it is closed");
            assert_eq!(failed.error, Error::Server("it is closed".into()), "{place:?}, {scheme}");
            match scheme.allocation() {
                Allocation::Native => same(&failed.take_buffer().expect("a buffer"), &bytes, scheme),
                Allocation::Migrant => same(&failed.take_migrant().expect("a buffer"), &bytes, scheme),
            }
            client.goes_on(&serving);
            same(&serving.keeper.last(), &bytes, format_args!("{place:?}, {scheme}: the server's"));
        }
    }
}

#[test]
fn what_is_pinned_stays_where_it_is() {
    for place in PLACES {
        let serving = Serving::open(place);
        let client = serving.client();
        client.send(PIN, client.given(Scheme::Copy, &pattern(11, LEN))).expect("a reply");
        let kept = serving.keeper.last();
        assert_eq!((kept.copied(), kept[LEN - 1]), (LEN, 7), "{place:?}");
    }
}

#[test]
fn what_is_kept_is_an_element_of_the_servers_own_requests() {
    let memory = ServerHandle::new(Memory::customized());
    for place in PLACES {
        let serving = Serving::open(place);
        let client = serving.client();
        client.send(KEEP, client.given(Scheme::EmulatedCopy, &pattern(12, LEN))).expect("a reply");
        let kept = serving.keeper.last();
        let own = serving.client().interface;
        own.request(&memory, STORE).out(Out::new(&kept)).argument(b"kept").send().expect("a reply");
        let pending = own.request(&memory, STORE).out(Out::new(&kept)).submit().expect("a request");
        drop(kept);
        pending.sync().expect("a reply");
        let mut found = vec![0; LEN];
        own.request(&memory, FETCH).argument(b"kept").input(In::copy(&mut found)).send().expect("a reply");
        same(&found, &pattern(12, LEN), format_args!("{place:?}"));
    }
}

#[test]
fn what_is_kept_is_not_the_requests_any_more() {
    struct Asking;
    impl Server for Asking {
        fn name(&self) -> &str {
            "asking"
        }

        fn services(&self) -> &[Service] {
            static SERVICES: [Service; 2] =
                [Service::new("ask", true, true), Service::new("blind", false, false)];
            &SERVICES
        }

        fn request(&self, mut request: Incoming) {
            if request.service() == ServiceId(1) {
                assert!(matches!(request.keep(0), Err(Error::Unmapped { access: "read", .. })));
                return request.reply(Ok(()));
            }
            let kept = request.keep(0).expect("an output");
            assert_eq!(kept.len(), request.len(0));
            let again = Error::Kept { buffer: 0 };
            assert_eq!(request.keep(0).map(drop), Err(again.clone()));
            assert_eq!(request.output(0).map(drop), Err(again.clone()));
            assert_eq!(request.pin_output(0, 0..1).map(drop), Err(again.clone()));
            assert_eq!(request.fragment(0, 0..1).map(drop), Err(again));
            let missing =
                |index, is_other| Err(Error::NoSuchBuffer { index, direction: Direction::Out, is_other });
            assert_eq!(request.keep(1).map(drop), missing(1, true));
            assert_eq!(request.keep(2).map(drop), missing(2, false));
            request.reply(Ok(()));
        }

        fn abort(&self, _request: RequestId) {}
    }
    let serving = Serving::open(Place::Here);
    let Client { interface, .. } = serving.client();
    let server = ServerHandle::new(Asking);
    for bytes in [&b"carried"[..], &[1; LEN]] {
        let mut room = [0; 10];
        let request = interface.request(&server, ServiceId(0)).out(Out::copy(bytes));
        request.input(In::copy(&mut room)).send().expect("a reply");
    }
    interface.request(&server, ServiceId(1)).out(Out::copy(b"data")).send().expect("a reply");
}

/// The kept memory of a private buffer lies in an object of which this process alone has a descriptor.
#[test]
fn kept_private_memory_is_in_no_object_that_the_client_has() {
    let serving = Serving::open(Place::Untrusted);
    let client = serving.client();
    let buffer = client.interface.allocate(LEN).expect("memory");
    client.interface.request(&client.server, KEEP).out(Out::copy(&buffer)).send().expect("a reply");
    let kept = serving.keeper.last();
    let objects = [kept.as_ptr(), buffer.as_ptr()].map(|place| object_at(place.addr()).expect("an object"));
    assert_ne!(objects[0], objects[1]);
}
