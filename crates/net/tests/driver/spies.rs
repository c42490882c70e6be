//! Clients in processes of their own, on one interface: none finds a byte of another's in anything that it can see.

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use genie_channel::{Listener, ServeOptions};
use genie_io::Pending;
use genie_net::datagram::{Open, Socket, Verifying};
use genie_net::namespaces::Pair;
use genie_passing::Scheme;

use crate::hosts::{self, Level, out, room, synced, taken};
use crate::peer::{Peer, connect, directory, next_word, say};
use crate::siege::remove;
use crate::sight::{in_sight, marked};
use crate::udp::{Host, Way, at_length, kernel, pair};

/// The numbers of the two clients.
const CLIENTS: [u8; 2] = [0, 1];
/// What waits at a port when buffers are exhausted: more than all of them.
const MANY: usize = 200;

/// A client that receives and sends what is its own, as it is told, and says how many of either client's marks are in sight.
pub(crate) fn spy(place: &Path, own: u8) {
    let genie = hosts::open();
    let server = connect(&genie, place, "host");
    let socket = Socket::open(&genie, &server, &Open::default()).expect("a port");
    say(socket.port());
    let ask = |scheme, len| socket.submit(room(&genie, scheme, len)).expect("a request");
    let all = |len| Scheme::ALL.map(|scheme| ask(scheme, len)).into_iter().collect::<Vec<_>>();
    let take = |pending: Pending<'_>| {
        let (bytes, _) = taken(synced(pending).expect("a datagram").0);
        assert_eq!(bytes, marked(own, bytes.len()), "what has come is this client's own");
    };
    let mut waiting = Vec::new();
    while let Some(word) = next_word() {
        match word.split(' ').collect::<Vec<_>>()[..] {
            // Requests wait before datagrams come.
            ["post", len] => {
                waiting = all(len.parse().expect("a length"));
                socket.statistics().expect("what was submitted has been taken from the ring");
                say("posted");
            }
            ["take", len] => {
                waiting.drain(..).for_each(take);
                let mut count = 0;
                for scheme in Scheme::ALL.into_iter().cycle() {
                    let pending = ask(scheme, len.parse().expect("a length"));
                    // Some wait, but on a busy machine the server may have to see them first.
                    if !pending.wait(Duration::from_millis(if count == 0 { 10_000 } else { 20 })) {
                        let _ = pending.abort();
                        break;
                    }
                    take(pending);
                    count += 1;
                }
                say(count);
            }
            // What comes of requests that fail is looked at by `failed`.
            ["abort", len] => {
                all(len.parse().expect("a length")).into_iter().for_each(|pending| failed(pending.abort()));
                say("aborted");
            }
            ["lose"] => {
                waiting.drain(..).for_each(|pending| failed(synced(pending).map(|(reply, _)| reply)));
                say("lost");
            }
            ["send", len, to] => {
                let bytes = marked(own, len.parse().expect("a length"));
                for scheme in Scheme::ALL {
                    let to = to.parse().expect("an address");
                    socket.send_to(out(&genie, scheme, &bytes), to).expect("it is sent");
                }
                say("sent");
            }
            _ => {
                let found = in_sight(CLIENTS);
                say(format!("{} {}", found[usize::from(own)], found[usize::from(1 - own)]));
            }
        }
    }
}

/// A buffer that comes back by a failure is as it was.
fn failed(result: Result<genie_io::Reply, genie_io::Failed>) {
    // On a busy machine a datagram may be late.
    let Err(mut failed) = result else { return };
    if let Some(buffer) = failed.take_buffer() {
        assert!(buffer.iter().all(|byte| *byte == 0xee), "a failure has changed a buffer");
    }
}

#[test]
fn no_client_finds_a_byte_of_another_clients_frames_in_anything_that_it_can_see() {
    let test = "no_client_finds_a_byte_of_another_clients_frames_in_anything_that_it_can_see";
    let brief = vec![Way::Packets(Level::EarlySplitting), Way::Native];
    for way in at_length(brief, Way::all().collect()) {
        let Some(Pair { ends: [ours, theirs] }) = pair(test, 9000) else { return };
        let Some(host) = Host::new(test, [&ours, &theirs], way, Verifying::Separate) else { continue };
        let place = tempfile::tempdir().expect("a directory");
        // What is lent to a client is soon exhausted.
        let options = ServeOptions { pool: 128 << 10, hard_pool: 256 << 10, ..ServeOptions::default() };
        let serving = Listener::bind_in(&directory(place.path()), "host", host.server.clone(), options);
        let running = serving.expect("a listener").start().expect("threads");
        let sender = kernel(&theirs, false);
        let mut spies = CLIENTS.map(|client| Peer::start(place.path(), &format!("spy {client}")));
        let ports = spies.each_mut().map(|spy| spy.hear().parse::<u16>().expect("a port"));
        let send = |sender: &UdpSocket, client: usize, len: usize| {
            let sent = marked(client as u8, len);
            sender.send_to(&sent, (ours.v4, ports[client])).expect("it is sent");
        };
        let nothing_is_seen = |spies: &mut [Peer; 2], what: &str| {
            for spy in spies {
                let said = spy.told("look");
                let (own, others) = said.split_once(' ').expect("two numbers");
                assert!(own != "0", "{way:?}, {what}: it does not see its own");
                assert_eq!(others, "0", "{way:?}, {what}: of the other client's");
            }
        };
        let lengths = [64, 1400, 4096, 8972];
        let rounds = at_length(1, 3);
        for (number, len) in lengths.iter().cycle().take(lengths.len() * rounds).enumerate() {
            // The other one gets long ones meanwhile, whose bytes are stale where the short ones come.
            let lens = if number % 2 == 0 { [*len, 8972] } else { [8972, *len] };
            for client in [0, 1] {
                assert_eq!(spies[client].told(&format!("post {}", lens[client] + 100)), "posted");
            }
            for _ in 0..MANY {
                [0, 1].into_iter().for_each(|client| send(&sender, client, lens[client]));
            }
            for client in [0, 1] {
                let to = sender.local_addr().expect("an address");
                let count = spies[client].told(&format!("take {}", lens[client] + 100));
                assert!(count.parse::<usize>().expect("a number") > 0, "{way:?}: none has waited");
                assert_eq!(spies[client].told(&format!("abort {}", lens[client])), "aborted");
                assert_eq!(spies[client].told(&format!("send {} {to}", lens[client])), "sent");
            }
            nothing_is_seen(&mut spies, &format!("{len} bytes"));
        }
        let (counters, adapter, link) = (host.server.counters(), host.server.adapter(), host.link.counters());
        let lost = counters.full + adapter.no_buffers + link.dropped;
        assert!(lost > 0, "{way:?}: the buffers were never exhausted: {counters:?}");
        // Requests that end with the interface.
        spies.iter_mut().for_each(|spy| assert_eq!(spy.told("post 9000"), "posted"));
        remove(&ours);
        spies.iter_mut().for_each(|spy| assert_eq!(spy.told("lose"), "lost"));
        nothing_is_seen(&mut spies, "the interface is gone");
        drop(spies);
        running.stopper().stop();
        running.wait();
    }
}
