//! Makes wrong requests of a server of texts, kills it, and prints what each failure says; `ask.c` prints the same.
//!
//!     ask NAME PID

use std::error::Error;
use std::time::Duration;

use genie::channel::{ConnectOptions, Directory};
use genie::{Connect, Failed, In, Interface, Out, ServiceId};
use rustix::process::{Pid, Signal, kill_process};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, pid] = &arguments[..] else { return Err("usage: ask NAME PID".into()) };
    let pid = Pid::from_raw(pid.parse()?).ok_or("no process")?;
    let genie = Interface::open()?;
    let options = ConnectOptions { wait: Duration::from_secs(60), ..ConnectOptions::default() };
    let server = genie.connect_with(&Directory::open()?, name, &options)?;
    let (reverse, digest) = (server.service("reverse")?, server.service("digest")?);
    println!("0: {}", server.service("shout").expect_err("there is none"));
    let failed = |result: Result<_, Failed>| println!("{}", told(result.map(drop).expect_err("it is wrong")));

    let text = b"text";
    let mut room = [0; 5];
    failed(genie.request(&server, ServiceId(2)).send());
    failed(genie.request(&server, digest).send());
    failed(genie.request(&server, digest).input(In::copy(&mut room)).send());
    failed(genie.request(&server, reverse).out(Out::copy(text)).send());
    failed(genie.request(&server, reverse).out(Out::copy(text)).input(In::copy(&mut room)).send());
    failed(genie.request(&server, digest).out(Out::copy(text)).room(5).send());

    // The server is stopped, so that it is killed with the request in its hands.
    kill_process(pid, Signal::STOP)?;
    let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
    while !std::fs::read_to_string(&stat)?.contains(") T ") {}
    let pending = genie.request(&server, digest).out(Out::copy(text)).room(80).submit()?;
    kill_process(pid, Signal::KILL)?;
    failed(pending.sync());
    failed(genie.request(&server, digest).out(Out::copy(text)).room(80).send());
    Ok(())
}

/// The errno with which the server has replied, or 0, and the sentence.
fn told(failed: Failed) -> String {
    let code = if let genie::Error::Server(error) = &failed.error { error.code } else { 0 };
    format!("{code}: {}", failed.error)
}
