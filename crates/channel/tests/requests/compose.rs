//! What requests are composed of: buffers, arguments, and elements of different schemes.

use genie_conformance::Scene;
use genie_io::servers::memory;
use genie_io::{Error, In, Limits, Out, Reply, Returned};
use genie_passing::{Reason, Scheme};

use super::{client, finish};
use crate::support::bytes::{pattern, same};
use crate::support::holder::{Answer, Command, HOLD, PASS};

#[test]
fn an_argument_goes_with_the_request_and_with_the_reply() {
    let Some(t) = client("an_argument_goes_both_ways", Limits::default()) else { return };
    let long = pattern(1, 1000);
    for (argument, room) in [(&long[..], 1000), (&[], 0), (b"short", 3), (&long, 3)] {
        let request = || t.interface().request(t.holder().handle(), HOLD);
        for pending in [
            request().argument(argument).room(room).submit(),
            request().room(room).out(Out::copy(b"data")).out(Out::copy(b"more")).argument(argument).submit(),
        ] {
            let pending = pending.expect("a request");
            let id = pending.id();
            assert_eq!(t.holder().command(id, Command::Argument), Answer::Bytes(argument.to_vec()));
            let set = |argument: &[u8]| {
                t.holder().command(id, Command::SetArgument { argument: argument.to_vec() })
            };
            assert_eq!(set(&long[..room]), Answer::Done);
            let too_long = Error::ArgumentTooLong { len: room + 1, room }.to_string();
            assert_eq!(set(&vec![0; room + 1]), Answer::Refused(too_long));
            assert_eq!(finish(&t, pending).argument(), &long[..room]);
        }
    }
    t.assert_idle();
}

/// The receipt of a reply was once its first element's: where the second was copied, it said "0 bytes copied".
#[test]
fn a_replys_receipt_is_the_total_of_all_elements_of_all_buffers() {
    let Some(t) = client("a_replys_receipt_is_the_total", Limits::default()) else { return };
    let len = 2 * t.setup().granule();
    let given = t.interface().allocate(len).expect("a buffer");
    let bytes = pattern(2, len);
    let mut filled = vec![0; 100];
    let request = t.interface().request(t.holder().handle(), HOLD);
    let request = request.input(In::emulated_copy(&mut filled));
    let request = request.out(Out::owned(Scheme::EmulatedCopy, given)).and_out(Out::copy(&bytes));
    let pending = request.submit().expect("a request");
    t.holder().deliver(pending.id(), &pattern(3, 100));
    let reply = pending.sync().expect("a reply");
    let [first, second, third] = *reply.receipts().collect::<Vec<_>>() else { panic!("three elements") };
    assert_eq!((first.copied, second.copied, third.copied), (100, 0, len));
    let total = reply.receipt();
    assert_eq!((total.elements, total.copied), (3, len + 100));
    assert_eq!(total.referenced, second.referenced);
    assert!(total.reasons().eq([Reason::Foreign]));
    let said = format!("{} bytes copied", len + 100);
    assert!(total.to_string().contains(&said), "{total}");
}

#[test]
fn elements_that_name_no_scheme_go_by_the_interfaces_default() {
    let Some(t) = client("elements_that_name_no_scheme", Limits::default()) else { return };
    let buffer = || t.interface().allocate(2 * t.setup().granule()).expect("a buffer");
    let request = |service| t.interface().request(t.holder().handle(), service);
    let done = |reply: Reply| {
        let receipt = reply.buffers[0].elements[0].receipt;
        (receipt.asked, receipt.effective, receipt.copied)
    };
    let sent = |out| done(request(PASS).out(out).send().expect("a reply"));
    let submitted = |out| done(finish(&t, request(HOLD).out(out).submit().expect("a request")));
    let (copy, share) = (Scheme::EmulatedCopy, Scheme::EmulatedShare);
    let bytes = buffer();
    assert_eq!(t.interface().scheme(), copy);
    assert_eq!(sent(Out::new(&bytes)), (copy, copy, 0));
    assert_eq!(submitted(Out::given(buffer())), (copy, copy, 0));

    assert_eq!(t.interface().set_scheme(share), copy);
    assert_eq!(sent(Out::new(&bytes)), (share, share, 0));
    assert_eq!(submitted(Out::given(buffer())), (share, share, 0));
    assert_eq!(submitted(Out::new(&bytes)), (share, copy, 0), "the borrow ends before the reply");
    assert_eq!(sent(Out::emulated_copy(&bytes)), (copy, copy, 0), "it names its scheme");
    let mut room = buffer();
    let pending = request(HOLD).input(In::new(&mut room)).submit().expect("a request");
    t.holder().deliver(pending.id(), &bytes);
    let (asked, effective, _) = done(pending.sync().expect("a reply"));
    assert_eq!((asked, effective), (share, copy));

    t.interface().set_scheme(Scheme::Copy);
    assert_eq!(sent(Out::new(&bytes)), (Scheme::Copy, Scheme::Copy, bytes.len()));
    let interface = std::panic::AssertUnwindSafe(t.interface());
    let refused = std::panic::catch_unwind(move || interface.set_scheme(Scheme::Move));
    assert!(refused.is_err(), "it passes no native buffers");
}

#[test]
fn one_buffer_has_elements_of_every_scheme_out() {
    let Some(t) = client("one_buffer_has_elements_of_every_scheme_out", Limits::default()) else { return };
    let len = 2 * t.setup().granule() + 13;
    let native: Vec<_> = (0..4).map(|_| t.interface().allocate(len).expect("a buffer")).collect();
    let mut expected = b"first".to_vec();
    let mut request = t.interface().request(t.holder().handle(), HOLD).out(Out::copy(b"first"));
    for (scheme, mut buffer) in Scheme::ALL.into_iter().zip(native) {
        let bytes = pattern(scheme as u64, len);
        buffer.copy_from_slice(&bytes);
        expected.extend_from_slice(&bytes[3..]);
        request = request.and_out(Out::owned(scheme, buffer).part(3..len));
    }
    for scheme in Scheme::ALL.into_iter().skip(4) {
        let strong = scheme.integrity() == genie_passing::model::Integrity::Strong;
        let mut region = t.interface().allocate_migrant(len, strong).expect("a region");
        region.copy_from_slice(&pattern(scheme as u64, len));
        expected.extend_from_slice(&region);
        request = request.and_out(Out::migrant(scheme, region));
    }
    let pending = request.submit().expect("a request");
    same(&t.holder().read(pending.id()), &expected, "all elements, one after the other");
    let reply = finish(&t, pending);
    let asked: Vec<Scheme> = reply.receipts().map(|receipt| receipt.asked).collect();
    assert_eq!(asked[1..], Scheme::ALL);
    let effective: Vec<Scheme> = reply.receipts().map(|receipt| receipt.effective).collect();
    assert_eq!(effective[1..], Scheme::ALL);
    drop(reply);
    t.assert_idle();
}

#[test]
fn one_buffer_has_elements_of_every_scheme_in() {
    let Some(t) = client("one_buffer_has_elements_of_every_scheme_in", Limits::default()) else { return };
    let len = 2 * t.setup().granule() + 13;
    for missing in [0, 5, len + 1] {
        let mut copied = vec![0; len];
        let mut swapped = t.interface().allocate(len).expect("a buffer");
        let shared = [0, 1].map(|_| t.interface().allocate(len).expect("a buffer"));
        let request = t.interface().request(t.holder().handle(), HOLD);
        let mut request = request.input(In::copy(&mut copied)).and_input(In::emulated_copy(&mut swapped));
        for (scheme, buffer) in [Scheme::Share, Scheme::EmulatedShare].into_iter().zip(shared) {
            request = request.and_input(In::owned(scheme, buffer));
        }
        for scheme in Scheme::ALL.into_iter().skip(4) {
            request = request.and_input(In::migrant(scheme, len));
        }
        let bytes = pattern(7, 8 * len - missing);
        let pending = request.submit().expect("a request");
        t.holder().deliver(pending.id(), &bytes);
        let reply = pending.sync().expect("a reply");
        assert_eq!(reply.actual(), bytes.len());
        same(&copied, &bytes[..len], "copy");
        same(&swapped, &bytes[len..2 * len], "emulated copy");
        for (index, element) in reply.buffers[0].elements.iter().enumerate().skip(2) {
            let (start, end) = (index * len, (index + 1) * len);
            let expected = &bytes[start.min(bytes.len())..end.min(bytes.len())];
            let found = match &element.returned {
                Returned::Buffer(buffer) => &buffer[..expected.len()],
                Returned::Migrant(region) => region,
                Returned::Nothing => panic!("element {index} brought nothing"),
            };
            same(found, expected, format_args!("{} with {missing} bytes missing", element.receipt.asked));
        }
        drop((reply, swapped));
        t.assert_idle();
    }
}

#[test]
fn output_and_input_may_share_a_granule() {
    let Some(t) = client("output_and_input_may_share_a_granule", Limits::default()) else { return };
    for out in [Scheme::Copy, Scheme::EmulatedCopy] {
        for input in [Scheme::Copy, Scheme::EmulatedCopy] {
            let len = 3 * t.setup().granule();
            let mut buffer = t.interface().allocate(len).expect("a buffer");
            let bytes = pattern(3, len);
            buffer.copy_from_slice(&bytes);
            let (low, high) = buffer.split_at_mut(len / 2);
            let request = t.interface().request(t.memory(), memory::ECHO);
            let high = &mut high[..len / 2];
            let reply = request.out(Out::borrowed(out, low)).input(In::borrowed(input, high)).send();
            assert_eq!(reply.expect("a reply").buffers[1].actual, len / 2, "{out}, {input}");
            same(&buffer[..len / 2], &bytes[..len / 2], format_args!("{out}, {input}: the output"));
            same(&buffer[len / 2..], &bytes[..len / 2], format_args!("{out}, {input}: the input"));
        }
    }
    t.assert_idle();
}

#[test]
fn no_bytes_are_passed_under_every_native_scheme() {
    let Some(t) = client("no_bytes_are_passed", Limits::default()) else { return };
    let granule = t.setup().granule();
    // What lies behind the buffer is no business of a request for its end.
    let neighbours: Vec<_> = (0..3).map(|_| t.interface().allocate_migrant(granule, true)).collect();
    drop(neighbours);
    for scheme in Scheme::ALL.into_iter().take(4) {
        for at in [0, 5, 2 * granule] {
            empty(&t, scheme, 2 * granule, at);
        }
    }
    t.assert_idle();
}

fn empty(t: &Scene, scheme: Scheme, len: usize, at: usize) {
    let what = format!("{scheme}, no bytes at {at}");
    let buffer = t.interface().allocate(len).expect("a buffer");
    let request = t.interface().request(t.holder().handle(), HOLD);
    let pending = request.out(Out::owned(scheme, buffer).part(at..at)).submit();
    let pending = pending.unwrap_or_else(|failed| panic!("{what}: {failed}"));
    assert!(t.holder().read(pending.id()).is_empty(), "{what}");
    let buffer = finish(t, pending).take_buffer().expect("the buffer");
    let request = t.interface().request(t.holder().handle(), HOLD);
    let pending = request.input(In::owned(scheme, buffer).part(at..at)).submit();
    let pending = pending.unwrap_or_else(|failed| panic!("{what}: {failed}"));
    t.holder().deliver(pending.id(), &[]);
    let mut reply = pending.sync().unwrap_or_else(|failed| panic!("{what}: {failed}"));
    let buffer = reply.take_buffer().expect("the buffer");
    assert!(buffer.iter().all(|byte| *byte == 0), "{what}");
}

#[test]
fn buffers_of_another_interface_are_foreign() {
    let Some(t) = client("buffers_of_another_interface", Limits::default()) else { return };
    let Some(other) = client("buffers_of_another_interface", Limits::default()) else { return };
    let bytes = pattern(11, 3 * t.setup().granule());
    for scheme in Scheme::ALL.into_iter().skip(1).take(3) {
        let mut buffer = other.interface().allocate(bytes.len()).expect("a buffer");
        buffer.copy_from_slice(&bytes);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.out(Out::owned(scheme, buffer)).submit().expect("a request");
        same(&t.holder().read(pending.id()), &bytes, scheme);
        let reply = finish(&t, pending);
        assert_eq!(
            (reply.buffers[0].elements[0].receipt.effective, reply.buffers[0].elements[0].receipt.reason),
            (Scheme::Copy, Some(Reason::Foreign))
        );
    }
    for scheme in Scheme::ALL.into_iter().skip(4) {
        let strong = scheme.integrity() == genie_passing::model::Integrity::Strong;
        let mut region = other.interface().allocate_migrant(bytes.len(), strong).expect("a region");
        region.copy_from_slice(&bytes);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.out(Out::migrant(scheme, region)).submit().expect("a request");
        same(&t.holder().read(pending.id()), &bytes, scheme);
        finish(&t, pending);
    }
    t.assert_idle();
    other.assert_idle();
}

#[test]
fn a_request_that_finds_no_memory_fails_alone() {
    let Some(t) = client("a_request_that_finds_no_memory", Limits::default()) else { return };
    let mut hoard = Vec::new();
    while let Ok(buffer) = t.interface().allocate(1 << 20) {
        hoard.push(buffer);
    }
    let bytes = pattern(2, 1 << 20);
    let mut small = Vec::new();
    while let Ok(buffer) = t.interface().allocate(t.setup().granule()) {
        small.push(buffer);
    }
    let request = t.interface().request(t.holder().handle(), HOLD);
    let failed = request.out(Out::copy(&bytes)).submit().expect_err("no memory for a copy");
    assert!(matches!(failed.error, Error::Passing(_)), "{failed}");
    let request = t.interface().request(t.holder().handle(), HOLD);
    let failed = request.input(In::emulated_move(1 << 20)).submit().expect_err("no memory for a region");
    assert!(matches!(failed.error, Error::Passing(_)), "{failed}");
    // A shared output needs no memory, since its client stores nowhere meanwhile.
    let request = t.interface().request(t.holder().handle(), HOLD);
    let shared = hoard.pop().expect("a buffer");
    let pending = request.out(Out::emulated_share(shared)).submit().expect("a request");
    same(&t.holder().read(pending.id()), &vec![0; 1 << 20], "emulated share");
    drop(finish(&t, pending));
    hoard.truncate(hoard.len() - 1);
    let request = t.interface().request(t.holder().handle(), HOLD);
    let pending = request.out(Out::copy(&bytes)).submit().expect("there is memory again");
    same(&t.holder().read(pending.id()), &bytes, "copy");
    finish(&t, pending);
    drop((hoard, small));
    t.assert_idle();
}

/// Where a server's granules are longer than the client's, the offset that the server prefers could lie beyond the client's
/// granule: a client that allocated a buffer with that offset panicked.
#[test]
fn a_buffer_is_laid_out_as_a_server_with_longer_granules_prefers() {
    let Some(t) = client("a_buffer_is_laid_out", Limits::default()) else { return };
    let granule = t.setup().granule();
    let buffer = t.interface().allocate_at(granule + 904, 10).expect("a buffer");
    assert_eq!((buffer.addresses().start % granule, buffer.len()), (904, 10));
}
