//! `genie net` as a user meets it: datagrams between two network namespaces, with the kernel's sockets at one end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};

use genie::net::namespaces::{End, Pair};
use serde_json::Value;

use crate::running::{assert_fails_in_one_line, genie, is_root, skip, text};

const PORT: &str = "4000";

/// A command that runs in a namespace, and has said that it is ready.
struct Running {
    child: Child,
    /// Open until the end, so that the command can go on saying things.
    _said: BufReader<ChildStderr>,
}

impl Running {
    fn start(end: &End, mut command: Command, ready: &str) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = end.namespace.enter(|| command.spawn().unwrap());
        let (mut said, mut line) = (BufReader::new(child.stderr.take().unwrap()), String::new());
        while !line.contains(ready) {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it has ended before it was ready: {line}");
        }
        Self { child, _said: said }
    }

    /// Waits for the end, and reads the document that was printed.
    fn end(self) -> Value {
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn interrupt(self) -> Value {
        let kill = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        self.end()
    }
}

fn net(args: &[&str]) -> Command {
    let mut command = genie(&["net"]);
    command.args(args);
    command
}

fn sent(end: &End, mut command: Command) -> Value {
    let output = end.namespace.enter(|| command.arg("--json").output().unwrap());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn datagrams_are_counted_and_verified_between_genie_and_the_kernel() {
    const NAME: &str = "datagrams_are_counted_and_verified_between_genie_and_the_kernel";
    let pair = match Pair::new(1500) {
        Ok(pair) => pair,
        Err(unavailable) => return skip(NAME, &unavailable.to_string()),
    };
    let [near, far] = &pair.ends;
    for (v6, scheme) in [(false, "emulated-copy"), (true, "emulated-weak-move")] {
        let to = if v6 { format!("[{}]:{PORT}", far.v6) } else { format!("{}:{PORT}", far.v4) };
        let lengths = if v6 { "16,1000,1452" } else { "16,1000,1472" };
        let kernels = vec!["--socket"];
        for is_sent_by_genie in [true, false] {
            let genies = |name| vec!["--driver", "packet", "--scheme", scheme, "--interface", name];
            let (sender, receiver) = match is_sent_by_genie {
                true => (genies(&near.interface.name), kernels.clone()),
                false => (kernels.clone(), genies(&far.interface.name)),
            };
            let mut receiving = net(&["receive", PORT, "--json"]);
            receiving.args(receiver);
            let receiving = Running::start(far, receiving, "receiving");
            // They fit in either side's queues, however slowly they are received.
            let mut sending = net(&["send", &to, "--count", "60", "--lengths", lengths, "--verify"]);
            sending.args(sender);
            let sent = sent(near, sending);
            let received = receiving.end();
            let expected = 20 * if v6 { 16 + 1000 + 1452 } else { 16 + 1000 + 1472 };
            for summary in [&sent, &received] {
                assert_eq!(
                    (&summary["datagrams"], &summary["bytes"]),
                    (&60.into(), &expected.into()),
                    "{summary}"
                );
            }
            for wrong in ["lost", "duplicates", "late", "damaged", "strange"] {
                assert_eq!(received[wrong], 0, "{wrong}: {received}");
            }
            assert_eq!(received["verified"], true);
        }
    }
}

#[test]
fn a_server_elsewhere_gives_ports_to_a_client_that_echoes_until_it_is_interrupted() {
    const NAME: &str = "a_server_elsewhere_gives_ports_to_a_client_that_echoes_until_it_is_interrupted";
    let pair = match Pair::new(1500) {
        Ok(pair) => pair,
        Err(unavailable) => return skip(NAME, &unavailable.to_string()),
    };
    let [near, far] = &pair.ends;
    let place = tempfile::tempdir().unwrap();
    let with_place = |mut command: Command| {
        command.env("GENIE_RUNTIME_DIR", place.path());
        command
    };
    let serving = with_place(net(&["serve", &far.interface.name, "--driver", "packet"]));
    let serving = Running::start(far, serving, "serving");
    let echoing = with_place(net(&["echo", PORT, "--json", "--server", &far.interface.name]));
    let echoing = Running::start(near, echoing, "sending back");
    let to = format!("{}:{PORT}", far.v4);
    let sending = net(&["send", &to, "--socket", "--echo", "--verify", "--batch", "1", "--count", "50"]);
    let come_back = sent(near, sending);
    assert_eq!((&come_back["datagrams"], &come_back["lost"]), (&50.into(), &0.into()), "{come_back}");
    assert_eq!((&come_back["damaged"], &come_back["verified"]), (&0.into(), &true.into()));
    assert!(come_back["round_trip_us"]["median"].as_f64().unwrap() > 0.0);
    assert!(echoing.interrupt()["datagrams"].as_u64().unwrap() >= 50);
    serving.interrupt();
}

#[test]
fn a_front_that_is_terminated_ends_its_commands() {
    const NAME: &str = "a_front_that_is_terminated_ends_its_commands";
    let pair = match Pair::new(1500) {
        Ok(pair) => pair,
        Err(unavailable) => return skip(NAME, &unavailable.to_string()),
    };
    let near = &pair.ends[0];
    let front = |client: &str| net(&["front", "genie0", "--client", client]);
    let tried = near.namespace.enter(|| front("4000=true").output().unwrap());
    if text(&tried.stderr).contains("CAP_") {
        return skip(NAME, text(&tried.stderr));
    }
    // What a command has started ends with it.
    let fronting = Running::start(near, front("4000=sleep 1000.03125; true"), "go to");
    let kill = Command::new("kill").arg(fronting.child.id().to_string()).status().unwrap();
    assert!(kill.success());
    fronting.end();
    let is_run = |process: fs::DirEntry| {
        fs::read(process.path().join("cmdline"))
            .is_ok_and(|line| line.windows(10).any(|word| word == b"1000.03125"))
    };
    assert!(!fs::read_dir("/proc").unwrap().flatten().any(is_run));
}

#[test]
fn what_cannot_be_driven_is_an_error_that_says_what_is_lacking() {
    let mut command = net(&["receive", PORT, "--interface", "lo"]);
    if is_root() {
        command.uid(65534).gid(65534).current_dir("/");
    }
    match command.output() {
        Ok(output) => {
            let error = assert_fails_in_one_line(&output, 1);
            assert!(error.contains("CAP_NET_RAW") && error.contains("interface lo"), "{error}");
        }
        Err(_) => skip(
            "what_cannot_be_driven_is_an_error_that_says_what_is_lacking",
            "another user may not run the program where it was built",
        ),
    }
    let refused = |args: &[&str], status| {
        let output = net(args).output().unwrap();
        assert_fails_in_one_line(&output, status)
    };
    let error = refused(&["serve", "genie-none"], 1);
    assert!(error.contains("genie-none") && error.contains("ip link"), "{error}");
    for (option, value, word) in [
        ("--driver", "xdp", "--interface"),
        ("--lengths", "15", "16 bytes"),
        ("--scheme", "emulated copy", "no schemes"),
        ("--granule", "4k", "no schemes"),
        ("--batch", "33", "32 datagrams"),
        ("--count", "0", "from 1"),
    ] {
        let error = refused(&["send", "127.0.0.1:9", "--socket", option, value], 2);
        assert!(error.contains(option) && error.contains(word), "{error}");
    }
    for clients in [&["7000,7000=true"][..], &["7000=true", "7001,7000=true"]] {
        let clients = clients.iter().flat_map(|client| ["--client", client]);
        let error = refused(&Vec::from_iter(["front", "genie-none"].into_iter().chain(clients)), 2);
        assert!(error.contains("port 7000"), "{error}");
    }
    let error = refused(&["receive", "0", "--socket"], 2);
    assert!(error.contains("from 1"), "{error}");
    let error = refused(&["receive", PORT], 2);
    assert!(error.contains("--socket"), "{error}");
    let error = refused(&["receive", PORT, "--server", "nobody"], 1);
    assert!(error.contains("nobody"), "{error}");
}
