//! Several threads wait at a server that has a completer, and another thread replies.

use genie_io::Limits;
use shuttle::thread;

use crate::scene::{Keeper, SERVICE, explore, interface};

#[test]
fn each_thread_that_waits_at_a_completer_has_the_reply_that_another_thread_gives() {
    explore(|| {
        let (server, keeper) = Keeper::looked_at();
        let interface = interface(Limits::default());
        let waiters = [(); 2].map(|()| {
            let (interface, server) = (interface.clone(), server.clone());
            thread::spawn(move || interface.request(&server, SERVICE).send().map(drop))
        });
        // The last one first: the other one may have the lead, and be told of a reply that is not its own.
        let kept: Vec<_> = (0..2).map(|_| keeper.await_one()).collect();
        kept.into_iter().rev().for_each(|incoming| incoming.reply(Ok(())));
        for waiter in waiters {
            waiter.join().unwrap().unwrap_or_else(|failed| panic!("{}", failed.error));
        }
    });
}
