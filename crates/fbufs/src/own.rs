//! The process's own pool.

use genie_sys::PerProcess;
use genie_sys::lock::Mutex;

use crate::error::Result;
use crate::{Config, Pool};

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
        POOL.get(|_| Self::new(Self::config_of_process())).cloned()
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
