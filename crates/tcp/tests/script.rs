//! Scripts of timed segments, in packetdrill's way.
//!
//! How: each line is a time and what happens then: `0.5` is half a second after the beginning, `+0.5` after the line before. `< ...` is a
//! segment that comes from the peer, `> ...` one that must be sent at that very time. Whatever is sent and not expected fails the script.
//! Sequence numbers are relative: this side's to its initial one, the peer's to one that wraps soon. Of a segment that is expected, what the
//! script does not mention (acknowledgment, window, options) may be anything. Data is checked against the stream that it belongs to.
//!
//!     0    listen
//!     +0   < S 0:0(0) win 65535 <mss 1460>
//!     +0   > S. 0:0(0) ack 1 <mss 1460>
//!     +.1  < . 1:1(0) ack 1 win 65535
//!
//! Others: `connect`, `send N`, `read N`, `finish`, `close`, `abort`, `release`, `confirm N`, `reject`, `event NAME`, `state NAME`,
//! `released N` (references that came back), `readable N`, `end` (of the peer's stream), `cwnd N` (in segments of 1000 bytes, or in bytes
//! with a `b`), `unreachable soft|hard SEQ`, `too-big MTU SEQ`, and `drop` (sends what is due, unseen).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use genie_tcp::{
    Backlog, Block, Config, Flags, Header, Id, Options, Path, Secret, Segment, Seq, Shared, Table, Time,
    Timestamps, Unreachable,
};

/// The peer's initial sequence number: it wraps soon.
const PEER: Seq = Seq(u32::MAX - 1500);
/// When scripts begin, after the table's clock has.
const BEGIN: Time = Duration::from_secs(100);

/// The bytes of a stream from an offset on: each depends on where it stands.
fn stream(from: u32, len: u32) -> Vec<u8> {
    (from..from + len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// Plays a script, with a connection of this configuration.
#[track_caller]
pub(crate) fn play(config: Config, script: &str) {
    let mut player = Player::new(config);
    for (number, line) in script.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default().trim();
        if let Some((time, what)) = line.split_once(char::is_whitespace)
            && let Err(why) = player.step(time, what.trim())
        {
            panic!("line {} of the script: {line}\n{why}", number + 1);
        }
    }
    if let Err(why) = player.nothing_more() {
        panic!("at the end of the script: {why}");
    }
}

struct Player {
    config: Arc<Config>,
    table: Table<Shared>,
    path: Path,
    id: Option<Id>,
    now: Time,
    sent: VecDeque<Segment<Shared>>,
    iss: Option<Seq>,
    /// By how much this side's timestamps are ahead of the script's time.
    ahead: Option<u32>,
    queued: u32,
    read: u32,
    released: u32,
    script_began: Time,
}

type Step = Result<(), String>;

impl Player {
    fn new(config: Config) -> Self {
        Self {
            config: Arc::new(config),
            table: Table::new(Secret::from_bytes(*b"a script's key..")),
            path: Path { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 4000).into() },
            id: None,
            now: BEGIN,
            sent: VecDeque::new(),
            iss: None,
            ahead: None,
            queued: 0,
            read: 0,
            released: 0,
            script_began: BEGIN,
        }
    }

    fn step(&mut self, time: &str, what: &str) -> Step {
        let at = match time.strip_prefix('+') {
            Some(after) => self.now + seconds(after)?,
            None => self.script_began + seconds(time)?,
        };
        self.go_on_to(at)?;
        let (verb, rest) = what.split_once(' ').unwrap_or((what, ""));
        if verb == ">" {
            return self.expect(rest.trim());
        }
        if verb == "<" {
            let segment = self.parse(rest.trim(), true)?;
            self.table.on_segment(self.path, &segment.segment(), self.now);
        } else {
            self.act(verb, rest.trim())?;
        }
        self.collect();
        Ok(())
    }

    fn act(&mut self, verb: &str, rest: &str) -> Step {
        let now = self.now;
        let number = || rest.parse::<u32>().map_err(|_| format!("{rest:?} is no number"));
        match verb {
            "listen" => {
                let half_open = if rest == "cookies" { 0 } else { 8 };
                let backlog = Backlog { half_open, ready: 8 };
                self.table
                    .listen(self.path.local, self.config.clone(), backlog)
                    .map_err(|it| it.to_string())?;
            }
            "connect" => {
                self.id = Some(
                    self.table.connect(self.path, self.config.clone(), now).map_err(|it| it.to_string())?,
                )
            }
            "accept" => self.id = Some(self.table.accept(self.path.local).ok_or("nothing to accept")?),
            "refused" => assert_eq!(self.table.accept(self.path.local), None),
            "send" => {
                let len = number()?;
                let data = Shared::new(stream(self.queued, len));
                self.queued += len;
                return self.connection(|it| it.send(data).map_err(|it| it.to_string()))?;
            }
            "read" => {
                let len = number()?;
                let from = self.read;
                self.read += len;
                return self.connection(|it| {
                    let mut got = Vec::new();
                    while let Some(piece) = it.receive(len as usize - got.len()) {
                        got.extend_from_slice(piece.bytes());
                    }
                    same("what was read", &got, &stream(from, len))
                })?;
            }
            "finish" => self.connection(|it| it.finish())?,
            "close" => self.connection(|it| it.close(now))?,
            "abort" => self.connection(|it| it.abort(now))?,
            "release" => {
                let id = self.id.take().ok_or("no connection")?;
                self.table.release(id, now);
            }
            "confirm" => {
                let len = number()?;
                self.connection(|it| it.confirm(len as usize, now))?;
            }
            "reject" => {
                let back = self.connection(|it| {
                    let back = it.unconfirmed();
                    it.reject();
                    back
                })?;
                self.read -= back;
            }
            "unverified" => {
                let segment = self.parse(rest, true)?;
                let taken = self.table.on_unverified(self.path, &segment.segment(), now);
                return same("whether it was taken", &taken, &true);
            }
            "verify-first" => {
                let segment = self.parse(rest, true)?;
                let taken = self.table.on_unverified(self.path, &segment.segment(), now);
                return same("whether it was taken", &taken, &false);
            }
            "event" => {
                let told = self.table.poll_event().map(|(_, event)| format!("{event:?}"));
                let expected = (rest != "none").then(|| rest.to_string());
                return same("the event", &told, &expected);
            }
            "state" => {
                let state = self.connection(|it| format!("{:?}", it.state()))?;
                return same("the state", &state, &rest.to_string());
            }
            "gone" => return same("connections", &self.table.len(), &0),
            "released" => return same("references released", &self.released, &number()?),
            "readable" => return same("readable bytes", &self.connection(|it| it.readable())?, &number()?),
            "end" => return same("the end", &self.connection(|it| it.at_end())?, &true),
            "cwnd" => return same("cwnd", &self.connection(|it| it.congestion_window())?, &number()?),
            "unreachable" => {
                let (kind, seq) = rest.split_once(' ').ok_or("unreachable KIND SEQ")?;
                let kind = if kind == "hard" { Unreachable::Hard } else { Unreachable::Soft };
                let seq = self.iss.ok_or("no SYN yet")? + seq.parse::<u32>().map_err(|it| it.to_string())?;
                self.connection(|it| it.on_unreachable(kind, seq))?;
            }
            "too-big" => {
                let (mtu, seq) = rest.split_once(' ').ok_or("too-big MTU SEQ")?;
                let mtu = mtu.parse::<u16>().map_err(|it| it.to_string())?;
                let seq = self.iss.ok_or("no SYN yet")? + seq.parse::<u32>().map_err(|it| it.to_string())?;
                self.connection(|it| it.on_packet_too_big(mtu, seq))?;
            }
            "drop" => {
                self.collect();
                self.sent.clear();
            }
            _ => return Err(format!("nobody knows {verb:?}")),
        }
        Ok(())
    }

    fn connection<R>(
        &mut self,
        act: impl FnOnce(&mut genie_tcp::Connection<Shared>) -> R,
    ) -> Result<R, String> {
        let id = self.id.ok_or("there is no connection")?;
        self.table.with(id, act).ok_or_else(|| "the connection is forgotten".to_string())
    }

    fn go_on_to(&mut self, at: Time) -> Step {
        if at > self.now {
            self.nothing_more()?;
        }
        while let Some(next) = self.table.next_timeout().filter(|next| *next <= at) {
            self.now = self.now.max(next);
            self.table.on_timeout(self.now);
            self.collect();
            if self.now < at {
                self.nothing_more()?;
            }
        }
        self.now = at;
        Ok(())
    }

    fn nothing_more(&mut self) -> Step {
        let now = self.script_time();
        match self.sent.pop_front() {
            Some(segment) => Err(format!("at {now:.6} was sent: {}", self.show(&segment))),
            None => Ok(()),
        }
    }

    fn script_time(&self) -> f64 {
        (self.now - self.script_began).as_secs_f64()
    }

    /// Takes all that the table sends.
    fn collect(&mut self) {
        while let Some(out) = self.table.poll_transmit(self.now) {
            assert_eq!(out.path, self.path);
            let Header { seq, flags, options, .. } = out.segment.header;
            if flags.syn && !flags.rst {
                self.iss = Some(seq);
                let millis = self.script_time_ms();
                self.ahead = options.timestamps.map(|it| it.value.wrapping_sub(millis)).or(self.ahead);
            }
            self.sent.push_back(out.segment);
        }
        if let Some(id) = self.id {
            self.released += self
                .table
                .with(id, |it| {
                    it.check();
                    std::iter::from_fn(|| it.poll_released()).count() as u32
                })
                .unwrap_or(0);
        }
    }

    fn script_time_ms(&self) -> u32 {
        (self.now - self.script_began).as_millis() as u32
    }

    fn expect(&mut self, text: &str) -> Step {
        let expected = self.parse(text, false)?;
        let Some(sent) = self.sent.pop_front() else {
            return Err(format!("nothing was sent at {:.6}", self.script_time()));
        };
        let shown = self.show(&sent);
        let Header { seq, ack, flags, window, options } = sent.header;
        let wrong = |what: &str| Err(format!("{what} differs: was sent: {shown}"));
        if flags != expected.flags {
            return wrong("a flag");
        } else if seq != expected.seq || sent.data_len() as u32 != expected.len {
            return wrong("the sequence number or the length");
        } else if expected.ack.is_some_and(|it| it != ack) {
            return wrong("the acknowledgment");
        } else if expected.window.is_some_and(|it| it != window) {
            return wrong("the window");
        } else if expected.options.is_some_and(|it| it != options) {
            return wrong("an option");
        }
        let bytes: Vec<u8> = sent.payload.iter().flat_map(|it| it.bytes().to_vec()).collect();
        if let (Some(iss), false) = (self.iss, bytes.is_empty()) {
            same("the data", &bytes, &stream(seq.since(iss) - 1, bytes.len() as u32))?;
        }
        Ok(())
    }

    fn parse(&self, text: &str, from_peer: bool) -> Result<Parsed, String> {
        let (head, options) = match text.split_once('<') {
            Some((head, options)) => (head, Some(options.trim_end_matches('>'))),
            None => (text, None),
        };
        let iss = self.iss.unwrap_or_default();
        let (here, there) = if from_peer { (PEER, iss) } else { (iss, PEER) };
        let number = |text: &str| text.parse::<i64>().map_err(|_| format!("{text:?} is no number"));
        let relative = |base: Seq, number: i64| Seq(base.0.wrapping_add(number as u32));
        let mut words = head.split_whitespace();
        let flags = words.next().ok_or("no flags")?;
        let mut parsed = Parsed {
            flags: Flags {
                syn: flags.contains('S'),
                ack: flags.contains('.'),
                fin: flags.contains('F'),
                rst: flags.contains('R'),
                psh: flags.contains('P'),
            },
            ..Parsed::default()
        };
        let range = words.next().ok_or("no sequence numbers")?;
        let (start, rest) = range.split_once(':').ok_or("sequence numbers are START:END(LENGTH)")?;
        let (_, len) = rest.split_once('(').ok_or("sequence numbers are START:END(LENGTH)")?;
        let start = number(start)?;
        parsed.seq = relative(here, start);
        // A reset of what belongs to no connection takes its number from the segment, or is zero.
        if start == 0 && parsed.flags.rst && !from_peer {
            parsed.seq = Seq(0);
        }
        parsed.len = number(len.trim_end_matches(')'))? as u32;
        parsed.data = if from_peer && parsed.len > 0 {
            let from = if parsed.flags.syn { 0 } else { start - 1 };
            stream(from as u32, parsed.len)
        } else {
            Vec::new()
        };
        while let Some(word) = words.next() {
            let value = number(words.next().ok_or("a word without a value")?)?;
            match word {
                "ack" => parsed.ack = Some(relative(there, value)),
                "win" => parsed.window = Some(value as u16),
                _ => return Err(format!("nobody knows {word:?}")),
            }
        }
        parsed.options = options.map(|it| self.parse_options(it, from_peer, there)).transpose()?;
        Ok(parsed)
    }

    fn parse_options(&self, text: &str, from_peer: bool, there: Seq) -> Result<Options, String> {
        let mut options = Options::default();
        for option in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let words: Vec<&str> = option.split_whitespace().collect();
            let number = |at: usize| {
                let word: &str = words.get(at).ok_or("an option lacks a number")?;
                word.parse::<u32>().map_err(|_| format!("{word:?} is no number"))
            };
            match words[0] {
                "mss" => options.mss = Some(number(1)? as u16),
                "wscale" => options.window_scale = Some(number(1)? as u8),
                "sackOK" => options.sack_permitted = true,
                "TS" => {
                    let ahead = self.ahead.unwrap_or_default();
                    let (value, echo) = (number(2)?, number(4)?);
                    options.timestamps = Some(if from_peer {
                        Timestamps { value, echo: if echo == 0 { 0 } else { echo.wrapping_add(ahead) } }
                    } else {
                        Timestamps { value: value.wrapping_add(ahead), echo }
                    });
                }
                "sack" => {
                    for (block, word) in options.sack.iter_mut().zip(&words[1..]) {
                        let (start, end) = word.split_once(':').ok_or("a block is START:END")?;
                        let seq =
                            |it: &str| it.parse::<u32>().map(|it| there + it).map_err(|it| it.to_string());
                        *block = Some(Block { start: seq(start)?, end: seq(end)? });
                    }
                }
                _ => return Err(format!("nobody knows the option {option:?}")),
            }
        }
        Ok(options)
    }

    /// A segment that was sent, as a script would have it.
    fn show(&self, segment: &Segment<Shared>) -> String {
        let Header { seq, ack, flags, window, options } = segment.header;
        let Flags { syn, ack: acks, fin, rst, psh } = flags;
        let flags: String = [(syn, 'S'), (fin, 'F'), (rst, 'R'), (psh, 'P'), (acks, '.')]
            .into_iter()
            .filter_map(|(set, name)| set.then_some(name))
            .collect();
        let start = seq.0.wrapping_sub(self.iss.unwrap_or_default().0) as i32;
        let len = segment.data_len();
        let ack = ack.0.wrapping_sub(PEER.0) as i32;
        let mut shown = format!("> {flags} {start}:{}({len}) ack {ack} win {window}", start + len as i32);
        if let Some(it) = options.timestamps {
            let value = it.value.wrapping_sub(self.ahead.unwrap_or_default());
            shown += &format!(" TS val {value} ecr {}", it.echo);
        }
        for block in options.sack.iter().flatten() {
            let relative = |seq: Seq| seq.0.wrapping_sub(PEER.0);
            shown += &format!(" sack {}:{}", relative(block.start), relative(block.end));
        }
        shown
            + &format!(
                " mss {:?} wscale {:?} sackOK {}",
                options.mss, options.window_scale, options.sack_permitted
            )
    }
}

#[derive(Default)]
struct Parsed {
    flags: Flags,
    seq: Seq,
    len: u32,
    data: Vec<u8>,
    ack: Option<Seq>,
    window: Option<u16>,
    options: Option<Options>,
}

impl Parsed {
    fn segment(self) -> Segment<Shared> {
        let header = Header {
            seq: self.seq,
            ack: self.ack.unwrap_or_default(),
            flags: self.flags,
            window: self.window.unwrap_or(65535),
            options: self.options.unwrap_or_default(),
        };
        let mut segment = Segment { header, payload: Default::default() };
        if !self.data.is_empty() {
            segment.payload.push(Shared::new(self.data));
        }
        segment
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>().map(Duration::from_secs_f64).map_err(|_| format!("{text:?} is no time"))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Step {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}
