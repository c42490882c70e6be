//! Growth: a server lends a client more when its pool is exhausted, up to what it allows.
//!
//! How: what the client adds to an exhausted pool meanwhile is counted apart, and goes when the server has lent enough.

use std::time::{Duration, Instant};

use genie_conformance::{Buffering, Granules, Setup, assert_idle, checked, memory_limit};
use genie_io::servers::memory::{FETCH, STORE};
use genie_io::{In, Interface, Limits, Out, Pending, ServerHandle};
use genie_memory::{GranuleKind, PoolSize, SharedObject, Space};
use genie_passing::{Receipt, Scheme, Thresholds};

use super::{connect, eventually, open, opening};
use crate::on_both_granules;
use crate::support::bytes::{pattern, same};
use crate::support::holder::{HOLD, Holder, Name};
use crate::support::machine::{mappings_of, missing_huge_pages, object_at, skip};
use crate::support::peer::{Kind, Opening, Peer, fresh_name};
use crate::support::relay::{Manner, Relay};

on_both_granules! {
    an_exhausted_pool_grows_until_the_server_lends_no_more,
    input_by_emulated_copy_is_swapped_with_a_pool_that_has_grown,
    a_server_that_lends_no_more_is_done_without,
    a_pool_grows_for_data_that_reaches_its_server_by_way_of_another,
    a_pool_takes_the_place_of_one_that_another_server_was_told_of,
}

/// How much of each system buffer's last granule is not data.
const REST: usize = 100;

/// A client of a holder with a small pool.
struct Small {
    interface: Interface,
    server: ServerHandle,
    holder: Holder,
    granule: usize,
    /// Bytes in a system buffer of three granules.
    len: usize,
}

impl Small {
    /// Opens a holder that lends so many granules to begin with, and so many in all.
    fn open(test: &str, kind: GranuleKind, pool: usize, hard_pool: usize) -> Option<Self> {
        let needed = memory_limit(kind) / kind.size() + hard_pool;
        if let Some(reason) = missing_huge_pages(needed).filter(|_| kind == GranuleKind::Huge) {
            skip(test, &reason);
            return None;
        }
        Self::open_as(test, Setup::allowed(kind), pool, hard_pool)
    }

    fn open_as(test: &str, setup: Setup, pool: usize, hard_pool: usize) -> Option<Self> {
        let (limits, thresholds) = (Limits::default(), Thresholds::ALWAYS);
        let interface = setup.interface(test, setup.memory_limit(), limits, thresholds)?;
        let (name, granule) = (fresh_name("small"), setup.granule());
        let plain = opening(&name, Kind::Holder { pooled: None, log: None });
        let opening = Opening { pool: pool * granule, hard_pool: hard_pool * granule, ..plain };
        let link = open(Peer::shared(), opening);
        let server = connect(&interface, Peer::shared(), &name);
        let holder = Holder::elsewhere(&interface, server.clone(), link);
        Some(Self { interface, server, holder, granule, len: 3 * granule - REST })
    }

    /// Granules that the server lends.
    fn lent(&self) -> u32 {
        checked(self.interface.space()).lent
    }

    /// Granules that the client has added to the pool.
    fn stand_ins(&self) -> u32 {
        checked(self.interface.space()).stand_ins
    }

    /// The space that has granules like the system buffers'.
    fn space(&self) -> &Space {
        let space = self.interface.space();
        space.small().unwrap_or(space)
    }

    /// The objects that are lent.
    fn objects(&self) -> Vec<SharedObject> {
        let space = self.space();
        let places = (0..space.aliases_len()).step_by(self.granule);
        let mut objects: Vec<_> = places.filter_map(|at| space.object_at(at)).collect();
        objects.retain(|object| object.lender.is_some());
        objects.dedup();
        objects
    }

    /// The pool, of which some is lent.
    fn pool(&self) -> PoolSize {
        let lender = self.objects().first().and_then(|object| object.lender).expect("a lent object");
        self.space().pool_size(lender).expect("a lender that is there")
    }

    #[track_caller]
    fn await_lent(&self, granules: u32) {
        eventually("the pool has another size", || self.lent() == granules);
    }

    /// Makes a request whose data is copied.
    fn submit(&self, data: &[u8]) -> Pending<'static> {
        let request = self.interface.request(self.holder.handle(), HOLD);
        request.out(Out::copy(data)).submit().expect("a request")
    }

    /// Ends a request that arrived as number `arrival`; the server has its data.
    fn finish(&self, arrival: usize, pending: Pending<'_>, data: &[u8]) -> Receipt {
        same(&self.holder.read(Name::Arrival(arrival)), data, format_args!("output {arrival}"));
        self.holder.reply(Name::Arrival(arrival));
        let receipt = pending.sync().expect("a reply").buffers[0].elements[0].receipt;
        assert_eq!((receipt.copied, receipt.effective), (data.len(), Scheme::Copy), "output {arrival}");
        receipt
    }

    /// Disconnects, and verifies that nothing is left of what was lent.
    fn close(self) {
        assert_idle(&self.interface, 0);
        let base = self.space().aliases_base();
        let objects = self.objects().into_iter().map(|object| object_at(base + object.start));
        let objects: Vec<_> = objects.map(|object| object.expect("a mapped object")).collect();
        let Self { interface, server, holder, .. } = self;
        drop((server, holder));
        eventually("lent objects are left", || {
            let usage = checked(interface.space());
            (usage.lent, usage.stand_ins, usage.retired) == (0, 0, 0)
        });
        for pid in [std::process::id(), Peer::shared().pid()] {
            let is_lent = |object: String| objects.contains(&object);
            eventually("lent objects are mapped", || {
                !mappings_of(pid).into_iter().filter_map(|mapping| mapping.object).any(is_lent)
            });
        }
    }
}

fn an_exhausted_pool_grows_until_the_server_lends_no_more(test: &str, kind: GranuleKind) {
    Small::open(test, kind, 4, 15).into_iter().for_each(it_grows_from_4_granules_to_15);
}

/// The pool of a client that has granules of 2 MiB, too: a granule of 4 KiB less than is to be lent marks it as of 4 KiB.
#[test]
fn the_part_of_a_pool_that_is_exhausted_grows() {
    let setup = Setup::new(Granules::Mixed, Setup::allowed(GranuleKind::Base).guard, Buffering::Customized);
    let test = "the_part_of_a_pool_that_is_exhausted_grows";
    Small::open_as(test, setup, 5, 15).into_iter().for_each(it_grows_from_4_granules_to_15);
}

fn it_grows_from_4_granules_to_15(small: Small) {
    assert_eq!((small.lent(), small.stand_ins()), (4, 0));
    // One buffer more than the pool has, and then more than it and what the client has added.
    let count = if small.space().granule() > 4096 { 8 } else { 40 };
    let data: Vec<_> = (0..count).map(|seed| pattern(seed, small.len)).collect();
    let mut pendings: Vec<_> = data[..2].iter().map(|data| small.submit(data)).collect();
    small.await_lent(8);
    assert!(small.stand_ins() > 0, "the second one did not wait");
    for data in &data[2..] {
        pendings.push(small.submit(data));
        std::thread::yield_now();
    }
    small.await_lent(15);
    for (arrival, pending) in pendings.into_iter().enumerate() {
        let receipt = small.finish(arrival, pending, &data[arrival]);
        assert_eq!(receipt.zeroed, 0, "output {arrival}: {receipt}");
    }
    // What has been lent stays.
    eventually("what the client has added comes back", || small.stand_ins() == 0);
    let again = small.submit(&data[0]);
    small.finish(data.len(), again, &data[0]);
    assert_eq!((small.lent(), small.stand_ins(), small.pool().granules), (15, 0, 15));
    small.close();
}

fn input_by_emulated_copy_is_swapped_with_a_pool_that_has_grown(test: &str, kind: GranuleKind) {
    let Some(small) = Small::open(test, kind, 0, 6) else { return };
    let mut buffer = small.interface.allocate(small.len).expect("a buffer");
    for arrival in 0..2 {
        let data = pattern(arrival as u64, small.len);
        let request = small.interface.request(small.holder.handle(), HOLD);
        let pending = request.input(In::emulated_copy(&mut buffer)).submit().expect("a request");
        small.await_lent(3);
        small.holder.deliver(Name::Arrival(arrival), &data);
        let receipt = pending.sync().expect("a reply").buffers[0].elements[0].receipt;
        assert_eq!((receipt.swapped, receipt.zeroed), (3, 0), "input {arrival}: {receipt}");
        same(&buffer, &data, format_args!("input {arrival}"));
    }
    drop(buffer);
    small.close();
}

fn a_server_that_lends_no_more_is_done_without(test: &str, kind: GranuleKind) {
    let Some(small) = Small::open(test, kind, 3, 3) else { return };
    let data = pattern(7, small.len);
    let held = small.submit(&data);
    for arrival in 1..20 {
        let pending = small.submit(&data);
        small.finish(arrival, pending, &data);
    }
    assert!(small.stand_ins() > 0);
    small.finish(0, held, &data);
    assert_eq!(small.lent(), 3);
    small.close();
}

/// The thread that gives memory back once ended because all had come back, while more was being added.
#[test]
fn what_is_added_when_all_has_just_come_back_comes_back_too() {
    let test = "what_is_added_when_all_has_just_come_back_comes_back_too";
    let adds = |small: Small| {
        for arrival in 0..3 {
            let data = pattern(arrival as u64, 8 << 20);
            let pending = small.submit(&data);
            assert!(small.stand_ins() > 0, "arrival {arrival}");
            small.finish(arrival, pending, &data);
            // As soon as it has come back, the next one is sent.
            let deadline = Instant::now() + Duration::from_secs(60);
            while small.stand_ins() > 0 {
                assert!(
                    Instant::now() < deadline,
                    "arrival {arrival}: {} granules are left",
                    small.stand_ins()
                );
            }
        }
        small.close();
    };
    let clients: Vec<_> = (0..4).filter_map(|_| Small::open(test, GranuleKind::Base, 0, 0)).collect();
    std::thread::scope(|scope| clients.into_iter().for_each(|small| drop(scope.spawn(|| adds(small)))));
}

fn a_pool_grows_for_data_that_reaches_its_server_by_way_of_another(test: &str, kind: GranuleKind) {
    let Some(small) = Small::open(test, kind, 0, 3) else { return };
    let to = vec![small.server.clone()];
    let relay = ServerHandle::new(Relay::new(small.interface.clone(), to, Manner::Plain, None));
    let data = pattern(8, small.len);
    for arrival in 0..2 {
        let request = small.interface.request(&relay, HOLD);
        let out = Out::copy(&data).lent_by(&small.server);
        let pending = request.out(out).submit().expect("a request");
        small.await_lent(3);
        small.finish(arrival, pending, &data);
    }
    drop(relay);
    small.close();
}

/// Input by emulated copy leaves a client with memory of one server's pool, of which it tells another server when that is to
/// read it. When the pool is gone, the next one is in its place.
fn a_pool_takes_the_place_of_one_that_another_server_was_told_of(test: &str, kind: GranuleKind) {
    let Some(small) = Small::open(test, kind, 0, 0) else { return };
    let (name, len) = (fresh_name("lender"), 3 * small.granule);
    let _lender =
        open(Peer::shared(), Opening { pool: len, hard_pool: len, ..opening(&name, Kind::Memory(None)) });
    let pools = [0, 1].map(|arrival| {
        let lender = connect(&small.interface, Peer::shared(), &name);
        let [pool] = small.objects()[..] else { panic!("another pool: {:?}", small.objects()) };
        let data = pattern(arrival as u64, len);
        let mut buffer = small.interface.allocate(len).expect("a buffer");
        let request = |service| small.interface.request(&lender, service);
        request(STORE).out(Out::copy(&data)).argument(b"name").send().expect("a reply");
        request(FETCH).input(In::emulated_copy(&mut buffer)).argument(b"name").send().expect("a reply");
        let lent = object_at(small.interface.space().aliases_base() + pool.start);
        assert_eq!(object_at(buffer.as_ptr().addr()), lent, "the buffer has the pool's memory");
        let request = small.interface.request(small.holder.handle(), HOLD);
        let pending = request.out(Out::emulated_copy(&buffer)).submit().expect("a request");
        same(&small.holder.read(Name::Arrival(arrival)), &data, format_args!("output {arrival}"));
        small.holder.reply(Name::Arrival(arrival));
        pending.sync().expect("a reply");
        drop((buffer, lender));
        small.await_lent(0);
        eventually("the pool is left", || small.objects().is_empty());
        pool
    });
    assert_eq!(pools[0].start, pools[1].start);
    assert_ne!(pools[0].id, pools[1].id);
    small.close();
}
