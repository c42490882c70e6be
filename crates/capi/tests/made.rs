//! What is made of the sources: the header, and of the header the man pages and the layout that C programs rely on.
//!
//! `GENIE_BLESS=1 cargo test -p genie-capi --test made` writes the header and the man pages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use roff::{Inline, Roff, bold, roman};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).expect("a configuration");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["types", "failure", "interface", "memory", "request", "pending", "server"] {
        builder = builder.with_src(folder().join(format!("src/{file}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().expect("a header").write(&mut made);
    String::from_utf8(made).expect("text")
}

/// Makes sure that a file says this, or writes it.
fn ensure(path: &Path, made: &str) {
    if std::env::var_os("GENIE_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, made).expect("the file is written");
    }
    let there = fs::read_to_string(path).unwrap_or_default();
    assert!(
        made == there,
        "{} is not what the sources say: run this test with GENIE_BLESS=1",
        path.display()
    );
}

#[test]
fn the_header_is_that_of_the_sources() {
    ensure(&folder().join("include/genie.h"), &header());
}

#[test]
fn the_man_pages_are_those_of_the_header() {
    let header = header();
    let mut pages: BTreeMap<_, _> = functions(&header)
        .map(|function| {
            let name = function.name().to_owned();
            let page = function.page();
            (folder().join(format!("man/{name}.3")), page)
        })
        .collect();
    assert!(pages.len() >= 30, "{} functions", pages.len());
    pages.insert(folder().join("man/libgenie.3"), overview(&header));
    for (path, page) in &pages {
        ensure(path, page);
    }
    let listed = fs::read_dir(folder().join("man")).expect("a folder");
    let there: Vec<PathBuf> = listed.map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(there.len(), pages.len(), "there are man pages of functions that are gone");
}

/// A function with its comment.
struct Function<'h> {
    comment: Vec<&'h str>,
    declaration: Vec<&'h str>,
}

/// The functions of a header.
fn functions(header: &str) -> impl Iterator<Item = Function<'_>> {
    let mut lines = header.lines();
    iter::from_fn(move || {
        let mut comment = Vec::new();
        loop {
            let line = lines.next()?;
            if let Some(text) = line.strip_prefix("//") {
                comment.push(text.strip_prefix(' ').unwrap_or(text));
            } else if line.contains("io_") && line.contains('(') && !comment.is_empty() {
                let mut declaration = vec![line];
                while !declaration.last().is_some_and(|line| line.ends_with(';')) {
                    declaration.push(lines.next()?);
                }
                return Some(Function { comment: std::mem::take(&mut comment), declaration });
            } else {
                comment.clear();
            }
        }
    })
}

impl Function<'_> {
    fn name(&self) -> &str {
        let before = self.declaration[0].split('(').next().expect("a name");
        before.rsplit([' ', '*']).next().expect("a name")
    }

    fn page(&self) -> String {
        let text = self.comment.join("\n");
        let words = text.replace('\n', " ");
        let ends = [". ", "; ", ": ", " (", ".  "].iter().filter_map(|end| words.find(end)).min();
        let first = words[..ends.unwrap_or(words.len())].trim_end_matches('.').to_owned();
        let mut page = begun(self.name(), &first);
        page.control("SH", ["SYNOPSIS"]).control("nf", []);
        page.text([bold("#include <genie.h>")]).text([roman("")]);
        for line in &self.declaration {
            page.text([bold(*line)]);
        }
        page.control("fi", []).control("SH", ["DESCRIPTION"]);
        for paragraph in text.split("\n\n") {
            match (paragraph.strip_prefix("Errors: "), paragraph.strip_prefix("Pointers: ")) {
                (Some(errors), _) => page.control("SH", ["ERRORS"]).text([filled(errors)]),
                (_, Some(pointers)) => page.control("SH", ["POINTERS"]).text([filled(pointers)]),
                _ => described(&mut page, paragraph),
            };
        }
        page.control("SH", ["SEE ALSO"]).text([bold("libgenie"), roman("(3)")]);
        page.to_roff()
    }
}

/// A paragraph, which may end in a list.
fn described<'p>(page: &'p mut Roff, paragraph: &str) -> &'p mut Roff {
    let (text, list) = paragraph.split_once("\n- ").unwrap_or((paragraph, ""));
    page.control("PP", []).text([filled(text)]);
    for item in list.split("\n- ").filter(|item| !item.is_empty()) {
        page.control("IP", ["\\(bu", "2"]).text([filled(item)]);
    }
    page
}

fn filled(text: &str) -> Inline {
    roman(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn begun(name: &str, about: &str) -> Roff {
    let mut page = Roff::new();
    page.control("TH", [name, "3", " ", concat!("libgenie ", env!("CARGO_PKG_VERSION")), "Genie"]);
    page.control("SH", ["NAME"]).text([roman(format!("{name} - {}", uncapitalized(about)))]);
    page
}

fn uncapitalized(text: &str) -> String {
    match text.get(1..2).filter(|second| *second != "/") {
        Some(_) => text[..1].to_lowercase() + &text[1..],
        None => text.to_owned(),
    }
}

/// The page of the library: what holds for all functions, which there are, and the types.
fn overview(header: &str) -> String {
    let about = header.split("/* libgenie: ").nth(1).and_then(|rest| rest.split(" */").next());
    let about = about.expect("a comment in front").replace("\n *", "\n");
    let mut paragraphs = about.split("\n\n");
    let mut page = begun("libgenie", paragraphs.next().expect("a sentence").trim_end_matches('.'));
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in paragraphs.filter(|paragraph| !paragraph.contains("do not edit")) {
        described(&mut page, paragraph);
    }
    page.control("SH", ["FUNCTIONS"]);
    for function in functions(header) {
        page.text([bold(function.name()), roman("(3)")]).control("br", []);
    }
    page.control("SH", ["TYPES AND CONSTANTS"]).control("nf", []);
    let types =
        header.split("#include <stdint.h>").nth(1).and_then(|rest| rest.split("#ifdef __cplusplus").next());
    let types = types.expect("types").split(" */").nth(1).expect("types behind the comment in front");
    for line in types.lines().map(|line| line.replace("//", "").trim_end().to_owned()) {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.to_roff()
}

/// The layout is part of the interface: it does not change without another soname. `ctests/layout.c` has the same numbers.
#[test]
fn the_layout_is_what_c_programs_were_compiled_with() {
    use std::mem::offset_of;

    use genie_capi::interface::{Options, Thresholds};
    use genie_capi::server::{Message, ReplyMessage, ServerBuffer, ServiceMapping};
    use genie_capi::types::{
        BufferHeader, FragmentLocation, Location, NativeLocation, Receipt, Region, ScatterGather, Segment,
    };

    let mut layout = String::new();
    let mut line = |name: &str, size: usize, last: &str, offset: usize| {
        let kind = if name == "io_location" { "union" } else { "struct" };
        layout += &format!("SAME({kind} {name}, {size}, {last}, {offset});\n");
    };
    macro_rules! of {
        ($($name:literal $type:ty, $last:ident;)*) => {
            $(line($name, size_of::<$type>(), stringify!($last), offset_of!($type, $last));)*
        };
    }
    of! {
        "io_segment" Segment, length;
        "io_region" Region, segmentv;
        "io_native_location" NativeLocation, lender;
        "io_fragment_location" FragmentLocation, offset;
        "io_location" Location, native;
        "io_receipt" Receipt, reason;
        "io_scatter_gather" ScatterGather, receiptp;
        "io_buffer_header" BufferHeader, actual_lengthp;
        "io_thresholds" Thresholds, input_run;
        "io_options" Options, thresholds;
        "io_service_mapping" ServiceMapping, preferred_length;
        "io_server_buffer" ServerBuffer, segv;
        "io_message" Message, bufv;
        "io_reply_message" ReplyMessage, actualv;
    }
    let checked = fs::read_to_string(folder().join("ctests/layout.c")).expect("a test");
    assert!(checked.contains(&layout), "ctests/layout.c does not have\n{layout}");
}
