//! A client of the example `server`: passes a text there and back by emulated copy, and prints what was done.
//!
//!     cargo run --release -p genie --example client

use std::process::ExitCode;

use genie::{Connect, In, Interface, Out};

fn main() -> ExitCode {
    match pass() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pass() -> Result<(), Box<dyn std::error::Error>> {
    let genie = Interface::open()?;
    let server = genie.connect("capitals")?;
    let capitals = server.service("capitals")?;

    let line = b"whatever the client stores next, the server reads what was passed. ";
    let mut text = genie.allocate(8 << 20)?;
    text.chunks_mut(line.len()).for_each(|part| part.copy_from_slice(&line[..part.len()]));
    let mut loud = genie.allocate(text.len())?;

    let request = genie.request(&server, capitals).out(Out::emulated_copy(&text));
    let pending = request.input(In::emulated_copy(&mut loud)).submit()?;
    text.fill(b'-'); // at once, whether or not the server has read it
    let reply = pending.sync()?;

    for (way, receipt) in ["out", "in"].iter().zip(reply.receipts()) {
        println!("{way}: {receipt}");
    }
    let expected = line.to_ascii_uppercase();
    let is_right = loud.chunks(line.len()).all(|part| *part == expected[..part.len()]);
    println!(
        "{} bytes came back, {}",
        reply.buffers[1].actual,
        if is_right { "in capitals" } else { "damaged" }
    );
    println!("{}", String::from_utf8_lossy(&loud[..line.len()]));
    if is_right { Ok(()) } else { Err("the text is not what it should be".into()) }
}
