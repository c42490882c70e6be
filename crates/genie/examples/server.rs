//! A server of one service, which gives text back in capitals. Run it, then the example `client` in another terminal:
//!
//!     cargo run --release -p genie --example server

use std::process::ExitCode;

use genie::channel::{Listener, ServeOptions};
use genie::{Incoming, RequestId, Server, ServerError, Service};

struct Capitals;

/// Its only service reads output buffers, and writes input buffers.
static SERVICES: [Service; 1] = [Service::new("capitals", true, true)];

impl Server for Capitals {
    fn name(&self) -> &str {
        "capitals"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = capitalize(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {
        // Every request is replied to at once.
    }
}

/// Fills buffer 1 with the text of buffer 0. Both buffers are the client's memory. The client may still change the text, so
/// the server makes it its own.
fn capitalize(request: &mut Incoming) -> Result<(), ServerError> {
    let mut text = request.keep(0)?;
    text.make_ascii_uppercase();
    request.fill(1, |room| room.copy_from(&text))?;
    Ok(())
}

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), genie::Error> {
    let serving = Listener::bind("capitals", Capitals, ServeOptions::default())?;
    println!("serving as {}", serving.name());
    serving.run_until_signal()
}
