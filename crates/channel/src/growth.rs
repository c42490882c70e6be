//! Growth: a client that finds the server's pool exhausted asks for more of it.
//!
//! Why: each client has a pool; a pool made for the client's busiest moment would lie idle at all other times.
//! How: the space says when a system buffer can't be had from the pool. The client then asks the server for as many bytes as
//! the pool has, or for as many as were lacking if that is more. No thread waits for the answer: the link's thread takes in
//! what comes, and for a request that needs memory meanwhile the client adds some of its own (`stand_ins.rs`). So it does for
//! all requests where the server lends no more.
//! Invariants: only one question at a time is open.
//! Trust: a channel ends when its server lends memory that was not asked for, or more than was asked for.
//! Limits: what the server allows. A client that was lent nothing does not ask again for [`SHORTEST`]; each further time it
//! waits twice as long, up to [`LONGEST`].
//! Source: thesis §5.2 (lender mechanism). Differs: its pools don't grow.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use genie_memory::{Error as MemoryError, LenderId, Space};
use genie_sys::Object;

use super::pool::small;
use super::sharing;
use crate::primitive::Mutex;

/// The pause between the first answer that brought nothing and the next question.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(64);

/// What a client knows of how its server's pool grows.
#[derive(Debug)]
pub(super) struct Growth(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Bytes that the server lends in the interface's larger granules, or in all if they are of one size, and in those of
    /// 4 KiB.
    lent: [usize; 2],
    /// Bytes that it was asked for, where it has not answered yet.
    asked: Option<usize>,
    /// Nothing is asked for before this time.
    quiet: Option<Instant>,
    /// How long the next pause is.
    pause: Duration,
}

impl Growth {
    /// The growth of a pool that has `lent` bytes: in the larger granules, and in those of 4 KiB.
    pub(super) fn new(lent: [usize; 2]) -> Self {
        Self(Mutex::new(State { lent, asked: None, quiet: None, pause: SHORTEST }))
    }

    /// How many bytes to ask for when `lacking` bytes are missing, in the smaller of two sizes of granules if `is_small`;
    /// `None` if the client is not to ask now.
    pub(super) fn ask(&self, lacking: usize, is_small: bool, now: Instant) -> Option<usize> {
        let mut state = self.0.lock();
        if state.asked.is_some() || state.quiet.is_some_and(|until| now < until) {
            return None;
        }
        let wanted = lacking.max(state.lent[usize::from(is_small)]);
        state.asked = Some(if is_small { small(wanted) } else { wanted });
        state.asked
    }

    /// Takes in the objects that the server lends; there are none if it lends no more.
    ///
    /// # Errors
    /// The server did what no honest server does.
    pub(super) fn take_in(
        &self,
        objects: Vec<OwnedFd>,
        space: &Space,
        lender: LenderId,
        now: Instant,
    ) -> Result<(), String> {
        let Some(asked) = self.0.lock().asked.take() else {
            return Err("it lent memory that was not asked for".to_owned());
        };
        let granule = if is_small(space, asked) { 1 } else { space.granule() };
        let mut left = asked.next_multiple_of(granule);
        let mut come = [0; 2];
        for descriptor in objects {
            let object = Object::accept(descriptor).map_err(|error| error.to_string())?;
            let len = object.len();
            left = left.checked_sub(len).ok_or_else(|| format!("it lent more than {asked} bytes"))?;
            match sharing::lend(space, lender, object) {
                Ok(()) => come[usize::from(is_small(space, len))] += len,
                Err(error @ MemoryError::Kind { .. }) => return Err(error.to_string()),
                // There are no addresses or no pages for the object here: memory that can't be used counts as not lent.
                Err(_) => {}
            }
        }
        self.add(come, now);
        Ok(())
    }

    /// Notes that the question could not be sent.
    pub(super) fn unasked(&self, now: Instant) {
        self.0.lock().asked = None;
        self.add([0; 2], now);
    }

    fn add(&self, come: [usize; 2], now: Instant) {
        let mut state = self.0.lock();
        state.lent.iter_mut().zip(come).for_each(|(lent, come)| *lent += come);
        if come != [0; 2] {
            (state.quiet, state.pause) = (None, SHORTEST);
        } else {
            state.quiet = Some(now + state.pause);
            state.pause = (state.pause * 2).min(LONGEST);
        }
    }
}

/// Whether a lent object of this length is for the smaller of two sizes of granules.
pub(super) fn is_small(space: &Space, len: usize) -> bool {
    space.small().is_some() && !len.is_multiple_of(space.granule())
}

#[cfg(test)]
mod tests {
    use genie_memory::{Config, Faults, Granularity, GranuleKind};

    use super::*;

    const PAGE: usize = GranuleKind::Base.size();

    fn space() -> (Space, LenderId) {
        let config = Config {
            granularity: Granularity::Only(GranuleKind::Base),
            limit: 16 * PAGE,
            faults: Faults::Never,
            kernel_never_stores: false,
            pool: 16 * PAGE,
        };
        let space = Space::new(&config).unwrap();
        let lender = space.add_lender();
        (space, lender)
    }

    fn object(granules: usize) -> OwnedFd {
        Object::create(GranuleKind::Base, granules * PAGE).unwrap().duplicate().unwrap()
    }

    #[test]
    fn each_question_asks_for_as_much_again_or_for_what_is_lacking() {
        let ((space, lender), now) = (space(), Instant::now());
        let growth = Growth::new([2 * PAGE, 0]);
        assert_eq!(growth.ask(5 * PAGE, false, now), Some(5 * PAGE));
        assert_eq!(growth.ask(PAGE, false, now), None, "a question is open");
        growth.take_in(vec![object(2), object(3)], &space, lender, now).unwrap();
        assert_eq!(space.pool_size(lender).unwrap().granules, 5);
        assert_eq!(growth.ask(PAGE, false, now), Some(7 * PAGE), "what is there now is to be doubled");
        growth.take_in(vec![object(1)], &space, lender, now).unwrap();
        assert_eq!(growth.ask(PAGE, false, now), Some(8 * PAGE), "less than was asked for is an answer, too");
    }

    #[test]
    fn a_client_that_was_lent_nothing_is_quiet_for_longer_each_time() {
        let ((space, lender), mut now) = (space(), Instant::now());
        let growth = Growth::new([PAGE, 0]);
        for pause in [1, 2, 4, 8, 16, 32, 64, 64].map(Duration::from_secs) {
            assert_eq!(growth.ask(PAGE, false, now), Some(PAGE), "before the pause of {pause:?}");
            growth.take_in(Vec::new(), &space, lender, now).unwrap();
            assert_eq!(
                growth.ask(PAGE, false, now + pause - Duration::from_millis(1)),
                None,
                "in that pause"
            );
            now += pause;
        }
        assert_eq!(growth.ask(PAGE, false, now), Some(PAGE));
        growth.take_in(vec![object(1)], &space, lender, now).unwrap();
        assert_eq!(growth.ask(PAGE, false, now), Some(2 * PAGE), "what came ends the silence");
        growth.unasked(now);
        assert_eq!(growth.ask(PAGE, false, now), None);
        assert_eq!(growth.ask(PAGE, false, now + SHORTEST), Some(2 * PAGE), "and the next one is short");
    }

    #[test]
    fn what_there_is_no_room_for_counts_as_not_lent() {
        let ((space, lender), now) = (space(), Instant::now());
        let growth = Growth::new([0, 0]);
        // The object is sparse: none of it is touched.
        let vast = space.aliases_len() / PAGE;
        assert_eq!(growth.ask(vast * PAGE, false, now), Some(vast * PAGE));
        growth.take_in(vec![object(vast)], &space, lender, now).unwrap();
        assert_eq!(space.pool_size(lender).unwrap().granules, 0);
        assert_eq!(growth.ask(PAGE, false, now), None, "it is quiet");
        assert_eq!(growth.ask(PAGE, false, now + SHORTEST), Some(PAGE));
    }

    #[test]
    fn what_no_honest_server_lends_is_refused() {
        let ((space, lender), now) = (space(), Instant::now());
        let growth = Growth::new([PAGE, 0]);
        growth.take_in(Vec::new(), &space, lender, now).expect_err("nobody asked");
        growth.ask(PAGE + 1, false, now).unwrap();
        growth.take_in(vec![object(3)], &space, lender, now).expect_err("more than two granules");
        growth.ask(PAGE, false, now).unwrap();
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        growth.take_in(vec![file], &space, lender, now).expect_err("no memory object");
        growth.ask(2 * PAGE, false, now).unwrap();
        growth
            .take_in(vec![object(2)], &space, LenderId::OWN, now)
            .expect("a lender that is gone lends nothing");
        assert_eq!(space.pool_size(lender).unwrap().granules, 0);
        space.check().unwrap();
    }
}
