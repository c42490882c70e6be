//! Arbitrary frames and requests at a datagram server, over every adapter.
#![no_main]

use std::sync::LazyLock;

use genie_io::{Interface, Limits};
use genie_memory::{Config, Faults, Granularity, GranuleKind};

static GENIE: LazyLock<Interface> = LazyLock::new(|| {
    let granularity = Granularity::Only(GranuleKind::Base);
    let config = Config { granularity, limit: 64 << 20, faults: Faults::Never, ..Config::default() };
    Interface::open_configured(config, Limits::default()).expect("memory")
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    genie_net::datagram::check::check(&GENIE, input);
    GENIE.space().check().expect("the books add up");
});
