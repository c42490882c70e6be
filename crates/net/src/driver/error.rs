//! Why an interface cannot be driven.

/// An interface that cannot be driven, why, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is none of this name in the thread's network namespace.
    #[error("there is no interface {interface:?} in this network namespace; `ip link` lists them")]
    NoInterface {
        /// Its name.
        interface: String,
    },
    /// The kernel refuses; where a right is missing, the source names it.
    #[error("interface {interface} cannot be driven: {source}")]
    Kernel {
        /// Its name.
        interface: String,
        /// What it refused.
        source: genie_sys::Error,
    },
    /// There is no memory for its frames.
    #[error("there is no memory for the frames of interface {interface}: {source}")]
    Memory {
        /// Its name.
        interface: String,
        /// What was lacking.
        source: genie_passing::Error,
    },
    /// The options make no sense for it.
    #[error("interface {interface} cannot be driven so: {reason}")]
    Options {
        /// Its name.
        interface: String,
        /// Why.
        reason: &'static str,
    },
}

impl Error {
    /// What the kernel has refused about an interface.
    pub(crate) fn of(interface: &str, source: genie_sys::Error) -> Self {
        let interface = interface.to_owned();
        match source.errno {
            genie_sys::Errno::NODEV => Self::NoInterface { interface },
            _ => Self::Kernel { interface, source },
        }
    }
}
