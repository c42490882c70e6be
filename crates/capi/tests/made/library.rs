//! What is made of the sources of a library for C: its header, and of the header its man pages.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, iter};

use roff::{Inline, Roff, bold, roman};

/// A library for C, or a part of one that has a header of its own.
pub(crate) struct Library {
    /// Its name, which is also that of the man page about all of it.
    pub(crate) name: &'static str,
    pub(crate) header: &'static str,
    /// What cbindgen is to do.
    pub(crate) config: &'static str,
    /// The sources whose functions the header declares, in this order.
    pub(crate) sources: &'static [&'static str],
    /// With what names of functions begin in the library alone, where that is so. One man page has all functions then.
    pub(crate) prefix: Option<&'static str>,
}

impl Library {
    /// Makes sure that the headers and the man pages say what the sources say, or writes them (`GENIE_BLESS=1`).
    pub(crate) fn ensure(libraries: &[Self]) {
        let man = folder().join("man");
        let pages: BTreeMap<_, _> = libraries.iter().flat_map(Self::pages).collect();
        for (name, page) in &pages {
            ensure(&man.join(format!("{name}.3")), page);
        }
        let there = fs::read_dir(man).expect("a folder").count();
        assert_eq!(there, pages.len(), "there are man pages of functions that are gone");
    }

    /// The man pages, when the header is what it is to be.
    fn pages(&self) -> Vec<(String, String)> {
        let header = self.made();
        ensure(&folder().join("include").join(self.header), &header);
        let exported = |file: &&str| {
            let source = fs::read_to_string(folder().join("src").join(file)).expect("a source");
            source.matches("#[unsafe(no_mangle)]").count()
        };
        let functions: Vec<_> = functions(&header).collect();
        let count: usize = self.sources.iter().map(exported).sum();
        assert_eq!(functions.len(), count, "all functions, each with its comment");
        let own = functions.iter().filter(|_| self.prefix.is_none());
        let own = own.map(|function| (function.name().to_owned(), function.page(self)));
        iter::once((self.name.to_owned(), self.overview(&header, &functions))).chain(own).collect()
    }

    fn made(&self) -> String {
        let config = cbindgen::Config::from_file(folder().join(self.config)).expect("a configuration");
        let builder = cbindgen::Builder::new().with_config(config);
        let add = |builder: cbindgen::Builder, file| builder.with_src(folder().join("src").join(file));
        let mut made = Vec::new();
        self.sources.iter().fold(builder, add).generate().expect("a header").write(&mut made);
        let made = String::from_utf8(made).expect("text");
        let Some(prefix) = self.prefix else { return made };
        let renamed: String = functions(&made)
            .filter_map(|function| function.name().strip_prefix(prefix).map(str::to_owned))
            .map(|name| format!("#define {name} {prefix}{name}\n"))
            .collect();
        let made = made.replace(&format!(" {prefix}"), " ").replace(&format!("*{prefix}"), "*");
        made.replacen("#ifdef __cplusplus", &format!("{renamed}\n#ifdef __cplusplus"), 1)
    }

    /// The page of the library: what holds for all functions, which there are, and the types.
    fn overview(&self, header: &str, functions: &[Function<'_>]) -> String {
        let about =
            header.split(&format!("/* {}: ", self.name)).nth(1).and_then(|rest| rest.split(" */").next());
        let about = about.expect("a comment in front").replace("\n *", "\n");
        let mut paragraphs = about.split("\n\n");
        let mut page = self.begun(self.name, paragraphs.next().expect("a sentence").trim_end_matches('.'));
        page.control("SH", ["DESCRIPTION"]);
        for paragraph in paragraphs.filter(|paragraph| !paragraph.contains("do not edit")) {
            described(&mut page, paragraph);
        }
        page.control("SH", ["FUNCTIONS"]);
        for function in functions {
            if self.prefix.is_some() {
                page.control("SS", [function.name()]).control("nf", []);
                function.declared(&mut page);
                function.described(&mut page);
            } else {
                page.text([bold(function.name()), roman("(3)")]).control("br", []);
            }
        }
        page.control("SH", ["TYPES AND CONSTANTS"]).control("nf", []);
        let types = header.split("#ifdef __cplusplus").next().and_then(|before| before.split_once(" */"));
        let (_, types) = types.expect("types behind the comment in front");
        for line in types.trim().lines() {
            page.text([roman(line)]);
        }
        page.control("fi", []);
        page.to_roff()
    }

    fn begun(&self, name: &str, about: &str) -> Roff {
        let mut page = Roff::new();
        page.control(
            "TH",
            [name, "3", " ", &format!("{} {}", self.name, env!("CARGO_PKG_VERSION")), "Genie"],
        );
        page.control("SH", ["NAME"]).text([roman(format!("{name} - {}", uncapitalized(about)))]);
        page
    }
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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
            } else if !line.starts_with([' ', '#']) && line.contains('(') && !comment.is_empty() {
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

    fn page(&self, library: &Library) -> String {
        let text = self.comment.join("\n");
        let words = text.replace('\n', " ");
        let ends = [". ", "; ", ": ", " (", ".  "].iter().filter_map(|end| words.find(end)).min();
        let first = words[..ends.unwrap_or(words.len())].trim_end_matches('.').to_owned();
        let mut page = library.begun(self.name(), &first);
        page.control("SH", ["SYNOPSIS"]).control("nf", []);
        page.text([bold(format!("#include <{}>", library.header))]).text([roman("")]);
        self.declared(&mut page);
        page.control("SH", ["DESCRIPTION"]);
        self.described(&mut page);
        page.control("SH", ["SEE ALSO"]).text([bold(library.name), roman("(3)")]);
        page.to_roff()
    }

    /// The declaration, up to the end of what is not filled.
    fn declared(&self, page: &mut Roff) {
        for line in &self.declaration {
            page.text([bold(*line)]);
        }
        page.control("fi", []);
    }

    fn described(&self, page: &mut Roff) {
        for paragraph in self.comment.join("\n").split("\n\n") {
            match (paragraph.strip_prefix("Errors: "), paragraph.strip_prefix("Pointers: ")) {
                (Some(errors), _) => page.control("SH", ["ERRORS"]).text([filled(errors)]),
                (_, Some(pointers)) => page.control("SH", ["POINTERS"]).text([filled(pointers)]),
                _ => described(page, paragraph),
            };
        }
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

fn uncapitalized(text: &str) -> String {
    match text.get(1..2).filter(|second| *second != "/") {
        Some(_) => text[..1].to_lowercase() + &text[1..],
        None => text.to_owned(),
    }
}
