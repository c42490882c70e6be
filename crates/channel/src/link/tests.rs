//! Links to servers that hang up.

use genie_memory::{Config, Faults, Granularity, GranuleKind};

use super::*;

/// A client that sent a message after its server had ended the channel, and before the client had read the server's reason,
/// was told of a broken pipe instead of that reason.
#[test]
fn a_server_that_ends_a_channel_is_heard_by_a_client_that_has_more_to_say() {
    let ((socket, server), (lifeline, held)) = (Socket::pair().unwrap(), Socket::pair().unwrap());
    let link = Arc::new(Link::new("server".to_owned(), socket, lifeline, [0; 2]).unwrap());
    let goodbye = Ending { reason: Reason::Exhausted, sentence: "raise a limit".to_owned() };
    server.send(&Message::Goodbye(goodbye).encode().unwrap(), &[]).unwrap();
    drop((server, held));
    let more = link.say(&Message::WithdrawArena(1), Vec::new());
    assert!(more.is_ok(), "what is said is lost, which the socket tells: {more:?}");
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        faults: Faults::Never,
        ..Config::default()
    };
    let space = Space::new(&config).unwrap();
    let lender = space.add_lender();
    link.watch(&Weak::new(), &space, lender);
    assert_eq!(link.error(), link.gone("raise a limit"));
}
