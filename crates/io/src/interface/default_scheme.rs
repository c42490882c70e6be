//! The default scheme: that of elements which name none.
//!
//! Source: thesis §13.1.

use std::sync::atomic::Ordering;

use genie_passing::Scheme;
use genie_passing::model::Allocation;

use super::Interface;

impl Interface {
    /// The scheme of elements that name none ([`Element::new`](crate::Element::new)): emulated copy, unless
    /// [`Interface::set_scheme`] has changed it.
    pub fn scheme(&self) -> Scheme {
        Scheme::ALL[usize::from(self.0.scheme.load(Ordering::Relaxed))]
    }

    /// Sets the scheme of elements that name none, for requests that are made from now on; returns the one that it was. So a
    /// program can be switched, to emulated share say, in one place (thesis §13.1).
    ///
    /// # Panics
    /// When `scheme` is none of the native ones.
    pub fn set_scheme(&self, scheme: Scheme) -> Scheme {
        let is_native = scheme != Scheme::Fragment && scheme.allocation() == Allocation::Native;
        assert!(is_native, "{scheme} cannot be the default: it passes no native buffers");
        Scheme::ALL[usize::from(self.0.scheme.swap(scheme as u8, Ordering::Relaxed))]
    }
}
