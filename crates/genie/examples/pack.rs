//! A server between a client and a file server: it puts a header before the client's data, and forwards the data without
//! ever mapping it. It has no thread that waits for the file server: the threads that take its requests take the replies, too.
//!
//!     cargo run --release -p genie --example pack -- FILE-SERVER

use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::time::Duration;

use genie::channel::{Listener, ServeOptions};
use genie::{
    Completer, Connect, Incoming, Interface, Out, Pending, RequestId, Server, ServerError, ServerHandle,
    Service, file,
};

/// To reply takes less than this.
const REPLYING: Duration = Duration::from_micros(20);

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
        match self.pack(&mut request) {
            Ok(pending) => pending.then(REPLYING, move |stored| {
                if let Ok(reply) = &stored {
                    println!("{} bytes forwarded, {} copied", request.len(0), reply.receipt().copied);
                }
                request.reply(stored.map(drop).map_err(|failed| failed.error.into()));
            }),
            Err(error) => request.reply(Err(error)),
        }
    }

    fn abort(&self, _request: RequestId) {
        // The request that this server has forwarded was aborted first, and the reply follows from that.
    }

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Pack {
    /// Has the output of buffer 0 stored, behind its length, in the file that the argument names.
    fn pack(&self, request: &mut Incoming) -> Result<Pending<'static>, ServerError> {
        let path = String::from_utf8_lossy(request.argument()).into_owned();
        let len = request.len(0);
        let header = format!("{len:>15}\n");
        let data = request.fragment(0, 0..len)?;
        let place = file::at(path, 0);
        let store = self.genie.request(&self.files, file::STORE).out(Out::copy(header.as_bytes()));
        let store = store.and_out(Out::fragment(data)).argument(&place);
        Ok(store.submit().map_err(|failed| failed.error)?)
    }
}

impl Completer for Pack {
    fn collect(&self) -> usize {
        self.genie.collect_from(&self.files)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.genie.descriptor().ok()
    }

    fn arm(&self) -> bool {
        self.genie.collect();
        self.genie.arm()
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
    let pack = Pack { genie, files };
    Ok(Listener::bind("pack", pack, ServeOptions::default())?.run()?)
}
