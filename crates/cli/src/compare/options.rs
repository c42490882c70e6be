//! What `genie compare` can be asked to do.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use genie::{Direction, Scheme};
use genie_baselines::Means;
use genie_lab::call::Call;
use genie_lab::interface::Granule;
use genie_lab::length;
use genie_lab::memory_server::Buffers;
use genie_lab::touch::Touch;

use super::bench::Place;
use crate::failure::Failure;
use crate::number;

/// The default lengths: below a page, a page, and up to eight huge pages.
const LENGTHS: &str = "64,4K,64K,256K,1M,2M,16M";
/// The default lengths of datagrams, and the shortest and the longest one.
const DATAGRAMS: [usize; 3] = [64, 1400, 9000];
const DATAGRAM: RangeInclusive<usize> = 8..=65_507;
/// A length may take at most this part of the machine's memory: each scheme has buffers of its own.
const PART_OF_MEMORY: u64 = 16;
/// The time that one length in one direction may take, unless a number of rounds was asked for. A busy machine can be a
/// hundred times slower than an idle one, since each side polls while the other side has no CPU to work on.
const ALLOWANCE: Duration = Duration::from_secs(5);

/// Measure what each data passing scheme costs on this machine, with your own data.
///
/// Passes a file's bytes out to a server, and in from it, under each scheme and at each length, verifies every byte, and
/// says in one screen what emulated copy gains over copy and where it loses, within two minutes. With --all, or any option but
/// --lengths, --rounds and --granule, all schemes are measured, and there is a table for each length and direction. Latency is the time from request to reply. A cycle
/// is the latency and what the client does with its buffer: it pays for faults and for fresh mappings. In turns with the
/// schemes, the same data is passed to and from another process by other common means, the baselines.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(crate) struct Args {
    /// The data to pass; a file shorter than a length is repeated. Without it, pseudo-random bytes are generated.
    pub(super) file: Option<PathBuf>,
    /// Measure all schemes and print all tables, which take some 400 lines. All options do the same but --lengths, --rounds and
    /// --granule.
    #[arg(long)]
    pub(super) all: bool,
    /// How much to pass at once, in bytes or with a suffix K, M or G.
    #[arg(long, value_delimiter = ',', value_parser = length::parse, default_value = LENGTHS, allow_hyphen_values = true)]
    pub(super) lengths: Vec<usize>,
    /// The sides that touch the data: none, client, server, both or full. The client stores one word into every 4 KiB before
    /// each output and loads one after each input (full: every byte); the server reads or writes every byte.
    #[arg(long, value_enum, default_value_t = Touch::Full)]
    pub(super) touch: Touch,
    /// The schemes to compare: names such as copy or emulated-copy, separated by commas; all eight by default.
    #[arg(long, value_delimiter = ',')]
    pub(super) schemes: Vec<Scheme>,
    /// Whether to pass data out to the server, in from it, or both.
    #[arg(long, value_enum, default_value_t = Directions::Both)]
    pub(super) directions: Directions,
    /// Whether the client waits for each reply (send), which borrows an output's data until then, or goes on (submit); both
    /// measures both where they differ, which is output by emulated copy.
    #[arg(long, value_enum, default_value_t = Calls::Both)]
    pub(super) call: Calls,
    /// Where the server is: in-process, in this process and thread; process, in a process of its own, on another CPU where there is one;
    /// or both, measured side by side: the difference is what a user-level server costs.
    ///
    /// net:veth compares UDP datagrams instead, one way and there and back, between two ends on two CPUs: by Genie (net::raw and the
    /// datagram server over AF_XDP), by a bare loop over AF_XDP's rings, and by the kernel's sockets (blocking, spinning, sendmmsg and recvmmsg of
    /// 32, UDP GSO and GRO). Nothing has checksums that the link does not make. The link is a veth pair between two network namespaces, which
    /// are made for this and leave nothing. net:IFACE,NETNS/PEER has the interface IFACE at one end, and PEER at the other, which is in
    /// the network namespace that `ip netns` calls NETNS: on the same Ethernet, up, each with an IPv4 address in one network, and used
    /// by nobody else, since all that comes to either is taken from it meanwhile. Lengths are then 64, 1400 and 9000 unless
    /// others are given, and only --lengths, --rounds, --granule and --json have a meaning. It takes CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
    #[arg(long, value_name = "WHERE", default_value = "process")]
    pub(super) server: Server,
    /// What to measure beside the schemes: all, none, or names such as unix-stream or shared-memory-polled, separated by
    /// commas. Names that end in -polled spin where the others sleep.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    pub(super) baselines: Vec<String>,
    /// Also measure the one-way throughput of copy, emulated copy and weak move with this many requests in flight, in turns with streams
    /// through shared memory and, if iceoryx2-copy is measured, with as many of its samples; by default it is not measured.
    #[arg(long, value_name = "N", value_parser = number::within::<u32>(1..=1024))]
    pub(super) outstanding: Option<u32>,
    /// The kind of pages of the interface's memory.
    #[arg(long, value_enum, default_value_t = Granule::Best)]
    pub(super) granule: Granule,
    /// The server's buffers for input: made for each request, or its own, filled before a request comes.
    #[arg(long, value_enum, default_value_t = Buffers::Customized)]
    pub(super) buffers: Buffers,
    /// How many times to measure each scheme at each length; by default, fewer for longer data, and no more than a few
    /// seconds allow.
    #[arg(long, value_parser = number::within::<u32>(1..=1_000_000))]
    pub(super) rounds: Option<u32>,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    pub(super) json: bool,
    /// Also draw latency and cycle against length into this SVG file.
    #[arg(long, value_name = "OUT.SVG")]
    pub(super) plot: Option<PathBuf>,
}

/// How often everything at one length, in one direction, is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rounds {
    /// The most rounds.
    pub(super) most: usize,
    /// Fewer rounds, but at least some, when the most would take longer than this.
    pub(super) time: Option<Duration>,
}

/// Where the server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Server {
    /// In these places.
    At(&'static [Place]),
    /// At the ends of a link.
    Network(Wanted),
}

/// Between which interfaces datagrams are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A pair that is made for it.
    Veth,
    /// An interface here, and one in a network namespace with a name.
    Between { near: String, namespace: String, far: String },
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        let between = |wanted: &str| {
            let (near, other) = wanted.split_once(',')?;
            let (namespace, far) = other.split_once('/')?;
            Some(Wanted::Between { near: named(near)?, namespace: named(namespace)?, far: named(far)? })
        };
        match (text, text.strip_prefix("net:")) {
            ("in-process", _) => Ok(Self::At(&[Place::InProcess])),
            ("process", _) => Ok(Self::At(&[Place::Process])),
            ("both", _) => Ok(Self::At(&[Place::InProcess, Place::Process])),
            (_, Some("veth")) => Ok(Self::Network(Wanted::Veth)),
            (_, Some(wanted)) => between(wanted).map(Self::Network).ok_or_else(|| {
                "an interface needs another one at the other end: net:IFACE,NETNS/PEER, where `ip netns` lists NETNS; net:veth needs none"
                    .to_owned()
            }),
            _ => Err("there are in-process, process, both, net:veth and net:IFACE,NETNS/PEER".to_owned()),
        }
    }
}

/// By which functions the client makes its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Calls {
    /// By `send`.
    Send,
    /// By `submit`.
    Submit,
    /// By `send`, and where that makes a difference by `submit`, too.
    Both,
}

/// Which ways the data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Directions {
    /// To the server.
    Out,
    /// From the server.
    In,
    /// Out, then in.
    Both,
}

/// The options alone, to learn their defaults.
#[derive(Debug, clap::Parser)]
struct Alone {
    #[command(flatten)]
    args: Args,
}

impl Args {
    /// Whether nothing but the conclusion was asked for: no option says otherwise. Of which data, at which lengths, how often and
    /// with which granules changes nothing in its shape.
    pub(super) fn is_brief(&self) -> bool {
        let Alone { args } = <Alone as clap::Parser>::parse_from(["compare"]);
        let Self { file, lengths, rounds, granule, .. } = self.clone();
        *self == Self { file, lengths, rounds, granule, ..args }
    }

    /// The lengths of datagrams: those that were asked for, or the usual ones. Options that mean nothing to datagrams are refused.
    pub(super) fn datagram_lengths(&self) -> Result<Vec<usize>, Failure> {
        let Alone { args } = <Alone as clap::Parser>::parse_from(["compare"]);
        let Self { lengths, rounds, granule, server, json, .. } = self.clone();
        let usual = if lengths == args.lengths { DATAGRAMS.to_vec() } else { lengths.clone() };
        if *self != (Self { lengths, rounds, granule, server, json, ..args }) {
            return Err(Failure::usage(
                "with --server net: only --lengths, --rounds, --granule and --json have a meaning",
            ));
        }
        match usual.iter().find(|len| !DATAGRAM.contains(len)) {
            Some(len) => Err(Failure::usage(format!(
                "a datagram's data has {} bytes, for its number, to {}; not {len}",
                DATAGRAM.start(),
                DATAGRAM.end()
            ))),
            None => Ok(usual),
        }
    }

    /// The lengths, ascending, each once.
    pub(super) fn lengths(&self, memory: u64) -> Result<Vec<usize>, Failure> {
        let mut lengths = self.lengths.clone();
        lengths.sort_unstable();
        lengths.dedup();
        let longest = memory / PART_OF_MEMORY;
        match lengths.last() {
            Some(last) if *last as u64 > longest => Err(Failure::usage(format!(
                "the length {} is too long for this machine's {} of memory; the longest is {}",
                length::format(*last),
                length::approximate(memory),
                length::approximate(longest),
            ))),
            _ => Ok(lengths),
        }
    }

    /// The schemes, in the order of the thesis's tables, each once, with the call by which they pass data.
    pub(super) fn ways(&self, direction: Direction) -> Vec<(Scheme, Call)> {
        let concluded = |scheme: &Scheme| matches!(scheme, Scheme::Copy | Scheme::EmulatedCopy);
        let wanted = |scheme: &Scheme| match self.schemes.is_empty() {
            true => !self.is_brief() || concluded(scheme),
            false => self.schemes.contains(scheme),
        };
        let calls = |scheme| match self.call {
            Calls::Send => &[Call::Send][..],
            Calls::Submit => &[Call::Submit],
            Calls::Both if (scheme, direction) == (Scheme::EmulatedCopy, Direction::Out) => {
                &[Call::Send, Call::Submit]
            }
            Calls::Both => &[Call::Send],
        };
        let schemes = Scheme::ALL.into_iter().filter(wanted);
        schemes.flat_map(|scheme| calls(scheme).iter().map(move |call| (scheme, *call))).collect()
    }

    /// The baselines, in the order of their list, each once.
    pub(super) fn baselines(&self) -> Result<Vec<Means>, Failure> {
        let built_in = || Means::all().filter(|means| means.is_built_in());
        match &self.baselines[..] {
            [word] if word == "all" => return Ok(built_in().collect()),
            [word] if word == "none" => return Ok(Vec::new()),
            _ => {}
        }
        for name in &self.baselines {
            match Means::all().find(|means| means.name() == name) {
                Some(means) if means.is_built_in() => {}
                Some(_) => {
                    return Err(Failure::usage(format!(
                        "this program was built without the baseline {name}; build it with `--features peers`"
                    )));
                }
                None => {
                    let names: Vec<_> = built_in().map(Means::name).collect();
                    let names = names.join(", ");
                    return Err(Failure::usage(format!(
                        "no baseline is called \"{name}\"; there are all, none, {names}"
                    )));
                }
            }
        }
        let wanted = |means: &Means| self.baselines.iter().any(|name| name == means.name());
        Ok(Means::all().filter(wanted).collect())
    }

    pub(super) fn directions(&self) -> &'static [Direction] {
        match self.directions {
            Directions::Out => &[Direction::Out],
            Directions::In => &[Direction::In],
            Directions::Both => &[Direction::Out, Direction::In],
        }
    }

    /// How many times each scheme is measured at a length: the quicker that is, the more often.
    pub(super) fn rounds(&self, len: usize) -> Rounds {
        match self.rounds {
            Some(rounds) => Rounds { most: rounds as usize, time: None },
            None => Rounds { most: ((512 << 20) / len).clamp(100, 800), time: Some(ALLOWANCE) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_conclusion_needs_is_measured_unless_an_option_asks_for_tables() {
        let ways = |words: &[&str]| {
            let args = <Alone as clap::Parser>::parse_from([&["compare"], words].concat()).args;
            (args.is_brief(), args.ways(Direction::Out).len())
        };
        for brief in [
            &[][..],
            &["file"],
            &["--lengths", "64"],
            &["file", "--lengths", "64,2M", "--rounds", "2", "--granule", "4k"],
        ] {
            assert_eq!(ways(brief), (true, 3), "{brief:?}");
        }
        for option in [
            &["--all"][..],
            &["--json"],
            &["--plot", "out.svg"],
            &["--touch", "both"],
            &["--lengths", "64", "--baselines", "none"],
        ] {
            assert_eq!(ways(option), (false, 9), "{option:?}");
        }
        assert_eq!(ways(&["--schemes", "copy"]), (false, 1));
    }
}
