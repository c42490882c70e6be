//! Processes that may not have or do much: clients and servers in memory cgroups, which kill where a limit is met, and under
//! system call filters.
//!
//! How: the test binary is run once more for each client and server, in a cgroup that the test makes, which takes root and a
//! hierarchy in which cgroups can be made, or with calls that it gives up.
//!
//! Or they are stopped for a while, or can have no more threads.
//!
//! A test binary of its own, since all that a process maps counts against its cgroup's limit.
#![allow(unsafe_code, reason = "gives up root's user, for the limit of threads does not bind it")]

mod cgroup;
#[path = "limited/no_threads.rs"]
mod no_threads;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions, Serving};
use genie_io::servers::memory::{FETCH, Memory, STORE};
use genie_io::{Error, In, Incoming, Interface, Out, RequestId, Server, ServerHandle, Service, ServiceId};
use genie_passing::Scheme;
use genie_sys::lock::Mutex;
use genie_sys::{Arena, GranuleKind, Object};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, getuid, kill_process, setrlimit, waitpid,
};

use cgroup::Cgroup;

#[path = "../../sys/tests/seccomp/mod.rs"]
mod seccomp;
#[path = "../../sys/tests/skip/mod.rs"]
mod skip;

const MIB: usize = 1 << 20;
const NAME: &str = "limited";
/// What a process of the tests is to be, where its files are, and how long its data is.
const ROLE: &str = "GENIE_TEST_ROLE";
const FOLDER: &str = "GENIE_TEST_FOLDER";
const LEN: &str = "GENIE_TEST_LEN";
/// The system calls that the process does without, by number, after the errno with which they fail.
const WITHOUT: &str = "GENIE_TEST_WITHOUT";

/// Once, passing 64 bytes took 43 MiB, and cgroups of 16 to 32 MiB were killed.
#[test]
fn sixty_four_bytes_are_passed_both_ways_in_16_mib_each() {
    let test = "sixty_four_bytes_are_passed_both_ways_in_16_mib_each";
    for limit in [16 * MIB, 32 * MIB] {
        let (Some(servers), Some(clients)) = (Cgroup::make(test, limit), Cgroup::make(test, limit)) else {
            return;
        };
        passes(&servers, &clients, 64);
        println!("of {limit}: the server took {}, the client {}", servers.peak(), clients.peak());
    }
}

/// Once, a cgroup of 128 MiB was killed for two buffers of 16 MiB.
#[test]
fn buffers_of_16_mib_are_passed_by_every_native_scheme_in_128_mib_for_both_sides() {
    let test = "buffers_of_16_mib_are_passed_by_every_native_scheme_in_128_mib_for_both_sides";
    let Some(both) = Cgroup::make(test, 128 * MIB) else { return };
    passes(&both, &both, 16 * MIB);
    println!("both took {}", both.peak());
}

/// What does not fit is refused, by an error that names the cgroup; the client lives, and passes what fits.
#[test]
fn a_buffer_that_the_cgroup_has_no_room_for_is_refused() {
    let test = "a_buffer_that_the_cgroup_has_no_room_for_is_refused";
    let Some(cgroup) = Cgroup::make(test, 48 * MIB) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = run(&mut within(&cgroup), "refused", folder.path(), 64);
    assert_eq!(end(&mut child), Some(0));
    assert_eq!(cgroup.kills(), 0);
}

/// Once, mere connections had the server killed: the 38th in 64 MiB, the 101st in 256 MiB.
#[test]
fn clients_that_the_servers_cgroup_has_no_room_for_are_refused() {
    let test = "clients_that_the_servers_cgroup_has_no_room_for_are_refused";
    for limit in [32 * MIB, 64 * MIB] {
        let Some(cgroup) = Cgroup::make(test, limit) else { return };
        let ends = ends(within(&cgroup), Command::new(binary()), "crowd", 64);
        assert_eq!(cgroup.kills(), 0, "{ends:?}");
        assert_eq!(ends, [Some(0), Some(0)]);
        println!("of {limit}: the server took {}", cgroup.peak());
    }
}

/// Runs a server and a client that pass `len` bytes both ways by every native scheme.
#[track_caller]
fn passes(servers: &Cgroup, clients: &Cgroup, len: usize) {
    let ends = ends(within(servers), within(clients), "client", len);
    assert_eq!((servers.kills(), clients.kills()), (0, 0), "{ends:?}");
    assert_eq!(ends, [Some(0), Some(0)]);
}

/// Runs a server and a client, and says how they end.
fn ends(mut server: Command, mut client: Command, role: &str, len: usize) -> [Option<i32>; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = run(&mut server, "server", folder.path(), len);
    let client = end(&mut run(&mut client, role, folder.path(), len));
    assert!(server.try_wait().expect("the server's state").is_none(), "the server has ended");
    // The server ends with its standard input.
    drop(server.stdin.take());
    [end(&mut server), client]
}

/// What a client or a server needs no more than a slower way for.
const DISPENSABLE: [i64; 3] = [libc::SYS_madvise, libc::SYS_fallocate, libc::SYS_flock];

/// Once, opening an interface failed without any of these, and serving without flock.
#[test]
fn without_madvise_fallocate_and_flock_data_passes_both_ways() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        for len in [64, 4 * MIB] {
            let [server, client] = [without(&DISPENSABLE, errno), without(&DISPENSABLE, errno)];
            assert_eq!(ends(server, client, "client", len), [Some(0), Some(0)], "errno {errno}, {len} bytes");
        }
    }
}

/// As in most containers.
#[test]
fn without_userfaultfd_and_io_uring_data_passes_both_ways() {
    let calls = [libc::SYS_userfaultfd, libc::SYS_io_uring_setup];
    let [server, client] = [without(&calls, libc::EPERM), without(&calls, libc::EPERM)];
    assert_eq!(ends(server, client, "client", 4 * MIB), [Some(0), Some(0)]);
}

/// A space of the default limit does not fit there; a smaller one does.
#[test]
fn where_addresses_are_limited_data_passes_both_ways() {
    let limited = || {
        let mut program = Command::new("sh");
        program.args(["-c", "ulimit -v 4000000 && exec \"$@\"", "sh"]).arg(binary());
        program
    };
    assert_eq!(ends(limited(), limited(), "client", 64), [Some(0), Some(0)]);
}

/// Once, the remedy was more mappings.
#[test]
fn where_addresses_are_used_up_the_error_names_their_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(end(&mut run(&mut Command::new(binary()), "no addresses", folder.path(), 64)), Some(0));
}

/// Only memfds can be sealed, so that a peer may map them: without them, the error says so. Once, it advised huge pages.
#[test]
fn without_memfd_create_the_error_names_the_filter() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = without(&[libc::SYS_memfd_create], libc::EPERM);
    assert_eq!(end(&mut run(&mut program, "no memfd", folder.path(), 64)), Some(0));
}

/// Replies bear no time: see `Request::timeout`.
#[test]
fn a_success_that_comes_while_its_client_is_stopped_in_a_send_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = Directory::at(folder.path()).expect("a directory");
    let (sender, receiver) = channel();
    let listener = Listener::bind_in(&directory, NAME, Handing(Mutex::new(sender)), ServeOptions::default());
    let _running = listener.and_then(Serving::start).expect("a server");
    let mut client = run(&mut Command::new(binary()), "stopped", folder.path(), 0);
    let request = receiver.recv_timeout(Duration::from_secs(60)).expect("a request");
    let pid = Pid::from_child(&client);
    kill_process(pid, Signal::STOP).expect("a child");
    waitpid(Some(pid), WaitOptions::UNTRACED).expect("a child that stops");
    std::thread::sleep(STOPPED_TIMEOUT);
    request.reply(Ok(()));
    kill_process(pid, Signal::CONT).expect("a child");
    assert_eq!(end(&mut client), Some(0));
}

/// How long the request of a client may take that is then stopped.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(2);

/// A server that hands its requests to the test.
struct Handing(Mutex<Sender<Incoming>>);

impl Server for Handing {
    fn name(&self) -> &str {
        NAME
    }

    fn services(&self) -> &[Service] {
        static SERVICES: [Service; 1] = [Service::new("ask", false, false)];
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.lock().send(request).expect("a test");
    }

    fn abort(&self, _request: RequestId) {}
}

/// The timer, and the thread that ends a channel's requests, ran continuations that cost much, and waited in them; and those that followed
/// from one another were run inside one another, until there was no stack left.
#[test]
fn where_no_thread_can_be_made_continuations_hold_up_no_thread_of_genies_and_do_not_pile_up() {
    let folder = tempfile::tempdir().expect("a folder");
    match end(&mut run(&mut Command::new(binary()), "no threads", folder.path(), 0)) {
        Some(NOT_LIMITED) => skip::skip(
            "where_no_thread_can_be_made_continuations_hold_up_no_thread_of_genies_and_do_not_pile_up",
            "the number of threads cannot be limited",
        ),
        ended => assert_eq!(ended, Some(0)),
    }
}

/// How a process ends that can have as many threads as it likes.
const NOT_LIMITED: i32 = 77;

/// This binary in a cgroup from its first instruction on.
fn within(cgroup: &Cgroup) -> Command {
    let mut program = Command::new("sh");
    program.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(cgroup.entrance()).arg(binary());
    program
}

/// This binary without some system calls.
fn without(calls: &[i64], errno: i32) -> Command {
    let mut program = Command::new(binary());
    let numbers: Vec<_> = calls.iter().map(i64::to_string).collect();
    program.env(WITHOUT, format!("{errno} {}", numbers.join(" ")));
    program
}

fn binary() -> PathBuf {
    std::env::current_exe().expect("the test's own path")
}

/// Runs this binary once more.
fn run(program: &mut Command, role: &str, folder: &Path, len: usize) -> Child {
    program.args(["process", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    program.env(ROLE, role).env(FOLDER, folder).env(LEN, len.to_string());
    program.env("GENIE_CACHE_DIR", folder.join(role)).stdin(Stdio::piped()).stdout(Stdio::null());
    program.spawn().expect("a process")
}

/// How the process ended; nothing if a signal killed it.
fn end(process: &mut Child) -> Option<i32> {
    process.wait().expect("the end of a process").code()
}

#[test]
#[ignore = "is run by the tests, as another process"]
fn process() {
    let set = |name| std::env::var(name).expect("what the test has set");
    if let Ok(without) = std::env::var(WITHOUT) {
        let numbers: Vec<i64> = without.split(' ').map(|number| number.parse().expect("a number")).collect();
        seccomp::refuse(&numbers[1..], numbers[0] as i32);
    }
    let (folder, len) = (set(FOLDER), set(LEN).parse().expect("a length"));
    let directory = Directory::at(Path::new(&folder)).expect("a directory");
    match set(ROLE).as_str() {
        "server" => serve(&directory),
        "client" => client(&directory, len),
        "crowd" => crowd(&directory, len),
        "refused" => refused(),
        "stopped" => stopped(&directory),
        "no addresses" => no_addresses(),
        "no memfd" => {
            let error = Interface::open().map(drop).expect_err("no memory can be shared").to_string();
            assert!(error.contains("memfd_create") && error.contains("seccomp"), "{error}");
            assert!(!error.contains("huge pages need"), "{error}");
        }
        "no threads" => no_threads::continuations(&directory),
        role => panic!("no role: {role}"),
    }
}

fn serve(directory: &Directory) {
    let listener = Listener::claim_in(directory, NAME, ServeOptions::default()).expect("the name");
    let running = listener.serve(Memory::customized()).and_then(|serving| serving.start()).expect("a server");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("the end of the input");
    drop(running);
}

fn client(directory: &Directory, len: usize) {
    let genie = Interface::open().expect("an interface");
    let server = reach(&genie, directory);
    for scheme in [Scheme::EmulatedCopy, Scheme::Copy, Scheme::EmulatedShare, Scheme::Share] {
        pass(&genie, &server, scheme, len);
    }
}

/// Connects to the server as soon as that can be.
fn reach(genie: &Interface, directory: &Directory) -> ServerHandle {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match connect(genie, directory) {
            Ok(server) => return server,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn connect(genie: &Interface, directory: &Directory) -> Result<ServerHandle, Error> {
    genie.connect_with(directory, NAME, &ConnectOptions::default())
}

/// Connects until it is refused: those that were not are served, and one that leaves makes room for another.
fn crowd(directory: &Directory, len: usize) {
    let genie = Interface::open().expect("an interface");
    let mut servers = vec![reach(&genie, directory)];
    let refused = loop {
        match connect(&genie, directory) {
            Ok(server) => servers.push(server),
            Err(error) => break error,
        }
    };
    eprintln!("{} connections: {refused}", servers.len());
    assert!(
        matches!(refused, Error::Busy { .. }) && refused.to_string().contains("memory cgroup"),
        "{refused}"
    );
    assert!(servers.len() > 10, "{} connections", servers.len());
    servers.iter().for_each(|server| pass(&genie, server, Scheme::EmulatedCopy, len));
    servers.truncate(5);
    pass(&genie, &reach(&genie, directory), Scheme::EmulatedCopy, len);
}

/// Waits for a reply, and is stopped meanwhile.
fn stopped(directory: &Directory) {
    let genie = Interface::open().expect("an interface");
    let server = reach(&genie, directory);
    let request = genie.request(&server, ServiceId(0)).timeout(STOPPED_TIMEOUT);
    request.send().expect("the reply that is there");
}

/// Does this where the process can have no more threads.
fn without_threads<T>(act: impl FnOnce() -> T) -> T {
    // The limit does not bind root.
    // SAFETY: the process's user becomes nobody, in all its threads. What it has stays.
    if getuid().is_root() && unsafe { libc::setresuid(65_534, 65_534, 65_534) } != 0 {
        std::process::exit(NOT_LIMITED);
    }
    let usual = getrlimit(Resource::Nproc);
    setrlimit(Resource::Nproc, Rlimit { current: Some(0), ..usual }).expect("a limit");
    if std::thread::Builder::new().spawn(|| ()).is_ok() {
        std::process::exit(NOT_LIMITED);
    }
    let done = act();
    setrlimit(Resource::Nproc, usual).expect("the usual limit");
    done
}

fn no_addresses() {
    let (arena, object) = (Arena::reserve(2 * MIB), Object::create(GranuleKind::Base, 2 * MIB));
    let (arena, object) = (arena.expect("addresses"), object.expect("an object"));
    let usual = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(0), ..usual }).expect("a limit");
    let errors = [arena.map(0, &object, 0, 2 * MIB), arena.map_unfilled(0, &object, 0, 2 * MIB)];
    setrlimit(Resource::As, usual).expect("the usual limit");
    for error in errors.map(|mapped| mapped.expect_err("no addresses").to_string()) {
        assert!(error.contains("`ulimit -v`"), "{error}");
    }
}

/// Has the server keep data, and give it back.
fn pass(genie: &Interface, server: &ServerHandle, scheme: Scheme, len: usize) {
    let nth = |at: usize| (at * 7 + at / 4096 + scheme as usize) as u8;
    let mut data = genie.allocate(len).expect("a buffer");
    data.iter_mut().enumerate().for_each(|(at, byte)| *byte = nth(at));
    let request = genie.request(server, STORE).argument(b"data");
    let is_shared = matches!(scheme, Scheme::Share | Scheme::EmulatedShare);
    let mut data = if is_shared {
        let reply = request.out(Out::owned(scheme, data)).send();
        reply.unwrap_or_else(|failed| panic!("{scheme} out: {failed}")).take_buffer().expect("the buffer")
    } else {
        let element = if scheme == Scheme::Copy { Out::copy(&data) } else { Out::emulated_copy(&data) };
        request.out(element).send().unwrap_or_else(|failed| panic!("{scheme} out: {failed}"));
        data
    };
    data.fill(0);
    let request = genie.request(server, FETCH).argument(b"data");
    if is_shared {
        let reply = request.input(In::owned(scheme, data)).send();
        data =
            reply.unwrap_or_else(|failed| panic!("{scheme} in: {failed}")).take_buffer().expect("the buffer");
    } else {
        let element = if scheme == Scheme::Copy { In::copy(&mut data) } else { In::emulated_copy(&mut data) };
        request.input(element).send().unwrap_or_else(|failed| panic!("{scheme} in: {failed}"));
    }
    let wrong = data.iter().enumerate().find(|(at, byte)| **byte != nth(*at));
    assert_eq!(wrong, None, "{scheme}: a wrong byte came back");
}

fn refused() {
    let genie = Interface::open().expect("an interface");
    let error = genie.allocate(40 * MIB).expect_err("more than there is").to_string();
    assert!(error.starts_with("41943040 bytes exceed the limit of"), "{error}");
    let first = genie.allocate(20 * MIB).expect("a buffer");
    let error = genie.allocate(20 * MIB).expect_err("more than is left").to_string();
    assert!(error.contains("where the memory cgroup /") || error.contains("do not fit"), "{error}");
    drop(first);
    let kept: Vec<_> = std::iter::from_fn(|| genie.allocate(2 * MIB).ok()).take(100).collect();
    assert!((3..24).contains(&kept.len()), "{} buffers of 2 MiB in 48 MiB", kept.len());
    drop(kept);
    let server = ServerHandle::new(Memory::customized());
    pass(&genie, &server, Scheme::EmulatedCopy, 4096);
}
