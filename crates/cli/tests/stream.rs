//! `genie stream` as a user meets it: what goes in comes out, by whatever ends, and is counted.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::running::{assert_fails_in_one_line, genie, skip, text};
use genie::net::driver::Driver;
use genie::net::namespaces::{End, Pair};
use serde_json::Value;

const LEN: usize = 300_001;

fn bytes() -> Vec<u8> {
    (0..LEN).map(|at| (at * 31 % 251) as u8).collect()
}

fn stream(args: &[&str]) -> Command {
    let mut command = genie(&["stream"]);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn name(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Tries until it can be done.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < end, "{what}: this takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The flow of which a command that has succeeded tells.
fn flow(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    document["flows"][0].clone()
}

fn interrupt(child: Child, signal: &str) -> Output {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    child.wait_with_output().unwrap()
}

#[test]
fn a_file_is_streamed_whole_and_each_copy_counted() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    fs::write(&from, bytes()).unwrap();
    // It was longer.
    fs::write(&to, vec![0; 2 * LEN]).unwrap();
    for (style, copies) in [(None, 3), (Some("--asynchronous"), 4)] {
        let args = [&[name(&from), name(&to), "--json", "--length", "1000"], style.as_slice()].concat();
        let flow = flow(&stream(&args).output().unwrap());
        assert!(fs::read(&to).unwrap() == bytes(), "the file has changed on its way");
        assert_eq!((&flow["packets"], &flow["bytes"]), (&301.into(), &LEN.into()), "{flow}");
        assert_eq!((&flow["copied"], &flow["dropped"]), (&(copies * LEN).into(), &0.into()), "{flow}");
        assert_eq!(flow["over"], true);
    }
}

#[test]
fn standard_output_has_the_data_and_standard_error_the_figures() {
    let mut child = stream(&["-", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || input.write_all(&bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success() && output.stdout == bytes(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("streaming from - to -") && said.contains("packets/s"), "{said}");
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let mut child = stream(&["/dev/zero", "-"]).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [1; 100_000]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn ends_are_waited_for_and_two_flows_run_side_by_side() {
    let place = tempfile::tempdir().unwrap();
    let [fifo, socket, to] = ["fifo", "socket", "to"].map(|name| place.path().join(name));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let [from, tcp] =
        [format!("unix-listen:{}", name(&socket)), format!("tcp:{}", listener.local_addr().unwrap())];
    let child =
        stream(&[name(&fifo), &tcp, &from, name(&to), "--priority", "1,0", "--json"]).spawn().unwrap();
    let mut accepted = listener.accept().unwrap().0;
    let mut client = until("the socket", || UnixStream::connect(&socket).ok());
    let writing = std::thread::spawn(move || File::create(&fifo).unwrap().write_all(&bytes()).unwrap());
    client.write_all(&bytes()).unwrap();
    drop(client);
    let mut came = Vec::new();
    accepted.read_to_end(&mut came).unwrap();
    writing.join().unwrap();
    assert_eq!(flow(&child.wait_with_output().unwrap())["bytes"], LEN);
    assert!(came == bytes() && fs::read(&to).unwrap() == bytes() && !socket.exists());
}

#[test]
fn a_fifo_takes_data_once_it_has_a_reader() {
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let from = format!("tcp-listen:{free}");
    let child = stream(&[&from, name(&fifo), "--asynchronous", "--json"]).spawn().unwrap();
    let mut client = until("the socket", || TcpStream::connect(free).ok());
    client.write_all(&bytes()).unwrap();
    drop(client);
    assert!(fs::read(&fifo).unwrap() == bytes());
    assert_eq!(flow(&child.wait_with_output().unwrap())["bytes"], LEN);
}

#[test]
fn datagrams_stay_whole_until_a_signal_ends_the_flow_with_a_summary() {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let source = UdpSocket::bind("127.0.0.1:0").unwrap();
    for signal in ["-INT", "-TERM"] {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let args = [format!("udp:{free}"), format!("udp:{}", sink.local_addr().unwrap())];
        let child = stream(&[&args[0], &args[1], "--json"]).spawn().unwrap();
        let mut came = [0; 6000];
        sink.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        until("the port", || {
            source.send_to(&[1; 5000], free).unwrap();
            sink.recv(&mut came).ok().filter(|len| *len == 5000)
        });
        let flow = flow(&interrupt(child, signal));
        assert!(flow["packets"].as_u64() > Some(0) && flow["over"] == false, "{flow}");
    }
}

#[test]
fn a_message_longer_than_a_packet_ends_the_flow_and_the_error_names_the_option() {
    use std::os::fd::OwnedFd;
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
    ours.send(&[1; 5000]).unwrap();
    let output = stream(&["-", "/dev/null", "--json"]).stdin(OwnedFd::from(theirs)).output().unwrap();
    let error = text(&output.stderr);
    assert!(
        !output.status.success() && error.contains("4096 bytes") && error.contains("--length"),
        "{error}"
    );
}

#[test]
fn what_waits_for_its_other_end_ends_at_a_signal_too() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let child = stream(&[&format!("unix-listen:{}", name(&socket)), "/dev/null"]).spawn().unwrap();
    until("the socket", || socket.exists().then_some(()));
    let output = interrupt(child, "-INT");
    assert!(output.status.success() && !socket.exists(), "{}", text(&output.stderr));
}

/// The first connection fills the backlog of a listener that accepts none.
#[test]
fn a_listener_that_does_not_accept_is_waited_for_by_name_until_a_signal_comes() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let family = rustix::net::AddressFamily::UNIX;
    let listener = rustix::net::socket(family, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&socket).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&socket).unwrap();
    let from = format!("unix:{}", name(&socket));
    for signal in ["-INT", "-TERM"] {
        let mut child = stream(&[&from, "/dev/null"]).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains(&format!("waiting for {from} to accept")), "{said}");
        assert!(interrupt(child, signal).status.success());
    }
}

#[test]
fn a_killed_listeners_socket_is_taken_over_and_a_live_ones_is_not() {
    let place = tempfile::tempdir().unwrap();
    let [socket, file] = ["socket", "file"].map(|name| place.path().join(name));
    fs::write(&file, "kept").unwrap();
    let from = format!("unix-listen:{}", name(&socket));
    let start = || stream(&[&from, "-"]).spawn().unwrap();
    let killed = start();
    until("the socket", || socket.exists().then_some(()));
    interrupt(killed, "-KILL");
    assert!(socket.exists());
    let child = start();
    until("a listener", || {
        let probe = std::os::unix::net::UnixDatagram::unbound().unwrap().connect(&socket);
        (probe.unwrap_err().kind() != std::io::ErrorKind::ConnectionRefused).then_some(())
    });
    for taken in [from.clone(), format!("unix-listen:{}", name(&file))] {
        let output = stream(&[&taken, "-"]).output().unwrap();
        let error = assert_fails_in_one_line(&output, 1);
        assert!(error.contains("a process has this socket, or it is none"), "{error}");
    }
    // The live one's connection is still to come.
    UnixStream::connect(&socket).unwrap().write_all(b"came").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == b"came", "{}", text(&output.stderr));
    assert!(fs::read(&file).unwrap() == b"kept" && !socket.exists());
}

/// Frames that were taken from one interface are sent by another one; the kernel's sockets are at the other ends.
#[test]
fn frames_come_from_an_interface_and_go_to_one() {
    const NAME: &str = "frames_come_from_an_interface_and_go_to_one";
    let pair = match Pair::new(1500) {
        Ok(pair) => pair,
        Err(unavailable) => return skip(NAME, &unavailable.to_string()),
    };
    let [near, far] = &pair.ends;
    near.offload_checksums(false).unwrap();
    let place = tempfile::tempdir().unwrap();
    for (driver, by) in [(Driver::PacketSocket, "packet"), (Driver::Xdp, "xdp")] {
        let frames = place.path().join(by);
        let at = |end: &End, args: &[&str]| {
            let mut command = stream(args);
            command.args(["--driver", by, "--json"]);
            end.namespace.enter(|| command.spawn().unwrap())
        };
        let mut child = at(far, &["net:genie1:4000", name(&frames)]);
        let sender = near.namespace.enter(|| UdpSocket::bind((near.v4, 0)).unwrap());
        let is_refused = until("the first frame", || {
            // Nobody has the port, at first.
            let _ = sender.send_to(&[7; 958], (far.v4, 4000));
            let has_ended = child.try_wait().unwrap().is_some();
            (has_ended || fs::metadata(&frames).is_ok_and(|file| file.len() > 0)).then_some(has_ended)
        });
        if is_refused {
            let error = assert_fails_in_one_line(&child.wait_with_output().unwrap(), 1);
            assert_ne!(driver, Driver::PacketSocket, "{error}");
            skip(NAME, &error);
            continue;
        }
        for _ in 0..50 {
            sender.send_to(&[7; 958], (far.v4, 4000)).unwrap();
        }
        until("all frames", || (fs::metadata(&frames).unwrap().len() >= 50_000).then_some(()));
        let taken = flow(&interrupt(child, "-INT"));
        let bytes = fs::metadata(&frames).unwrap().len();
        assert_eq!((&taken["bytes"], bytes % 1000), (&bytes.into(), 0), "{taken}");
        let receiver = far.namespace.enter(|| UdpSocket::bind((far.v4, 4000)).unwrap());
        receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let sent =
            flow(&at(near, &[name(&frames), "net:genie0", "--length", "1000"]).wait_with_output().unwrap());
        assert_eq!((&sent["bytes"], &sent["dropped"]), (&bytes.into(), &0.into()), "{sent}");
        for _ in 0..bytes / 1000 {
            let mut came = [0; 2000];
            assert_eq!(receiver.recv(&mut came).unwrap(), 958);
            assert_eq!(came[..958], [7; 958]);
        }
    }
}

#[test]
fn what_cannot_be_streamed_is_said_in_one_line() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "kept").unwrap();
    let refused = |args: &[&str], status| assert_fails_in_one_line(&stream(args).output().unwrap(), status);
    let error = refused(&[name(&file), &format!("{}/./file", name(place.path()))], 2);
    assert!(error.contains("are one file") && fs::read(&file).unwrap() == b"kept", "{error}");
    let (other, new) = (place.path().join("other"), place.path().join("new"));
    fs::write(&other, "kept").unwrap();
    for ends in [[&file, &other, &other, &file], [&file, &new, &other, &new]] {
        let error = refused(&ends.map(|end| name(end)), 2);
        assert!(error.contains("are one file"), "{error}");
    }
    let appending = fs::OpenOptions::new().append(true).open(&file).unwrap();
    let error = assert_fails_in_one_line(&stream(&[name(&file), "-"]).stdout(appending).output().unwrap(), 2);
    assert!(
        error.contains("are one file") && [&file, &other].map(|file| fs::read(file).unwrap()) == [b"kept"; 2],
        "{error}"
    );
    let error = refused(&["missing", "/dev/null"], 1);
    assert!(error.contains("missing cannot be opened: No such file"), "{error}");
    let error = refused(&["tcp:127.0.0.1:1", "/dev/null"], 1);
    assert!(error.contains("tcp:127.0.0.1:1 cannot be opened: Connection refused"), "{error}");
    let error = refused(&["tcp:127.0.0.1", "/dev/null"], 1);
    assert!(error.contains("\"127.0.0.1\" is no HOST:PORT"), "{error}");
    let error = refused(&["net:lo", "-"], 2);
    assert!(error.contains("net:lo:PORT"), "{error}");
    let error = refused(&["net:genie-none:7", "-"], 1);
    assert!(error.contains("genie-none"), "{error}");
    let error = refused(&["-", "-", "/dev/null"], 2);
    assert!(error.contains("in pairs"), "{error}");
    let error = refused(&["-", "-", "--queue", "9"], 2);
    assert!(error.contains("--asynchronous"), "{error}");
    let error = refused(&["-", "-", "--asynchronous", "--length", "1G", "--queue", "65536"], 2);
    assert!(error.contains("65538 packets of 1.0 GiB"), "{error}");
    let error = refused(&["unix-listen:", "-"], 2);
    assert!(error.contains("unix-listen:PATH"), "{error}");
    let error = refused(&["-", "-", "--json"], 2);
    assert!(error.contains("--json"), "{error}");
    let error = refused(&["-", "-", "--priority", "1,2"], 2);
    assert!(error.contains("2 numbers for 1 flows"), "{error}");
    let error = refused(&["net:lo:x", "-"], 2);
    assert!(error.contains("no UDP port"), "{error}");
}
