//! Hostile file servers: what they say is shown and not obeyed, and what they claim is not believed.

use std::fs;

use genie::channel::{Directory, Listener, Running, ServeOptions};
use genie::file::{self, Attributes, Kind};
use genie::{Incoming, RequestId, Server, ServerError, Service};

use super::Place;
use crate::running::assert_fails_in_one_line;

/// A terminal is cleared, its clipboard is written, and what follows reads from right to left.
const SAID: &str = "gone\x1b[2J\x1b]52;c;aGk=\x07\u{9b}31m\u{202e}txt.exe\nserver files";

static SERVICES: [Service; 10] = [
    Service::new("fetch", false, true),
    Service::new("store", true, false),
    Service::new("stat", false, false),
    Service::new("sync", false, false),
    Service::new("list", false, true),
    Service::new("checksum", false, false),
    Service::new("begin", false, false),
    Service::new("commit", false, false),
    Service::new("abandon", false, false),
    Service::new("mkdir", false, false),
];

/// How a server deceives its clients.
#[derive(Debug, Clone, Copy)]
enum Lie {
    /// By what it says of each failure.
    Words,
    /// Each directory is said to have these directories.
    Deep(&'static [&'static str]),
    /// There is a file of this size.
    Size(u64),
    /// There is a file whose name is to be obeyed.
    Name,
}

struct Hostile(Lie);

impl Server for Hostile {
    fn name(&self) -> &str {
        "evil"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let answer = self.answer(&mut request);
        request.reply(answer);
    }

    fn abort(&self, _: RequestId) {}
}

impl Hostile {
    fn answer(&self, request: &mut Incoming) -> Result<(), ServerError> {
        let of =
            |kind, size| Attributes { kind, size, modified_seconds: 0, modified_nanoseconds: 0, mode: 0o600 };
        let is_root = request.argument().ends_with(b".");
        match (self.0, request.service()) {
            (Lie::Size(size), file::STAT) => request.set_argument(&of(Kind::File, size).to_bytes()).unwrap(),
            (Lie::Deep(_) | Lie::Name, file::STAT) if is_root => {
                request.set_argument(&of(Kind::Directory, 0).to_bytes()).unwrap();
            }
            (Lie::Deep(names), file::LIST) => list(request, of(Kind::Directory, 0), names),
            (Lie::Name, file::LIST) => list(request, of(Kind::File, 10), &[SAID]),
            _ => return Err(ServerError::new(SAID)),
        }
        Ok(())
    }
}

fn list(request: &mut Incoming, attributes: Attributes, names: &[&str]) {
    let entry = |name: &&str| [&attributes.to_bytes()[..], &[name.len() as u8], name.as_bytes()].concat();
    let bytes: Vec<u8> = names.iter().flat_map(entry).collect();
    request.set_argument(&[0]).unwrap();
    request.fill(0, |room| room.copy_from(&bytes)).unwrap();
}

fn serve(place: &Place, lie: Lie) -> Running {
    let directory = Directory::at(place.directory.path().join("run")).unwrap();
    let served = Listener::bind_in(&directory, "evil", Hostile(lie), ServeOptions::default()).unwrap();
    served.start().unwrap()
}

/// The command fails, and says so in one line that no terminal acts on.
#[track_caller]
fn refused(place: &Place, args: &[&str]) -> String {
    let output = place.plain(args).args(["--granule", "4k"]).output().unwrap();
    let line = assert_fails_in_one_line(&output, 1);
    let acts = |char: char| char.is_control() || char == '\u{202e}';
    assert!(!line.trim_end().contains(acts), "{line:?}");
    line
}

/// It was printed as it came.
#[test]
fn what_a_server_says_is_shown_and_not_obeyed() {
    let place = Place::without_server();
    let _running = serve(&place, Lie::Words);
    fs::write(place.here("file"), b"x").unwrap();
    for args in [&["fetch", "evil:x"][..], &["store", "file", "evil:x"], &["fetch", "-r", "evil"]] {
        let line = refused(&place, args);
        assert!(
            line.contains(r"gone\u{1b}[2J\u{1b}]52;c;aGk=") && line.contains(r"\u{202e}txt.exe"),
            "{line}"
        );
    }
}

#[test]
fn the_name_of_a_servers_file_is_shown_and_not_obeyed() {
    let place = Place::without_server();
    let _running = serve(&place, Lie::Name);
    fs::create_dir_all(place.here("there").join(SAID)).unwrap();
    let line = refused(&place, &["fetch", "-r", "evil", "there"]);
    assert!(line.contains("is a directory where a file is to be"), "{line}");
}

/// Lists of directories were asked for as far down as a server said that there were any: until a path was longer than a
/// message, after gigabytes.
#[test]
fn a_tree_that_is_deeper_than_paths_can_be_is_refused() {
    let place = Place::without_server();
    for names in [&["d"][..], &["a", "b", "c"]] {
        let running = serve(&place, Lie::Deep(names));
        let line = refused(&place, &["fetch", "-r", "evil", "there"]);
        assert!(line.contains("more than 4095 bytes"), "{line}");
        assert!(!place.here("there").exists());
        drop(running);
    }
}

/// Its chunks were listed, until memory was used up.
#[test]
fn a_file_of_a_size_that_no_file_has_takes_no_memory() {
    let place = Place::without_server();
    for (size, said) in [(u64::MAX, "makes no sense"), (i64::MAX as u64, "gone")] {
        let running = serve(&place, Lie::Size(size));
        let line = refused(&place, &["fetch", "evil:x"]);
        assert!(line.contains(said), "{line}");
        drop(running);
    }
    assert!(place.names(place.here("")).is_empty());
}
