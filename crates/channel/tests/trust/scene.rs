//! The scene of an attack: honest peers, and counts of descriptors, mappings and threads.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions};
use genie_io::servers::memory::{FETCH, STORE};
use genie_io::{In, Interface, Limits, Out, ServerHandle};
use genie_memory::{Config, Granularity, GranuleKind, Space};
use genie_passing::{Costs, Passing, Thresholds};
use genie_sys::lock::{Mutex, MutexGuard};

use crate::attacked::AttackedServer;
use crate::attacker::Attacker;
use crate::support::bytes::pattern;
use crate::support::machine::proc;

/// The name of the server under attack, or of the honest one.
pub(crate) const HONEST: &str = "honest";

/// One attack runs at a time, so that each can compare what the process has before and after it.
static TURN: Mutex<()> = Mutex::new(());

/// An honest server and its honest client.
pub(crate) struct Scene {
    honest: ServerHandle,
    interface: Interface,
    running: Running,
    attacked: AttackedServer,
    before: Footprint,
    files: Vec<PathBuf>,
    pub(crate) directory: Directory,
    _scratch: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// What there is of this process.
#[derive(Debug)]
struct Footprint {
    descriptors: usize,
    /// Memory objects that are mapped. Not their mappings: free addresses keep those that page tables were swapped through, at
    /// places that depend on what else was allocated.
    objects: usize,
    /// The lengths of mappings as long as arenas are.
    arenas: Vec<usize>,
    threads: Vec<String>,
}

impl Scene {
    pub(crate) fn open() -> Self {
        Self::open_with(ServeOptions::default())
    }

    pub(crate) fn open_with(options: ServeOptions) -> Self {
        let turn = TURN.lock();
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
        let pool = options.hard_pool.min(2 << 20);
        let options = ServeOptions { pool, hard_pool: pool, ..options };
        let attacked = AttackedServer::default();
        let serving = Listener::bind_in(&directory, HONEST, attacked.clone(), options).expect("a name");
        let running = serving.start().expect("threads");
        let interface = interface();
        let honest = connect(&interface, &directory, HONEST).expect("a connection");
        for round in 0..3 {
            store_and_fetch(&interface, &honest, round);
            let passing = connect(&interface, &directory, HONEST).expect("a connection");
            store_and_fetch(&interface, &passing, round);
        }
        let mut scene = Self {
            honest,
            interface,
            running,
            attacked,
            before: Footprint::now(),
            files: Vec::new(),
            directory,
            _scratch: scratch,
            _turn: turn,
        };
        scene.await_clients(1);
        scene.files = scene.files();
        // The threads of ended channels end a little later, and only then is what they held given back.
        eventually("one channel", || {
            match Footprint::now().threads.iter().filter(|name| *name == "genie-link\n").count() {
                1 => Ok(()),
                links => Err(format!("{links} channels")),
            }
        });
        scene.before = Footprint::now();
        scene
    }

    /// The honest client's.
    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The honest server, as the honest client has it.
    pub(crate) fn honest(&self) -> &ServerHandle {
        &self.honest
    }

    pub(crate) fn attacked(&self) -> &AttackedServer {
        &self.attacked
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// The honest client and server go on as before, over their channel and new ones.
    #[track_caller]
    pub(crate) fn goes_on(&self) {
        store_and_fetch(&self.interface, &self.honest, 7);
        let new = connect(&self.interface, &self.directory, HONEST).expect("another connection");
        store_and_fetch(&self.interface, &new, 8);
    }

    /// They go on, and nothing is left of the attacker.
    #[track_caller]
    pub(crate) fn is_unharmed(&self) {
        self.goes_on();
        self.attacked.let_go();
        self.await_clients(1);
        let usage = self.interface.space().check().unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!((self.interface.pending_bytes(), usage.references), (0, 0), "{usage:?}");
        eventually("no more than before", || match Footprint::now() {
            now if now.is_within(&self.before) => Ok(()),
            now => Err(format!("{now:#?}\nwas {:#?}", self.before)),
        });
        assert_eq!(self.files(), self.files, "files in the run-time directory");
    }

    /// The same once the attacker has been killed.
    #[track_caller]
    pub(crate) fn survives(&self, attacker: Attacker) {
        attacker.kill();
        self.is_unharmed();
    }

    #[track_caller]
    pub(crate) fn await_clients(&self, count: u32) {
        eventually(&format!("{count} clients"), || match self.running.status() {
            status if status.clients_total == count => Ok(()),
            status => Err(format!("{status:?}")),
        });
    }

    fn files(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.directory.path()).expect("a directory");
        let mut all: Vec<PathBuf> = all.map(|entry| entry.expect("an entry").path()).collect();
        // An attacker that was killed leaves its own.
        all.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(HONEST)));
        all.sort();
        all
    }
}

impl Footprint {
    fn now() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
        let len = |line: &str| {
            let (start, end) = line.split_whitespace().next()?.split_once('-')?;
            Some(usize::from_str_radix(end, 16).ok()? - usize::from_str_radix(start, 16).ok()?)
        };
        let mut arenas: Vec<usize> = maps.lines().filter_map(len).filter(|len| *len >= 1 << 28).collect();
        arenas.sort_unstable();
        let inode = |line: &str| line.split_whitespace().nth(4).map(str::to_owned);
        // Workers that relieved others stay.
        let mut threads: Vec<String> =
            threads("genie").into_iter().filter(|name| name != "genie-worker\n").collect();
        threads.sort();
        Self {
            descriptors: proc::open_descriptors(),
            objects: maps
                .lines()
                .filter(|line| line.contains("/memfd:"))
                .filter_map(inode)
                .collect::<BTreeSet<_>>()
                .len(),
            arenas,
            threads,
        }
    }

    /// Whether there is no more than there was. There may be less: on a busy machine something of the scene before, or of
    /// this one's first connections, may have been there still.
    fn is_within(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.objects <= before.objects
            && self.arenas.len() <= before.arenas.len()
            && self.threads.len() <= before.threads.len()
    }
}

/// The names of this process's threads that start with `prefix`.
pub(crate) fn threads(prefix: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted").filter_map(Result::ok);
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> Result<(), String>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(instead) = is_so() {
        assert!(Instant::now() < deadline, "{what}, after a while: {instead}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An interface of small granules whose emulated copy never copies whole ones.
pub(crate) fn interface() -> Interface {
    let config =
        Config { granularity: Granularity::Only(GranuleKind::Base), limit: 128 << 20, ..Config::default() };
    let space = Space::new(&config).expect("a space");
    Interface::new(
        Passing::new(space, Costs::default()).with_thresholds(Thresholds::ALWAYS),
        Limits::default(),
    )
}

pub(crate) fn connect(
    interface: &Interface,
    directory: &Directory,
    name: &str,
) -> Result<ServerHandle, genie_io::Error> {
    interface.connect_with(directory, name, &ConnectOptions::default())
}

/// Stores bytes and fetches them, by emulated copy and by copy, and compares.
#[track_caller]
pub(crate) fn store_and_fetch(interface: &Interface, server: &ServerHandle, seed: u64) {
    for len in [100, 300_000] {
        let bytes = pattern(seed, len);
        let mut buffer = interface.allocate(len).expect("memory");
        buffer.copy_from_slice(&bytes);
        let store = interface.request(server, STORE).out(Out::emulated_copy(&buffer));
        store.argument(b"name").send().expect("a reply");
        buffer.fill(0);
        let fetch = interface.request(server, FETCH).input(In::emulated_copy(&mut buffer));
        assert_eq!(fetch.argument(b"name").send().expect("a reply").actual(), len);
        assert!(*buffer == *bytes, "{len} bytes");
    }
}
