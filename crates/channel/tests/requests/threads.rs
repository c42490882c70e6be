//! Clients and servers in several threads.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use genie_io::{
    Error, In, Incoming, Limits, Out, Pending, RequestId, Server, ServerHandle, Service, ServiceId,
};
use genie_passing::Scheme;
use genie_sys::lock::Mutex;

use super::{client, submit};
use crate::support::bytes::{pattern, same};
use crate::support::holder::HOLD;

#[test]
fn a_reply_may_come_from_another_thread() {
    let Some(t) = client("a_reply_may_come_from_another_thread", Limits::default()) else { return };
    let buffer = t.interface().allocate(3 * t.setup().granule()).expect("a buffer");
    std::thread::scope(|scope| {
        for _ in 0..20 {
            let pending = submit(&t, &buffer);
            let id = pending.id();
            scope.spawn({
                let holder = t.holder();
                move || holder.reply(id)
            });
            pending.sync().expect("a reply");
        }
    });
    drop(buffer);
    t.assert_idle();
}

/// A server with a thread of its own: what it reads it writes back, each byte one greater.
struct Echo(Mutex<Sender<Incoming>>);

static SERVICES: [Service; 1] = [Service::new("echo", true, true)];

impl Server for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.lock().send(request).expect("a thread that serves");
    }

    fn abort(&self, _request: RequestId) {}
}

fn serve(mut request: Incoming) {
    let mut bytes = request.output(0).expect("an output").to_vec();
    bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    request.fill(1, |room| room.copy_from(&bytes)).expect("an input");
    request.reply(Ok(()));
}

#[test]
fn clients_in_many_threads_share_an_interface() {
    const CLIENTS: u64 = 4;
    const ROUNDS: usize = 60;
    let Some(t) = client("clients_in_many_threads", Limits::default()) else { return };
    let (sender, requests) = channel::<Incoming>();
    let server = ServerHandle::new(Echo(Mutex::new(sender)));
    let thread = std::thread::spawn(move || requests.into_iter().for_each(serve));
    let len = 17 * t.setup().granule() + 100;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (t, server) = (&t, &server);
            scope.spawn(move || {
                let mut buffer = t.interface().allocate(len).expect("a buffer");
                let mut expected = pattern(client, len);
                buffer.copy_from_slice(&expected);
                for round in 0..ROUNDS {
                    let scheme = if round % 3 == 0 { Scheme::Copy } else { Scheme::EmulatedCopy };
                    let (low, high) = buffer.split_at_mut(len / 2);
                    let high = &mut high[..len / 2];
                    let request = t.interface().request(server, ServiceId(0));
                    let request = request.out(Out::borrowed(scheme, low)).input(In::borrowed(scheme, high));
                    let pending = request.submit().expect("a request");
                    // The output's memory is the client's again at once.
                    low.fill(round as u8);
                    pending.sync().expect("a reply");
                    let (expected_low, expected_high) = expected.split_at_mut(len / 2);
                    for (high, low) in expected_high.iter_mut().zip(expected_low.iter()) {
                        *high = low.wrapping_add(1);
                    }
                    expected_low.fill(round as u8);
                    same(&buffer, &expected, format_args!("client {client}, round {round}, {scheme}"));
                    buffer.rotate_left(3);
                    expected.rotate_left(3);
                }
            });
        }
    });
    drop(server);
    thread.join().expect("no panic");
    t.assert_idle();
}

#[test]
fn a_reply_that_races_with_an_abort_is_one_or_the_other() {
    let limits = Limits { abort_timeout: Duration::from_micros(50), ..Limits::default() };
    let Some(t) = client("a_reply_that_races_with_an_abort", limits) else { return };
    let mut buffer = t.interface().allocate(2 * t.setup().granule()).expect("a buffer");
    let len = buffer.len();
    for round in 0..400u64 {
        let before = buffer.to_vec();
        let data = pattern(round, len);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.input(In::emulated_copy(&mut buffer)).submit().expect("a request");
        let id = pending.id();
        t.holder().write(id, 0, &data);
        t.holder().set_actual(id, len);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| t.holder().reply(id));
            (0..round % 64).for_each(|_| std::hint::spin_loop());
            pending.abort().map(drop).map_err(|failed| failed.error)
        });
        match result {
            Ok(()) => same(&buffer, &data, format_args!("round {round}, replied")),
            Err(error) => {
                assert_eq!(error, Error::Aborted);
                same(&buffer, &before, format_args!("round {round}, aborted"));
            }
        }
    }
    drop(buffer);
    t.assert_idle();
}

/// Two pins of one range are safe code. Copying into them was the C library's, which makes a data race of that.
#[test]
fn two_threads_may_fill_one_range_by_two_pins() {
    const ROUNDS: usize = 50;
    let lengths = [1, 7, 20, 100, 1000, 5000, 20_000];
    let Some(t) = client("two_threads_may_fill_one_range", Limits::default()) else { return };
    let (sender, requests) = channel::<Incoming>();
    let server = ServerHandle::new(Echo(Mutex::new(sender)));
    for len in lengths {
        let mut buffer = vec![0; len];
        let request =
            t.interface().request(&server, ServiceId(0)).out(Out::copy(b"")).input(In::copy(&mut buffer));
        let pending = request.submit().expect("a request");
        let mut incoming = requests.recv().expect("the request");
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            for byte in [0x11, 0x22] {
                let (pin, together) = (incoming.pin_input(1, 0..len).expect("a pin"), &together);
                scope.spawn(move || {
                    together.wait();
                    for _ in 0..ROUNDS {
                        assert_eq!(pin.data().copy_from(&vec![byte; len]), len);
                        pin.data().fill(byte);
                    }
                });
            }
        });
        incoming.set_actual(1, len).expect("as many as were asked for");
        incoming.reply(Ok(()));
        pending.sync().expect("a reply");
        assert!(buffer.iter().all(|byte| [0x11, 0x22].contains(byte)), "{len} bytes");
    }
    t.assert_idle();
}

/// Asks for its request once more when it is dropped, as one does that drops its future.
struct AskingTask(Arc<Pending<'static>>, Sender<()>);

impl Wake for AskingTask {
    fn wake(self: Arc<Self>) {}
}

impl Drop for AskingTask {
    fn drop(&mut self) {
        assert!(self.0.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        self.1.send(()).expect("the test waits");
    }
}

/// A waker that was replaced by another was dropped under the lock of its request: a task that asked for the request when it
/// was dropped waited for itself.
#[test]
fn a_task_that_is_replaced_may_ask_for_its_request_as_it_is_dropped() {
    let Some(t) = client("a_task_that_is_replaced", Limits::default()) else { return };
    let pending = Arc::new(submit(&t, b"data"));
    let id = pending.id();
    let (dropped, drops) = channel();
    let asking = std::thread::spawn(move || {
        let task = Waker::from(Arc::new(AskingTask(Arc::clone(&pending), dropped)));
        assert!(pending.poll(&mut Context::from_waker(&task)).is_pending());
        drop(task);
        assert!(pending.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    });
    drops.recv_timeout(Duration::from_secs(60)).expect("the task is dropped");
    asking.join().expect("no panic");
    t.holder().reply(id);
    t.assert_idle();
}
