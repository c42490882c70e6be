//! Cards and hosts that break the rules harm their own flow alone.

use std::os::fd::AsFd;
use std::time::Duration;

use genie_net::driver::card::Device;
use genie_net::driver::{Card, Rings};
use genie_net::streaming::{End, Error};
use genie_ring::{Bells, Ends, Layout, Record, Side, create};
use genie_sys::event::Event;
use genie_sys::socket::Socket;
use genie_sys::{Errno, GranuleKind, Object};

use super::{STYLES, WhenFull, end, how, started, streaming, until};

pub(crate) const LAYOUT: Layout = Layout { lines: 512, area: 128 };
const MEMORY: usize = 1 << 20;
const HELLO: &[u8] = b"genie card 1";
pub(crate) const TRANSMIT: u8 = 1;
const SENT: u8 = 2;
const CAME: u8 = 3;
pub(crate) const GIVE: u8 = 4;

/// The device's part of a card: its FIFOs, and the socket that keeps it alive.
pub(crate) struct Hostile {
    ends: Ends,
    control: Socket,
}

impl Hostile {
    pub(crate) fn new(ends: Ends, control: Socket) -> Self {
        Self { ends, control }
    }

    /// Whether the other side has ended.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.control.is_hung_up()
    }

    /// Takes what the other side has said; whether it has said anything.
    pub(crate) fn hear(&mut self) -> bool {
        let mut has_heard = false;
        while self.ends.consumer.pop(&mut Record::new()).expect("an honest device") {
            has_heard = true;
        }
        has_heard
    }

    pub(crate) fn say(&mut self, kind: u8, buffer: u32, len: u32) {
        let mut payload = buffer.to_le_bytes().to_vec();
        payload.extend(len.to_le_bytes());
        // The host may be gone already.
        let _ = self.ends.producer.push(kind, &payload);
    }
}

fn hostile() -> (Card, Hostile) {
    let (ours, control) = Socket::pair().expect("a socket");
    let memory = Object::create(GranuleKind::Base, MEMORY).expect("memory");
    let fifos = create(LAYOUT).expect("memory");
    let (own, hosts) = Event::pair().expect("an event");
    control.send(HELLO, &[memory.as_fd(), fifos.as_fd(), hosts.as_fd()]).expect("it is sent");
    let ends = Ends::attach(&fifos, LAYOUT, Side::Server, Bells::end(own)).expect("memory");
    (Card::open(ours).expect("a card"), Hostile::new(ends, control))
}

/// What no honest device says, kind by kind.
const LIES: [&[(u8, u32, u32)]; 12] = [
    &[(CAME, 256, 10)],
    &[(CAME, u32::MAX, 10)],
    &[(CAME, 0, 10)],
    &[(CAME, 128, 4097)],
    &[(CAME, 128, u32::MAX)],
    &[(CAME, 128, 0)],
    // Twice the same buffer, before its host has given it back.
    &[(CAME, 255, 10), (CAME, 255, 10)],
    &[(SENT, 0, 0)],
    &[(SENT, 200, 0)],
    &[(SENT, u32::MAX, 0)],
    &[(GIVE, 128, 0)],
    &[(0, 0, 0)],
];

#[test]
fn a_hostile_device_loses_its_own_flow_alone() {
    let streaming = streaming();
    for (number, lie) in LIES.iter().enumerate() {
        let style = STYLES[number % 2];
        let (card, mut hostile) = hostile();
        let ((from, control), (to, sink)) = (end("from"), end("to"));
        let bad = End::new("bad", card).expect("descriptors");
        // Wherever the hostile card is, source or sink.
        let good = started(&streaming, &from, &to, how(style, WhenFull::Hold));
        // All at once, before the host can give a buffer back.
        lie.iter().for_each(|&(kind, buffer, len)| hostile.say(kind, buffer, len));
        let from_bad = started(&streaming, &bad, &to, how(style, WhenFull::Hold));
        let expected = Error::Source { end: "bad".to_owned(), errno: Errno::PROTO };
        assert_eq!(from_bad.wait(Some(Duration::from_secs(20))), Err(expected), "{lie:?}");
        sink.expect(100).expect("a device");
        control.generate(64, 100, Duration::ZERO).expect("a device");
        until("the other flow goes on", || sink.report().expect("a device").tally.missing == 0);
        assert_eq!(good.wait(Some(Duration::ZERO)), Ok(false));
    }
}

#[test]
fn a_hostile_sink_ends_the_flow_and_its_source_goes_on() {
    let streaming = streaming();
    for style in STYLES {
        let ((card, mut hostile), (from, control)) = (hostile(), end("from"));
        let bad = End::new("bad", card).expect("descriptors");
        let flow = started(&streaming, &from, &bad, how(style, WhenFull::Hold));
        // More than there are buffers, so that the host looks at what the card says.
        control.generate(64, 300, Duration::ZERO).expect("a device");
        until("the card is full", || flow.statistics().packets == 128);
        hostile.say(SENT, 5, 0);
        hostile.say(SENT, 200, 0);
        let expected = Error::Sink { end: "bad".to_owned(), errno: Errno::PROTO };
        assert_eq!(flow.wait(Some(Duration::from_secs(20))), Err(expected));
        drop(flow);
        let (to, _sink) = end("to");
        let flow = started(&streaming, &from, &to, how(style, WhenFull::Hold));
        until("the rest comes", || flow.statistics().packets > 0);
    }
}

#[test]
fn nonsense_in_the_fifo_ends_the_card() {
    for payload in [&[][..], &[1], &[0; 9], &[0; 448]] {
        let (mut card, mut hostile) = hostile();
        hostile.ends.producer.push(CAME, payload).expect("there is room");
        assert_eq!(card.take(1, &mut |_| ()), Err(Errno::PROTO));
        assert_eq!(card.room(), Err(Errno::PROTO));
    }
}

#[test]
fn a_device_that_is_none_is_no_card() {
    let memory = |len| Object::create(GranuleKind::Base, len).expect("memory");
    let (event, _other) = Event::pair().expect("an event");
    let (counter, fifos) = (Event::new().expect("an event"), create(LAYOUT).expect("memory"));
    let (right, short) = (memory(MEMORY), memory(MEMORY / 2));
    let hellos: [(&[u8], &[_]); 6] = [
        (HELLO, &[short.as_fd(), fifos.as_fd(), event.as_fd()]),
        (HELLO, &[right.as_fd(), right.as_fd(), event.as_fd()]),
        (HELLO, &[right.as_fd(), fifos.as_fd(), counter.as_fd()]),
        (HELLO, &[event.as_fd(), fifos.as_fd(), event.as_fd()]),
        (HELLO, &[right.as_fd(), fifos.as_fd()]),
        (b"genie card 2", &[right.as_fd(), fifos.as_fd(), event.as_fd()]),
    ];
    for (hello, descriptors) in hellos {
        let (ours, theirs) = Socket::pair().expect("a socket");
        theirs.send(hello, descriptors).expect("it is sent");
        assert!(Card::open(ours).is_err());
    }
}

#[test]
fn a_hostile_host_ends_its_device() {
    let lies = [
        (TRANSMIT, 128, 10),
        (TRANSMIT, 0, 0),
        (TRANSMIT, 0, 4097),
        (GIVE, 127, 0),
        (GIVE, 128, 0),
        (GIVE, 256, 0),
        (SENT, 0, 0),
    ];
    for (kind, buffer, len) in lies {
        let (ours, theirs) = Socket::pair().expect("a socket");
        let device = std::thread::spawn(move || Device::attach(theirs).and_then(Device::run));
        let received = ours.receive(&mut [0; 16]).expect("a hello");
        let [_memory, fifos, bell] = <[_; 3]>::try_from(received.descriptors).expect("three descriptors");
        let bells = Bells::end(Event::try_from_descriptor(bell).expect("an event"));
        let ends = Ends::attach(&Object::accept(fifos).expect("an object"), LAYOUT, Side::Client, bells);
        let mut host = Hostile::new(ends.expect("memory"), ours);
        // The second time it is a lie in any case.
        host.say(kind, buffer, len);
        host.say(kind, buffer, len);
        let ended = device.join().expect("it does not panic");
        assert_eq!(ended.map_err(|error| error.errno), Err(Errno::PROTO), "{kind} {buffer} {len}");
    }
}
