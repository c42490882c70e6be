//! Guests: who has connected and said nothing yet.
//!
//! How: a guest has a few seconds to say hello. When there are too many, the one goes that has been silent longest among
//! those of the user who has most of them: neither silence nor numbers keep other users out.
//! Limits: as many as the server has room for clients, and at least [`FEWEST`].

use std::collections::HashMap;
use std::time::{Duration, Instant};

use genie_sys::socket::Socket;

/// How long a guest may take to say hello.
const HELLO: Duration = Duration::from_secs(5);
/// How many guests there may always be.
const FEWEST: usize = 16;

/// Those who have said nothing yet, by the numbers under which they are watched.
#[derive(Default)]
pub(super) struct Guests {
    guests: HashMap<u64, Guest>,
}

struct Guest {
    socket: Socket,
    user: u32,
    since: Instant,
}

impl Guests {
    pub(super) fn add(&mut self, token: u64, socket: Socket) {
        // Whose user the kernel does not tell is nobody's.
        let user = socket.peer().map_or(u32::MAX, |peer| peer.uid);
        self.guests.insert(token, Guest { socket, user, since: Instant::now() });
    }

    pub(super) fn get(&self, token: u64) -> Option<&Socket> {
        self.guests.get(&token).map(|guest| &guest.socket)
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<Socket> {
        self.guests.remove(&token).map(|guest| guest.socket)
    }

    /// Who is to go, if there are more than a server with room for so many clients has time for.
    pub(super) fn superfluous(&self, clients: usize) -> Option<u64> {
        if self.guests.len() <= clients.max(FEWEST) {
            return None;
        }
        self.first_to_go()
    }

    /// The connection to end first: of the user with the most connections, the one that has been silent longest.
    pub(super) fn first_to_go(&self) -> Option<u64> {
        let mut users: HashMap<u32, usize> = HashMap::new();
        self.guests.values().for_each(|guest| *users.entry(guest.user).or_default() += 1);
        // Tokens are given in the order of coming.
        let most = |(token, guest): &(&u64, &Guest)| (users[&guest.user], std::cmp::Reverse(**token));
        self.guests.iter().max_by_key(most).map(|(token, _)| *token)
    }

    /// Those whose time is over.
    pub(super) fn late(&self) -> Vec<u64> {
        let late = self.guests.iter().filter(|(_, guest)| guest.since.elapsed() > HELLO);
        late.map(|(token, _)| *token).collect()
    }
}
