//! A client of the example `server` with an event loop: passes four texts at once, and waits for all replies by one
//! descriptor, which a program would wait for beside its sockets.
//!
//!     cargo run --release -p genie --example event_loop

use std::process::ExitCode;

use genie::{Connect, In, Interface, Out, Scheme};
use rustix::event::{PollFd, PollFlags, poll};

const LEN: usize = 2 << 20;

fn main() -> ExitCode {
    match pass() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("event_loop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pass() -> Result<(), Box<dyn std::error::Error>> {
    let genie = Interface::open()?;
    let server = genie.connect("capitals")?;
    let capitals = server.service("capitals")?;

    let mut pending = Vec::new();
    for letter in b'a'..=b'd' {
        let mut text = genie.allocate(LEN)?;
        text.fill(letter);
        let loud = In::owned(Scheme::EmulatedCopy, genie.allocate(LEN)?);
        let request = genie.request(&server, capitals).out(Out::emulated_copy(&text));
        pending.push(request.input(loud).submit()?);
    }

    let descriptor = genie.descriptor()?;
    let mut polls = 0;
    loop {
        genie.collect();
        for replied in pending.extract_if(.., |pending| pending.is_replied()) {
            let loud = replied.sync()?.take_buffer().ok_or("the buffer was not returned")?;
            println!("{} bytes came back, all {}", loud.len(), char::from(loud[0]));
        }
        if pending.is_empty() {
            break;
        }
        // If it returns false, there may be something to collect now.
        if genie.arm() {
            poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None)?;
            polls += 1;
        }
    }
    println!("{polls} polls");
    Ok(())
}
