//! Handshakes: connections whose clients have said nothing yet.
//!
//! How: a client has a few seconds to say hello. When too many connections wait, the server ends the one that has been silent
//! longest, among those of the user with the most connections: so neither silent connections nor many of them keep other
//! users out.
//! Limits: as many as the server has room for clients, and at least [`FEWEST`].

use std::collections::HashMap;
use std::time::{Duration, Instant};

use genie_sys::socket::Socket;

/// How long a client may take to say hello.
const HELLO: Duration = Duration::from_secs(5);
/// How many silent connections there may always be.
const FEWEST: usize = 16;

/// The connections that have said nothing yet, by the tokens under which the poller watches them.
#[derive(Default)]
pub(super) struct Handshakes {
    handshakes: HashMap<u64, Handshake>,
}

struct Handshake {
    socket: Socket,
    user: u32,
    since: Instant,
}

impl Handshakes {
    pub(super) fn add(&mut self, token: u64, mut socket: Socket) {
        // A child of the server's would keep the connection open when the server dies.
        socket.unshare();
        // Where the kernel does not say which user it is, the connection gets a number that no user has.
        let user = socket.peer().map_or(u32::MAX, |peer| peer.uid);
        self.handshakes.insert(token, Handshake { socket, user, since: Instant::now() });
    }

    pub(super) fn get(&self, token: u64) -> Option<&Socket> {
        self.handshakes.get(&token).map(|handshake| &handshake.socket)
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<Socket> {
        self.handshakes.remove(&token).map(|handshake| handshake.socket)
    }

    /// The connection to end, if there are more than the limit of a server that has room for `clients` clients.
    pub(super) fn superfluous(&self, clients: usize) -> Option<u64> {
        if self.handshakes.len() <= clients.max(FEWEST) {
            return None;
        }
        self.first_to_go()
    }

    /// The connection to end first: of the user with the most connections, the one that has been silent longest.
    pub(super) fn first_to_go(&self) -> Option<u64> {
        let mut users: HashMap<u32, usize> = HashMap::new();
        self.handshakes.values().for_each(|handshake| *users.entry(handshake.user).or_default() += 1);
        // Tokens rise in the order in which connections came.
        let most =
            |(token, handshake): &(&u64, &Handshake)| (users[&handshake.user], std::cmp::Reverse(**token));
        self.handshakes.iter().max_by_key(most).map(|(token, _)| *token)
    }

    /// The connections whose time to say hello is over.
    pub(super) fn late(&self) -> Vec<u64> {
        let late = self.handshakes.iter().filter(|(_, handshake)| handshake.since.elapsed() > HELLO);
        late.map(|(token, _)| *token).collect()
    }
}
