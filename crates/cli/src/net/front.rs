//! `genie net front`: several commands behind one interface, each for ports of its own.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::Arc;

use genie::net::driver::Front;
use genie_sys::lock::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::Failure;
use crate::signals;

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
        let port = |port: &str| port.trim().parse().map_err(|error| format!("port {port:?}: {error}"));
        Ok(Self { ports: ports.split(',').map(port).collect::<Result<_, _>>()?, command: command.to_owned() })
    }
}

/// Runs the commands until all have ended.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let front = Front::open(&args.interface).map_err(Failure::could_not)?;
    let admit = |client: &Client| front.admit(&client.ports).map_err(Failure::could_not);
    let namespaces = args.clients.iter().map(admit).collect::<Result<Vec<_>, _>>()?;
    let (groups, mut running) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
    let to_end = Arc::clone(&groups);
    signals::on_first(move || {
        for group in to_end.lock().iter() {
            // One that has ended already is not there.
            let _ = kill_process_group(*group, Signal::TERM);
        }
    })?;
    // The namespace is the command's alone from here on: it goes when that ends.
    for (Client { ports, command }, namespace) in args.clients.iter().zip(namespaces) {
        let child = namespace.enter(|| Command::new("sh").args(["-c", command]).process_group(0).spawn());
        let child =
            child.map_err(|error| Failure::could_not(format!("{command:?} cannot be run: {error}")))?;
        groups.lock().push(Pid::from_child(&child));
        eprintln!("genie: datagrams of {} to {ports:?} go to {command:?}", args.interface);
        running.push((command, child));
    }
    let mut failed = None;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_ports_and_a_command() {
        let Client { ports, command } = Client::parse("7000, 7001=run --with=this").expect("a client");
        assert_eq!((ports, &command[..]), (vec![7000, 7001], "run --with=this"));
        for wrong in ["7000", "=run", "x=run", "70000=run"] {
            Client::parse(wrong).expect_err(wrong);
        }
    }
}
