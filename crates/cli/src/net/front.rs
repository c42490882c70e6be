//! `genie net front`: several commands behind one interface, each for ports of its own.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::Arc;

use genie::net::driver::Front;
use genie_sys::lock::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::Failure;
use crate::{number, signals};

/// Run several commands that drive one interface, each for the datagrams of its own ports.
///
/// Each command runs in a network of its own, where it finds the interface under its name, and needs no more capabilities than without a
/// front. The kernel brings datagrams to the command that has their port, into memory that no other command sees; everything else on the
/// interface stays the kernel's. A command's ports are free when it has ended, and all that it has started. The front ends when all
/// commands have. When it is interrupted or terminated, it terminates them; when it is killed, they find that the interface has gone.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The interface.
    #[arg(value_name = "IFACE")]
    interface: String,
    /// Ports, and the command that has them, which the shell runs: 7000,7001="genie net echo 7000 --interface eth0". Give one for each
    /// command.
    #[arg(long = "client", value_name = "PORT,..=COMMAND", required = true, value_parser = Client::parse)]
    clients: Vec<Client>,
}

#[derive(Debug, Clone)]
struct Client {
    ports: Vec<u16>,
    command: String,
}

impl Client {
    fn parse(text: &str) -> Result<Self, String> {
        let (ports, command) = text.split_once('=').ok_or("a client is ports, =, and a command")?;
        let number = number::within(1..=65_535);
        let port = |port: &str| number(port.trim()).map_err(|error| format!("port {port:?}: {error}"));
        Ok(Self { ports: ports.split(',').map(port).collect::<Result<_, _>>()?, command: command.to_owned() })
    }
}

/// Runs the commands until all have ended.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut ports: Vec<_> = args.clients.iter().flat_map(|client| &client.ports).collect();
    ports.sort_unstable();
    if let Some(twice) = ports.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage(format!("port {} is given twice; a port has one command", twice[0])));
    }
    let front = Front::open(&args.interface).map_err(Failure::could_not)?;
    let admit = |client: &Client| front.admit(&client.ports).map_err(Failure::could_not);
    let namespaces = args.clients.iter().map(admit).collect::<Result<Vec<_>, _>>()?;
    let (groups, mut running) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
    let (to_end, mut failed) = (Arc::clone(&groups), None);
    signals::on_first(move || terminate(&to_end.lock()))?;
    // A signal that comes meanwhile ends all that are started.
    let mut started = groups.lock();
    // The namespace is the command's alone from here on: it goes when that ends.
    for (Client { ports, command }, namespace) in args.clients.iter().zip(namespaces) {
        let child = namespace.enter(|| Command::new("sh").args(["-c", command]).process_group(0).spawn());
        match child {
            Ok(child) => {
                started.push(Pid::from_child(&child));
                eprintln!("genie: datagrams of {} to {ports:?} go to {command:?}", args.interface);
                running.push((command, child));
            }
            Err(error) => {
                failed = Some(Failure::could_not(format!("{command:?} cannot be run: {error}")));
                terminate(&started);
                break;
            }
        }
    }
    drop(started);
    for (command, mut child) in running {
        let ended = child.wait().map_or_else(
            |error| error.to_string(),
            |status| match status.success() || status.signal() == Some(Signal::TERM.as_raw()) {
                true => String::new(),
                false => status.to_string(),
            },
        );
        if !ended.is_empty() {
            failed.get_or_insert_with(|| Failure::could_not(format!("{command:?} has failed: {ended}")));
        }
    }
    match front.refused() {
        0 => {}
        count => eprintln!("genie: {count} frames were dropped, since they were not the commands' own"),
    }
    failed.map_or(Ok(()), Err)
}

/// Asks commands to end, and all that they have started.
fn terminate(groups: &[Pid]) {
    for group in groups {
        // One that has ended already is not there.
        let _ = kill_process_group(*group, Signal::TERM);
    }
}

#[cfg(test)]
#[path = "../../../sys/tests/skip/mod.rs"]
mod skipping;
#[cfg(test)]
mod tests {
    use std::fs;

    use genie::net::namespaces::Pair;

    use super::*;

    #[test]
    fn a_client_is_ports_and_a_command() {
        let Client { ports, command } = Client::parse("7000, 7001=run --with=this").expect("a client");
        assert_eq!((ports, &command[..]), (vec![7000, 7001], "run --with=this"));
        for wrong in ["7000", "=run", "x=run", "0=run", "70000=run"] {
            Client::parse(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_command_that_cannot_be_run_ends_those_that_were_started_before_it() {
        let test = "a_command_that_cannot_be_run_ends_those_that_were_started_before_it";
        let pair = match Pair::new(1500) {
            Ok(pair) => pair,
            Err(unavailable) => return skipping::skip(test, &unavailable.to_string()),
        };
        let client = |port, command: &str| Client { ports: vec![port], command: command.to_owned() };
        // No command has a zero in it.
        let clients = vec![client(4000, "exec sleep 1000.0625"), client(4001, "\0")];
        let args = Args { interface: pair.ends[1].interface.name.clone(), clients };
        let failure = pair.ends[1].namespace.enter(|| run(&args)).expect_err("the second one cannot be run");
        if failure.message.contains("CAP_") {
            return skipping::skip(test, &failure.message);
        }
        assert!(failure.message.contains("cannot be run"), "{}", failure.message);
        let is_run = |process: fs::DirEntry| {
            fs::read(process.path().join("cmdline"))
                .is_ok_and(|line| line.windows(9).any(|word| word == b"1000.0625"))
        };
        assert!(!fs::read_dir("/proc").unwrap().flatten().any(is_run));
    }
}
