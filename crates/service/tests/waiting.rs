//! Calls that are awaited, submitted, limited or aborted; closures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use genie::service::Error;
use genie::{Error as GenieError, Incoming, ServerHandle};

use crate::stage::{BulkClient, BulkServer, Bulks, SmallClient, SmallServer, Smalls, interface, serve};

#[tokio::test(flavor = "current_thread")]
async fn tasks_await_calls_of_the_same_client() {
    let genie = interface();
    let (small, bulk) = (serve(&genie, SmallServer::new(Smalls)), serve(&genie, BulkServer::new(Bulks)));
    let small = SmallClient::new(&genie, small.server.clone()).unwrap();
    let bulk = BulkClient::new(&genie, bulk.server.clone()).unwrap();
    let tasks = genie::tokio::Interface::new(genie.clone()).unwrap();
    let data = vec![1; 10_000];
    let mut inverted = vec![0; 10_000];
    let (root, sum, count, failed) = tokio::join!(
        tasks.call(small.root(16.0)),
        tasks.call(bulk.sum(&data)),
        tasks.call(bulk.invert(&data, u64::MAX, &mut inverted)),
        tasks.call(small.panics()),
    );
    assert_eq!((root.unwrap().value, sum.unwrap().value, count.unwrap().value), (4.0, 10_000, 10_000));
    assert!(matches!(failed.unwrap_err().error, Error::Genie(GenieError::Panicked { .. })));
    assert!(inverted.iter().all(|byte| *byte == 0xfe));
}

#[tokio::test(flavor = "current_thread")]
async fn a_call_of_another_interfaces_client_is_refused() {
    let other = interface();
    let small = crate::stage::small(&other);
    let tasks = genie::tokio::Interface::new(interface()).unwrap();
    let refused = tasks.call(small.root(1.0)).await.unwrap_err();
    assert!(matches!(refused.error, Error::Genie(GenieError::OtherInterface { .. })), "{refused}");
}

#[test]
fn many_calls_are_pending_at_once() {
    let genie = interface();
    let served = serve(&genie, SmallServer::new(Smalls));
    let small = SmallClient::new(&genie, served.server.clone()).unwrap();
    let mut batch = genie.batch();
    let root = |n: i32| match n % 2 {
        0 => small.root(f64::from(n * n)).submit().unwrap(),
        _ => small.root(f64::from(n * n)).batched(&mut batch).submit().unwrap(),
    };
    let pending: Vec<_> = (0..100).map(root).collect();
    for (n, pending) in pending.into_iter().enumerate() {
        assert_eq!(pending.sync().unwrap().value, n as f64);
    }
}

#[test]
fn a_call_is_given_up_when_its_time_is_over() {
    #[genie::service]
    trait Sleeps {
        fn sleep(&self, millis: u64) -> u64;
    }
    let genie = interface();
    let server = SleepsServer::from_fn(|millis| {
        std::thread::sleep(Duration::from_millis(millis));
        millis
    });
    let served = serve(&genie, server);
    let sleeps = SleepsClient::new(&genie, served.server.clone()).unwrap();
    let late = sleeps.sleep(300).timeout(Duration::from_millis(1)).send().unwrap_err();
    assert!(matches!(late.error, Error::Genie(GenieError::TimedOut { .. })), "{late}");
    assert_eq!(sleeps.sleep(0).send().unwrap().value, 0);
    let aborted = sleeps.sleep(1).submit().unwrap().abort();
    assert!(matches!(
        aborted.map(|reply| reply.value).map_err(|failed| failed.error),
        Ok(1) | Err(Error::Genie(GenieError::Aborted))
    ));
}

/// A server whose method goes on until its client has aborted the call.
struct Patient(Arc<AtomicBool>);

#[genie::service]
trait Waits {
    fn wait(&self, request: &Incoming);
}

impl Waits for Patient {
    fn wait(&self, request: &Incoming) {
        while !request.is_aborted() {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.0.store(true, Ordering::Release);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_call_that_aborts_on_drop_is_aborted_when_its_future_or_pending_call_is_dropped() {
    let genie = interface();
    let tasks = genie::tokio::Interface::new(genie.clone()).unwrap();
    for is_awaited in [true, false] {
        let is_aborted = Arc::new(AtomicBool::new(false));
        let served = serve(&genie, WaitsServer::new(Patient(Arc::clone(&is_aborted))));
        let waits = WaitsClient::new(&genie, served.server.clone()).unwrap();
        let call = waits.wait().abort_on_drop();
        if is_awaited {
            tokio::select! {
                biased;
                came = tasks.call(call) => panic!("nobody aborts it before: {came:?}"),
                () = std::future::ready(()) => {}
            }
        } else {
            drop(call.submit().unwrap());
        }
        let asked_until = Instant::now() + Duration::from_secs(60);
        while !is_aborted.load(Ordering::Acquire) {
            assert!(Instant::now() < asked_until, "the server does not hear of it");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_closure_serves_a_program_of_one_service() {
    /// Arguments with names that the generated code might have chosen.
    #[genie::service]
    trait Join {
        fn join(&self, arguments: Vec<String>, incoming: char, taken: &mut [u8]) -> Result<usize, String>;
    }
    let server = JoinServer::from_fn(|words, by, mut joined| match words.is_empty() {
        true => Err("there is nothing to join".to_owned()),
        false => Ok(joined.append(words.join(&by.to_string()).as_bytes())),
    });
    let join = JoinClient::new(&interface(), ServerHandle::new(server)).unwrap();
    let mut joined = [0; 20];
    let words = vec!["a".to_owned(), "b".to_owned()];
    let len = join.join(words, '-', &mut joined).send().unwrap().value;
    assert_eq!(&joined[..len], b"a-b");
    let failed = join.join(Vec::new(), '-', &mut joined).send().unwrap_err();
    assert_eq!(failed.error, Error::Method("there is nothing to join".to_owned()));
}
