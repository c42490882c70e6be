//! The examples, run as their users run them: each in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use genie::channel::{ConnectOptions, Directory, Listener, ServeOptions};
use genie::{Connect, Error, Interface, Out, ServiceId, file};
use rustix::process::{Pid, Signal, kill_process};

/// A program that is killed when the test is over.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where cargo has put an example when it built this test; not where only this test was asked for.
fn example(test: &str, name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().expect("a path");
    let folder = own.ancestors().nth(2).expect("this is in target/PROFILE/deps").join("examples");
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    let line = format!("SKIP {test}: {} is not built; run all tests of the crate", path.display());
    eprintln!("{line}");
    if let Some(log) = std::env::var_os("GENIE_SKIP_LOG").filter(|log| !log.is_empty()) {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(log);
        log.and_then(|mut log| writeln!(log, "{line}")).expect("the SKIP log can be written");
    }
    None
}

fn command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("GENIE_RUNTIME_DIR", directory).stdin(Stdio::null());
    command
}

/// Starts a server, and waits until it can be found.
fn start(program: &Path, directory: &Path, name: &str) -> Running {
    let mut server = Running(command(program, directory).stdout(Stdio::null()).spawn().expect("a process"));
    await_server(&mut server, directory, name);
    server
}

fn await_server(server: &mut Running, directory: &Path, name: &str) {
    let options = ConnectOptions { wait: Duration::from_secs(60), ..ConnectOptions::default() };
    let directory = Directory::at(directory).expect("a directory");
    let connected = Interface::open().expect("an interface").connect_with(&directory, name, &options);
    connected.unwrap_or_else(|error| panic!("{name} does not serve: {error}; {:?}", server.0.try_wait()));
}

#[track_caller]
fn printed(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {err}", output.status);
    out.into_owned()
}

#[test]
fn a_client_and_a_server_pass_a_text_between_processes() {
    let test = "a_client_and_a_server_pass_a_text_between_processes";
    let (Some(server), Some(client)) = (example(test, "server"), example(test, "client")) else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("run");
    let _serving = start(&server, &directory, "capitals");
    let printed = printed(&command(&client, &directory).output().expect("a process"));
    assert!(printed.contains("out: emulated copy"), "{printed}");
    assert!(printed.contains("in: emulated copy"), "{printed}");
    assert!(printed.contains("8388608 bytes came back, in capitals"), "{printed}");
    assert!(printed.contains("WHATEVER THE CLIENT STORES NEXT"), "{printed}");
}

#[test]
fn a_picture_of_a_library_is_passed_without_copying() {
    let Some(image) = example("a_picture_of_a_library_is_passed_without_copying", "image") else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let printed = printed(&command(&image, scratch.path()).output().expect("a process"));
    assert!(printed.contains("out: emulated copy: 0 bytes copied, 4096 granules referenced"), "{printed}");
    // Whether input is swapped depends on what copying costs here.
    assert!(printed.contains("the pictures are the same"), "{printed}");
}

#[test]
fn an_event_loop_polls_a_few_times_for_all_its_replies() {
    let test = "an_event_loop_polls_a_few_times_for_all_its_replies";
    let (Some(server), Some(client)) = (example(test, "server"), example(test, "event_loop")) else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("run");
    let _serving = start(&server, &directory, "capitals");
    let printed = printed(&command(&client, &directory).output().expect("a process"));
    for letter in 'A'..='D' {
        assert!(printed.contains(&format!("2097152 bytes came back, all {letter}")), "{printed}");
    }
    let polls = printed.lines().find_map(|line| line.strip_suffix(" polls")).expect("how many");
    let polls: u32 = polls.parse().expect("a number");
    // At most one for each reply, one for the descriptor's first signal, and few for signals that came after their replies.
    assert!(polls <= 10, "{polls} polls for four replies");
}

#[test]
fn a_server_passes_data_on_to_a_file_server_without_copying_it() {
    let test = "a_server_passes_data_on_to_a_file_server_without_copying_it";
    let Some(pack) = example(test, "pack") else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let (run, root) = (scratch.path().join("run"), scratch.path().join("files"));
    std::fs::create_dir(&root).expect("a directory");
    let directory = Directory::at(&run).expect("a run-time directory");
    let options = ServeOptions { pool: 8 << 20, ..ServeOptions::default() };
    let files = file::File::open(&root, 1 << 20).expect("a file server");
    let _files =
        Listener::bind_in(&directory, "files", files, options).expect("a name").start().expect("threads");
    let mut packing = command(&pack, &run);
    let mut packing = Running(packing.arg("files").stdout(Stdio::piped()).spawn().expect("a process"));
    await_server(&mut packing, &run, "pack");

    let genie = Interface::open().expect("an interface");
    let server = genie.connect_with(&directory, "pack", &ConnectOptions::default()).expect("a connection");
    let service = server.service("pack").expect("its service");
    let mut data = genie.allocate(4 << 20).expect("memory");
    data.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 3) as u8);
    genie
        .request(&server, service)
        .out(Out::emulated_copy(&data))
        .argument(b"packed")
        .send()
        .expect("a reply");
    drop(server);

    let stored = std::fs::read(root.join("packed")).expect("the file");
    assert_eq!(stored[..16], *b"        4194304\n");
    assert!(stored[16..] == data[..], "the file holds what the client passed");
    let mut printed = String::new();
    let stdout = packing.0.stdout.as_mut().expect("a pipe");
    BufReader::new(stdout).read_line(&mut printed).expect("a line");
    assert_eq!(printed, "4194304 bytes forwarded, 16 copied\n");
}

/// What the maker says goes through the contractor, and so does that the client has enough.
#[test]
fn a_contractor_passes_progress_and_giving_up_on_and_finds_its_server_again() {
    let test = "a_contractor_passes_progress_and_giving_up_on_and_finds_its_server_again";
    let Some(contractor) = example(test, "contractor") else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let begin = |role: &str| {
        let mut server = command(&contractor, scratch.path());
        let mut server = Running(server.arg(role).stdout(Stdio::null()).spawn().expect("a process"));
        await_server(&mut server, scratch.path(), role);
        server
    };
    let ask = || command(&contractor, scratch.path()).arg("client").output().expect("a process");
    let (maker, _contractor) = (begin("maker"), begin("contractor"));
    let printed = printed(&ask());
    assert!(printed.contains("of 4194304 bytes came\n"), "{printed}");
    drop(maker);
    let _maker = begin("maker");
    // The contractor may yet have to notice that the first one has gone.
    assert!((0..10).any(|_| ask().status.success()), "the contractor does not find the second maker");
}

#[test]
fn a_client_without_a_server_says_so() {
    let test = "a_client_without_a_server_says_so";
    let Some(client) = example(test, "client") else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let output = command(&client, &scratch.path().join("run")).output().expect("a process");
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("capitals"), "{error}");
}

#[test]
fn a_server_ends_in_good_order_at_a_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        let Some(program) = example("a_server_ends_in_good_order_at_a_signal", "server") else { return };
        let scratch = tempfile::tempdir().expect("a directory");
        let mut server = start(&program, scratch.path(), "capitals");
        let genie = Interface::open().expect("an interface");
        let directory = Directory::at(scratch.path()).expect("a run-time directory");
        let handle =
            genie.connect_with(&directory, "capitals", &ConnectOptions::default()).expect("a server");
        let pid = Pid::from_child(&server.0);
        kill_process(pid, signal).expect("a child");
        assert!(server.0.wait().expect("a child").success(), "{signal:?} ended it, and no error");
        assert!(!scratch.path().join("capitals").exists(), "its socket is gone");
        let error = genie.request(&handle, ServiceId(0)).send().expect_err("nobody serves").error;
        assert!(matches!(&error, Error::Gone { why, .. } if why.contains("stopped")), "{error}");
    }
}

#[test]
fn typed_calls_are_measured_beside_untyped_requests() {
    let Some(typed) = example("typed_calls_are_measured_beside_untyped_requests", "typed") else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let printed = printed(&command(&typed, scratch.path()).arg("1").output().expect("a process"));
    assert_eq!(printed.matches("1 MiB out").count(), 2, "{printed}");
}

#[test]
fn frames_come_back_from_a_studio_that_is_killed_on_the_way() {
    let Some(frames) = example("frames_come_back_from_a_studio_that_is_killed", "frames") else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let printed =
        printed(&command(&frames, scratch.path()).args(["8", "100000"]).output().expect("a process"));
    for line in
        ["8 frames of 100000 bytes there and back", "by a Unix socket", "of four tasks", "were sent again"]
    {
        assert!(printed.contains(line), "{line}: {printed}");
    }
}

#[test]
fn datagrams_go_to_another_process_and_come_back() {
    let Some(datagrams) = example("datagrams_go_to_another_process_and_come_back", "datagrams") else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let printed = printed(&command(&datagrams, scratch.path()).output().expect("a process"));
    assert!(printed.contains("100 datagrams of 8192 bytes there and back; "), "{printed}");
}
