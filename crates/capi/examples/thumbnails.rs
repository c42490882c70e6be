//! The program `thumbnails` in Rust, with the same loops. Whatever they are written in, each client can talk to each server.
//!
//!     thumbnails serve NAME                       serves under NAME until SIGINT or SIGTERM comes
//!     thumbnails ask NAME COUNT WIDTH HEIGHT      has COUNT images of WIDTH x HEIGHT pixels halved

use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use genie::channel::{ConnectOptions, Directory, Listener, ServeOptions};
use genie::{
    Buffer, Connect, In, Incoming, Interface, Out, Pending, RequestId, Scheme, Server, ServerError,
    ServerHandle, Service, ServiceId,
};

/// Red, green, blue and alpha.
const PIXEL: usize = 4;
const IN_FLIGHT: usize = 4;
const LONGEST_SIDE: usize = 1 << 14;
static SERVICES: [Service; 1] = [Service::new("halve", true, true)];

struct Thumbnails(String);

impl Server for Thumbnails {
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

/// One row of the half-size image, of two rows of the image: each pixel is the average of four.
fn halve(above: &[u8], below: &[u8], to: &mut [u8]) {
    let rows = above.as_chunks::<{ 2 * PIXEL }>().0.iter().zip(below.as_chunks::<{ 2 * PIXEL }>().0);
    for (to, (above, below)) in to.as_chunks_mut::<PIXEL>().0.iter_mut().zip(rows) {
        for c in 0..PIXEL {
            let sum = |row: &[u8; 2 * PIXEL]| u32::from(row[c]) + u32::from(row[c + PIXEL]);
            to[c] = ((sum(above) + sum(below) + 2) / 4) as u8;
        }
    }
}

fn answer(request: &mut Incoming) -> Result<(), ServerError> {
    let shape: [u8; 8] = request
        .argument()
        .try_into()
        .map_err(|_| ServerError::misuse("the argument has to be the image's width and height"))?;
    let [width, height] = [&shape[..4], &shape[4..]]
        .map(|side| u32::from_ne_bytes([side[0], side[1], side[2], side[3]]) as usize);
    if width > LONGEST_SIDE || height > LONGEST_SIDE {
        return Err(ServerError::misuse("the image is too large"));
    }
    request.ready(1)?;
    let (pixels, half) = (request.output(0)?, request.input(1)?);
    let (row, half_row, half_height) = (width * PIXEL, width / 2 * PIXEL, height / 2);
    if pixels.len() < row * height || half.len() < half_row * half_height {
        return Err(ServerError::misuse("a buffer is too short"));
    }
    let (mut above, mut below, mut to) = (vec![0; row], vec![0; row], vec![0; half_row]);
    for y in 0..half_height {
        pixels.part(2 * y * row..(2 * y + 1) * row).copy_to(&mut above);
        pixels.part((2 * y + 1) * row..(2 * y + 2) * row).copy_to(&mut below);
        halve(&above, &below, &mut to);
        half.part(y * half_row..(y + 1) * half_row).copy_from(&to);
    }
    Ok(request.set_actual(1, half_height * half_row)?)
}

fn serve(name: &str) -> Result<(), Box<dyn Error>> {
    // Each client is lent as much memory at first as its inputs in flight take, and one more: four times 16 MiB, and 16 MiB.
    let options = ServeOptions { pool: 5 << 24, ..ServeOptions::default() };
    Ok(Listener::bind(name, Thumbnails(name.to_owned()), options)?.run_until_signal()?)
}

fn color(index: usize, image: usize) -> u8 {
    (index * 37 + index / 4093 + image) as u8
}

/// Whether this is the image halved that the client has painted.
fn is_half(half: &[u8], image: usize, width: usize) -> bool {
    let (row, half_row) = (width * PIXEL, width / 2 * PIXEL);
    let (mut rows, mut expected) = (vec![0; 2 * row], vec![0; half_row]);
    half.chunks_exact(half_row).enumerate().all(|(y, half)| {
        rows.iter_mut().enumerate().for_each(|(i, byte)| *byte = color(2 * y * row + i, image));
        halve(&rows[..row], &rows[row..], &mut expected);
        half == expected
    })
}

fn submit(
    genie: &Interface,
    server: &ServerHandle,
    argument: &[u8],
    image: Buffer,
    half: Buffer,
) -> Result<Pending<'static>, genie::Error> {
    let request = genie.request(server, ServiceId(0)).argument(argument);
    let request = request.out(Out::owned(Scheme::EmulatedCopy, image));
    Ok(request.input(In::owned(Scheme::EmulatedCopy, half)).submit()?)
}

fn ask(name: &str, count: usize, [width, height]: [usize; 2]) -> Result<bool, Box<dyn Error>> {
    let genie = Interface::open()?;
    let options = ConnectOptions { wait: Duration::from_secs(2), ..ConnectOptions::default() };
    let server = genie.connect_with(&Directory::open()?, name, &options)?;
    let argument = [width, height].map(|side| (side as u32).to_ne_bytes()).concat();
    let (bytes, half_bytes) = (width * PIXEL * height, width / 2 * PIXEL * (height / 2));
    let mut flight = VecDeque::new();
    for image in 0..IN_FLIGHT {
        let (mut painted, half) = (genie.allocate(bytes)?, genie.allocate(half_bytes)?);
        painted.iter_mut().enumerate().for_each(|(at, byte)| *byte = color(at, image));
        flight.push_back(submit(&genie, &server, &argument, painted, half)?);
    }
    let mut copied = 0;
    let begun = Instant::now();
    for _ in 0..count {
        let mut reply = flight.pop_front().expect("some are in flight").sync()?;
        copied += reply.receipts().map(|receipt| receipt.copied).sum::<usize>();
        let mut take = || reply.take_buffer().expect("both come back");
        let (image, half) = (take(), take());
        flight.push_back(submit(&genie, &server, &argument, image, half)?);
    }
    let time = begun.elapsed().as_secs_f64();
    let mut is_right = true;
    for (i, pending) in flight.into_iter().enumerate() {
        let mut reply = pending.sync()?;
        let (_, half) = (reply.take_buffer(), reply.take_buffer().expect("both come back"));
        is_right &= is_half(&half, (count + i) % IN_FLIGHT, width);
    }
    let verdict = if is_right { "all right" } else { "WRONG" };
    println!(
        "{count} images of {bytes} bytes halved, {verdict}; {copied} bytes copied; {:.1} images a second",
        count as f64 / time
    );
    Ok(is_right)
}

fn run(arguments: &[&str]) -> Result<bool, Box<dyn Error>> {
    match arguments {
        ["serve", name] => serve(name).map(|()| true),
        ["ask", name, count, width, height] => ask(name, count.parse()?, [width.parse()?, height.parse()?]),
        _ => Err("usage: thumbnails serve NAME, or thumbnails ask NAME COUNT WIDTH HEIGHT".into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("thumbnails: {error}");
            ExitCode::FAILURE
        }
    }
}
