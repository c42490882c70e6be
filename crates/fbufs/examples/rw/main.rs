//! What it costs to pass buffers, beside copying them: `cargo run --release -p genie-fbufs --example rw`.
//!
//! How: the two micro-benchmarks of SMLI TR-95-39 §6.1, by the C calls, in one process (`alone`): *discard* is an output alone,
//! *loopback* an output and an input, and *mapwr* maps a file and writes it. Then round trips of two processes (`pair`). The
//! standard calls do the same over a pipe and a Unix socket. Nobody touches the bytes. Medians of some thousand rounds; the
//! means take turns in blocks of rounds. Each figure includes reading the clock twice.
//! Limits: the paper's driver freed what was written, or gave it back; here the other end of a channel does, or of a pipe, and
//! what it does for a discard is not counted. Round trips depend on whether each process has a CPU to look on: where other
//! programs take the CPUs, sleeping and being woken is what is measured.

mod alone;
mod pair;

use std::time::Instant;

/// Lengths in bytes.
const LENS: [usize; 7] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
const BLOCKS: usize = 10;
const ROUNDS: usize = 300;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    if let Some(directory) = std::env::args().nth(1) {
        return pair::echo(directory.as_ref());
    }
    println!("Medians in us; % of the faster one of pipe and Unix socket.");
    alone::run()?;
    pair::run()
}

/// A table of one benchmark, a line for each length.
fn table(name: &str) {
    println!("\n{name}\nbytes       fbufs      pipe      unix   fbufs: %   the paper: %");
}

/// Prints a line of a table: the medians of fbufs, pipe and Unix socket.
fn line(len: usize, samples: [Vec<f64>; 3], paper: Option<u32>) {
    let [fbufs, pipe, unix] = samples.map(median);
    let paper = paper.filter(|_| len == 8 << 10).map_or(String::new(), |paper| format!("{paper:12}"));
    println!("{len:<8} {fbufs:8.2} {pipe:9.2} {unix:9.2} {:10.0}{paper}", 100.0 * fbufs / pipe.min(unix));
}

/// Times a block of rounds, each of which is followed by something that is not timed.
fn time(
    samples: &mut Vec<f64>,
    mut timed: impl FnMut() -> Outcome<()>,
    mut untimed: impl FnMut() -> Outcome<()>,
) -> Outcome<()> {
    for _ in 0..ROUNDS {
        let start = Instant::now();
        timed()?;
        samples.push(start.elapsed().as_secs_f64() * 1e6);
        untimed()?;
    }
    Ok(())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
