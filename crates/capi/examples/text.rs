//! The programs `server` and `client` in Rust. Whatever they are written in, each client can talk to each server.
//!
//!     text serve NAME                          serves under NAME until SIGINT or SIGTERM comes
//!     text client NAME reverse|digest [FILE]   sends a file, or standard input, and prints what comes back

use std::error::Error;
use std::io::{Read, Write, stdin, stdout};
use std::process::ExitCode;
use std::time::Duration;

use genie::channel::{ConnectOptions, Directory, Listener, ServeOptions};
use genie::{
    Connect, Direction, In, Incoming, Interface, Out, RequestId, Server, ServerError, Service, ServiceId,
};

const DIGEST: ServiceId = ServiceId(1);
static SERVICES: [Service; 2] = [
    Service::new("reverse", true, true), // reads outputs, fills inputs
    Service::new("digest", true, false),
];

struct Texts(String);

impl Server for Texts {
    fn name(&self) -> &str {
        &self.0
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = answer(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {
        // Every request is replied to at once.
    }
}

/// Does what a request asks for.
fn answer(request: &mut Incoming) -> Result<(), ServerError> {
    if request.direction(0) != Ok(Direction::Out) {
        return Err(ServerError::misuse("the first buffer has to be an output, the text"));
    }
    let text = request.output(0)?;
    if request.service() == DIGEST {
        let mut lines = 0;
        text.for_each_chunk(|chunk| lines += chunk.iter().filter(|byte| **byte == b'\n').count());
        let digest = format!("{} bytes, {lines} lines", text.len());
        return Ok(request.set_argument(digest.as_bytes())?);
    }
    if request.direction(1) != Ok(Direction::In) || request.len(1) != text.len() {
        return Err(ServerError::misuse("the second buffer has to be an input, as long as the text"));
    }
    let mut bytes = text.to_vec();
    bytes.reverse();
    request.fill(1, |room| room.copy_from(&bytes))?;
    Ok(())
}

fn serve(name: &str) -> Result<(), Box<dyn Error>> {
    let serving = Listener::bind(name, Texts(name.to_owned()), ServeOptions::default())?;
    Ok(serving.run_until_signal()?)
}

fn ask(name: &str, service: &str, file: Option<&str>) -> Result<(), Box<dyn Error>> {
    let genie = Interface::open()?;
    let bytes = read_all(file)?;
    let len = bytes.len();
    let buffer = || genie.allocate(len.max(1)); // which can be passed without copying
    let (mut text, mut reversed) = (buffer()?, buffer()?);
    text[..len].copy_from_slice(&bytes);
    let options = ConnectOptions { wait: Duration::from_secs(2), ..ConnectOptions::default() };
    let server = genie.connect_with(&Directory::open()?, name, &options)?;
    let request = genie.request(&server, server.service(service)?).out(Out::emulated_copy(&text[..len]));
    let reply = match service {
        "digest" => request.room(80).send()?,
        _ => request.input(In::emulated_copy(&mut reversed[..len])).send()?,
    };
    match service {
        "digest" => stdout().write_all(&[reply.argument(), b"\n"].concat())?,
        _ => stdout().write_all(&reversed[..reply.buffers[1].actual])?,
    }
    let copied: Vec<_> = reply.receipts().map(|receipt| receipt.copied).collect();
    let back = copied.get(1).unwrap_or(&0);
    eprintln!("{len} bytes out and in; {} and {back} copied", copied[0]);
    Ok(())
}

/// Reads all of a file, or standard input.
fn read_all(file: Option<&str>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = match file {
        Some(name) => std::fs::read(name).map(|all| bytes = all),
        None => stdin().read_to_end(&mut bytes).map(drop),
    };
    read.map_err(|error| format!("{}: {error}", file.unwrap_or("standard input")))?;
    Ok(bytes)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["serve", name] => serve(name),
        ["client", name, service @ ("reverse" | "digest")] => ask(name, service, None),
        ["client", name, service @ ("reverse" | "digest"), file] => ask(name, service, Some(file)),
        _ => {
            eprintln!("usage: text serve NAME, or text client NAME reverse|digest [FILE]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("text: {error}");
            ExitCode::FAILURE
        }
    }
}
