//! The page shows the examples as they are. (Its program in Rust is run as a test of the documentation.)

use std::path::Path;

#[test]
fn the_page_shows_the_examples_as_they_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| std::fs::read_to_string(path).expect("it is there");
    let page = read(&folder.join("../../docs/fbufs.md"));
    let files = std::fs::read_dir(folder.join("examples")).expect("a folder");
    let paths = files.map(|file| file.expect("a file").path());
    let examples: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "c")).map(|path| read(&path)).collect();
    let shown: Vec<_> = page.split("```c\n").skip(1).filter_map(|rest| rest.split("```\n").next()).collect();
    assert!(shown.len() >= 6, "{} programs in C", shown.len());
    for code in shown {
        assert!(examples.iter().any(|example| example.contains(code)), "is in no example:\n{code}");
    }
}
