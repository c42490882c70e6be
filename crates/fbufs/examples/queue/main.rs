//! A Genie server in a process of its own: `queue NAME` serves under that name until SIGINT or SIGTERM comes. A C program opens it by
//! `uf_open(NAME, "take", "put")`.

mod queue;

use genie_channel::{Listener, ServeOptions};
use queue::Queue;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("usage: queue NAME")?;
    Ok(Listener::bind(&name, Queue::default(), ServeOptions::default())?.run_until_signal()?)
}
