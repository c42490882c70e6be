//! The pool of this process, which is made when it is first asked for.
//!
//! How: pools of this process and of those that it was forked from, in a list that only grows: a child finds its parent's,
//! which it cannot use, and adds one of its own.

use std::sync::{Mutex, OnceLock};

use crate::error::Result;
use crate::{Config, Pool};

#[derive(Debug)]
struct Link {
    pool: Pool,
    next: OnceLock<Box<Link>>,
}

static FIRST: OnceLock<Box<Link>> = OnceLock::new();

/// What pools are made with from now on.
static CONFIG: Mutex<Option<Config>> = Mutex::new(None);

impl Pool {
    /// This process's own pool, made with the default [`Config`], or that of [`Pool::configure_process`], when it is first
    /// asked for. A child made by fork gets one of its own.
    ///
    /// # Errors
    /// As [`Pool::new`]; the next call tries again.
    pub fn of_process() -> Result<Self> {
        let mut place = &FIRST;
        loop {
            if place.get().is_none() {
                // Made outside the lock of the place: a child must not inherit that in the middle.
                let config = CONFIG.try_lock().ok().and_then(|config| *config).unwrap_or_default();
                let _ = place.set(Box::new(Link { pool: Self::new(config)?, next: OnceLock::new() }));
            }
            let link = place.get().expect("set by this thread or another one");
            if link.pool.ensure_own().is_ok() {
                return Ok(link.pool.clone());
            }
            place = &link.next;
        }
    }

    /// Says what [`Pool::of_process`] is to make its pool with, where it has not made it yet.
    pub fn configure_process(config: Config) {
        *CONFIG.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(config);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_pool() {
        let [one, other] = [(); 2].map(|()| Pool::of_process().unwrap());
        assert!(one.is_same_group(&other));
        assert_eq!(one.members(), [std::process::id() as i32]);
    }
}
