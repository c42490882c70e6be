//! A studio that sends frames back, and its client: several frames in flight, a server that is killed on the way, requests that
//! take long, tasks. It starts the server itself, as a process of its own.
//!
//!     cargo run --release -p genie --features tokio --example frames [FRAMES [BYTES]]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use genie::channel::{ConnectOptions, Directory, Listener, ServeOptions};
use genie::{
    BufferRing, Error, Failed, In, Incoming, Interface, Limits, Out, Pending, Reconnecting, Reply, RequestId,
    Scheme, Server, ServerError, Service, ServiceId,
};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// How many frames are in flight.
const IN_FLIGHT: usize = 3;
/// How long the service `develop` takes.
const LONG: Duration = Duration::from_millis(20);
/// How often each is measured.
const ROUNDS: usize = 5;

// The server.

struct Studio;

static SERVICES: [Service; 2] = [Service::new("mirror", true, true), Service::new("develop", false, false)];
const MIRROR: ServiceId = ServiceId(0);
const DEVELOP: ServiceId = ServiceId(1);

impl Server for Studio {
    fn name(&self) -> &str {
        "studio"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    /// Called in several threads at the same time, since the options say so.
    fn request(&self, mut request: Incoming) {
        let result = match request.service() {
            MIRROR => mirror(&mut request),
            _ => {
                thread::sleep(LONG);
                Ok(())
            }
        };
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {
        // Every request is replied to before `request` returns.
    }
}

/// Fills buffer 1 with the frame in buffer 0.
fn mirror(request: &mut Incoming) -> Result<(), ServerError> {
    request.ready(1)?;
    let len = request.input(1)?.copy_data(&request.output(0)?);
    Ok(request.set_actual(1, len)?)
}

/// Serves under two names: with one thread for each client, and with four. Mirrors frames by a Unix socket, too.
fn serve(directory: &Path) -> Result<()> {
    let listener = UnixListener::bind(directory.join("socket"))?;
    thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| drop(thread::spawn(|| echo(stream))))
    });
    let directory = Directory::at(directory)?;
    let options = |threads| ServeOptions { threads, ..ServeOptions::default() };
    let _one = Listener::bind_in(&directory, "studio-1", Studio, options(1))?.start()?;
    Ok(Listener::bind_in(&directory, "studio", Studio, options(4))?.run_until_signal()?)
}

fn echo(mut stream: UnixStream) -> std::io::Result<()> {
    let mut len = [0; 8];
    loop {
        stream.read_exact(&mut len)?;
        let mut frame = vec![0; u64::from_le_bytes(len) as usize];
        stream.read_exact(&mut frame)?;
        stream.write_all(&frame)?;
    }
}

// The client.

/// The server's process, which is killed at the end.
struct Process(Child);

impl Process {
    fn start(directory: &Path) -> Result<Self> {
        // What a killed server leaves behind. Genie clears its own away.
        let _ = std::fs::remove_file(directory.join("socket"));
        let program = std::env::current_exe()?;
        Ok(Self(Command::new(program).arg("serve").arg(directory).spawn()?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has frames mirrored, several in flight; returns how many were in flight when a server went, and were sent again.
fn pipeline(genie: &Interface, studio: &Reconnecting, frames: u64, len: usize) -> Result<u64> {
    let mut frame = genie.allocate(len)?;
    let mut ring = BufferRing::new(genie, IN_FLIGHT, len);
    let (mut sent, mut back, mut lost) = (0, 0, 0);
    while back < frames {
        // The oldest reply, if there is one to be waited for, and a buffer.
        let taken = match sent < frames {
            true => ring.take(),
            false => ring
                .oldest()
                .map(|last| last.map(|(buffer, reply)| (buffer, Some(reply))).expect("not all are back")),
        };
        let buffer = match taken {
            Ok((buffer, Some(reply))) => {
                check(&buffer, &reply, back, len)?;
                back += 1;
                buffer
            }
            Ok((buffer, None)) => buffer,
            // It may have been mirrored: to do that twice harms nobody. All behind it are sent again, too, even if some came back.
            Err(Failed { error: Error::Gone { asked: true, .. }, .. }) => {
                while ring.in_flight() > 0 {
                    drop(ring.oldest());
                }
                lost += sent - back;
                sent = back;
                continue;
            }
            Err(failed) => return Err(failed.into()),
        };
        if sent == frames {
            continue;
        }
        // At once, whether or not the server has read the last frame: it sees what was there when it was asked.
        frame[..8].copy_from_slice(&sent.to_le_bytes());
        let mut buffer = Some(buffer);
        let pending = studio.with(|server| {
            let buffer = match buffer.take() {
                Some(buffer) => buffer,
                None => genie.allocate(len)?,
            };
            let request = genie.request(server, MIRROR).out(Out::emulated_copy(&frame));
            request.input(In::owned(Scheme::EmulatedCopy, buffer)).submit_when_room()
        })?;
        ring.push(pending);
        sent += 1;
    }
    Ok(lost)
}

fn check(frame: &[u8], reply: &Reply, number: u64, len: usize) -> Result<()> {
    match reply.buffers[1].actual == len && frame[..8] == number.to_le_bytes() {
        true => Ok(()),
        false => Err(format!("frame {number} came back wrong").into()),
    }
}

/// The same by a Unix socket, one thread for each direction.
fn by_socket(directory: &Path, frames: u64, len: usize) -> Result<()> {
    let mut stream = UnixStream::connect(directory.join("socket"))?;
    let mut sending = stream.try_clone()?;
    let sender = thread::spawn(move || -> std::io::Result<()> {
        let mut frame = vec![0; len];
        (0..frames).try_for_each(|number| {
            frame[..8].copy_from_slice(&number.to_le_bytes());
            sending.write_all(&(len as u64).to_le_bytes())?;
            sending.write_all(&frame)
        })
    });
    let mut frame = vec![0; len];
    for number in 0..frames {
        stream.read_exact(&mut frame)?;
        if frame[..8] != number.to_le_bytes() {
            return Err(format!("frame {number} came back wrong").into());
        }
    }
    Ok(sender.join().expect("no panic")?)
}

/// Has four requests at a time take their time.
fn develop(genie: &Interface, studio: &Reconnecting) -> Result<Duration> {
    let (server, begun) = (studio.handle()?, Instant::now());
    for _ in 0..4 {
        let submit = |_| genie.request(&server, DEVELOP).submit();
        let pending: Vec<Pending<'_>> = (0..4).map(submit).collect::<Result<_, _>>()?;
        pending.into_iter().try_for_each(|pending| pending.sync().map(drop))?;
    }
    Ok(begun.elapsed())
}

/// Four tasks that await their frames.
#[tokio::main(flavor = "current_thread")]
async fn tasks(genie: &Interface, studio: &Arc<Reconnecting>, frames: u64, len: usize) -> Result<()> {
    let client = genie::tokio::Interface::new(genie.clone())?;
    let server = client.handle(studio).await?;
    let task = async |number: u64| -> Result<()> {
        let (mut frame, mut back) = (genie.allocate(len)?, genie.allocate(len)?);
        for sent in 0..frames / 4 {
            frame[..8].copy_from_slice(&(number << 32 | sent).to_le_bytes());
            let request = genie.request(&server, MIRROR).out(Out::emulated_copy(&frame));
            let reply = client.send(request.input(In::emulated_copy(&mut back))).await?;
            check(&back, &reply, number << 32 | sent, len)?;
        }
        Ok(())
    };
    tokio::try_join!(task(0), task(1), task(2), task(3))?;
    Ok(())
}

/// The median, the least and the most, as a text.
fn summary(mut rates: Vec<f64>) -> (f64, String) {
    rates.sort_by(f64::total_cmp);
    let [least, median, most] = [0, rates.len() / 2, rates.len() - 1].map(|index| rates[index]);
    (median, format!("{median:.0} frames/s ({least:.0} to {most:.0})"))
}

fn ask(directory: &Path, frames: u64, len: usize) -> Result<()> {
    let genie = Interface::open_with(Limits { timeout: Some(Duration::from_secs(60)), ..Limits::default() })?;
    let process = Process::start(directory)?;
    let options = ConnectOptions { wait: Duration::from_secs(30), ..ConnectOptions::default() };
    let run = Directory::at(directory)?;
    let named = |name| Arc::new(Reconnecting::new_in(&genie, &run, name, options.clone()));
    let (studio, one) = (named("studio"), named("studio-1"));

    let [mut passed, mut copied] = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        let begun = Instant::now();
        pipeline(&genie, &studio, frames, len)?;
        let middle = Instant::now();
        by_socket(directory, frames, len)?;
        // The first round warms up.
        if round > 0 {
            passed.push(frames as f64 / (middle - begun).as_secs_f64());
            copied.push(frames as f64 / middle.elapsed().as_secs_f64());
        }
    }
    let ((ours, passed), (theirs, copied)) = (summary(passed), summary(copied));
    println!("{frames} frames of {len} bytes there and back, {IN_FLIGHT} in flight:");
    println!("  {passed}, by a Unix socket {copied}: {:.1} times as many", ours / theirs);

    let (slow, quick) = (develop(&genie, &one)?, develop(&genie, &studio)?);
    let ratio = slow.as_secs_f64() / quick.as_secs_f64();
    println!(
        "16 requests of {LONG:?}, 4 in flight: {slow:.0?} with one thread, {quick:.0?} with four: {ratio:.1} times"
    );

    tasks(&genie, &studio, frames, len)?;
    println!("{frames} frames of four tasks on one thread came back");

    let killed = thread::scope(|threads| -> Result<u64> {
        let next = threads.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            drop(process);
            Process::start(directory)
        });
        let mut lost = 0;
        while !next.is_finished() {
            lost += pipeline(&genie, &studio, frames, len)?;
        }
        lost += pipeline(&genie, &studio, frames, len)?;
        let _serving = next.join().expect("no panic")?;
        Ok(lost)
    })?;
    println!("the server was killed and started again: {killed} frames were in flight, and were sent again");
    Ok(())
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [serve_in, directory] if serve_in == "serve" => serve(Path::new(directory)),
        sizes => {
            let number = |index: usize, default| sizes.get(index).map_or(Ok(default), |text| text.parse());
            let directory = std::env::temp_dir().join(format!("genie-frames-{}", std::process::id()));
            std::fs::DirBuilder::new().create(&directory)?;
            let done = ask(&directory, number(0, 100)?, number(1, 8 << 20)? as usize);
            std::fs::remove_dir_all(&directory)?;
            done
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
