//! Datagrams between two processes. Each is a host: it has a datagram server, and the wire that leads to it.
//!
//!     cargo run --release -p genie --features net --example datagrams
//!
//! The program is the first host, and starts the second one.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::time::Duration;

use genie::channel::{ConnectOptions, Directory, Listener, Running, ServeOptions};
use genie::net::adapter::{Layout, Pool, Program, SnapOff};
use genie::net::datagram::{Datagrams, Open, Options, Socket};
use genie::net::{Wire, wire};
use genie::{Connect, In, Interface, Out, ServerHandle};

/// The second host's port.
const PORT: u16 = 7;
const LEN: usize = 8 << 10;
const COUNT: usize = 100;

fn host(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

fn station(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// A host's datagram server, and the wire that leads to it, which is there as long as this value is.
fn open(genie: &Interface, number: u8) -> Result<(ServerHandle, Running), Box<dyn Error>> {
    let other = 3 - number;
    let options = Options {
        mtu: 9000,
        ..Options::new(station(number), [host(number)]).neighbour(host(other), station(other))
    };
    let pool = Pool::reserve(genie.space(), LEN, 256)?;
    let adapter = SnapOff::new(Layout::Program(Program::udp()), pool);
    let server = Datagrams::new(genie.clone(), Box::new(adapter), options);
    // The process of a wire's far end has the wire: frames are stored from where the sender has them.
    let wire = Wire::new(wire::Options::default(), wire::Clock::default(), server.station())?;
    let wire = Listener::bind(&name(number), wire, ServeOptions::default())?.start()?;
    let patient = ConnectOptions { wait: Duration::from_secs(10), ..ConnectOptions::default() };
    server.attach(genie.connect_with(&Directory::open()?, &name(other), &patient)?)?;
    Ok((ServerHandle::new(server), wire))
}

fn name(number: u8) -> String {
    format!("wire-{number}")
}

fn main() -> Result<(), Box<dyn Error>> {
    let genie = Interface::open()?;
    if std::env::args().nth(1).is_some() {
        return answer(&genie);
    }
    let mut second = Command::new(std::env::current_exe()?).arg("second").stdout(Stdio::piped()).spawn()?;
    let (server, _wire) = open(&genie, 1)?;
    // A datagram to a port that is not open yet is lost.
    let said = second.stdout.take().ok_or("no output")?;
    BufReader::new(said).read_line(&mut String::new())?;
    let socket =
        Socket::open(&genie, &server, &Open { peer: Some((host(2), PORT).into()), ..Open::default() })?;
    let mut letter = genie.allocate(LEN)?;
    let mut copied = 0;
    for number in 0..COUNT {
        letter.fill(number as u8);
        let answer = socket.submit(In::moved(LEN))?; // it waits for the answer before there is one
        copied += socket.send(Out::emulated_copy(&letter))?.receipt().copied;
        let mut answer = answer.sync()?;
        copied += answer.receipt().copied;
        let answer = answer.take_migrant().ok_or("no answer")?;
        assert!(answer.iter().all(|byte| *byte == number as u8 + 1));
    }
    println!("{COUNT} datagrams of {LEN} bytes there and back; {copied} bytes copied at this end");
    assert!(second.wait()?.success());
    Ok(())
}

/// The second host: sends what comes back, each byte one higher.
fn answer(genie: &Interface) -> Result<(), Box<dyn Error>> {
    let (server, _wire) = open(genie, 2)?;
    let socket = Socket::open(genie, &server, &Open { port: PORT, ..Open::default() })?;
    println!("the port is open");
    let mut letter = genie.allocate(LEN)?;
    for _ in 0..COUNT {
        let (_, arrived) = socket.receive(In::emulated_copy(&mut letter))?;
        letter.iter_mut().for_each(|byte| *byte += 1);
        socket.send_to(Out::emulated_copy(&letter), arrived.from)?;
    }
    Ok(())
}
