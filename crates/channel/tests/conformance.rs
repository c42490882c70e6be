//! Conformance: the suite's promises, kept on every kind of memory, protection and system buffer, by servers in the client's
//! process, and in another one, which maps the client's memory or has the kernel copy.
//!
//! A space without the promise that its userfaultfd would need has none (`user_mode_only_needs_a_promise` in genie-memory's
//! `tcow.rs`), so `Guard::Unpromised` is `Guard::Never` here.

macro_rules! test {
    ($test:ident, $granules:ident, $guard:ident, $buffering:ident, $place:ident, $name:ident) => {
        #[test]
        fn $test() {
            use genie_conformance::{Buffering, Granules, Guard, Setup, promise};
            let test = concat!(stringify!($name), "::", stringify!($granules), "::", stringify!($test));
            let setup = Setup::new(Granules::$granules, Guard::$guard, Buffering::$buffering);
            let subject = crate::support::transport::subject(crate::support::transport::Place::$place);
            subject.hold(test, promise(stringify!($name)), setup);
        }
    };
}

/// Servers in the client's process.
macro_rules! here {
    ($name:ident) => {
        here!(@kind huge, Huge, $name);
        here!(@kind base, Base, $name);
        test!(framed_full, Base, Full, Framed, InProcess, $name);
        test!(framed_never, Base, Never, Framed, InProcess, $name);
        mod collapsed {
            test!(customized_full, Collapsed, Full, Customized, InProcess, $name);
        }
        mod mixed {
            test!(customized_full, Mixed, Full, Customized, InProcess, $name);
            test!(pooled_never, Mixed, Never, Pooled, InProcess, $name);
        }
    };
    (@kind $kind:ident, $granules:ident, $name:ident) => {
        mod $kind {
            test!(customized_full, $granules, Full, Customized, InProcess, $name);
            test!(customized_stores_only, $granules, Stores, Customized, InProcess, $name);
            test!(customized_never, $granules, Never, Customized, InProcess, $name);
            test!(pooled_full, $granules, Full, Pooled, InProcess, $name);
            test!(pooled_stores_only, $granules, Stores, Pooled, InProcess, $name);
            test!(pooled_never, $granules, Never, Pooled, InProcess, $name);
        }
    };
}

/// Servers in another process, which map the client's memory.
macro_rules! mapped {
    ($name:ident) => {
        test!(huge_customized, Huge, Full, Customized, Cached, $name);
        test!(huge_pooled, Huge, Full, Pooled, Cached, $name);
        test!(huge_transient, Huge, Full, Customized, Transient, $name);
        test!(collapsed_customized, Collapsed, Full, Customized, Cached, $name);
        test!(base_customized, Base, Full, Customized, Cached, $name);
        test!(base_pooled, Base, Full, Pooled, Cached, $name);
        test!(base_transient, Base, Full, Customized, Transient, $name);
        test!(mixed_customized, Mixed, Full, Customized, Cached, $name);
        test!(mixed_pooled, Mixed, Full, Pooled, Transient, $name);
        test!(base_never, Base, Never, Customized, Cached, $name);
    };
}

/// Servers in another process, which see copies that the kernel makes: they keep no promise about where data is.
macro_rules! copied {
    ($name:ident) => {
        test!(huge_untrusted, Huge, Full, Pooled, Untrusted, $name);
        test!(base_untrusted, Base, Full, Pooled, Untrusted, $name);
    };
}

macro_rules! everywhere {
    ($($group:ident { $($name:ident: $module:ident::$promise:ident, $source:literal, $needs:tt;)* })*) => {
        $($(mod $name { everywhere!(@$group $name); })*)*
    };
    (@carried $name:ident) => {
        here!($name);
        mod channel {
            mapped!($name);
            copied!($name);
        }
    };
    (@in_place $name:ident) => {
        here!($name);
        mod channel {
            mapped!($name);
        }
    };
    // The device driver of these is a part of the suite; over channels, mechanism::channel has a device.
    (@here $name:ident) => {
        here!($name);
    };
    // What the memory server keeps anywhere.
    (@stored $name:ident) => {
        test!(base_pooled, Base, Full, Pooled, InProcess, $name);
        mod channel {
            test!(base_customized, Base, Full, Customized, Cached, $name);
            test!(base_transient, Base, Full, Customized, Transient, $name);
            copied!($name);
        }
    };
}

genie_conformance::each_promise! { everywhere }
