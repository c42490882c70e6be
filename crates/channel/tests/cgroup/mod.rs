//! Memory cgroups that tests make.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::skip::skip;

/// A memory cgroup with a limit. Dropping it removes it; its processes have ended by then.
pub(crate) struct Cgroup {
    path: PathBuf,
    is_version_1: bool,
}

impl Cgroup {
    /// Makes one below this process's, or, in version 2, beside it. Where that cannot be, says so and returns none.
    pub(crate) fn make(test: &str, limit: usize) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let Some((parent, is_version_1)) = parent() else {
            skip(test, "no memory cgroup is mounted in /sys/fs/cgroup");
            return None;
        };
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("genie-test-{}-{number}", std::process::id()));
        if let Err(error) = fs::create_dir(&path) {
            skip(test, &format!("{} cannot be made: {error}", path.display()));
            return None;
        }
        let cgroup = Self { path, is_version_1 };
        let name = if is_version_1 { "memory.limit_in_bytes" } else { "memory.max" };
        if let Err(error) = fs::write(cgroup.path.join(name), limit.to_string()) {
            skip(test, &format!("a cgroup can be given no limit of memory: {error}"));
            return None;
        }
        if !is_version_1 {
            // Memory is not to be swapped out instead.
            let _ = fs::write(cgroup.path.join("memory.swap.max"), "0");
        }
        Some(cgroup)
    }

    /// The file that takes the numbers of processes that are to enter.
    pub(crate) fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// How many of its processes the kernel has killed for lack of memory.
    pub(crate) fn kills(&self) -> u64 {
        let file = if self.is_version_1 { "memory.oom_control" } else { "memory.events" };
        let text = self.read(file);
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        kills.expect("the number of kills")
    }

    /// The most bytes that it has used, as the kernel tells them.
    pub(crate) fn peak(&self) -> String {
        let file = if self.is_version_1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        format!("{} bytes at most", self.read(file).trim())
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path.join(file)).unwrap_or_default()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes that have ended leave a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// The directory in which cgroups that count memory can be made, and whether it is of version 1.
fn parent() -> Option<(PathBuf, bool)> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let named = |controller: &str| {
        let line = own.lines().find(|line| line.split(':').nth(1) == Some(controller))?;
        line.splitn(3, ':').nth(2).map(|path| path.trim_start_matches('/').to_owned())
    };
    let root = Path::new("/sys/fs/cgroup/memory");
    if let Some(path) = named("memory") {
        let own = root.join(path);
        return [own, root.to_owned()]
            .into_iter()
            .find(|path| path.join("cgroup.procs").exists())
            .map(|path| (path, true));
    }
    // Processes are in the leaves of version 2 alone, so a cgroup cannot be made below this process's.
    let root = Path::new("/sys/fs/cgroup");
    let counts = |path: &Path| {
        fs::read_to_string(path.join("cgroup.subtree_control")).is_ok_and(|on| on.contains("memory"))
    };
    let own = root.join(named("")?);
    own.ancestors()
        .take_while(|path| path.starts_with(root))
        .find(|path| counts(path))
        .map(|path| (path.to_owned(), false))
}
