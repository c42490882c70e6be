//! What a pool is to be like.

/// How large a pool may become, and what of it stays in memory.
///
/// The limit counts when the pool is made. The rest is each member's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The most bytes of buffers that all members together may have; rounded up to 4 MiB. 256 MiB by default.
    pub limit: usize,
    /// The most bytes of buffers that this process may hold at once. As many as the limit by default.
    pub quota: usize,
    /// Bytes of free buffers, from the pool's start on, that keep their memory. Beyond that, memory is given back to the
    /// kernel when 256 KiB in a row are free. 32 MiB by default.
    pub keep: usize,
    /// The most bytes of buffers that are locked into memory for this process. None by default.
    pub locked: usize,
    /// The most bytes of buffers *held* by this process that are locked: beyond that, those that it was given first are
    /// unlocked. As many as may be locked by default.
    pub held_locked: usize,
    /// Whether a touch of a buffer that was given away traps (SIGSEGV). For debugging: it costs two system calls a buffer.
    pub traps: bool,
    /// How often a lock is tried, with pauses that grow, before it is left for later. 12 by default: some 40 us.
    pub tries: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limit: 256 << 20,
            quota: usize::MAX,
            keep: 32 << 20,
            locked: 0,
            held_locked: usize::MAX,
            traps: false,
            tries: 12,
        }
    }
}

impl Config {
    /// The default, but for `traps`, which are set if the environment has `GENIE_FBUFS_TRAPS` and it is neither empty nor `0`: so
    /// that a program can be debugged without being built anew.
    pub fn of_environment() -> Self {
        let is_set = |value: std::ffi::OsString| !value.is_empty() && value != "0";
        Self { traps: std::env::var_os("GENIE_FBUFS_TRAPS").is_some_and(is_set), ..Self::default() }
    }
}
