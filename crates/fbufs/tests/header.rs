//! The header is what cbindgen makes of the sources.

use std::path::Path;

/// `GENIE_BLESS=1 cargo test -p genie-fbufs --test header` writes the header.
#[test]
fn the_header_is_that_of_the_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("a configuration");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["failure", "pools", "calls", "channels", "messages", "registrations", "streams"] {
        builder = builder.with_src(folder.join(format!("src/c/{file}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().expect("a header").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let path = folder.join("include/fbufs.h");
    if std::env::var_os("GENIE_BLESS").is_some() {
        std::fs::write(&path, &made).expect("the header is written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(made == there, "include/fbufs.h is not what the sources say: run this test with GENIE_BLESS=1");
}
