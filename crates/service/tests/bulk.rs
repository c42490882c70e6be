//! Bulk arguments: slices, buffers, and what is done with them.

use genie::service::{Error, Input, Reply};
use genie::{Interface, Scheme, ServerHandle};

use zerocopy::FromBytes;

use crate::stage::{BulkClient, BulkServer, Bulks, Point, StoreError, bulk, interface, serve};

const LEN: usize = 1 << 20;

fn everywhere(test: impl Fn(&Interface, &BulkClient)) {
    let genie = interface();
    test(&genie, &bulk(&genie));
    let served = serve(&genie, BulkServer::new(Bulks));
    test(&genie, &BulkClient::new(&genie, served.server.clone()).expect("a client"));
}

fn copied<R>(reply: &Reply<R>) -> Vec<usize> {
    reply.receipts().map(|receipt| receipt.copied).collect()
}

#[test]
fn emulated_copy_of_a_mebibyte_copies_nothing_either_way() {
    everywhere(|genie, bulk| {
        let mut data = genie.allocate(LEN).unwrap();
        let mut inverted = genie.allocate(LEN).unwrap();
        data.fill(0x0f);
        let reply = bulk.invert(&data, u64::MAX, &mut inverted).send().unwrap();
        assert_eq!(reply.value, LEN);
        assert_eq!(copied(&reply), [0, 0], "{:?}", reply.receipts().collect::<Vec<_>>());
        assert_eq!((reply.receipt().elements, reply.receipt().copied), (2, 0));
        assert!(reply.receipts().all(|receipt| receipt.effective == Scheme::EmulatedCopy));
        assert!(inverted.iter().all(|byte| *byte == 0xf0));
        assert_eq!(copied(&bulk.copied(&data).send().unwrap()), [LEN]);
    });
}

#[test]
fn what_is_submitted_may_be_overwritten_at_once() {
    everywhere(|genie, bulk| {
        let mut data = genie.allocate(LEN).unwrap();
        data.fill(1);
        let pending = bulk.sum(&data).submit().unwrap();
        data.fill(2);
        assert_eq!(pending.sync().unwrap().value, LEN as u64);
    });
}

#[test]
fn memory_behind_what_was_passed_stays_as_it_was() {
    everywhere(|_, bulk| {
        for len in [0, 1, 7, 4095, 4097, 20_001] {
            let data = vec![0; len];
            let mut inverted = vec![7; len + 13];
            let reply = bulk.invert(&data, u64::MAX, &mut inverted).send().unwrap();
            assert_eq!((reply.value, reply.buffers[1].actual), (len, len));
            assert!(inverted[..len].iter().all(|byte| *byte == 0xff));
            assert_eq!(inverted[len..], [7; 13]);
        }
    });
}

#[test]
fn a_method_that_fails_passes_nothing() {
    everywhere(|genie, bulk| {
        let mut inverted = genie.allocate(10_000).unwrap();
        inverted.fill(7);
        let failed = bulk.invert(&[0; 10_000], 9_999, &mut inverted).send().unwrap_err();
        assert_eq!(failed.error, Error::Method(StoreError::Full { room: 10_000 }));
        assert!(inverted.iter().all(|byte| *byte == 7));
    });
}

#[test]
fn slices_of_plain_data_pass_whatever_their_length_and_place() {
    everywhere(|_, bulk| {
        for (count, room) in [(0, 0), (0, 3), (1, 1), (3, 2), (341, 400), (5_001, 5_001)] {
            let points: Vec<_> = (0..count).map(|n| Point { x: n as f32, y: 1.0, z: -1.0 }).collect();
            let mut scaled = vec![Point { x: 0.5, y: 0.5, z: 0.5 }; room];
            let reply = bulk.scale(2.0, &points, &mut scaled).send().unwrap();
            let passed = count.min(room);
            assert_eq!(reply.value, passed as u64);
            assert!((0..passed).all(|n| scaled[n] == Point { x: 2.0 * n as f32, y: 2.0, z: -2.0 }));
            assert!(scaled[passed..].iter().all(|point| point.x == 0.5));
        }
    });
}

#[test]
fn a_server_reads_values_wherever_they_begin() {
    #[genie::service]
    trait Odd {
        fn last(&self, at: u32, values: &[u32]) -> Option<u32>;
    }
    let odd = OddServer::from_fn(|at, values| {
        assert_eq!(values.to_vec().get(at as usize).copied(), values.get(at as usize));
        assert_eq!(values.part(1..values.len()).get(0), values.get(1));
        values.get(at as usize)
    });
    let genie = interface();
    let odd = OddClient::new(&genie, ServerHandle::new(odd)).unwrap();
    let buffer = genie.allocate(4 << 12).unwrap();
    let values = <[u32]>::ref_from_bytes(&buffer).expect("a buffer begins with a page");
    assert_eq!(odd.last(2, &values[1..]).send().unwrap().value, Some(0));
    assert_eq!(odd.last(9_999, values).send().unwrap().value, None);
}

#[test]
fn values_are_appended_until_there_is_no_room() {
    #[genie::service]
    trait Twice {
        fn twice(&self, values: &[u16], twice: &mut [u16]) -> (u64, u64);
    }
    let twice = TwiceServer::from_fn(|values, mut twice| {
        let first = twice.append_output(&values);
        (first as u64, twice.append(&values.to_vec()) as u64)
    });
    let twice = TwiceClient::new(&interface(), ServerHandle::new(twice)).unwrap();
    for (room, appended) in [(0, (0, 0)), (2, (2, 0)), (3, (3, 0)), (4, (3, 1)), (7, (3, 3))] {
        let mut filled = vec![9; room];
        assert_eq!(twice.twice(&[1, 2, 3], &mut filled).send().unwrap().value, appended);
        let expected = [1, 2, 3, 1, 2, 3, 9];
        assert_eq!(filled, expected[..room]);
    }
}

#[test]
fn a_buffer_given_by_value_comes_back_with_the_result_and_with_the_error() {
    everywhere(|genie, bulk| {
        let mut data = genie.allocate(LEN).unwrap();
        data.fill(3);
        let mut reply = bulk.lend(data, true).send().unwrap();
        assert_eq!((reply.value, copied(&reply)), (3 * LEN as u64, vec![0]));
        assert_eq!(reply.buffers[0].elements[0].receipt.asked, Scheme::EmulatedShare);
        let data = reply.take_buffer().expect("the buffer");
        let mut failed = bulk.lend(data, false).send().unwrap_err();
        assert_eq!(failed.error, Error::Method(StoreError::Refused("not wanted".to_owned())));
        let frame = failed.take_buffer().expect("the buffer");
        let mut reply = bulk.fill(9, frame).submit().unwrap().sync().unwrap();
        assert!(reply.take_buffer().expect("the buffer").iter().all(|byte| *byte == 9));
    });
}

#[test]
fn migrant_buffers_go_and_come() {
    everywhere(|genie, bulk| {
        let mut data = genie.allocate_migrant(LEN, true).unwrap();
        data.fill(2);
        assert_eq!(bulk.send_away(data).send().unwrap().value, 2 * LEN as u64);
        let mut reply = bulk.fetch(LEN, 5).send().unwrap();
        assert_eq!(reply.value, LEN as u64);
        let came = reply.take_migrant().expect("a buffer");
        assert!(came.len() == LEN && came.iter().all(|byte| *byte == 5));
    });
}

mod forgetful {
    #[genie::service]
    pub(super) trait Forgetful {
        fn fill(&self, says: Option<u64>, bytes: &mut [u8]);
    }
}

#[test]
fn a_method_that_takes_the_memory_and_never_says_how_much_it_has_filled_fails() {
    let genie = interface();
    let server = forgetful::ForgetfulServer::from_fn(|says: Option<u64>, mut bytes: Input<'_>| {
        // What is appended says nothing of what was stored otherwise.
        bytes.append(&[9]);
        bytes.data().fill(9);
        bytes.append(&[9]);
        says.into_iter().for_each(|says| bytes.set_actual(says as usize));
    });
    let served = serve(&genie, server);
    let forgetful = forgetful::ForgetfulClient::new(&genie, served.server.clone()).expect("a client");
    let mut bytes = [7; 100];
    let failed = forgetful.fill(None, &mut bytes).send().unwrap_err();
    assert_eq!(failed.error, Error::Genie(genie::Error::Untold { buffer: 0 }));
    assert_eq!(bytes, [7; 100]);
    for says in [0, 10] {
        let reply = forgetful.fill(Some(says as u64), &mut bytes).send().unwrap();
        assert_eq!(reply.actual(), says);
    }
    assert_eq!((bytes[..10].to_vec(), bytes[10]), (vec![9; 10], 7));
}
