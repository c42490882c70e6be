//! A holder that the client cannot reach itself: client and server have names of their own for requests.
//!
//! How: the holder's side knows a request by the order of arrival. The client's side knows it by its number among the
//! interface's requests, which is the next number whenever somebody asks for the holder's handle in order to make a request.
//! Limits: requests to the holder must be made by one thread, each as soon as it has the handle.

use std::sync::Arc;

use genie_io::servers::memory::{Memory, NULL};
use genie_io::{Interface, ServerHandle};
use genie_sys::lock::Mutex;

use super::{Answer, Command, Control, Held, Name, PASS};

/// A holder's side behind a carrier, in this process or in another one. It names requests by the order of their arrival.
pub trait Elsewhere: Send + Sync {
    /// Which arrivals are held, once so many requests have arrived.
    fn held(&self, expected: usize) -> Vec<usize>;
    /// The arrivals that the holder was asked to let go, in the order in which it was asked.
    fn aborted(&self) -> Vec<usize>;
    /// Whether it lets requests go when asked to, or keeps them.
    fn set_obliging(&self, obliging: bool);
    /// Has the holder do something.
    fn command(&self, arrival: usize, command: Command) -> Answer;
}

impl Elsewhere for Held {
    fn held(&self, expected: usize) -> Vec<usize> {
        self.arrivals_held(expected)
    }

    fn aborted(&self) -> Vec<usize> {
        self.arrivals_aborted()
    }

    fn set_obliging(&self, obliging: bool) {
        Control::set_obliging(self, obliging);
    }

    fn command(&self, arrival: usize, command: Command) -> Answer {
        Control::command(self, Name::Arrival(arrival), command)
    }
}

impl<E: Elsewhere + ?Sized> Elsewhere for Arc<E> {
    fn held(&self, expected: usize) -> Vec<usize> {
        (**self).held(expected)
    }

    fn aborted(&self) -> Vec<usize> {
        (**self).aborted()
    }

    fn set_obliging(&self, obliging: bool) {
        (**self).set_obliging(obliging);
    }

    fn command(&self, arrival: usize, command: Command) -> Answer {
        (**self).command(arrival, command)
    }
}

/// The control of a holder elsewhere, for requests of one interface.
pub(super) struct Numbered<E> {
    elsewhere: E,
    interface: Interface,
    /// The holder.
    server: ServerHandle,
    /// A server that replies at once.
    counter: ServerHandle,
    /// The numbers of the requests made to the holder.
    made: Mutex<Vec<u64>>,
}

impl<E: Elsewhere> Numbered<E> {
    pub(super) fn new(elsewhere: E, interface: &Interface, server: &ServerHandle) -> Self {
        Self {
            elsewhere,
            interface: interface.clone(),
            server: server.clone(),
            counter: ServerHandle::new(Memory::customized()),
            made: Mutex::default(),
        }
    }

    fn arrival(&self, request: Name) -> usize {
        match request {
            Name::Arrival(number) => number,
            Name::Client(id) => {
                let made = self.made.lock();
                let number = id.number();
                made.iter().rposition(|made| *made == number).expect("a request to the holder")
            }
        }
    }

    /// Waits until the holder has taken whatever was sent to it before: requests, and what is to be aborted.
    fn catch_up(&self) {
        self.interface.request(&self.server, PASS).send().expect("a reply");
    }
}

impl<E: Elsewhere> Control for Numbered<E> {
    fn expect(&self) {
        // A request takes the number after that of one made now.
        let counted = self.interface.request(&self.counter, NULL).submit().expect("a request").id();
        let mut made = self.made.lock();
        // If the last request expected was never made, its number is this one's.
        made.retain(|made| *made != counted.number());
        made.push(counted.number() + 1);
    }

    fn held(&self) -> Vec<Name> {
        let expected = self.made.lock().len();
        self.catch_up();
        self.elsewhere.held(expected).into_iter().map(Name::Arrival).collect()
    }

    fn aborted(&self) -> Vec<Name> {
        self.catch_up();
        self.elsewhere.aborted().into_iter().map(Name::Arrival).collect()
    }

    fn set_obliging(&self, obliging: bool) {
        self.catch_up();
        self.elsewhere.set_obliging(obliging);
    }

    fn command(&self, request: Name, command: Command) -> Answer {
        self.elsewhere.command(self.arrival(request), command)
    }
}
