//! Carried elements: short data that travels in the records of a request and its reply, with the meaning of longer data.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_io::{Error, In, Interface, Limits, Out, Pending, Plan, ServerHandle};
use genie_memory::{Config, Granularity, GranuleKind, Space, Usage};
use genie_passing::{CARRIED, Costs, Passing, Reason, Receipt, Scheme, Thresholds};
use genie_ring::Layout;

use probe::{COPIED, ECHO, FORWARD, HALF, KEEP, LEAVE, PIN, PRINT, Probe, Reached, TURN, interface};

mod probe;

/// What one client stores, and no other may see.
const CANARY: u8 = 0xa7;

fn usage(interface: &Interface) -> Usage {
    interface.space().check().expect("accounts in order")
}

fn keeps(interface: &Interface, probe: &ServerHandle, out: Out<'_>) -> (Usage, Pending<'static>) {
    let kept = interface.request(probe, KEEP).out(out).submit().expect("a request");
    (usage(interface), kept)
}

#[test]
fn short_data_takes_no_memory_of_a_pool_and_longer_data_does() {
    let (_reached, interface, probe) = Reached::one(ServeOptions::default());
    let bytes = [3; CARRIED + 1];
    let before = usage(&interface);
    let (with_short, short) = keeps(&interface, &probe, Out::copy(&bytes[..CARRIED]));
    assert_eq!(with_short, before, "a carried output");
    let (with_long, long) = keeps(&interface, &probe, Out::copy(&bytes));
    assert_ne!(with_long, before, "a longer one");
    drop((short, long));
}

#[test]
fn receipts_say_that_carried_data_was_copied_and_why() {
    let (_reached, interface, probe) = Reached::one(ServeOptions::default());
    let native = interface.allocate(64).expect("memory");
    let foreign = [1; 64];
    let copied =
        |asked, reason| Receipt { effective: Scheme::Copy, copied: 64, reason, ..Receipt::new(asked) };
    let short = Some(Reason::Short);
    let outputs: [(Out<'_>, Receipt); 4] = [
        (Out::copy(&native), copied(Scheme::Copy, None)),
        (Out::emulated_copy(&native), copied(Scheme::EmulatedCopy, short)),
        (Out::emulated_share(&native[..]), copied(Scheme::EmulatedShare, short)),
        (Out::emulated_copy(&foreign), copied(Scheme::EmulatedCopy, Some(Reason::Foreign))),
    ];
    for (out, receipt) in outputs {
        let reply = interface.request(&probe, ECHO).out(out).room(64).send().expect("a reply");
        assert_eq!(reply.receipts().copied().collect::<Vec<_>>(), [receipt]);
    }
    let mut native_input = interface.allocate(64).expect("memory");
    let mut foreign_input = [0; 64];
    let inputs: [(In<'_>, Receipt); 2] = [
        (In::emulated_copy(&mut native_input), copied(Scheme::EmulatedCopy, short)),
        (In::copy(&mut foreign_input), copied(Scheme::Copy, None)),
    ];
    for (input, receipt) in inputs {
        let request = interface.request(&probe, ECHO).out(Out::copy(&foreign)).input(input).room(64);
        let reply = request.send().expect("a reply");
        assert_eq!(reply.receipts().nth(1), Some(&receipt), "an input is counted when it is delivered");
    }
    assert_eq!((&native_input[..], foreign_input), (&[1; 64][..], [1; 64]));
    let request = interface.request(&probe, ECHO).input(In::copy(&mut foreign_input));
    let reply = request.send().expect("a reply");
    assert_eq!(reply.receipts().next(), Some(&Receipt::new(Scheme::Copy)), "nothing was passed");
}

/// By thresholds that avoid copying wherever that is possible, short data is passed in place.
#[test]
fn thresholds_that_avoid_every_copy_have_only_copy_carried() {
    let (reached, interface, _probe) = Reached::one(ServeOptions::default());
    let passing = interface.passing().clone().with_thresholds(Thresholds::ALWAYS);
    let interface = Interface::new(passing, Limits::default());
    let probe = reached.connect(&interface, "probe");
    let native = interface.allocate(64).expect("memory");
    let request = interface.request(&probe, ECHO).out(Out::emulated_copy(&native)).room(64);
    let reply = request.send().expect("a reply");
    let receipt = reply.receipts().next().expect("a receipt");
    assert_eq!((receipt.effective, receipt.copied), (Scheme::EmulatedCopy, 0));
}

/// Whether data that stays unchanged is protected was asked twice for each output, and so it never was. Nothing costs anything here, so
/// the eighth output is the first trial.
#[test]
fn data_too_short_to_protect_is_not_carried_where_its_thresholds_have_it_tried() {
    let (reached, _interface, _probe) = Reached::one(ServeOptions::default());
    let config =
        Config { granularity: Granularity::Only(GranuleKind::Base), limit: 64 << 20, ..Config::default() };
    let thresholds = Thresholds { output: usize::MAX, ..Thresholds::ALWAYS };
    let space = Space::new(&config).expect("a space");
    if let genie_memory::Protection::None(reason) = space.protection() {
        let test = "data_too_short_to_protect_is_not_carried_where_its_thresholds_have_it_tried";
        return crate::support::machine::skip(test, &format!("nothing can be protected: {reason:?}"));
    }
    let passing = Passing::new(space, Costs::default()).with_thresholds(thresholds);
    let interface = Interface::new(passing, Limits::default());
    let probe = reached.connect(&interface, "probe");
    let native = interface.allocate(64).expect("memory");
    let copied = (0..9).map(|_| {
        let pending = interface.request(&probe, ECHO).out(Out::emulated_copy(&native)).room(64).submit();
        pending.expect("a request").sync().expect("a reply").receipt().copied
    });
    assert_eq!(copied.collect::<Vec<_>>(), [64, 64, 64, 64, 64, 64, 64, 0, 0]);
}

#[test]
fn what_a_server_has_not_filled_is_nobodys() {
    let (reached, interface, probe) = Reached::one(ServeOptions::default());
    let other = self::interface();
    let theirs = reached.connect(&other, "probe");
    let mut secret = [CANARY; CARRIED];
    for len in [1, 9, 64, CARRIED] {
        let mut input = [5; CARRIED];
        let request = other.request(&theirs, ECHO).out(Out::copy(&secret)).room(CARRIED);
        request.send().expect("a reply");
        other
            .request(&theirs, ECHO)
            .out(Out::copy(&[CANARY]))
            .input(In::copy(&mut secret))
            .room(1)
            .send()
            .expect("a reply");
        interface.request(&probe, HALF).input(In::copy(&mut input[..len])).send().expect("a reply");
        assert!(input[..len / 2].iter().all(|byte| *byte == 1), "{len}");
        assert!(input[len / 2..len].iter().all(|byte| *byte == 0), "{len}: {:?}", &input[..len]);
        assert!(input[len..].iter().all(|byte| *byte == 5), "{len}: beside");
    }
}

#[test]
fn what_a_subcontractor_has_not_filled_is_nobodys() {
    let (reached, interface, middle) = Reached::chain();
    let other = self::interface();
    let theirs = reached.connect(&other, "middle");
    for len in [1, 64, CARRIED] {
        let secret = vec![CANARY; len];
        let request = other.request(&theirs, FORWARD).out(Out::copy(&secret)).room(4 * CARRIED);
        assert_eq!(request.send().expect("a reply").argument(), secret, "it was in the last one's pool");
        let mut input = vec![5; len];
        let request = interface.request(&middle, FORWARD).input(In::copy(&mut input)).room(4);
        request.send().expect("a reply");
        assert!(input[..len / 2].iter().all(|byte| *byte == 1), "{len}");
        assert!(input[len / 2..].iter().all(|byte| *byte == 0), "{len}: {input:?}");
    }
}

/// The client was told of a success, and got zeros: only who takes a reply brought what the record carries to where it belongs.
#[test]
fn what_a_subcontractor_has_filled_comes_though_nobody_takes_its_reply() {
    let (_reached, interface, middle) = Reached::chain();
    for len in [2, 63, 64, CARRIED - 1, CARRIED, CARRIED + 1, 5000] {
        let mut input = vec![5; len];
        let reply = interface.request(&middle, LEAVE).input(In::copy(&mut input)).send().expect("a reply");
        assert_eq!(reply.actual(), len);
        drop(reply);
        assert!(input[..len / 2].iter().all(|byte| *byte == 1), "{len}: {input:?}");
    }
}

/// One short element had all of the buffer's others copied, too, and its input's zeroed.
#[test]
fn of_a_buffer_that_is_forwarded_only_what_was_carried_is_copied() {
    let (_reached, interface, middle) = Reached::chain();
    let (long, short) = ([1; 9000], [CANARY; 64]);
    let copied = |reply: genie_io::Reply| usize::from_le_bytes(reply.argument().try_into().expect("a count"));
    let output = |service| interface.request(&middle, service).room(64 << 10).out(Out::copy(&long));
    let reply = output(FORWARD).and_out(Out::copy(&short)).and_out(Out::copy(&long)).send().expect("a reply");
    assert_eq!(reply.argument(), [&long[..], &short, &long].concat());
    let reply = output(COPIED).and_out(Out::copy(&short)).and_out(Out::copy(&long)).send();
    assert_eq!(copied(reply.expect("a reply")), short.len(), "an output");
    let (mut first, mut second, mut third) = ([5; 9000], [5; 64], [5; 9000]);
    let request = interface.request(&middle, COPIED).room(8).input(In::copy(&mut first));
    let reply = request.and_input(In::copy(&mut second)).and_input(In::copy(&mut third)).send();
    assert_eq!(copied(reply.expect("a reply")), short.len(), "an input");
    assert_eq!((first, second), ([1; 9000], [1, 0].map(|byte| [byte; 32]).concat()[..].try_into().unwrap()));
}

/// The pool that had gone with the subcontractor was blamed.
#[test]
fn a_subcontractor_that_is_gone_is_said_to_be() {
    let (mut reached, interface, middle) = Reached::chain();
    drop(reached.running.remove(0));
    let request = || interface.request(&middle, FORWARD).out(Out::copy(&[1; 64])).room(4 * CARRIED).send();
    // The server in the middle hears of it when its control thread does.
    eventually(|| {
        let error = request().expect_err("nobody is there").error;
        matches!(&error, Error::Server(said) if said.message.contains("last")).then_some(()).ok_or(error)
    });
}

fn eventually(mut is_so: impl FnMut() -> Result<(), Error>) {
    let mut left = 2000;
    while let Err(error) = is_so() {
        left -= 1;
        assert!(left > 0, "{error}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Many short elements in small rings, an argument that fills the record, and one that fills the reply's.
#[test]
fn what_fitted_the_rings_without_its_data_still_does() {
    let rings = Layout { lines: 64, area: 1024 };
    let (_reached, interface, probe) = Reached::one(ServeOptions { rings, ..ServeOptions::default() });
    let data: Vec<[u8; 200]> = (0..8).map(|index| [index; 200]).collect();
    let mut request = interface.request(&probe, KEEP).argument(&[7; 150]);
    for bytes in &data {
        request = request.out(Out::copy(bytes));
    }
    drop(request.submit().expect("a record of 20 + 150 + 8 * 26 bytes"));
    let kept = interface.request(&probe, ECHO).argument(&[7; 400]).out(Out::copy(&data[3])).room(200);
    let reply = kept.send().expect("the argument alone fits");
    assert_eq!(reply.argument(), [3; 200]);
    let receipt = Receipt { copied: 200, ..Receipt::new(Scheme::Copy) };
    assert_eq!(reply.receipts().next(), Some(&receipt));
    let mut input = [0; 200];
    let long = [9; 240];
    let request = interface.request(&probe, ECHO).out(Out::copy(&long)).out(Out::copy(&data[5]));
    let reply =
        request.input(In::copy(&mut input)).room(440).send().expect("the reply has no room for the input");
    assert_eq!((reply.argument().len(), input), (440, [9; 200]));
}

#[test]
fn more_short_elements_than_a_record_carries_arrive() {
    let (_reached, interface, probe) = Reached::one(ServeOptions::default());
    let data: Vec<[u8; CARRIED]> = (0..20).map(|index| [index; CARRIED]).collect();
    let mut request = interface.request(&probe, ECHO).room(20 * CARRIED);
    for bytes in &data {
        request = request.out(Out::copy(bytes));
    }
    assert_eq!(request.send().expect("a reply").argument(), data.concat());
}

/// There was said to be room for records whose carried bytes had none, and for a record that goes on the ring's lines if the area
/// had room for a longer one.
#[test]
fn there_is_room_for_what_is_carried_where_there_is_said_to_be() {
    for (count, len, fits) in [(6, CARRIED, 2..10), (1, 193, 10..40), (1, 224, 10..40), (1, CARRIED, 10..40)]
    {
        there_is_room_for(count, len, fits);
    }
}

fn there_is_room_for(count: usize, len: usize, fits: std::ops::Range<usize>) {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let rings = Layout { lines: 64, area: 8192 };
    let options = ServeOptions { rings, ..ServeOptions::default() };
    let serving = Listener::bind_in(&directory, "probe", Probe::default(), options).expect("a name");
    let _driven = serving.drive().expect("a server");
    let interface = interface();
    let probe = interface.connect_with(&directory, "probe", &ConnectOptions::default());
    let probe = probe.expect("a connection");
    // Nobody takes requests off the ring.
    let bytes = [1; CARRIED];
    let mut pending = Vec::new();
    loop {
        let mut request = interface.request(&probe, KEEP);
        for _ in 0..count {
            request = request.out(Out::copy(&bytes[..len]));
        }
        if !request.has_room() {
            break;
        }
        pending.push(request.submit().unwrap_or_else(|failed| panic!("{count} of {len}: {failed}")));
    }
    assert!(fits.contains(&pending.len()), "{count} of {len}: {}", pending.len());
}

#[test]
fn a_request_that_is_printed_shows_no_data() {
    let (_reached, interface, probe) = Reached::one(ServeOptions::default());
    let words = [u64::from_ne_bytes([CANARY; 8]).to_string(), format!("{CANARY}, {CANARY}")];
    // The second one is printed when the first one's records have gone.
    for _ in 0..2 {
        let mut input = [0; 64];
        let request =
            interface.request(&probe, PRINT).out(Out::copy(&[CANARY; 64])).input(In::copy(&mut input));
        let reply = request.room(1 << 16).send().expect("a reply");
        assert_eq!(reply.buffers[1].actual, 64);
        for printed in [String::from_utf8_lossy(reply.argument()), format!("{probe:?}").into()] {
            assert!(!words.iter().any(|word| printed.contains(word)), "{printed}");
        }
        assert!(String::from_utf8_lossy(reply.argument()).contains("Store"));
    }
}

/// What a thread keeps of finished requests was printed with the next one.
#[test]
fn a_request_that_is_printed_shows_nothing_of_another_clients() {
    let one_thread = ServeOptions { threads: 1, most_threads: 1, ..ServeOptions::default() };
    let (reached, interface, probe) = Reached::one(one_thread);
    let other = self::interface();
    let theirs = reached.connect(&other, "probe");
    let request = other.request(&theirs, ECHO).out(Out::copy(&[1; 64])).out(Out::copy(&[1; 64]));
    request.out(Out::copy(&[1; 97])).room(225).send().expect("a reply");
    let mut input = [0; 64];
    let request = interface.request(&probe, PRINT).out(Out::copy(&[2; 33])).input(In::copy(&mut input));
    let reply = request.room(1 << 16).send().expect("a reply");
    let printed = String::from_utf8_lossy(reply.argument());
    assert!(printed.contains("len: 33") && !printed.contains("len: 97"), "{printed}");
}

/// A request that was composed in a loop had what it had sent before, between its first buffer and its last one.
#[test]
fn a_plan_that_was_sent_has_no_buffers() {
    let (_reached, interface, probe) = Reached::one(ServeOptions::default());
    let mut plan = Plan::new(ECHO);
    plan.set_room(1000);
    let send = |plan: &mut Plan<'_, '_>| {
        let reply = plan.send(&interface, &probe).expect("a reply");
        reply.argument().to_vec()
    };
    for count in (0..6).rev() {
        (0..count).for_each(|_| plan.out(Out::copy(&[CANARY; 64])));
        assert_eq!(send(&mut plan), vec![CANARY; 64 * count]);
    }
    plan.out(Out::copy(&[CANARY; 64]).lent_by(&probe));
    assert_eq!(send(&mut plan).len(), 64);
    assert!(send(&mut plan).is_empty());
}

#[test]
fn what_was_done_with_short_buffers_stays_when_they_are_made_whole() {
    let (_reached, interface, probe) = Reached::one(ServeOptions::default());
    for here in [probe.clone(), ServerHandle::new(Probe::default())] {
        for (argument, untold) in [(&b"told"[..], None), (b"", Some(Error::Untold { buffer: 3 }))] {
            let mut inputs = [[0; 64]; 2];
            let [first, last] = &mut inputs;
            let request = interface.request(&here, TURN).argument(argument).room(128);
            let request = request.out(Out::copy(&[4; 64])).input(In::copy(first)).out(Out::copy(&[5; 64]));
            let sent = request.input(In::copy(last)).send();
            assert_eq!(sent.as_ref().err().map(|failed| failed.error.clone()), untold);
            if let Ok(reply) = sent {
                assert_eq!(reply.argument(), [[4; 64], [5; 64]].concat());
                assert_eq!(inputs, [[1; 64], [2; 64]]);
            }
        }
    }
}

#[test]
fn what_is_pinned_stays_when_the_request_has_been_replied_to() {
    let (said, hears) = mpsc::channel();
    let mut reached = Reached::new();
    reached.open("probe", Probe { said: Some(said), ..Probe::default() }, ServeOptions::default());
    let interface = interface();
    let probe = reached.connect(&interface, "probe");
    let pinned = interface.request(&probe, PIN).out(Out::copy(&[4; 100])).submit().expect("a request");
    let others = [CANARY; 100];
    interface.request(&probe, ECHO).out(Out::copy(&others)).room(100).send().expect("a reply");
    pinned.sync().expect("a reply when the pin is gone");
    assert_eq!(hears.recv(), Ok(vec![4; 100]));
}

#[test]
fn elements_without_bytes_are_passed_as_ever() {
    let (_reached, interface, probe) = Reached::one(ServeOptions::default());
    let mut nothing = [0; 0];
    let request = interface.request(&probe, ECHO).out(Out::copy(&[])).input(In::copy(&mut nothing));
    let reply = request.send().expect("a reply");
    let receipts: Vec<_> = reply.receipts().copied().collect();
    assert_eq!(receipts, [Receipt::new(Scheme::Copy); 2]);
}
