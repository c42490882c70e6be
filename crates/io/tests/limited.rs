//! Processes that may not have much: clients and servers in memory cgroups, which kill where a limit is met.
//!
//! How: the test binary is run once more for each client and server, in a cgroup that the test makes. That takes root, and a
//! hierarchy in which cgroups can be made.
//!
//! A test binary of its own, since all that a process maps counts against its cgroup's limit.

mod cgroup;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use genie_io::channel::directory::Directory;
use genie_io::channel::{ConnectOptions, Listener, ServeOptions};
use genie_io::servers::memory::{FETCH, Memory, STORE};
use genie_io::{In, Interface, Out, ServerHandle};
use genie_passing::Scheme;

use cgroup::Cgroup;

#[path = "../../sys/tests/skip/mod.rs"]
mod skip;

const MIB: usize = 1 << 20;
const NAME: &str = "limited";
/// What a process of the tests is to be, where its files are, and how long its data is.
const ROLE: &str = "GENIE_TEST_ROLE";
const FOLDER: &str = "GENIE_TEST_FOLDER";
const LEN: &str = "GENIE_TEST_LEN";

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
    let mut child = start(&cgroup, "refused", folder.path(), 64);
    assert_eq!(end(&mut child), Some(0));
    assert_eq!(cgroup.kills(), 0);
}

/// Runs a server and a client that pass `len` bytes both ways by every native scheme.
#[track_caller]
fn passes(servers: &Cgroup, clients: &Cgroup, len: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = start(servers, "server", folder.path(), len);
    let mut client = start(clients, "client", folder.path(), len);
    let ended = end(&mut client);
    let is_alive = server.try_wait().expect("the server's state").is_none();
    // The server ends with its standard input.
    drop(server.stdin.take());
    let server = end(&mut server);
    assert_eq!((servers.kills(), clients.kills()), (0, 0), "server: {server:?}, client: {ended:?}");
    assert_eq!((ended, is_alive, server), (Some(0), true, Some(0)));
}

/// Runs this binary again, in a cgroup from its first instruction on.
fn start(cgroup: &Cgroup, role: &str, folder: &Path, len: usize) -> Child {
    let mut program = Command::new("sh");
    let binary = std::env::current_exe().expect("the test's own path");
    program.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(cgroup.entrance()).arg(binary);
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
    let (folder, len) = (set(FOLDER), set(LEN).parse().expect("a length"));
    let directory = Directory::at(Path::new(&folder)).expect("a directory");
    match set(ROLE).as_str() {
        "server" => serve(&directory),
        "client" => client(&directory, len),
        "refused" => refused(),
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
    let deadline = Instant::now() + Duration::from_secs(60);
    let server = loop {
        match genie.connect_with(directory, NAME, &ConnectOptions::default()) {
            Ok(server) => break server,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    for scheme in [Scheme::EmulatedCopy, Scheme::Copy, Scheme::EmulatedShare, Scheme::Share] {
        pass(&genie, &server, scheme, len);
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
