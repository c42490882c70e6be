//! Signals, which end whole processes: this test runs itself again.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use genie::channel::{ConnectOptions, Directory, Listener, ServeOptions};
use genie::{Connect, Error, Incoming, Interface, RequestId, Server, Service, ServiceId};
use rustix::process::{Pid, Signal, kill_process};

static SERVICES: [Service; 1] = [Service::new("serve", false, false)];

/// A server whose code returns, or never does.
struct Served {
    is_stuck: bool,
}

impl Server for Served {
    fn name(&self) -> &str {
        "served"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        match self.is_stuck {
            true => std::thread::sleep(Duration::from_secs(3600)),
            false => request.reply(Ok(())),
        }
    }

    fn abort(&self, _: RequestId) {}
}

/// What the other process does, if this is it.
#[test]
fn two_servers_wait_for_signals() {
    let Some(directory) = std::env::var_os("GENIE_TEST_SIGNALS") else { return };
    let directory = Directory::at(directory).unwrap();
    std::thread::scope(|scope| {
        for is_stuck in [false, true] {
            let name = if is_stuck { "stuck" } else { "quick" };
            let serving = Listener::bind_in(&directory, name, Served { is_stuck }, ServeOptions::default());
            scope.spawn(move || serving.unwrap().run_until_signal().unwrap());
        }
    });
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_second_signal_ends_a_process_whose_server_does_not_end() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("run");
    let mut itself = Command::new(std::env::current_exe().unwrap());
    itself.args(["--exact", "two_servers_wait_for_signals"]).env("GENIE_TEST_SIGNALS", &path);
    let mut process = Killed(itself.stdout(Stdio::null()).spawn().unwrap());
    let pid = Pid::from_child(&process.0);
    let (directory, genie) = (Directory::at(&path).unwrap(), Interface::open().unwrap());
    let options = ConnectOptions { wait: Duration::from_secs(60), ..ConnectOptions::default() };
    let [quick, stuck] =
        ["quick", "stuck"].map(|name| genie.connect_with(&directory, name, &options).expect("a server"));
    genie.request(&quick, ServiceId(0)).send().expect("a reply");
    let held = genie.request(&stuck, ServiceId(0)).submit().expect("a request");
    std::thread::sleep(Duration::from_millis(20)); // so that the server's code has it
    kill_process(pid, Signal::TERM).unwrap();
    let begun = Instant::now();
    while !quick.is_gone() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the server does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Its thread has to have ended, too.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(process.0.try_wait().unwrap(), None, "one server's code is at work");
    kill_process(pid, Signal::TERM).unwrap();
    let (told, ended) = channel();
    std::thread::spawn(move || told.send(process.0.wait()));
    let ended = ended.recv_timeout(Duration::from_secs(60)).expect("the second signal ends it");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.unwrap()), Some(Signal::TERM.as_raw()));
    assert!(matches!(held.sync().unwrap_err().error, Error::Gone { .. }));
}
