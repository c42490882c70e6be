//! Pairs: two interfaces in one process, which use one server in that process, and the same servers elsewhere.
//!
//! Why: if one interface aborts a request, or its request times out, that must end its own request and never one of the
//! other interface.

use genie_conformance::checked;

use crate::cast::{ConductorLink, Cue, Kind, Word};
use crate::client::{Client, LIMIT};
use crate::leaf::{Leaf, PATIENCE, eventually};
use crate::panics;
use crate::random::Random;
use crate::traces::Traces;

/// Plays until the conductor has it end.
pub(crate) fn play(mut link: ConductorLink) {
    let before = Traces::now();
    let mut random = Random::new(link.script.seed);
    let (server, leaf) = Leaf::within();
    let kind = Kind { is_huge: false, is_untrusted: false, limit: LIMIT / 2 };
    let mut open = || Client::open(&link, &kind, &mut random).with(&server);
    let clients = [open(), open()];
    let objects =
        || clients.iter().map(|client| checked(client.interface.space()).objects).sum::<u32>() as usize;
    let (base, base_objects) = (Traces::now(), objects());
    link.tell(&Word::Ready);
    loop {
        let seeds = [random.next(), random.next()];
        std::thread::scope(|scope| {
            for (client, seed) in clients.iter().zip(seeds) {
                scope.spawn(move || client.round(&mut Random::new(seed)));
            }
        });
        let mut tally = clients[0].tally();
        tally.join(&clients[1].tally());
        tally.count("rounds of two interfaces at one server");
        panics::count(&mut tally);
        link.tell(&Word::Done(tally));
        if let Some(Cue::Rest) = link.cue() {
            clients.iter().for_each(Client::let_go);
            eventually("requests are kept", || {
                (leaf.kept() > 0).then(|| format!("{} requests", leaf.kept()))
            });
            panics::check();
            let left = Traces::settle(&base, PATIENCE, || objects().saturating_sub(base_objects));
            left.unwrap_or_else(|left| panic!("all servers were let go, but not {left}"));
            if !link.rest() {
                break;
            }
        }
    }
    drop((clients, server, leaf));
    Traces::settle(&before, PATIENCE, || 0).unwrap_or_else(|left| panic!("the pair is done, but not {left}"));
}
