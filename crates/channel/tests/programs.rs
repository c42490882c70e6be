//! Random programs: whatever a client does, emulated copy shows it and its servers what copy shows them.
//!
//! How: each step of a program is run three times: by a client that passes regions by emulated copy, by one that passes
//! heap memory by copy (the oracle), and by a model that is plain vectors. After each step the first client and the model
//! hold the same bytes, and at the end all three do. All three get the same replies, servers read the bytes that the model
//! recorded with the request, and the accounts add up.
//! `GENIE_PROPTEST_CASES` sets how many programs each configuration runs; a failure prints the seed, for
//! `GENIE_PROPTEST_SEED`, and the shortest failing program that was found.
//! Source: thesis §2.1.2 (strong integrity), §4.

mod support;

#[path = "../../sys/tests/child/mod.rs"]
mod child;

#[path = "programs/action.rs"]
mod action;
#[path = "programs/fork.rs"]
mod fork;
#[path = "programs/model.rs"]
mod model;
#[path = "programs/run.rs"]
mod run;
#[path = "programs/world.rs"]
mod world;

/// Makes a test of each configuration.
macro_rules! configurations {
    ($cases:literal: $($test:ident: $kind:ident, $guard:ident, $buffering:ident, $place:ident;)*) => {$(
        #[test]
        fn $test() {
            let setup = genie_conformance::Setup::new(
                genie_conformance::Granules::$kind,
                genie_conformance::Guard::$guard,
                genie_conformance::Buffering::$buffering,
            );
            run::programs(stringify!($test), setup, support::transport::Place::$place, $cases);
        }
    )*};
}

configurations! { 64:
    huge_customized_full: Huge, Full, Customized, InProcess;
    huge_customized_stores_only: Huge, Stores, Customized, InProcess;
    huge_customized_never: Huge, Never, Customized, InProcess;
    huge_pooled_full: Huge, Full, Pooled, InProcess;
    huge_pooled_stores_only: Huge, Stores, Pooled, InProcess;
    huge_pooled_never: Huge, Never, Pooled, InProcess;
    base_customized_full: Base, Full, Customized, InProcess;
    base_customized_stores_only: Base, Stores, Customized, InProcess;
    base_customized_unpromised: Base, Unpromised, Customized, InProcess;
    base_customized_never: Base, Never, Customized, InProcess;
    base_pooled_full: Base, Full, Pooled, InProcess;
    base_pooled_stores_only: Base, Stores, Pooled, InProcess;
    base_pooled_never: Base, Never, Pooled, InProcess;
    mixed_customized_full: Mixed, Full, Customized, InProcess;
    mixed_customized_never: Mixed, Never, Customized, InProcess;
    mixed_pooled_full: Mixed, Full, Pooled, InProcess;
}

// Each step asks another process, several times: fewer programs.
configurations! { 12:
    channel_huge_customized: Huge, Full, Customized, Cached;
    channel_huge_pooled: Huge, Full, Pooled, Cached;
    channel_huge_transient: Huge, Full, Customized, Transient;
    channel_base_customized: Base, Full, Customized, Cached;
    channel_base_pooled: Base, Full, Pooled, Cached;
    channel_base_transient: Base, Full, Customized, Transient;
    channel_base_never: Base, Never, Customized, Cached;
    channel_mixed_customized: Mixed, Full, Customized, Cached;
    channel_mixed_pooled: Mixed, Full, Pooled, Transient;
    channel_mixed_untrusted: Mixed, Full, Pooled, Untrusted;
    channel_base_untrusted: Base, Full, Pooled, Untrusted;
}
