//! What a server does with its clients' buffers: it reads all of an output until it replies and not afterwards, stores into inputs
//! only, until it replies, says how much, and ends each request.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use genie_io::{Error, Failed, In, Out, Reply, Request};
use genie_passing::Scheme;
use genie_passing::model::Allocation;

use super::schemes::{buffer_len, filled, is_strong, migrant, slices, strong_native, weak_native};
use crate::bytes::{pattern, same};
use crate::setup::fresh_seed;
use crate::{Buffering, POOLED, Scene};

/// Data that is put is at most so long.
const LONGEST: usize = 2 << 20;
/// What lies in a buffer before an input.
const BEFORE: u8 = 0x5a;

impl Scene {
    /// A request to the server under test, which must reply in time.
    fn ask<'r, 'i>(&'r self, put: bool, argument: &'r [u8]) -> Request<'r, 'r, 'i> {
        let store = self.store();
        let service = if put { store.put } else { store.get };
        self.interface().request(&store.server, service).argument(argument).timeout(self.patience())
    }

    #[track_caller]
    fn put(&self, name: &str, element: Out<'_>) -> Reply {
        let argument = (self.store().argument)(name);
        self.ask(true, &argument).out(element).send().unwrap_or_else(|failed| panic!("putting: {failed}"))
    }

    fn try_get(&self, name: &str, element: In<'_>) -> Result<Reply, Failed> {
        self.ask(false, &(self.store().argument)(name)).input(element).send()
    }

    #[track_caller]
    fn get(&self, name: &str, element: In<'_>) -> Reply {
        self.try_get(name, element).unwrap_or_else(|failed| panic!("getting: {failed}"))
    }

    /// Compares what is kept.
    #[track_caller]
    fn keeps(&self, name: &str, bytes: &[u8], what: impl std::fmt::Display) {
        let mut found = vec![BEFORE; bytes.len()];
        let actual = self.get(name, In::copy(&mut found)).actual();
        assert_eq!(actual, bytes.len(), "{what}: the length that is said");
        same(&found, bytes, what);
    }

    /// Compares what comes into memory that is given away.
    #[track_caller]
    fn brings(&self, name: &str, scheme: Scheme, bytes: &[u8], what: impl std::fmt::Display) {
        let mut reply = self.get(name, self.input(scheme, bytes.len()));
        assert_eq!(reply.actual(), bytes.len(), "{what}: the length that is said");
        match reply.take_migrant() {
            Some(region) => same(&region, bytes, what),
            None => same(&reply.take_buffer().expect("the buffer")[..bytes.len()], bytes, what),
        }
    }

    /// An output of these bytes in memory that is given away.
    fn output(&self, scheme: Scheme, bytes: &[u8]) -> Out<'static> {
        match scheme.allocation() {
            Allocation::Native => {
                let mut buffer = self.interface().allocate(bytes.len().max(1)).expect("a buffer");
                buffer[..bytes.len()].copy_from_slice(bytes);
                Out::owned(scheme, buffer).part(0..bytes.len())
            }
            Allocation::Migrant => {
                let region = self.interface().allocate_migrant(bytes.len().max(1), is_strong(scheme));
                let mut region = region.expect("a region").truncated(bytes.len());
                region.copy_from_slice(bytes);
                Out::migrant(scheme, region)
            }
        }
    }

    /// An input for so many bytes.
    fn input(&self, scheme: Scheme, len: usize) -> In<'static> {
        match scheme.allocation() {
            Allocation::Native => {
                let mut buffer = self.interface().allocate(len.max(1)).expect("a buffer");
                buffer.fill(BEFORE);
                In::owned(scheme, buffer).part(0..len)
            }
            Allocation::Migrant => In::migrant(scheme, len),
        }
    }
}

/// A name for each length, so that a server keeps few bytes, and never shorter ones over longer ones.
fn name(len: usize) -> String {
    format!("of-{len}-bytes")
}

pub(super) fn what_is_put_comes_back(t: &Scene) {
    for scheme in Scheme::ALL {
        for slice in slices(t) {
            let what = format!("{scheme} of {} bytes", slice.len());
            let bytes = pattern(fresh_seed(), slice.len());
            let mut reply = t.put(&name(bytes.len()), t.output(scheme, &bytes));
            if let Some(buffer) = reply.take_buffer() {
                same(&buffer[..bytes.len()], &bytes, format_args!("{what}: the client's buffer"));
            }
            t.keeps(&name(bytes.len()), &bytes, &what);
            let (mut buffer, mut expected) = filled(t);
            t.put(&name(bytes.len()), Out::borrowed(Scheme::EmulatedCopy, &buffer[slice.clone()]));
            same(&buffer, &expected, format_args!("{what}: the client's buffer"));
            t.keeps(&name(bytes.len()), &expected[slice.clone()], &what);
            buffer[slice.clone()].fill(BEFORE);
            expected[slice].fill(BEFORE);
            same(&buffer, &expected, format_args!("{what}: the client's own stores"));
        }
    }
}

pub(super) fn all_of_it_comes_and_no_more(t: &Scene) {
    // All are kept before one is got: a server that takes one name for another gives the wrong bytes.
    let put = |slice: Range<usize>| {
        let bytes = pattern(fresh_seed(), slice.len());
        t.put(&name(bytes.len()), Out::copy(&bytes));
        (slice, bytes)
    };
    for (slice, bytes) in slices(t).into_iter().map(put).collect::<Vec<_>>() {
        for scheme in strong_native() {
            let what = format!("{scheme} into {slice:?}");
            let (mut buffer, mut expected) = filled(t);
            let reply = t.get(&name(bytes.len()), In::borrowed(scheme, &mut buffer[slice.clone()]));
            assert_eq!(reply.actual(), bytes.len(), "{what}: the length that is said");
            expected[slice.clone()].copy_from_slice(&bytes);
            same(&buffer, &expected, &what);
        }
        for scheme in weak_native().chain(migrant()) {
            t.brings(&name(bytes.len()), scheme, &bytes, format_args!("{scheme} of {} bytes", bytes.len()));
        }
    }
}

/// Data longer than the buffers of other promises; of what a server takes and gives in pieces, the pieces come together.
pub(super) fn long_data_comes_back(t: &Scene) {
    let random = RandomState::new().build_hasher().finish() as usize;
    let mut lens = [(64 << 10) + 1, 100_001, (1 << 20) + 13, (64 << 10) + random % (LONGEST - (64 << 10))];
    lens.sort_unstable();
    // A server's own buffers are no longer.
    let is_possible = |len: &usize| t.setup().buffering == Buffering::Customized || *len <= buffer_len(t);
    for len in lens.into_iter().filter(is_possible) {
        for scheme in Scheme::ALL {
            let bytes = pattern(fresh_seed(), len);
            t.put(&name(len), t.output(scheme, &bytes));
            t.brings(&name(len), scheme, &bytes, format_args!("{scheme} of {len} bytes"));
        }
    }
}

pub(super) fn the_length_that_is_said_is_that_of_the_data(t: &Scene) {
    let granule = t.setup().granule();
    for len in [0, 1, granule - 1, granule + 3] {
        let bytes = pattern(fresh_seed(), len);
        t.put(&name(len), t.output(Scheme::Copy, &bytes));
        for scheme in Scheme::ALL {
            let what = format!("{scheme}: {len} bytes, with room for more");
            let mut reply = t.get(&name(len), t.input(scheme, 2 * granule));
            assert_eq!(reply.actual(), len, "{what}");
            if let Some(region) = reply.take_migrant() {
                same(&region, &bytes, &what);
            } else {
                let buffer = reply.take_buffer().expect("the buffer");
                same(&buffer[..len], &bytes, &what);
                let is_untouched = buffer[len..].iter().all(|byte| *byte == BEFORE);
                assert!(is_untouched || !is_strong(scheme), "{what}: the rest");
            }
        }
    }
}

pub(super) fn output_is_read_before_the_reply(t: &Scene) {
    let len = 2 * t.setup().granule() + 5;
    for scheme in weak_native().chain(strong_native()) {
        let bytes = pattern(fresh_seed(), len);
        let mut buffer = t.put(&name(len), t.output(scheme, &bytes)).take_buffer().expect("the buffer");
        buffer.fill(BEFORE);
        t.keeps(&name(len), &bytes, format_args!("{scheme}, whose buffer was stored into after the reply"));
    }
    for scheme in migrant() {
        let bytes = pattern(fresh_seed(), len);
        t.put(&name(len), t.output(scheme, &bytes));
        let mut other = t.interface().allocate_migrant(len, is_strong(scheme)).expect("a region");
        other.fill(BEFORE);
        t.keeps(&name(len), &bytes, format_args!("{scheme}, whose region was used after the reply"));
    }
}

pub(super) fn output_is_that_of_the_request(t: &Scene) {
    for scheme in strong_native() {
        let (mut buffer, bytes) = filled(t);
        let argument = (t.store().argument)(&name(bytes.len()));
        let pending = t.ask(true, &argument).out(Out::borrowed(scheme, &buffer)).submit().expect("a request");
        buffer.fill(BEFORE);
        pending.sync().unwrap_or_else(|failed| panic!("putting: {failed}"));
        t.keeps(&name(bytes.len()), &bytes, format_args!("{scheme}, whose buffer was stored into at once"));
    }
}

pub(super) fn nothing_is_stored_after_the_reply(t: &Scene) {
    let len = 2 * t.setup().granule() + 5;
    let bytes = pattern(fresh_seed(), len);
    t.put(&name(len), Out::copy(&bytes));
    for scheme in Scheme::ALL.into_iter().rev() {
        let own = pattern(fresh_seed(), len);
        let mut reply = t.get(&name(len), t.input(scheme, len));
        let (mut buffer, mut region) = (reply.take_buffer(), reply.take_migrant());
        let mine = match (&mut buffer, &mut region) {
            (Some(buffer), _) => &mut buffer[..len],
            (_, Some(region)) => &mut region[..],
            _ => panic!("{scheme}: nothing came"),
        };
        mine.copy_from_slice(&own);
        for round in 0..3 {
            t.put("another", Out::copy(&[round; 9]));
            t.keeps("another", &[round; 9], "another request");
            thread::sleep(Duration::from_millis(1));
            same(mine, &own, format_args!("{scheme}: what the client has stored after the reply"));
        }
    }
}

pub(super) fn a_refused_request_changes_nothing(t: &Scene) {
    let len = t.setup().granule() + 7;
    for scheme in Scheme::ALL {
        let refused = t.try_get("never-put", t.input(scheme, len));
        let mut failed = refused.map(drop).expect_err("there is nothing of this name");
        assert!(matches!(failed.error, Error::Server(_)), "{scheme}: {failed}");
        assert!(failed.take_migrant().is_none(), "{scheme}: nothing came");
        if let Some(buffer) = failed.take_buffer() {
            assert!(buffer[..len].iter().all(|byte| *byte == BEFORE), "{scheme}: the client's buffer");
        }
    }
    for scheme in strong_native() {
        let (mut buffer, before) = filled(t);
        t.try_get("never-put", In::borrowed(scheme, &mut buffer[3..])).expect_err("nothing of this name");
        same(&buffer, &before, format_args!("{scheme}: the client's buffer"));
    }
}

pub(super) fn elements_are_one_buffer(t: &Scene) {
    let granule = t.setup().granule();
    let bytes = pattern(fresh_seed(), granule + 100);
    let argument = (t.store().argument)("parts");
    let put = t.ask(true, &argument).out(Out::copy(&bytes[..33])).and_out(Out::emulated_copy(&bytes[33..]));
    put.send().unwrap_or_else(|failed| panic!("putting parts: {failed}"));
    t.keeps("parts", &bytes, "what was put in parts");
    let (mut first, mut second) = (vec![BEFORE; granule - 9], vec![BEFORE; 109]);
    let get = t.ask(false, &argument).input(In::emulated_copy(&mut first)).and_input(In::copy(&mut second));
    let actual = get.send().unwrap_or_else(|failed| panic!("getting parts: {failed}")).actual();
    assert_eq!(actual, bytes.len(), "the length that is said of both parts");
    same(&[first, second].concat(), &bytes, "what came in parts");
}

pub(super) fn no_bytes_can_be_kept(t: &Scene) {
    for scheme in Scheme::ALL {
        t.put("nothing", t.output(scheme, &[]));
        assert_eq!(t.get("nothing", t.input(scheme, 100)).actual(), 0, "{scheme}");
        t.put(&name(9), Out::copy(&[1; 9]));
        assert_eq!(t.get(&name(9), t.input(scheme, 0)).actual(), 0, "{scheme}, without room");
    }
}

pub(super) fn requests_of_threads_are_apart(t: &Scene) {
    // A server with a pool has so many buffers in it.
    let names: [&str; POOLED] = ["a", "b"];
    names.iter().for_each(|name| drop(t.put(name, Out::copy(&name.repeat(3000).into_bytes()))));
    names.iter().for_each(|name| t.keeps(name, &name.repeat(3000).into_bytes(), format_args!("name {name}")));
    let meeting = AtomicUsize::new(0);
    let rounds = &|name: &str| {
        meeting.fetch_add(1, Ordering::Relaxed);
        while meeting.load(Ordering::Relaxed) < names.len() {
            thread::yield_now();
        }
        for round in 0..80 {
            let bytes = pattern(fresh_seed(), 3000);
            t.put(name, Out::emulated_copy(&bytes));
            t.keeps(name, &bytes, format_args!("thread {name}, round {round}"));
        }
    };
    thread::scope(|scope| {
        let threads = names.map(|name| scope.spawn(move || rounds(name)));
        // What a thread says of a broken promise is what the report is to say.
        for thread in threads {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

pub(super) fn an_abort_ends_one_request(t: &Scene) {
    let bytes = pattern(fresh_seed(), 5000);
    t.put("kept", Out::copy(&bytes));
    for scheme in Scheme::ALL {
        let argument = (t.store().argument)("aborted");
        let pending = t.ask(true, &argument).out(t.output(scheme, &bytes)).submit().expect("a request");
        match pending.abort() {
            Ok(_) => t.keeps("aborted", &bytes, format_args!("{scheme}: done before the abort")),
            Err(failed) => assert_eq!(failed.error, Error::Aborted, "{scheme}"),
        }
        t.keeps("kept", &bytes, format_args!("{scheme}: the next request"));
    }
}
