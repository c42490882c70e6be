//! What is made of the sources: the header, and of the header the man pages.
//!
//! `GENIE_BLESS=1 cargo test -p genie-fbufs --test made` writes them.

#[path = "../../capi/tests/made/library.rs"]
mod library;

use library::Library;

#[test]
fn the_header_and_the_man_pages_are_those_of_the_sources() {
    let sources = &[
        "c/failure.rs",
        "c/pools.rs",
        "c/calls.rs",
        "c/channels.rs",
        "c/pipes.rs",
        "c/messages.rs",
        "c/registrations.rs",
        "c/streams.rs",
    ];
    Library { name: "libfbufs", header: "fbufs.h", sources }.ensure();
}
