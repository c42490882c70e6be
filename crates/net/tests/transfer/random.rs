//! Random streams against copying: whatever the packets, the requests and their order, each byte arrives once and in order.

use std::collections::VecDeque;

use genie_conformance::bytes::{pattern, same};
use genie_conformance::checked;
use genie_io::{In, Out, Pending, Reply, Returned};
use genie_net::transfer::{Shape, in_parts, port};
use genie_passing::model::Allocation;
use genie_passing::{Overlays, Scheme};
use proptest::prelude::*;

use crate::link::{Kind, Link, PORT, RECEIVE, SEGMENT, SEND, receiving};

#[derive(Debug, Clone)]
enum Step {
    Send(usize),
    /// How many bytes, where in a page, by which scheme, and whether in parts.
    Receive(usize, usize, Scheme, bool),
    /// Gives up one of the requests that wait.
    GiveUp(usize),
    Shape(Vec<usize>, Vec<usize>, Vec<usize>),
    Interrupt,
}

fn step() -> impl Strategy<Value = Step> {
    let lens = prop_oneof![1usize..20_000, Just(4096), Just(8192), 1usize..300];
    let offset = prop_oneof![Just(0usize), Just(8), 0usize..4096];
    let schemes = prop::sample::select(Scheme::ALL.to_vec());
    let cuts = prop::collection::vec(prop_oneof![Just(4096usize), Just(1016), 200usize..9000], 1..4);
    let headers = prop::collection::vec(prop_oneof![4 => Just(8usize), 1 => 8usize..=255], 1..3);
    let trailers = prop::collection::vec(prop_oneof![4 => Just(0usize), 1 => 0usize..=255], 1..3);
    prop_oneof![
        4 => lens.clone().prop_map(Step::Send),
        4 => (lens, offset, schemes, any::<bool>())
            .prop_map(|(len, offset, scheme, parts)| Step::Receive(len, offset, scheme, parts)),
        2 => (0usize..3).prop_map(Step::GiveUp),
        1 => (cuts, headers, trailers).prop_map(|(cuts, headers, trailers)| Step::Shape(cuts, headers, trailers)),
        1 => Just(Step::Interrupt),
    ]
}

/// How much may be sent before it is asked for: so many bytes of the shortest packets have segments.
const AHEAD: usize = 100 << 10;

/// A request for input that waits, or has been replied to, and how many bytes it asks for.
struct Asked(Pending<'static>, usize);

fn bytes(reply: &mut Reply) -> Vec<u8> {
    let element = reply.buffers.first_mut().expect("one buffer").elements.first_mut().expect("one element");
    match std::mem::take(&mut element.returned) {
        Returned::Buffer(buffer) => buffer.to_vec(),
        Returned::Migrant(migrant) => migrant.to_vec(),
        Returned::Nothing => panic!("an input brings its memory back"),
    }
}

fn ask(link: &Link, len: usize, offset: usize, scheme: Scheme, parts: bool) -> Asked {
    let input = match scheme.semantics().allocation() {
        Allocation::Native => {
            let mut buffer = link.genie.allocate_at(offset, len).expect("memory");
            buffer.fill(0xee);
            In::owned(scheme, buffer)
        }
        Allocation::Migrant => In::migrant(scheme, len),
    };
    let (whole, parts) = (port(PORT), parts.then(|| in_parts(PORT)));
    let argument = parts.as_ref().map_or(&whole[..], |parts| parts);
    let asked = link.genie.request(&link.receiver, RECEIVE).argument(argument).input(input);
    Asked(asked.submit().expect("a request"), len)
}

fn run(kind: Kind, coalesced: usize, tracks: bool, buffers: usize, steps: Vec<Step>) {
    let link = Link::open(kind, genie_net::transfer::Receiving { coalesced, tracks, ..receiving(4096) });
    let pool = Overlays::reserve(link.genie.space(), 0, SEGMENT, buffers).expect("memory");
    link.receiving.set_speculation(Some(pool).filter(|_| buffers > 0));
    let all = pattern(3, 2 << 20);
    let (mut sent, mut got, mut waiting) = (0, 0, VecDeque::new());
    let mut asked_for = 0;
    for step in steps {
        match step {
            Step::Send(len) if sent + len < asked_for + AHEAD => {
                let data = &all[sent..sent + len];
                link.genie
                    .request(&link.sender, SEND)
                    .argument(&port(PORT))
                    .out(Out::copy(data))
                    .send()
                    .expect("sent");
                sent += len;
            }
            Step::Receive(len, offset, scheme, parts) if waiting.len() < 60 => {
                waiting.push_back(ask(&link, len, offset, scheme, parts));
                asked_for += len;
            }
            Step::GiveUp(index) if index < waiting.len() => {
                let Some(Asked(pending, len)) = waiting.remove(index) else { continue };
                let part = pending.abort().map(|mut reply| (reply.actual(), bytes(&mut reply)));
                let come = part.as_ref().map_or(0, |(come, _)| *come);
                asked_for -= len - come;
                if let Ok((come, found)) = part {
                    // Those in front of it were filled before.
                    for Asked(pending, len) in waiting.drain(..index) {
                        same(
                            &bytes(&mut pending.sync().expect("data")),
                            &all[got..got + len],
                            format_args!("{kind:?}"),
                        );
                        got += len;
                    }
                    same(
                        &found[..come],
                        &all[got..got + come],
                        format_args!("{kind:?}, bytes {got} on, in part"),
                    );
                    got += come;
                }
            }
            Step::Shape(data, headers, trailers) => link.sending.set_shape(Shape { data, headers, trailers }),
            Step::Interrupt => link.receiving.interrupt(),
            Step::Send(_) | Step::Receive(..) | Step::GiveUp(_) => {}
        }
        while waiting.front().is_some_and(|Asked(pending, _)| pending.is_replied()) {
            let Some(Asked(pending, len)) = waiting.pop_front() else { break };
            let found = bytes(&mut pending.sync().expect("data"));
            same(&found, &all[got..got + len], format_args!("{kind:?}, bytes {got} on"));
            got += len;
        }
    }
    link.receiving.interrupt();
    // What is still missing is sent, and what is left is asked for.
    if sent < asked_for {
        let data = &all[sent..asked_for];
        link.genie
            .request(&link.sender, SEND)
            .argument(&port(PORT))
            .out(Out::copy(data))
            .send()
            .expect("sent");
        sent = asked_for;
        link.receiving.interrupt();
    }
    if sent > asked_for {
        waiting.push_back(ask(&link, sent - asked_for, 8, Scheme::EmulatedCopy, false));
    }
    for Asked(pending, len) in waiting {
        assert!(pending.is_replied(), "{kind:?}: {:?}", link.receiving.totals());
        let found = bytes(&mut pending.sync().expect("data"));
        same(&found, &all[got..got + len], format_args!("{kind:?}, bytes {got} on, at last"));
        got += len;
    }
    assert_eq!(got, sent, "{kind:?}: each byte once");
    checked(link.genie.space());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn each_byte_arrives_once_and_in_order(
        steps in prop::collection::vec(step(), 1..40),
        coalesced in 1usize..4,
        tracks: bool,
        buffers in prop::sample::select(vec![0usize, 3, 8]),
    ) {
        for kind in Kind::ALL {
            run(kind, coalesced, tracks, buffers, steps.clone());
        }
    }
}
