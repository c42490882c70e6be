//! What each process has one of, made when it is first asked for; the process's pool among it.
//!
//! How: values of this process and of those that it was forked from, in a list that only grows: a child finds its parent's,
//! which it cannot use, and adds one of its own.

use std::sync::OnceLock;

use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;

use crate::error::Result;
use crate::{Config, Pool};

/// A value for each process.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(OnceLock<Box<Link<T>>>);

#[derive(Debug)]
struct Link<T> {
    maker: Maker,
    value: T,
    next: PerProcess<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// This process's value.
    pub(crate) fn get(&self, make: impl Fn() -> Result<T>) -> Result<&T> {
        let mut place = self;
        loop {
            if place.0.get().is_none() {
                // Made outside the lock of the place: a child must not inherit that in the middle.
                let (maker, next) = (Maker::this_process(), Self::new());
                let _ = place.0.set(Box::new(Link { value: make()?, maker, next }));
            }
            let link = place.0.get().expect("set by this thread or another one");
            if link.maker.is_this_process() {
                return Ok(&link.value);
            }
            place = &link.next;
        }
    }
}

static POOL: PerProcess<Pool> = PerProcess::new();

/// What pools are made with from now on.
static CONFIG: Mutex<Option<Config>> = Mutex::new(None);

impl Pool {
    /// This process's own pool, made with [`Config::of_environment`], or that of [`Pool::configure_process`], when it is first
    /// asked for. A child made by fork gets one of its own.
    ///
    /// # Errors
    /// As [`Pool::new`]; the next call tries again.
    pub fn of_process() -> Result<Self> {
        POOL.get(|| Self::new(Self::config_of_process())).cloned()
    }

    pub(crate) fn config_of_process() -> Config {
        CONFIG.try_lock().and_then(|config| *config).unwrap_or_else(Config::of_environment)
    }

    /// Says what [`Pool::of_process`] is to make its pool with, where it has not made it yet.
    pub fn configure_process(config: Config) {
        *CONFIG.lock() = Some(config);
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
