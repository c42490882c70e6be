//! Hosts that know no rules, in processes of their own, harm their own card alone and see nothing of others.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::thread::JoinHandle;

use genie_net::driver::card::Device;
use genie_ring::{Bells, Ends, Side};
use genie_sys::event::Event;
use genie_sys::socket::Socket;
use genie_sys::{Errno, Object};

use super::hostile::{GIVE, Hostile, LAYOUT, TRANSMIT};
use super::network::{LENS, networks, packet, received, send};
use super::sight::{in_sight, marked};
use super::{elsewhere, until};

/// The hosts store the first mark, and the networks that go on meanwhile send the second one.
const HOST: u8 = 0;
const NETWORK: u8 = 1;

/// A device in a thread, and its host's socket.
fn device() -> (Socket, JoinHandle<genie_sys::Result<()>>) {
    let (ours, theirs) = Socket::pair().expect("a socket");
    (ours, std::thread::spawn(move || Device::attach(theirs).and_then(Device::run)))
}

/// What an application has of its card.
fn raw(control: Socket) -> (Hostile, File) {
    let hello = control.receive(&mut [0; 16]).expect("a hello");
    let [memory, fifos, bell] = <[_; 3]>::try_from(hello.descriptors).expect("three descriptors");
    let bells = Bells::end(Event::try_from_descriptor(bell).expect("an event"));
    let ends = Ends::attach(&Object::accept(fifos).expect("an object"), LAYOUT, Side::Client, bells);
    (Hostile::new(ends.expect("memory"), control), memory.into())
}

/// The application: it stores into what it has sent, and gives what it has, for a while; then it lies. At last it looks for others' bytes.
pub(super) fn application(control: Socket, kind: u32) {
    let random = || fastrand::u32(..);
    let (mut host, memory) = raw(control);
    let store = |at: u32| {
        let at = u64::from(at) % ((1 << 20) - 100);
        memory.write_all_at(&marked(HOST, 100), at).expect("the card's memory");
    };
    (128..256).for_each(|buffer| host.say(GIVE, buffer, 0));
    for _ in 0..200 {
        host.say(TRANSMIT, random() % 128, 1 + random() % 4096);
        store(random());
        let _ = host.hear();
    }
    assert!(!host.is_cut_off(), "it has kept to the FIFOs' rules");
    for _ in 0..100 {
        match kind {
            0 => host.say(random() as u8, random(), random()),
            1 => host.say(GIVE, 128 + random() % 128, random()),
            _ => host.say(TRANSMIT, random() % 300, random() % 5000),
        }
        store(random());
    }
    until("its device ends", || host.is_cut_off());
    let [own, others] = in_sight([HOST, NETWORK]);
    assert!(own > 0, "it does not see what it has stored itself");
    assert_eq!(others, 0, "it sees other applications' bytes");
}

/// The hosts' devices are in one process with those of networks, and with the networks.
#[test]
fn hostile_applications_end_their_own_devices_alone_and_see_no_others_bytes() {
    let hosts = [0, 1, 2].map(|kind| {
        std::thread::spawn(move || {
            for _ in 0..2 {
                let (ours, device) = device();
                let mut application = elsewhere("application", kind, OwnedFd::from(ours));
                let ended = device.join().expect("it does not panic");
                assert_eq!(ended.map_err(|error| error.errno), Err(Errno::PROTO));
                assert!(application.wait().expect("it ends").success(), "the application says why");
            }
        })
    });
    let networks = networks();
    networks.iter().for_each(|(.., control)| control.reflect().expect("a device"));
    let mut rounds = 0;
    while rounds < 20 || hosts.iter().any(|host| !host.is_finished()) {
        for (_, network, _) in &networks {
            for len in LENS {
                let sent = marked(NETWORK, len);
                send(network, packet(network, &sent));
                assert_eq!(received(network).data().to_vec(), sent);
            }
        }
        rounds += 1;
    }
    hosts.into_iter().for_each(|host| host.join().expect("no assertion has failed"));
    for (_, network, control) in networks {
        assert!(network.receive().expect("an honest card").is_none());
        until("all buffers are home", || control.report().is_ok_and(|report| report.free == 128));
    }
}

/// What was sent without a copy is the device's: a host that stores into it still has its own packet damaged, and no more.
#[test]
fn stores_after_sending_damage_the_senders_own_packet_alone() {
    let (control, device) = device();
    let (mut host, memory) = raw(control);
    (128..256).for_each(|buffer| host.say(GIVE, buffer, 0));
    for round in 0..1000u32 {
        host.say(TRANSMIT, round % 128, 4096);
        memory.write_all_at(&[round as u8; 4096], u64::from(round % 128) * 4096).expect("the card's memory");
        while !host.hear() {
            std::thread::yield_now();
        }
    }
    assert!(!device.is_finished());
    drop(host);
    assert!(device.join().expect("it does not panic").is_ok(), "its host has gone, and has broken no rule");
}
