//! A server between a client and a file server: it puts a header before the client's data, and forwards the data without
//! ever mapping it.
//!
//!     cargo run --release -p genie --example pack -- FILE-SERVER

use std::process::ExitCode;

use genie::channel::{Listener, ServeOptions};
use genie::{Connect, Incoming, Interface, Out, RequestId, Server, ServerError, ServerHandle, Service, file};

struct Pack {
    genie: Interface,
    files: ServerHandle,
}

/// Neither reads nor writes the buffers of its requests.
static SERVICES: [Service; 1] = [Service::new("pack", false, false)];

impl Server for Pack {
    fn name(&self) -> &str {
        "pack"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = self.pack(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {
        // The requests that this server has forwarded are aborted first, and then replied to.
    }
}

impl Pack {
    /// Stores the output of buffer 0, behind its length, in the file that the argument names.
    fn pack(&self, request: &mut Incoming) -> Result<(), ServerError> {
        let path = String::from_utf8_lossy(request.argument()).into_owned();
        let len = request.len(0);
        let header = format!("{len:>15}\n");
        let data = request.fragment(0, 0..len)?;
        let place = file::at(path, 0);
        let store = self.genie.request(&self.files, file::STORE).out(Out::copy(header.as_bytes()));
        let reply =
            store.and_out(Out::fragment(data)).argument(&place).send().map_err(|failed| failed.error)?;
        println!("{len} bytes forwarded, {} copied", reply.receipt().copied);
        Ok(())
    }
}

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pack: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("name the file server to pass files on to")?;
    let genie = Interface::open()?;
    let files = genie.connect(&name)?;
    Ok(Listener::bind("pack", Pack { genie, files }, ServeOptions::default())?.run()?)
}
