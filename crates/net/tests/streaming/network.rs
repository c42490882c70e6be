//! Networks: one interface over drivers with two copies, one and none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use genie_fbufs::Message;
use genie_net::checksum::Checksum;
use genie_net::driver::Card;
use genie_net::driver::card::Control;
use genie_net::network::modules::{Counts, Headers};
use genie_net::network::stream::{Module, Next, Queue, Stream, Way};
use genie_net::network::{Management, Network, Packet};
use genie_sys::Errno;
use genie_sys::lock::Mutex;

use super::child::{ExitOutcome, fork_child};
use super::fakes::Fake;
use super::{card, card_elsewhere};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
pub(super) const LENS: [usize; 13] = [1, 2, 3, 7, 63, 64, 65, 511, 1500, 2047, 4072, 4095, 4096];

/// Each driver over a card of its own, and how often it copies; with what tells the card's device what to do.
pub(super) fn networks() -> [(u64, Network, Control); 4] {
    let make = |number: u64| {
        let card = card();
        let control = card.control();
        let network = match number {
            2 => Network::two_copies(card, Stream::new()),
            1 => Network::one_copy(card),
            _ => {
                Network::no_copy(card, [Management::SharedRing, Management::SystemCall][number as usize / 3])
            }
        };
        (if number == 3 { 0 } else { number }, network.expect("memory"), control)
    };
    [2, 1, 0, 3].map(make)
}

pub(super) fn packet(network: &Network, bytes: &[u8]) -> Packet {
    loop {
        if let Some(mut packet) = network.allocate(bytes.len()).expect("an honest card") {
            assert_eq!(packet.data_mut().copy_from(bytes), bytes.len());
            return packet;
        }
        network.wait(PATIENCE).expect("it can be waited");
    }
}

pub(super) fn send(network: &Network, mut packet: Packet) {
    while let Err(unsent) = network.send(packet) {
        assert_eq!(unsent.errno, Errno::AGAIN);
        packet = unsent.packet;
        network.wait(PATIENCE).expect("it can be waited");
    }
}

pub(super) fn received(network: &Network) -> Packet {
    network.receive_timeout(PATIENCE).expect("an honest card").expect("it comes in time")
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8).collect()
}

fn place(packet: &Packet) -> usize {
    packet.data().segments()[0].addr()
}

#[test]
fn packets_of_all_lengths_come_whole_with_as_many_copies_as_the_driver_has() {
    for (copies, network, control) in networks() {
        control.reflect().expect("a device");
        let mut sum = 0;
        for round in 0..30 {
            for len in LENS {
                let sent = bytes(len, round);
                send(&network, packet(&network, &sent));
                assert_eq!(received(&network).data().to_vec(), sent);
                sum += len as u64;
            }
        }
        let counters = network.counters().expect("this process");
        assert_eq!((counters.sent, counters.received, counters.unfit), (390, 390, 0));
        assert_eq!((counters.sent_bytes, counters.received_bytes), (sum, sum));
        assert_eq!((counters.copied_out, counters.copied_in), (copies * sum, copies * sum));
    }
}

#[test]
fn lengths_that_no_buffer_has_are_refused() {
    for (_, network, _) in networks() {
        for len in [0, 4097, usize::MAX] {
            assert_eq!(network.allocate(len).expect_err("no buffer"), Errno::MSGSIZE);
        }
        let mut whole = packet(&network, &[1; 100]);
        for at in [1, 99, 100, usize::MAX - 1] {
            assert_eq!(whole.set_checksum_at(Some(at)), Err(Errno::INVAL));
        }
        whole.truncate(0);
        assert_eq!((whole.len(), whole.set_checksum_at(Some(0))), (1, Err(Errno::INVAL)));
    }
}

/// Another process stores into the card's memory, and its host reads the bytes from packets that are all of that memory's pages.
#[test]
fn without_copies_the_packets_are_the_cards_own_memory() {
    for management in [Management::SharedRing, Management::SystemCall] {
        let (card, mut device) = card_elsewhere();
        let control = card.control();
        let network = Network::no_copy(card, management).expect("descriptors");
        control.generate(64, 1000, Duration::ZERO).expect("a device");
        let kept: Vec<Packet> = (0..128).map(|_| received(&network)).collect();
        let allocated: Vec<Packet> = (0..128).map(|_| packet(&network, &[1; 64])).collect();
        for (number, packet) in kept.iter().enumerate() {
            assert_eq!(packet.data().to_vec()[..8], (number as u64).to_le_bytes());
        }
        let pages: BTreeSet<usize> = kept.iter().chain(&allocated).map(place).collect();
        let (first, last) = (pages.first().expect("many"), pages.last().expect("many"));
        assert_eq!((pages.len(), last - first), (256, 255 * 4096), "not all pages of 1 MiB");
        let counters = network.counters().expect("this process");
        assert_eq!((counters.copied_in, counters.copied_out), (0, 0));
        drop((kept, allocated, network, control));
        assert!(device.wait().expect("it ends").success());
    }
}

/// Notes where each message's last block lies.
#[derive(Clone, Default)]
struct Spy(Arc<Mutex<Vec<usize>>>);

impl Module for Spy {
    fn put(&mut self, message: Message, _queue: &mut Queue, next: &mut Next<'_>) {
        let last = message.blocks().last().expect("it has one");
        self.0.lock().push(last.as_ptr().addr() + last.len());
        next.put(message);
    }
}

#[test]
fn with_one_copy_the_adapter_gets_the_packets_own_bytes() {
    let fake = Fake::new(10);
    let network = Network::one_copy(fake.clone()).expect("memory");
    let sent = packet(&network, &[5; 300]);
    let addr = place(&sent);
    send(&network, sent);
    assert_eq!(fake.peek(|state| state.put.clone()), [(vec![5; 300], addr)]);
    // Rings that cannot sum while they copy are given the sum between what is in front of it and what is behind.
    let mut summed = packet(&network, &bytes(301, 4));
    summed.set_checksum_at(Some(298)).expect("it is there");
    send(&network, summed);
    let (put, _) = fake.change(|state| state.put.pop()).expect("it was sent");
    assert_eq!(
        (Checksum::Internet.of(&put), &put[..298], put[300]),
        (0, &bytes(298, 4)[..], bytes(301, 4)[300])
    );
    fake.bring([vec![6; 200]]);
    let came = received(&network);
    assert_eq!(came.data().to_vec(), [6; 200]);
    assert_eq!(network.counters().expect("this process").copied_in, 200);
}

#[test]
fn with_two_copies_modules_see_the_data_in_one_place_on_its_way() {
    let (fake, above, below) = (Fake::new(10), Spy::default(), Spy::default());
    // Longer than the headroom, so that it is linked in front; and another one in the headroom of that, or of the data.
    for (number, header) in [vec![1; 300], vec![1; 20]].into_iter().enumerate() {
        let stream = Stream::new().push(below.clone()).push(Headers::new(&header)).push(above.clone());
        let network = Network::two_copies(fake.clone(), stream).expect("memory");
        let sent = packet(&network, &bytes(1000, number));
        let from = place(&sent);
        send(&network, sent);
        let (put, first) = fake.change(|state| state.put.pop()).expect("it was sent");
        assert_eq!(put, [header.clone(), bytes(1000, number)].concat());
        let end = above.0.lock().pop().expect("it has passed");
        assert_eq!(below.0.lock().pop(), Some(end), "the data has moved");
        assert_ne!(end, from + 1000, "the block is the packet's buffer");
        // The adapter reads the header in front of the data, if they are in one block.
        assert_eq!(first + header.len() + 1000 == end, number == 1);
        fake.bring([[header.clone(), vec![9; 50]].concat(), vec![9; 400]]);
        let came = received(&network);
        let end = below.0.lock().first().copied().expect("it has passed");
        assert_eq!((came.data().to_vec(), above.0.lock().pop()), (vec![9; 50], Some(end)));
        assert_ne!(end, place(&came) + 50);
        assert!(network.receive().expect("no error").is_none(), "it has no header");
        below.0.lock().clear();
        let counters = network.counters().expect("this process");
        // The rings are the test's, and count nothing.
        assert_eq!(counters.copied_out, 1000);
        assert_eq!(counters.copied_in, 50 + header.len() as u64 + 400 + 50);
    }
}

#[test]
fn headers_go_over_a_card_and_what_passes_is_counted() {
    let (card, counts) = (card(), Counts::default());
    card.control().reflect().expect("a device");
    let stream =
        Stream::new().push(counts.clone()).push(Headers::new(&[3; 10])).push(Headers::new(&[4; 100]));
    let network = Network::two_copies(card, stream).expect("memory");
    for len in LENS {
        send(&network, packet(&network, &bytes(len, 0)));
        if len > 4096 - 110 {
            continue;
        }
        assert_eq!(received(&network).data().to_vec(), bytes(len, 0));
    }
    let counters = network.counters().expect("this process");
    let [all, whole] = [usize::MAX, 4096 - 110].map(|most| LENS.into_iter().filter(move |len| *len <= most));
    let unfit = (all.clone().count() - whole.clone().count()) as u64;
    assert_eq!(counters.unfit, unfit);
    let counted = |lens: &mut dyn Iterator<Item = usize>| {
        lens.fold((0, 0), |(count, sum), len| (count + 1, sum + 110 + len as u64))
    };
    assert_eq!(counts.get(Way::Down), counted(&mut all.clone()));
    assert_eq!(counts.get(Way::Up), counted(&mut whole.clone()));
}

/// Uses networks on the way, and notes what they say.
#[derive(Clone, Default)]
struct Inside {
    networks: Arc<Mutex<Vec<Network>>>,
    said: Arc<Mutex<Vec<Option<Errno>>>>,
}

impl Module for Inside {
    fn put(&mut self, message: Message, _queue: &mut Queue, next: &mut Next<'_>) {
        let mut said = self.said.lock();
        for network in &*self.networks.lock() {
            said.push(network.allocate(1).err());
            said.push(network.receive_timeout(Some(Duration::ZERO)).err());
            said.push(network.flush(None).err());
            said.push(network.counters().err());
        }
        next.put(message);
    }
}

#[test]
fn a_module_that_uses_its_own_network_is_refused_and_one_that_panics_loses_its_message_alone() {
    let (inside, fake) = (Inside::default(), Fake::new(10));
    let network = Network::two_copies(fake.clone(), Stream::new().push(inside.clone())).expect("memory");
    let other = Network::one_copy(Fake::new(10)).expect("memory");
    *inside.networks.lock() = vec![network.clone(), other];
    send(&network, packet(&network, &[1; 10]));
    inside.networks.lock().clear();
    assert_eq!(*inside.said.lock(), [[Some(Errno::DEADLK); 4], [None; 4]].concat());
    assert_eq!(network.counters().expect("nobody is inside any more").sent, 1);

    struct Panics(bool);
    impl Module for Panics {
        fn put(&mut self, message: Message, _queue: &mut Queue, next: &mut Next<'_>) {
            assert!(!std::mem::take(&mut self.0), "this is what is tested");
            next.put(message);
        }
    }
    let network = Network::two_copies(fake.clone(), Stream::new().push(Panics(true))).expect("memory");
    let panicking = || network.send(packet(&network, &[2; 10]));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
    // All buffers are there still.
    let packets: Vec<_> =
        (0..128).map(|_| network.allocate(10).expect("no error").expect("a buffer")).collect();
    drop(packets);
    send(&network, packet(&network, &[3; 10]));
    let put: Vec<_> = fake.peek(|state| state.put.iter().map(|(bytes, _)| bytes[0]).collect());
    assert_eq!(put, [1, 3]);
}

/// Queues all messages.
struct Queues;

impl Module for Queues {
    fn put(&mut self, message: Message, queue: &mut Queue, _next: &mut Next<'_>) {
        queue.put(message);
    }

    fn queues(&self, _way: Way) -> bool {
        true
    }
}

#[test]
fn a_full_queue_has_the_one_above_wait_until_it_is_served_again() {
    let fake = Fake::new(0);
    let stream = Stream::with_marks(4000, 2000).push(Queues).push(Counts::default()).push(Queues);
    let network = Network::two_copies(fake.clone(), stream).expect("memory");
    let mut sent = 0;
    let refused = loop {
        match network.send(packet(&network, &[sent; 1000])) {
            Ok(()) => sent += 1,
            Err(unsent) => break *unsent,
        }
    };
    // The driver's queue is full, then the lower module's, then the upper one's.
    assert_eq!((sent, refused.errno), (12, Errno::AGAIN));
    assert_eq!(refused.packet.data().to_vec(), [12; 1000]);
    // Nothing goes on from above until a queue has come down to its mark.
    fake.change(|state| state.room = 1);
    assert!(network.receive().expect("no error").is_none());
    assert!(network.send(refused.packet).is_err());
    fake.change(|state| state.room = 100);
    send(&network, packet(&network, &[12; 1000]));
    let put: Vec<Vec<u8>> = fake.peek(|state| state.put.iter().map(|(bytes, _)| bytes.clone()).collect());
    assert_eq!(put, (0..13).map(|number| vec![number; 1000]).collect::<Vec<_>>());
    // Upwards, too: no more is taken than the queues have room for.
    fake.bring((0..100).map(|number| vec![number; 1000]));
    let first: Vec<Packet> = (0..1).map(|_| received(&network)).collect();
    assert!(fake.peek(|state| state.coming.len()) > 50);
    let rest = (1..100).map(|_| received(&network).data().to_vec()[0]);
    assert!(rest.eq(1..100) && first[0].data().to_vec() == [0; 1000]);
}

#[test]
fn checksums_are_stored_on_the_way_and_found_right() {
    for (_, network, control) in networks() {
        control.reflect().expect("a device");
        for (sums, len) in [false, true].into_iter().flat_map(|sums| LENS.map(|len| (sums, len))) {
            network.set_summing(sums).expect("this process");
            for at in [0, 2, 40, len.saturating_sub(2)].into_iter().filter(|at| at % 2 == 0 && at + 2 <= len)
            {
                let mut expected = bytes(len, at);
                let mut sent = packet(&network, &expected);
                sent.set_checksum_at(Some(at)).expect("it is there");
                send(&network, sent);
                expected[at..at + 2].fill(0);
                let sum = Checksum::Internet.of(&expected) as u16;
                expected[at..at + 2].copy_from_slice(&sum.to_le_bytes());
                let mut came = received(&network);
                assert_eq!((came.data().to_vec(), came.checksum()), (expected, 0));
                let first = came.data().to_vec()[0];
                came.data_mut().part(0..1).copy_from(&[!first]);
                assert_ne!(came.checksum(), 0, "it is that of other bytes");
            }
        }
    }
}

#[test]
fn who_keeps_packets_exhausts_its_own_pool_alone() {
    let ([hoarders, others], mut hoard) = ([(); 2].map(|()| networks()), Vec::new());
    for ((_, hoarder, control), (_, other, others_control)) in hoarders.iter().zip(&others) {
        for control in [control, others_control] {
            control.generate(100, 1000, Duration::ZERO).expect("a device");
        }
        for _ in 0..128 {
            hoard.push(hoarder.allocate(1).expect("an honest card").expect("it is free"));
            hoard.push(received(hoarder));
        }
        assert!(hoarder.allocate(1).expect("an honest card").is_none());
        assert!(hoarder.receive_timeout(Some(Duration::from_millis(1))).expect("an honest card").is_none());
        for number in 0..1000u64 {
            send(other, packet(other, &bytes(100, 1)));
            assert_eq!(received(other).data().to_vec()[..8], number.to_le_bytes());
        }
        // What is given back is used again.
        let given: Vec<usize> = hoard.drain(..).map(|packet| place(&packet)).collect();
        let again = hoarder.allocate(1).expect("an honest card").expect("it is free");
        assert!(given.contains(&place(&again)) && given.contains(&place(&received(hoarder))));
    }
}

#[test]
fn a_buffer_is_allocated_and_released_by_one_call_each_or_by_none() {
    for (copies, network, control) in networks().into_iter().skip(1) {
        control.reflect().expect("a device");
        let calls = || network.counters().expect("this process").management_calls;
        send(&network, packet(&network, &[1; 10]));
        drop(received(&network));
        let (before, is_by_calls) = (calls(), calls() > 0);
        let taken: Vec<Packet> = (0..50).map(|_| packet(&network, &[1; 10])).collect();
        assert_eq!(calls() - before, u64::from(is_by_calls) * 50);
        drop(taken);
        assert_eq!(calls() - before, u64::from(is_by_calls) * 100);
        assert!(!is_by_calls || copies == 0);
    }
}

#[test]
fn what_a_driver_cannot_send_from_where_it_lies_is_copied_once_more() {
    let [(_, other, _), _, (_, network, control), _] = networks();
    control.reflect().expect("a device");
    send(&network, packet(&network, &[7; 500]));
    send(&network, received(&network));
    let echo = received(&network);
    assert_eq!((echo.data().to_vec(), network.counters().expect("it").copied_out), (vec![7; 500], 500));
    send(&network, packet(&other, &[8; 200]));
    assert_eq!(received(&network).data().to_vec(), [8; 200]);
    assert_eq!(network.counters().expect("this process").copied_out, 700);
}

#[test]
fn a_device_that_ends_ends_its_network_alone() {
    for management in [Management::SharedRing, Management::SystemCall] {
        let (card, mut device) = card_elsewhere();
        let network = Network::no_copy(card, management).expect("descriptors");
        let held = packet(&network, &[1; 100]);
        device.kill().expect("it is there");
        device.wait().expect("it ends");
        let gone = network.receive_timeout(PATIENCE).expect_err("the device has gone");
        assert_eq!(gone, Errno::NODEV);
        let unsent = network.send(held).expect_err("the device has gone");
        assert_eq!((unsent.errno, unsent.packet.data().to_vec()), (Errno::NODEV, vec![1; 100]));
    }
}

#[test]
#[allow(unsafe_code, reason = "forks a child that makes no calls but these")]
fn a_child_made_by_fork_has_errors_and_takes_no_buffer_back() {
    for (_, network, control) in networks() {
        control.reflect().expect("a device");
        let mut held = Some(packet(&network, &[1; 10]));
        let calls = network.counters().expect("this process").management_calls;
        let in_child = || {
            let held = held.take().expect("it is held");
            let unsent = network.send(held).expect_err("this is a child");
            let is_refused = unsent.errno == Errno::CHILD
                && network.allocate(1).is_err()
                && network.receive().is_err()
                && network.wait(PATIENCE).is_err()
                && network.counters().is_err();
            drop(unsent);
            u8::from(!is_refused)
        };
        // SAFETY: the child makes calls that load a number, and fail.
        let child = unsafe { fork_child(in_child) };
        assert_eq!(child.expect("a child").wait().expect("it ends"), ExitOutcome::Code(0));
        assert_eq!(network.counters().expect("this process").management_calls, calls);
        let free = (0..200).map_while(|_| network.allocate(1).expect("an honest card")).collect::<Vec<_>>();
        assert_eq!(free.len(), 127, "the child's copy of the packet is nobody's");
        drop(free);
        send(&network, held.take().expect("it is held"));
        assert_eq!(received(&network).data().to_vec(), [1; 10]);
    }
}

#[test]
fn a_card_is_the_networks_until_its_last_packet_is_dropped() {
    let card: Card = card();
    let control = card.control();
    let network = Network::no_copy(card, Management::SharedRing).expect("descriptors");
    control.generate(64, 1, Duration::ZERO).expect("a device");
    let last = received(&network);
    drop((network, control));
    assert_eq!(last.data().to_vec()[..8], 0u64.to_le_bytes());
}
