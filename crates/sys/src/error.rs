//! What the error of a kernel call says: which call failed, on what, and what to do about it.
//!
//! Why: an errno alone does not say what the call was for; the code that made the call knows that.
//! Invariants: `Display` is one line, a sentence for an operator.

use rustix::io::Errno;

/// The result of a kernel call.
pub type Result<T> = std::result::Result<T, Error>;

/// A kernel call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} of {subject} failed: {errno}{}", remedy.map(|r| format!("; {r}")).unwrap_or_default())]
pub struct Error {
    /// The kernel's name of the call.
    pub call: &'static str,
    /// What the call was made on, with its numbers.
    pub subject: String,
    /// The kernel's reason.
    pub errno: Errno,
    /// What the operator can do, if anything is known.
    pub remedy: Option<&'static str>,
}

impl Error {
    /// Says that `call` on `subject` failed for `errno`. For EMFILE, the remedy is the same for all calls.
    pub fn new(call: &'static str, subject: impl Into<String>, errno: Errno) -> Self {
        let remedy = (errno == Errno::MFILE).then_some("raise the limit on open files: `ulimit -n`");
        Self { call, subject: subject.into(), errno, remedy }
    }

    /// Says that `call` on `subject` failed for the reason in the C library's errno.
    pub(crate) fn last(call: &'static str, subject: impl Into<String>) -> Self {
        Self::new(call, subject, last_errno())
    }

    /// Adds what the operator can do, unless the error has a remedy already.
    #[must_use]
    pub fn with_remedy(mut self, remedy: &'static str) -> Self {
        self.remedy.get_or_insert(remedy);
        self
    }
}

/// What can be done by who lacks a right that a driver of an interface needs.
pub(crate) const DRIVERS_NEED: &str = "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and a packet socket CAP_NET_RAW: run as root, or \
                                       `setcap cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM`, or try packet sockets in a network of your own, \
                                       by `unshare -rn`; `genie doctor` says which are missing";

/// The reason why this thread's last call through the C library failed.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once, a server that could not read /proc/self/maps for lack of a descriptor did not say what to do about it.
    #[test]
    fn a_call_that_fails_for_lack_of_descriptors_names_their_limit() {
        let error = |errno| Error::new("read", "/proc/self/maps", errno).to_string();
        assert!(error(Errno::MFILE).ends_with("; raise the limit on open files: `ulimit -n`"));
        assert!(!error(Errno::NOMEM).contains("ulimit"), "it is another limit");
    }

    /// Once, when memfd_create failed for lack of a descriptor, the error said that huge pages were lacking.
    #[test]
    fn what_a_call_needs_otherwise_is_no_remedy_for_a_lack_of_descriptors() {
        let error =
            |errno| Error::new("memfd_create", "an object", errno).with_remedy("have huge pages").remedy;
        assert_eq!(error(Errno::MFILE), Some("raise the limit on open files: `ulimit -n`"));
        assert_eq!(error(Errno::NOSYS), Some("have huge pages"));
    }
}
