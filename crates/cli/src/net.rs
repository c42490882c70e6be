//! `genie net`: datagrams between real hosts, by Genie and by the kernel's own sockets.

pub(crate) mod address;
mod echo;
pub(crate) mod end;
pub(crate) mod figures;
mod front;
mod kernel;
pub(crate) mod means;
mod numbered;
pub(crate) mod port;
mod receive;
mod send;
mod serve;

use crate::failure::Failure;
use crate::signals::Stop;

/// Send and receive UDP datagrams on the interfaces of this machine, and measure how fast they travel.
///
/// Either side may be Genie's datagram server, in this process (--interface) or in one of its own (--server, started by genie net
/// serve), or the kernel's own socket (--socket). What one side sends, the other side counts: run genie net receive on one host, and
/// then genie net send on the other one. An interface is driven by AF_XDP or by a packet socket, for which the process needs
/// capabilities: genie doctor says which ones are missing.
///
/// The summary says how many bytes were copied: by data passing, between the command's memory and the datagram server's, and by driver and
/// kernel, to and from the interface's rings and behind them. The latter is not known of a server in another process, and neither of a
/// socket of the kernel's.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Serve(serve::Args),
    Front(front::Args),
    Send(send::Args),
    Receive(receive::Args),
    Echo(echo::Args),
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Serve(args) => serve::run(args),
        Command::Front(args) => front::run(args),
        Command::Send(args) => send::run(args),
        Command::Receive(args) => receive::run(args),
        Command::Echo(args) => echo::run(args),
    }
}
