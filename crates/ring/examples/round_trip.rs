//! Measures a record's way to a peer and back, beside the limits that the machine sets.
//!
//! `cargo run --release -p genie-ring --example round_trip [ROUNDS]`
//!
//! How: two pinned parties, threads or processes. One party echoes, and the other measures batches of round trips. Each
//! round measures everything once, so that a change of the machine's state affects all measurements alike. The example
//! prints medians over rounds, and compares them with the least that two parties can do, which is to take turns at one
//! word.

use std::error::Error;
use std::fs::OpenOptions;
use std::hint::black_box;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use genie_ring::{Bells, Ends, Layout, Record, Side, Spin, create, wait};
use genie_sys::event::Event;
use genie_sys::machine::{allowed_cpus, pin_thread, ping_pong};
use genie_sys::{Object, futex};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A record with the size of a common request: one line.
const PAYLOAD: [u8; 56] = [7; 56];
const ECHO: u8 = 1;
const STOP: u8 = 2;

const BATCH: u32 = 100;
/// Longer than any measurement: a lost wake-up is an error, not a hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// How both parties wait and answer.
#[derive(Clone, Copy)]
struct Manner {
    name: &'static str,
    /// How long they spin for the next record before they sleep.
    spin: Duration,
    /// Steps of arithmetic, each a few cycles long, that they do before they answer. The time of these steps is
    /// subtracted.
    work: u32,
    batches: u32,
}

const MANNERS: [Manner; 3] = [
    Manner { name: "polling, answering at once", spin: PATIENCE, work: 0, batches: 300 },
    Manner { name: "polling, working in between", spin: PATIENCE, work: 250, batches: 300 },
    Manner { name: "sleeping", spin: Duration::ZERO, work: 0, batches: 10 },
];

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [peer, path, cpu, manner] if peer == "peer" => peer_process(path, cpu.parse()?, manner.parse()?),
        [] => compare(9),
        [rounds] => compare(rounds.parse()?),
        _ => Err("usage: round_trip [ROUNDS]".into()),
    }
}

fn compare(rounds: usize) -> Outcome<()> {
    let [near, far, ..] = allowed_cpus()?[..] else { return Err("two CPUs are needed".into()) };
    let mut times = [const { [const { Vec::new() }; 3] }; MANNERS.len()];
    for _ in 0..rounds {
        for (index, (manner, times)) in MANNERS.iter().zip(&mut times).enumerate() {
            times[0].push(one_word(near, far, manner)?);
            times[1].push(between_threads(near, far, manner)?);
            times[2].push(between_processes(near, far, manner, index)?);
        }
    }
    for (manner, times) in MANNERS.iter().zip(times) {
        println!("{} (work of {:.0?} taken off)", manner.name, work_time(manner));
        let [word, threads, processes] = times.map(median);
        for (name, time) in [("one word", word), ("ring, threads", threads), ("ring, processes", processes)] {
            println!("  {name:18} {time:>8.0?}   {:.2} x", time.as_secs_f64() / word.as_secs_f64());
        }
    }
    Ok(())
}

fn between_threads(near: usize, far: usize, manner: &Manner) -> Outcome<Duration> {
    let object = create(Layout::default())?;
    let (ours, theirs) = Event::pair()?;
    let client = Ends::attach(&object, Layout::default(), Side::Client, Bells::end(ours))?;
    let server = Ends::attach(&object, Layout::default(), Side::Server, Bells::end(theirs))?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || {
            let _pinned = pin_thread(far)?;
            serve(server, manner)
        });
        let _pinned = pin_thread(near)?;
        let time = measure(client, manner)?;
        echo.join().expect("the echo does not panic")?;
        Ok(time)
    })
}

fn between_processes(near: usize, far: usize, manner: &Manner, index: usize) -> Outcome<Duration> {
    let object = create(Layout::default())?;
    let client = Ends::attach(&object, Layout::default(), Side::Client, Bells::end(Event::new()?))?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), object.as_fd().as_raw_fd());
    let mut peer = Command::new(std::env::current_exe()?)
        .args(["peer", &path, &far.to_string(), &index.to_string()])
        .spawn()?;
    let _pinned = pin_thread(near)?;
    let time = measure(client, manner)?;
    let status = peer.wait()?;
    if status.success() { Ok(time) } else { Err(format!("the peer failed: {status}").into()) }
}

fn peer_process(path: &str, cpu: usize, manner: usize) -> Outcome<()> {
    let object = Object::accept(OpenOptions::new().read(true).write(true).open(path)?.into())?;
    let server = Ends::attach(&object, Layout::default(), Side::Server, Bells::end(Event::new()?))?;
    let _pinned = pin_thread(cpu)?;
    serve(server, &MANNERS[manner])
}

fn serve(mut ends: Ends, manner: &Manner) -> Outcome<()> {
    let (mut record, spin) = (Record::new(), Spin::new(manner.spin));
    loop {
        receive(&mut ends, &mut record, spin)?;
        work(manner);
        ends.producer.push(record.kind(), record.payload())?;
        if record.kind() == STOP {
            return Ok(());
        }
    }
}

fn measure(mut ends: Ends, manner: &Manner) -> Outcome<Duration> {
    let (mut record, spin) = (Record::new(), Spin::new(manner.spin));
    let mut round_trip = |kind| -> Outcome<()> {
        work(manner);
        ends.producer.push(kind, &PAYLOAD)?;
        receive(&mut ends, &mut record, spin)
    };
    // Until the peer runs.
    round_trip(ECHO)?;
    let time = time_batches(manner, || round_trip(ECHO))?;
    round_trip(STOP)?;
    assert_eq!(record.payload(), PAYLOAD);
    Ok(time)
}

fn receive(ends: &mut Ends, record: &mut Record, spin: Spin) -> Outcome<()> {
    while !ends.consumer.pop(record)? {
        if !wait(&mut ends.consumer, spin, Some(PATIENCE))? {
            return Err("no record came: a wake-up was lost".into());
        }
    }
    Ok(())
}

/// Two threads that take turns at adding one to a word, and spin or sleep meanwhile.
fn one_word(near: usize, far: usize, manner: &Manner) -> Outcome<Duration> {
    if manner.work == 0 && !manner.spin.is_zero() {
        return Ok(ping_pong(near, far, manner.batches * BATCH)?);
    }
    let (word, spin) = (AtomicU32::new(0), Spin::new(manner.spin));
    let take_turn = |turn: u32| {
        wait_for_turn(&word, turn, spin)?;
        work(manner);
        word.store(turn + 1, Ordering::Release);
        if manner.spin.is_zero() {
            futex::wake(&word, 1)?;
        }
        Outcome::Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            let _pinned = pin_thread(far)?;
            (0..manner.batches * BATCH).try_for_each(|turn| take_turn(2 * turn + 1))
        });
        let _pinned = pin_thread(near)?;
        let mut turns = (0..).step_by(2);
        let time = time_batches(manner, || take_turn(turns.next().expect("fewer turns than numbers")))?;
        other.join().expect("the other thread does not panic")?;
        Ok(time)
    })
}

fn wait_for_turn(word: &AtomicU32, turn: u32, spin: Spin) -> Outcome<()> {
    let is_turn = || word.load(Ordering::Acquire) == turn;
    while !spin.until(is_turn) {
        let seen = word.load(Ordering::Acquire);
        if seen != turn {
            futex::wait(word, seen, Some(PATIENCE))?;
        }
    }
    Ok(())
}

/// The median over batches of what one of `round_trip` takes, without both parties' work.
fn time_batches(manner: &Manner, mut round_trip: impl FnMut() -> Outcome<()>) -> Outcome<Duration> {
    let mut times = Vec::new();
    for _ in 0..manner.batches {
        let start = Instant::now();
        (0..BATCH).try_for_each(|_| round_trip())?;
        times.push(start.elapsed());
    }
    Ok((median(times) / BATCH).saturating_sub(2 * work_time(manner)))
}

fn work_time(manner: &Manner) -> Duration {
    let times = (0..manner.batches).map(|_| {
        let start = Instant::now();
        (0..BATCH).for_each(|_| work(manner));
        start.elapsed()
    });
    median(times.collect()) / BATCH
}

fn work(manner: &Manner) {
    // Each step waits for the one before.
    black_box((0..manner.work).fold(black_box(1u64), |x, _| x.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 1));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
