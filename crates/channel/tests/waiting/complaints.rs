//! Complaints: a server answers an abort with an error of its own. The client is still told that the request was aborted,
//! for the client's own reason.

use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_io::{Error, Failed, Incoming, Limits, Out, RequestId, Server, ServerError, ServerHandle, Service};
use genie_memory::GranuleKind;
use genie_sys::lock::Mutex;

use super::fixture::{ASK, FOR_EVER, Fixture, SERVICES, assert_idle, interface, interface_with};

const TIMEOUT: Duration = Duration::from_millis(20);

/// Keeps requests, and fails them when they are aborted.
#[derive(Clone, Default)]
struct Complaining(Arc<Mutex<Vec<Incoming>>>);

impl Server for Complaining {
    fn name(&self) -> &str {
        "complaining"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.lock().push(request);
    }

    fn abort(&self, request: RequestId) {
        let mut kept = self.0.lock();
        let Some(at) = kept.iter().position(|kept| kept.id() == request) else { return };
        kept.remove(at).reply(Err(ServerError::new("I was not done")));
    }
}

#[test]
fn a_request_that_times_out_has_timed_out_whatever_its_server_says() {
    let fixture = Fixture::new();
    let server = Complaining::default();
    let _running = fixture.serve("complaining", server.clone());
    // On a busy machine the server may be slow to complain.
    let interface = interface_with(Limits { abort_timeout: FOR_EVER, ..Limits::default() });
    for server in [ServerHandle::new(server), fixture.connect(&interface, "complaining")] {
        let buffer = || interface.allocate(GranuleKind::Base.size()).unwrap();
        let request = || interface.request(&server, ASK).out(Out::share(buffer()));
        let returned = |mut failed: Failed| (failed.take_buffer().is_some(), failed.error);
        let timed_out = (true, Error::TimedOut { timeout: TIMEOUT });
        assert_eq!(request().timeout(TIMEOUT).send().map_err(returned).unwrap_err(), timed_out);
        let pending = request().timeout(TIMEOUT).submit().unwrap();
        assert_eq!(pending.sync().map_err(returned).unwrap_err(), timed_out);
        let pending = request().submit().unwrap();
        assert_eq!(pending.abort().map_err(returned).unwrap_err(), (true, Error::Aborted));
        assert_idle(&interface);
    }
}

#[test]
fn an_error_without_an_abort_is_the_servers() {
    let fixture = Fixture::new();
    let server = Complaining::default();
    let _running = fixture.serve("complaining", server.clone());
    let interface = interface();
    for handle in [ServerHandle::new(server.clone()), fixture.connect(&interface, "complaining")] {
        let pending = interface.request(&handle, ASK).timeout(Duration::from_secs(60)).submit().unwrap();
        let start = Instant::now();
        let kept = loop {
            assert!(start.elapsed() < FOR_EVER, "no request has come");
            match server.0.lock().pop() {
                Some(kept) => break kept,
                None => std::thread::yield_now(),
            }
        };
        kept.reply(Err(ServerError::new("no")));
        assert_eq!(pending.sync().unwrap_err().error, Error::Server(ServerError::new("no")));
    }
}
