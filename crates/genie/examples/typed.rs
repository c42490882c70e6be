//! What typed calls cost beside the same requests without types, measured in turns.
//!
//!     cargo run --release -p genie --features service --example typed [ROUNDS]
//!
//! A program of its own serves both: the typed service, and one of the same bytes that knows no types.

use std::hint::black_box;
use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use genie::channel::{ConnectOptions, Directory, Listener, ServeOptions};
use genie::service::{Input, Output};
use genie::{Connect, In, Incoming, Interface, Out, RequestId, Server, ServerError, ServerHandle, Service};
use genie_sys::machine::{allowed_cpus, pin_thread};

#[genie::service]
trait Sums {
    fn add(&self, a: u64, b: u64) -> u64;
    fn sum(&self, data: &[u8]) -> u64;
    fn fill(&self, byte: u8, data: &mut [u8]) -> Result<u64, String>;
}

struct Adder;

impl Sums for Adder {
    fn add(&self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
    }

    fn sum(&self, data: Output<'_>) -> u64 {
        data.data().sum()
    }

    fn fill(&self, byte: u8, mut data: Input<'_>) -> Result<u64, String> {
        data.data().fill(byte);
        data.set_actual(data.len());
        Ok(data.len() as u64)
    }
}

/// Serves both, so that nothing else differs: not the channel, nor its thread, nor that thread's CPU.
struct Both {
    typed: SumsServer<Adder>,
    services: Vec<Service>,
}

impl Both {
    fn new() -> Self {
        let typed = SumsServer::new(Adder);
        let (add, sum, fill) = ("add", "sum", "fill");
        let untyped = [
            Service::new(add, false, false),
            Service::new(sum, true, false),
            Service::new(fill, false, true),
        ];
        let services = typed.services().iter().cloned().chain(untyped).collect();
        Self { typed, services }
    }
}

impl Server for Both {
    fn name(&self) -> &str {
        "sums"
    }

    fn services(&self) -> &[Service] {
        &self.services
    }

    fn request(&self, mut request: Incoming) {
        let result = match (request.service().0 as usize).checked_sub(self.typed.services().len()) {
            None => return self.typed.request(request),
            Some(0) => add(&mut request),
            Some(1) => sum(&mut request),
            Some(_) => fill(&mut request),
        };
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {}
}

fn add(request: &mut Incoming) -> Result<(), ServerError> {
    let argument: [u8; 16] = request.argument().try_into().map_err(|_| "two numbers are added")?;
    let (a, b) = argument.split_at(8);
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| "a number has 8 bytes");
    Ok(request.set_argument(&number(a)?.wrapping_add(number(b)?).to_le_bytes())?)
}

fn sum(request: &mut Incoming) -> Result<(), ServerError> {
    let sum = request.output(0)?.sum();
    Ok(request.set_argument(&sum.to_le_bytes())?)
}

fn fill(request: &mut Incoming) -> Result<(), ServerError> {
    let byte = *request.argument().first().ok_or("a byte to fill with")?;
    let len = request.fill(0, |room| room.fill(byte))?;
    Ok(request.set_argument(&(len as u64).to_le_bytes())?)
}

/// What one round took: nanoseconds for each request without types, and for each typed call.
type Pair = [f64; 2];

/// Runs `untyped` and `typed` `count` times each, in turns, in each of `rounds` rounds.
fn rounds(rounds: usize, count: u32, mut untyped: impl FnMut(), mut typed: impl FnMut()) -> Vec<Pair> {
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..count).for_each(|_| run());
        start.elapsed().as_nanos() as f64 / f64::from(count)
    };
    let round = |index: usize| match index.is_multiple_of(2) {
        true => [time(&mut untyped), time(&mut typed)],
        false => {
            let typed = time(&mut typed);
            [time(&mut untyped), typed]
        }
    };
    let warm_up = rounds / 10 + 1;
    (0..warm_up + rounds).map(round).skip(warm_up).collect()
}

/// The median, and where the middle nine tenths begin and end.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    [0.5, 0.05, 0.95].map(|part| values[(part * (values.len() - 1) as f64) as usize])
}

fn print(what: &str, pairs: &[Pair]) {
    let show = |[median, low, high]: [f64; 3]| format!("{median:.0} ({low:.0} to {high:.0})");
    let untyped = spread(pairs.iter().map(|[untyped, _]| *untyped));
    let typed = spread(pairs.iter().map(|[_, typed]| *typed));
    let more = spread(pairs.iter().map(|[untyped, typed]| typed - untyped));
    let part = 100.0 * more[0] / untyped[0];
    println!("{what:<12} {:>24} {:>24} {:>20} {part:>6.1} %", show(untyped), show(typed), show(more));
}

fn measure(genie: &Interface, server: ServerHandle, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let number = |name| server.service(name);
    let (add, sum, fill) = (number("add")?, number("sum")?, number("fill")?);
    let sums = SumsClient::new(genie, server.clone())?;
    let pairs = rounds(
        count,
        1000,
        || {
            let mut argument = [0; 16];
            argument[..8].copy_from_slice(&black_box(7u64).to_le_bytes());
            argument[8..].copy_from_slice(&black_box(8u64).to_le_bytes());
            let reply = genie.request(&server, add).argument(&argument).room(8).send().expect("a sum");
            assert_eq!(reply.argument(), 15u64.to_le_bytes());
        },
        || assert_eq!(sums.add(black_box(7), black_box(8)).send().expect("a sum").value, 15),
    );
    print("two numbers", &pairs);
    let mut data = genie.allocate(1 << 20)?;
    data.fill(1);
    let expected = sums.sum(&data).send()?.value;
    let pairs = rounds(
        count,
        20,
        || {
            let reply =
                genie.request(&server, sum).out(Out::emulated_copy(&data)).room(8).send().expect("a sum");
            assert_eq!(reply.argument(), expected.to_le_bytes());
        },
        || assert_eq!(sums.sum(&data).send().expect("a sum").value, expected),
    );
    print("1 MiB out", &pairs);
    let mut filled = [genie.allocate(1 << 20)?, genie.allocate(1 << 20)?];
    let [untyped, typed] = &mut filled;
    let pairs = rounds(
        count,
        20,
        || {
            let request =
                genie.request(&server, fill).input(In::emulated_copy(untyped)).argument(&[3]).room(8);
            assert_eq!(request.send().expect("a reply").actual(), 1 << 20);
        },
        || assert_eq!(sums.fill(3, typed).send().expect("a reply").value, 1 << 20),
    );
    assert!(filled.iter().all(|data| data.iter().all(|byte| *byte == 3)));
    print("1 MiB in", &pairs);
    Ok(())
}

/// A server in a process of its own, which ends with its standard input.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its fate is of no interest any more.
        let _ = self.0.wait();
    }
}

/// Longer than any request takes: neither side sleeps.
const SPIN: Duration = Duration::from_millis(3);

fn serve(folder: &str, cpu: usize) -> Result<(), Box<dyn std::error::Error>> {
    let _pinned = pin_thread(cpu)?;
    let options = ServeOptions { spin: SPIN, ..ServeOptions::default() };
    let running = Listener::bind_in(&Directory::at(folder)?, "sums", Both::new(), options)?.start()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(running);
    Ok(())
}

fn main() -> ExitCode {
    match serve_or_measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("typed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_or_measure() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [serving, folder, cpu] = &arguments[..]
        && serving == "serve"
    {
        return serve(folder, cpu.parse()?);
    }
    let count = arguments.first().map_or(Ok(400), |rounds| rounds.parse())?;
    let cpus = allowed_cpus()?;
    let _pinned = pin_thread(cpus[0])?;
    let genie = Interface::open()?;
    println!("ns a request          without types (p5 to p95)                    typed                 more");
    println!("in this process");
    measure(&genie, ServerHandle::new(Both::new()), count)?;
    let scratch = tempfile::tempdir()?;
    let folder = scratch.path().join("run");
    let directory = Directory::at(&folder)?;
    let mut command = Command::new(std::env::current_exe()?);
    let cpu = cpus.last().map_or_else(String::new, usize::to_string);
    let _served = Served(command.arg("serve").arg(&folder).arg(cpu).stdin(Stdio::piped()).spawn()?);
    let (spin, wait) = (Some(SPIN), Duration::from_secs(10));
    let options = ConnectOptions { spin, wait, ..ConnectOptions::default() };
    println!("in another process, on another CPU where there is one");
    measure(&genie, genie.connect_with(&directory, "sums", &options)?, count)
}
