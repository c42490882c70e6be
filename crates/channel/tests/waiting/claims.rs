//! Claims: a name may be claimed first, so that its server can then be made with memory of its own.

use std::time::Duration;

use genie_channel::{Listener, ServeOptions};
use genie_io::servers::memory::{Memory, SOURCE};
use genie_io::{Error, In};

use super::fixture::{Fixture, assert_idle, interface, options};

#[test]
fn a_client_that_comes_before_its_server_is_made_waits() {
    const LEN: usize = 100_000;
    let (fixture, interface) = (Fixture::new(), interface());
    let options = ServeOptions { private_pool: 1 << 20, ..options() };
    let listener = Listener::claim_in(&fixture.directory, "late", options.clone()).unwrap();
    let taken = Listener::claim_in(&fixture.directory, "late", options);
    assert!(matches!(taken, Err(Error::Running { .. })), "the name is taken: {taken:?}");
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| fixture.connect(&interface, "late"));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!connecting.is_finished(), "there is no server yet");
        let server = Memory::pooled(listener.private_pool().unwrap(), 0, LEN, 2).unwrap();
        let _running = listener.serve(server).unwrap().start().unwrap();
        let server = connecting.join().unwrap();
        let preferred = interface.preferred(&server, SOURCE, &[]).unwrap().preferred();
        assert_eq!(preferred.map(|preferred| preferred.len), Some(LEN));
        for byte in [1, 2, 3] {
            let mut bytes = interface.allocate(LEN).unwrap();
            let request = interface.request(&server, SOURCE).input(In::emulated_copy(&mut bytes));
            let reply = request.argument(&[byte]).send().unwrap();
            assert_eq!(reply.actual(), LEN);
            assert!(bytes.iter().all(|here| *here == byte));
        }
        assert_idle(&interface);
    });
}

#[test]
fn a_name_that_no_server_was_made_for_is_given_up() {
    let fixture = Fixture::new();
    let listener = Listener::claim_in(&fixture.directory, "never", options()).unwrap();
    let private = listener.private_pool().unwrap().clone();
    assert!(private.system_buffer(1 << 20).is_err(), "the options name no private memory");
    drop(listener);
    let _running = fixture.serve("never", Memory::customized());
    fixture.connect(&interface(), "never");
}
