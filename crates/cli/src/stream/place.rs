//! Ends as they are named on the command line, and how they are opened.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use genie::net::driver::{Driver, PacketSocket, Queue, Rings, Xdp, interfaces};
use genie::net::streaming::End;
use genie_lab::interface::Granule;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::LOOK;
use crate::failure::Failure;
use crate::net::address::resolve;
use crate::net::means::By;
use crate::signals::Stop;

/// How long the other side may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// After how long it is said what is waited for.
const SILENCE: Duration = Duration::from_millis(250);
/// The longest datagram.
const DATAGRAM: usize = 65_535;

/// An end as it is named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Standard input or output.
    Standard,
    Path(PathBuf),
    Tcp(String),
    TcpListen(String),
    Udp(String),
    Unix(PathBuf),
    UnixListen(PathBuf),
    Interface(String, Option<u16>),
}

/// How ends are opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening<'a> {
    /// How long the packets are in which bytes are taken.
    pub(super) len: usize,
    pub(super) driver: By,
    pub(super) stop: &'a Stop,
}

/// The ends of a flow.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) from: End,
    pub(super) to: End,
    pub(super) is_standard_output: bool,
}

impl Place {
    /// Reads an end's name.
    pub(super) fn parse(text: &OsStr) -> Result<Self, String> {
        let Some((kind, rest)) = text.to_str().and_then(|text| text.split_once(':')) else {
            return match text.as_encoded_bytes() {
                b"" => Err("an end has a name, or is - for standard input or output".to_owned()),
                b"-" => Ok(Self::Standard),
                _ => Ok(Self::Path(text.into())),
            };
        };
        if matches!(kind, "unix" | "unix-listen") && rest.is_empty() {
            return Err(format!("a local socket has a path: write {kind}:PATH"));
        }
        Ok(match kind {
            "tcp" => Self::Tcp(rest.to_owned()),
            "tcp-listen" => Self::TcpListen(rest.to_owned()),
            "udp" => Self::Udp(rest.to_owned()),
            "unix" => Self::Unix(rest.into()),
            "unix-listen" => Self::UnixListen(rest.into()),
            "net" => match rest.split_once(':') {
                None => Self::Interface(rest.to_owned(), None),
                Some((name, port)) => match port.parse() {
                    Ok(port) if port > 0 => Self::Interface(name.to_owned(), Some(port)),
                    _ => return Err(format!("{port:?} is no UDP port: write net:IFACE:PORT")),
                },
            },
            _ => Self::Path(text.into()),
        })
    }
}

/// Which file an end is, if it is one: there already, or not yet.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    There(u64, u64),
    NotYet(PathBuf),
}

impl Place {
    fn file(&self, is_source: bool) -> Option<Identity> {
        let metadata = match self {
            Self::Standard if is_source => {
                File::from(io::stdin().as_fd().try_clone_to_owned().ok()?).metadata()
            }
            Self::Standard => File::from(io::stdout().as_fd().try_clone_to_owned().ok()?).metadata(),
            Self::Path(path) => match fs::metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Some(Identity::NotYet(path.clone()));
                }
                metadata => metadata,
            },
            _ => return None,
        };
        metadata.ok().filter(fs::Metadata::is_file).map(|it| Identity::There(it.dev(), it.ino()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("-"),
            Self::Path(path) => path.display().fmt(f),
            Self::Tcp(host) => write!(f, "tcp:{host}"),
            Self::TcpListen(host) => write!(f, "tcp-listen:{host}"),
            Self::Udp(host) => write!(f, "udp:{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::UnixListen(path) => write!(f, "unix-listen:{}", path.display()),
            Self::Interface(name, None) => write!(f, "net:{name}"),
            Self::Interface(name, Some(port)) => write!(f, "net:{name}:{port}"),
        }
    }
}

impl Opening<'_> {
    /// Opens the ends of a flow; none if the user has asked for the end meanwhile.
    pub(super) fn open(self, [from, to]: [&Place; 2]) -> Result<Option<Ends>, Failure> {
        let Some(source) = self.end(from, true)? else { return Ok(None) };
        let Some(sink) = self.end(to, false)? else { return Ok(None) };
        Ok(Some(Ends { from: source, to: sink, is_standard_output: *to == Place::Standard }))
    }

    fn end(self, place: &Place, is_source: bool) -> Result<Option<End>, Failure> {
        let name = place.to_string();
        if let Place::Interface(interface, port) = place {
            return self.interface(&name, interface, *port, is_source).map(Some);
        }
        let failed = |error: io::Error| Failure::could_not(format!("{name} cannot be opened: {error}"));
        let Some(descriptor) = self.descriptor(place, is_source).map_err(failed)? else { return Ok(None) };
        let len = if matches!(place, Place::Udp(_)) { DATAGRAM } else { self.len };
        End::of_descriptor(&name, descriptor, len).map(Some).map_err(failed)
    }

    fn descriptor(self, place: &Place, is_source: bool) -> io::Result<Option<OwnedFd>> {
        Ok(match place {
            Place::Standard if is_source => Some(io::stdin().as_fd().try_clone_to_owned()?),
            Place::Standard => Some(io::stdout().as_fd().try_clone_to_owned()?),
            Place::Path(path) if is_source => {
                // A FIFO is there before its writer is.
                let nonblocking = OFlags::NONBLOCK.bits() as i32;
                Some(OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?.into())
            }
            Place::Path(path) => {
                self.until(&format!("a reader of {place}"), || sink(path))?.map(OwnedFd::from)
            }
            Place::Tcp(host) => self.connect_to_any(place, &resolve(host)?)?,
            Place::TcpListen(host) => {
                let listener = TcpListener::bind(&resolve(host)?[..])?;
                listener.set_nonblocking(true)?;
                let accepted = self.until(&format!("a connection to {place}"), || listener.accept())?;
                accepted.map(|(socket, _)| socket.into())
            }
            Place::Udp(host) => Some(udp(&resolve(host)?, is_source)?.into()),
            Place::Unix(path) => self.connect(place, AddressFamily::UNIX, &SocketAddrUnix::new(path)?)?,
            Place::UnixListen(path) => {
                let listener = listen(path)?;
                listener.set_nonblocking(true)?;
                let accepted = self.until(&format!("a connection to {place}"), || listener.accept());
                // The name is for one connection.
                let _ = fs::remove_file(path);
                accepted?.map(|(socket, _)| socket.into())
            }
            Place::Interface(..) => None,
        })
    }

    /// Tries until it would not block, and says what is waited for; none if the user asks for the end.
    fn until<T>(self, what: &str, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
        let (begun, mut is_said) = (Instant::now(), false);
        while !self.stop.is_asked() {
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOOK),
                done => return done.map(Some),
            }
            if !is_said && begun.elapsed() > SILENCE {
                eprintln!("genie: waiting for {what}; interrupt to stop");
                is_said = true;
            }
        }
        Ok(None)
    }

    /// Connects to the first of these addresses at which that can be done; none if the user asks for the end.
    fn connect_to_any(self, place: &Place, addresses: &[SocketAddr]) -> io::Result<Option<OwnedFd>> {
        let mut result = Err(io::ErrorKind::NotFound.into());
        for address in addresses {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            result = self.connect(place, family, address);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn connect(
        self,
        place: &Place,
        family: AddressFamily,
        address: &impl SocketAddrArg,
    ) -> io::Result<Option<OwnedFd>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let begun = Instant::now();
        let connected = self.until(&format!("{place} to accept the connection"), || {
            match rustix::net::connect(&socket, address) {
                Ok(()) | Err(Errno::ISCONN) => Ok(()),
                // A local socket whose backlog is full says AGAIN.
                Err(Errno::INPROGRESS | Errno::ALREADY | Errno::AGAIN) if begun.elapsed() < PATIENCE => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Err(Errno::INPROGRESS | Errno::ALREADY | Errno::AGAIN) => Err(Errno::TIMEDOUT.into()),
                Err(errno) => Err(errno.into()),
            }
        })?;
        Ok(connected.map(|()| socket))
    }

    fn interface(
        self,
        name: &str,
        interface: &str,
        port: Option<u16>,
        is_source: bool,
    ) -> Result<End, Failure> {
        if is_source && port.is_none() {
            return Err(Failure::usage(format!(
                "from an interface come the datagrams to a port: write {name}:PORT"
            )));
        }
        let failed = |error: genie::net::driver::Error| Failure::could_not(error);
        let hosts = interfaces::interface(interface).map_err(Failure::could_not)?.hosts;
        let by_xdp = |splits| {
            let space = Granule::Best.space().map_err(Failure::from)?;
            Xdp::open(&space, interface, &hosts, &Queue { splits, ..Queue::default() }).map_err(failed)
        };
        let by_packet_socket = || {
            let rings = PacketSocket::open(interface, &hosts).map_err(failed)?;
            end(name, rings, port)
        };
        match self.driver.driver() {
            Some(Driver::PacketSocket) => by_packet_socket(),
            Some(driver) => end(name, by_xdp(driver == Driver::Splitting)?, port),
            None => match by_xdp(false) {
                Ok(rings) => end(name, rings, port),
                Err(refused) => {
                    eprintln!(
                        "genie: {name} is driven by a packet socket, since AF_XDP is refused ({})",
                        refused.message
                    );
                    by_packet_socket()
                }
            },
        }
    }
}

/// A driver as an end, with the datagrams to a port.
fn end(name: &str, mut rings: impl Rings + 'static, port: Option<u16>) -> Result<End, Failure> {
    let failed = |error: io::Error| Failure::could_not(format!("{name} cannot be opened: {error}"));
    port.map_or(Ok(()), |port| rings.claim(port, true)).map_err(|errno| failed(errno.into()))?;
    End::new(name, rings).map_err(failed)
}

/// A file, emptied, or a FIFO, as soon as it has a reader.
fn sink(path: &Path) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new().write(true).create(true).custom_flags(nonblocking).open(path);
    match opened {
        Ok(file) => {
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            Ok(file)
        }
        Err(error)
            if error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
                && fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) =>
        {
            Err(io::ErrorKind::WouldBlock.into())
        }
        Err(error) => Err(error),
    }
}

/// Makes sure that no file is a sink of one flow and an end of any.
pub(super) fn ensure_apart(ends: &[Place]) -> Result<(), Failure> {
    let files: Vec<_> = ends.iter().enumerate().map(|(at, end)| end.file(at % 2 == 0)).collect();
    for sink in (1..ends.len()).step_by(2) {
        let same =
            (0..ends.len()).find(|at| *at != sink && files[sink].is_some() && files[*at] == files[sink]);
        if let Some(same) = same {
            let (first, later) = (&ends[same.min(sink)], &ends[same.max(sink)]);
            return Err(Failure::usage(format!(
                "{first} and {later} are one file: it would be overwritten while it is used"
            )));
        }
    }
    Ok(())
}

/// Listens at a path: also at that of a listener that was killed, which nobody has any more.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if !is_dead(path)? {
                return Err(io::Error::other("a process has this socket, or it is none: give another path"));
            }
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

/// Whether a socket is there that no process has. A socket of datagrams finds out without being a listener's one connection.
fn is_dead(path: &Path) -> io::Result<bool> {
    let is_socket = fs::symlink_metadata(path)?.file_type().is_socket();
    let connected = UnixDatagram::unbound()?.connect(path);
    Ok(is_socket && connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

/// A socket for what comes to an address, or goes there.
fn udp(addresses: &[SocketAddr], is_source: bool) -> io::Result<UdpSocket> {
    if is_source {
        return UdpSocket::bind(addresses);
    }
    let any = match addresses[0] {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(addresses[0])?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_read_and_named_alike() {
        let parsed = |text: &str| Place::parse(text.as_ref());
        for (text, place) in [
            ("-", Place::Standard),
            ("a:b", Place::Path("a:b".into())),
            ("./tcp:b", Place::Path("./tcp:b".into())),
            ("tcp:host:7", Place::Tcp("host:7".to_owned())),
            ("udp:[::1]:7", Place::Udp("[::1]:7".to_owned())),
            ("unix-listen:/a:b", Place::UnixListen("/a:b".into())),
            ("net:eth0", Place::Interface("eth0".to_owned(), None)),
            ("net:eth0:7000", Place::Interface("eth0".to_owned(), Some(7000))),
        ] {
            assert_eq!(parsed(text), Ok(place.clone()));
            assert_eq!(place.to_string(), text);
        }
        for wrong in ["net:eth0:0", "net:eth0:x", "net:eth0:70000", "", "unix:", "unix-listen:"] {
            parsed(wrong).expect_err(wrong);
        }
    }
}
