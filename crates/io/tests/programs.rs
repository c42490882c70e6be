//! Random programs: whatever a client does, emulated copy shows it and its servers what copy shows them.
//!
//! How: each step of a program is run three times: by a client that passes regions by emulated copy, by one that passes
//! heap memory by copy (the oracle), and by a model that is plain vectors. After each step all three hold the same bytes
//! and have had the same replies, what servers read is what the model recorded with the request, and the books add up.
//! `GENIE_PROPTEST_CASES` sets how many programs each configuration runs; a failure prints the seed, to be given in
//! `GENIE_PROPTEST_SEED`, and the shortest program found that fails.
//! Source: thesis §2.1.2 (strong integrity), §4.

mod support;

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
    ($($test:ident: $kind:ident, $guard:ident, $buffering:ident;)*) => {$(
        #[test]
        fn $test() {
            let setup = support::setup::Setup {
                kind: genie_memory::GranuleKind::$kind,
                guard: support::setup::Guard::$guard,
                buffering: support::setup::Buffering::$buffering,
            };
            run::programs(stringify!($test), setup);
        }
    )*};
}

configurations! {
    huge_customized_full: Huge, Full, Customized;
    huge_customized_stores_only: Huge, Stores, Customized;
    huge_customized_unpromised: Huge, Unpromised, Customized;
    huge_customized_never: Huge, Never, Customized;
    huge_pooled_full: Huge, Full, Pooled;
    huge_pooled_stores_only: Huge, Stores, Pooled;
    huge_pooled_unpromised: Huge, Unpromised, Pooled;
    huge_pooled_never: Huge, Never, Pooled;
    base_customized_full: Base, Full, Customized;
    base_customized_stores_only: Base, Stores, Customized;
    base_customized_unpromised: Base, Unpromised, Customized;
    base_customized_never: Base, Never, Customized;
    base_pooled_full: Base, Full, Pooled;
    base_pooled_stores_only: Base, Stores, Pooled;
    base_pooled_unpromised: Base, Unpromised, Pooled;
    base_pooled_never: Base, Never, Pooled;
}
