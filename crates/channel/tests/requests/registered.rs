//! A registrar as a server over registered memory has it: by a table of (inode, length) it finds the data of every request, in this
//! process and elsewhere, while objects come and go.

mod calls;
mod devices;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions};
use genie_io::{
    In, Incoming, Interface, Limits, Out, RequestId, Server, ServerError, ServerHandle, Service, ServiceId,
};
use genie_memory::{
    Config, Data, Direction, Granularity, GranuleKind, Inode, LenderId, Registrar, SharedObject, Space,
    SystemBuffer,
};
use genie_passing::{CARRIED, Costs, Passing, Scheme, Thresholds};
use genie_sys::lock::Mutex;

use crate::support::bytes::pattern;
use crate::support::machine::mappings_of;

/// Looks up where each buffer's data is.
const LOOK: ServiceId = ServiceId(0);

static SERVICES: [Service; 1] = [Service::new("look", true, true)];

/// What is registered: by inode, the object, and whether a server elsewhere may see it.
#[derive(Debug, Default)]
struct Table {
    objects: Mutex<BTreeMap<Inode, (SharedObject, bool)>>,
    /// All that there ever were.
    added: Mutex<Vec<SharedObject>>,
    calls: AtomicUsize,
    failed: AtomicBool,
}

impl Table {
    /// Changes the table, slowly; the change says whether all was as it should be.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<Inode, (SharedObject, bool)>) -> bool) {
        thread::sleep(Duration::from_micros(200));
        if !change(&mut self.objects.lock()) {
            self.failed.store(true, Ordering::Relaxed);
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn find(&self, data: &Data<'_>, is_elsewhere: bool) -> Result<(), String> {
        for backing in data.backings() {
            let (inode, offset) = backing.object().ok_or("data is in no object")?;
            let found = self.objects.lock().get(&inode).copied();
            let (object, shown) = found.ok_or_else(|| format!("{inode:?} was not told"))?;
            if offset + backing.len() > object.len {
                return Err(format!("{} bytes from {offset} on are not in {object:?}", backing.len()));
            }
            if is_elsewhere && !shown && object.lender.is_none() {
                return Err(format!("{object:?} is seen, and was never shown"));
            }
        }
        Ok(())
    }
}

impl Registrar for Table {
    fn added(&self, object: &SharedObject) {
        self.added.lock().push(*object);
        self.change(|objects| objects.insert(object.inode, (*object, false)).is_none());
    }

    fn shown(&self, object: &SharedObject) {
        self.change(|objects| {
            objects.get_mut(&object.inode).is_some_and(|found| !std::mem::replace(&mut found.1, true))
        });
    }

    fn removed(&self, object: &SharedObject) {
        self.change(|objects| objects.remove(&object.inode).is_some_and(|found| found.0 == *object));
    }
}

struct Looker {
    table: Arc<Table>,
    is_elsewhere: bool,
}

impl Looker {
    fn serve(&self, request: &mut Incoming) -> Result<(), ServerError> {
        for buffer in 0..request.buffers() {
            let found = match request.direction(buffer)? {
                Direction::Out => self.table.find(&request.output(buffer)?, self.is_elsewhere),
                Direction::In => {
                    let data = request.ready(buffer)?;
                    let len = data.copy_from(&pattern(9, data.len()));
                    let found = self.table.find(&data, self.is_elsewhere);
                    request.set_actual(buffer, len)?;
                    found
                }
            };
            found.map_err(ServerError::new)?;
        }
        Ok(())
    }
}

impl Server for Looker {
    fn name(&self) -> &str {
        "looker"
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

/// A server that does as the test says.
struct Serving<F>(&'static [Service], F);

impl<F: Fn(Incoming) + Send + Sync + 'static> Server for Serving<F> {
    fn name(&self) -> &str {
        "serving"
    }

    fn services(&self) -> &[Service] {
        self.0
    }

    fn request(&self, request: Incoming) {
        (self.1)(request);
    }

    fn abort(&self, _request: RequestId) {}
}

/// Takes all free memory, so that the space has to make an object for whatever is allocated next.
fn use_up(space: &Space) -> Option<SystemBuffer> {
    let free = space.check().expect("the tables add up").free as usize;
    (free > 0).then(|| space.system_buffer(free * space.granule()).expect("what is free"))
}

/// A server that a channel leads to, with a pool that is soon used up.
fn reach(
    interface: &Interface,
    directory: &Directory,
    name: &str,
    table: &Arc<Table>,
) -> (ServerHandle, Running) {
    let looker = Looker { table: Arc::clone(table), is_elsewhere: true };
    let options = ServeOptions { pool: 64 << 10, hard_pool: 512 << 10, ..ServeOptions::default() };
    let running =
        Listener::bind_in(directory, name, looker, options).expect("a name").start().expect("threads");
    (interface.connect_with(directory, name, &ConnectOptions::default()).expect("a connection"), running)
}

/// Requests of each scheme and of different lengths, longer than what records carry.
fn ask(interface: &Interface, server: &ServerHandle, round: usize) {
    let len = CARRIED + 1 + round * 7919 % 300_000;
    for scheme in [Scheme::Copy, Scheme::EmulatedCopy, Scheme::EmulatedShare] {
        let mut output = interface.allocate(len).expect("memory");
        output.copy_from_slice(&pattern(1, len));
        let input = interface.allocate(len).expect("memory");
        let request = interface.request(server, LOOK).out(Out::owned(scheme, output));
        request.input(In::owned(scheme, input)).send().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
    }
}

#[test]
fn a_table_of_objects_has_the_data_of_every_request() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let (interface, tables) = (interface(), [(); 2].map(|()| Arc::new(Table::default())));
    let registrations = tables.clone().map(|table| interface.space().register(table));
    let here = ServerHandle::new(Looker { table: Arc::clone(&tables[0]), is_elsewhere: false });
    let (there, running) = reach(&interface, &directory, "there", &tables[1]);
    thread::scope(|scope| {
        for server in [&here, &there, &there] {
            let interface = &interface;
            scope.spawn(move || (0..40).for_each(|round| ask(interface, server, round)));
        }
        scope.spawn(|| {
            for round in 0..10 {
                // A server that comes and goes, its pool with it, and a registrar that does.
                let table = Arc::new(Table::default());
                let registration = interface.space().register(table.clone());
                let name = format!("passing-{round}");
                let (passing, _running) = reach(&interface, &directory, &name, &table);
                ask(&interface, &passing, 20 * round);
                drop(registration);
                ask(&interface, &here, 20 * round);
                assert!(!table.failed.load(Ordering::Relaxed));
            }
        });
    });
    drop(registrations);
    for table in &tables {
        assert!(!table.failed.load(Ordering::Relaxed), "an object came twice, or went unseen");
        assert!(table.calls.load(Ordering::Relaxed) > 10, "servers have come and gone");
    }
    drop((there, running));
    interface.space().check().expect("the tables add up");
}

/// A server that was idle kept the memory of objects that were gone mapped, until their places were needed.
#[test]
fn an_idle_server_lets_go_of_an_object_as_soon_as_its_client_does() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let (interface, table) = (interface(), Arc::new(Table::default()));
    let _registration = interface.space().register(table.clone());
    let (server, _running) = reach(&interface, &directory, "idle", &table);
    // More than the server lends.
    let len = 2 << 20;
    interface.request(&server, LOOK).out(Out::copy(&pattern(1, len))).send().expect("a reply");
    // It may have been given back by now, since it is free.
    let is_stand_in = |object: &&SharedObject| object.len >= len && object.lender.is_some();
    let stand_in =
        *table.added.lock().iter().find(is_stand_in).expect("something stands in for what is not lent");
    let lender: LenderId = stand_in.lender.expect("the server");
    assert_eq!(interface.space().give_back_stand_ins(lender), 0);
    assert!(!table.objects.lock().contains_key(&stand_in.inode), "the registrar was told");
    let inode = format!(" {}", stand_in.inode.number);
    let is_mapped = || {
        let mut objects = mappings_of(std::process::id()).into_iter().filter_map(|mapping| mapping.object);
        objects.any(|object| object.ends_with(&inode))
    };
    let start = Instant::now();
    while is_mapped() {
        assert!(start.elapsed() < Duration::from_secs(60), "the server still has it");
        thread::sleep(Duration::from_millis(1));
    }
    // What is announced in its place is another object, and the channel is as good as before.
    interface.request(&server, LOOK).out(Out::copy(&pattern(2, len))).send().expect("a reply");
}
