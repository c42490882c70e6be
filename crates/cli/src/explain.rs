//! `genie explain`: which operations would pass some data, what each is predicted to cost, and why these operations are
//! used.
//!
//! How: data of the given length and alignment is passed once, to a server that does nothing, and the receipt says which
//! scheme took effect and how much each operation had to do. So the explanation cannot differ from what happens.
//! Source: thesis tables 7.1 to 7.3.

mod price;
mod report;

use genie::mechanism::model::Allocation;
use genie::{Direction, Interface, Receipt, Scheme, ServerHandle, memory};
use genie_lab::call::Call;
use genie_lab::client_buffer::ClientBuffer;
use genie_lab::interface::Granule;
use genie_lab::length;
use genie_lab::memory_server::{self, Buffers};

use crate::failure::Failure;
use crate::output;
use report::{Case, Manner, Question, Report, Server};

/// Say which operations would pass some data, what each would cost, and why.
///
/// The steps are those of the call that --call names, to a server in the same process. Below them is what each call would do, to
/// servers of both kinds: send, submit of a borrowed buffer, and for output by emulated copy also submit of a buffer that is given by
/// value (Out::owned). Costs are those that `genie calibrate` measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Out to the server, or in from it.
    #[arg(value_enum, ignore_case = true)]
    direction: Way,
    /// How much is passed, in bytes or with a suffix K, M or G.
    #[arg(value_parser = length::parse, allow_hyphen_values = true)]
    length: usize,
    /// How far into a granule the buffer starts, in bytes or with a suffix K or M.
    #[arg(value_parser = alignment, allow_hyphen_values = true, default_value = "0")]
    alignment: usize,
    /// The scheme, such as copy or "emulated copy".
    #[arg(default_value = "emulated copy")]
    scheme: Scheme,
    /// The kind of pages of the interface's memory.
    #[arg(long, value_enum, default_value_t = Granule::Best)]
    granule: Granule,
    /// The server's buffers for input: made for each request, or its own, filled before a request comes.
    #[arg(long, value_enum, default_value_t = Buffers::Customized)]
    buffers: Buffers,
    /// Whether the client waits for the reply, which borrows an output's data until then, or goes on.
    #[arg(long, value_enum, default_value_t = Call::Send)]
    call: Call,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

/// Which way the data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// To the server.
    Out,
    /// From the server.
    In,
}

/// Passes data once and explains it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Where raising the limit fails, schemes that wire do without, and the explanation says so.
    let _ = genie_sys::machine::raise_memory_lock_limit();
    let genie = args.granule.open()?;
    let server = args.buffers.open(&genie, args.length)?;
    let granule = genie.space().for_len(args.length).granule();
    if args.alignment >= granule {
        return Err(Failure::usage(format!(
            "the alignment {} is not within a granule; granules are {} here",
            args.alignment,
            length::format(granule)
        )));
    }
    let native = args.scheme.allocation() == Allocation::Native;
    let question = Question {
        scheme: args.scheme,
        direction: match args.direction {
            Way::Out => Direction::Out,
            Way::In => Direction::In,
        },
        len: args.length,
        alignment: native.then_some(args.alignment),
        buffers: args.buffers,
        manner: args.call.into(),
        server: Server::InProcess,
    };
    let receipt = pass(&genie, &server, question).map_err(Failure::could_not)?;
    let mut report = Report::new(&genie, question, &receipt);
    let (other, _peer) = memory_server::connect(&genie, args.buffers, args.length, None, None)?;
    for (server, place) in [(&server, Server::InProcess), (&other, Server::Process)] {
        for manner in question.manners().iter().copied() {
            let question = Question { manner, server: place, ..question };
            let receipt = pass(&genie, server, question).map_err(Failure::could_not)?;
            report.cases.push(Case::new(&genie, question, &receipt));
        }
    }
    if args.json { output::print_json(&report) } else { output::print(&report.text()) }
}

/// Passes data once and returns the receipt.
fn pass(genie: &Interface, server: &ServerHandle, question: Question) -> Result<Receipt, genie::Error> {
    let Question { scheme, len, .. } = question;
    let mut buffer = match question.alignment {
        Some(offset) => genie.allocate_at(offset, len)?.into(),
        None => ClientBuffer::default(),
    };
    let request = genie.request(server, memory::NULL);
    let result = match question.direction {
        Direction::Out => {
            let prepared = buffer.prepare(genie, scheme, len, |_| {})?;
            let element = match question.manner {
                Manner::SubmitByValue => buffer.output_by_value(scheme, prepared),
                Manner::Send | Manner::Submit => buffer.output(scheme, prepared),
            };
            question.manner.call().make(request.out(element))
        }
        Direction::In => question.manner.call().make(request.input(buffer.input(genie, scheme, len)?)),
    };
    result.map(|reply| reply.buffers[0].elements[0].receipt).map_err(|failed| failed.error)
}

/// Reads an alignment: like a length, but it may be 0.
fn alignment(text: &str) -> Result<usize, String> {
    if text.parse::<Scheme>().is_ok() {
        return Err(format!("the alignment comes before the scheme: `0 {text}`"));
    }
    if text.trim() == "0" { Ok(0) } else { length::parse(text) }
}
