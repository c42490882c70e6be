//! What is made of the sources: the headers, and of the headers the man pages.
//!
//! `GENIE_BLESS=1 cargo test -p genie-fbufs --test made` writes them.

#[path = "../../capi/tests/made/library.rs"]
mod library;

use library::Library;

#[test]
fn the_headers_and_the_man_pages_are_those_of_the_sources() {
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
    let fbufs =
        Library { name: "libfbufs", header: "fbufs.h", config: "cbindgen.toml", sources, prefix: None };
    let sources = &[
        "c/sysv/blocks.rs",
        "c/sysv/messages.rs",
        "c/sysv/modules.rs",
        "c/sysv/queues.rs",
        "c/sysv/streams.rs",
    ];
    let (header, prefix) = ("sys/stream.h", Some("fbufs_"));
    let streams = Library { name: "streams", header, config: "stream.toml", sources, prefix };
    Library::ensure(&[fbufs, streams]);
}
