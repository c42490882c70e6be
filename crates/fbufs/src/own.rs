//! The process's own pool.

use std::convert::Infallible;

use genie_sys::PerProcess;
use genie_sys::lock::Mutex;

use crate::error::Result;
use crate::{Config, Pool};

static POOL: PerProcess<Pool> = PerProcess::new();

/// What pools are made with from now on. A child begins with its parent's, but where a thread of the parent's was just setting it.
static CONFIG: PerProcess<Mutex<Option<Config>>> = PerProcess::new();

fn config() -> &'static Mutex<Option<Config>> {
    let parents = |parents: Option<&Mutex<Option<Config>>>| *parents?.try_lock()?;
    let Ok(config) = CONFIG.get(|of| Ok::<_, Infallible>(Mutex::new(parents(of))));
    config
}

impl Pool {
    /// This process's own pool, made with [`Config::of_environment`], or that of [`Pool::configure_process`], when it is first
    /// asked for. A child made by fork gets one of its own.
    ///
    /// # Errors
    /// As [`Pool::new`]; the next call tries again.
    pub fn of_process() -> Result<Self> {
        POOL.get(|_| Self::new(Self::config_of_process())).cloned()
    }

    pub(crate) fn config_of_process() -> Config {
        config().lock().unwrap_or_else(Config::of_environment)
    }

    /// Says what [`Pool::of_process`] is to make its pool with, where it has not made it yet.
    pub fn configure_process(config: Config) {
        *self::config().lock() = Some(config);
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
