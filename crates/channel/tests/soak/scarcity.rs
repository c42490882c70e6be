//! Scarcity: a process whose limit on descriptors leaves it hardly any more than it has.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::random::Random;

/// How many more descriptors the process may have, at most.
const MORE: usize = 8;

/// While this exists, the process may have no more descriptors; dropping it ends that.
pub(crate) struct Scarcity {
    before: Rlimit,
}

impl Scarcity {
    pub(crate) fn begin(random: &mut Random) -> Self {
        let before = getrlimit(Resource::Nofile);
        let next = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor").as_raw_fd() as u64;
        set(Rlimit { current: Some(next + random.below(MORE) as u64), ..before });
        Self { before }
    }
}

impl Drop for Scarcity {
    fn drop(&mut self) {
        set(self.before);
    }
}

fn set(limit: Rlimit) {
    setrlimit(Resource::Nofile, limit).expect("a limit that is not above the hard one");
}
