//! Nobody gets out of the root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use genie_file::{ABANDON, BEGIN, Begin, CHECKSUM, MKDIR, STAT, SYNC, at, range};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{Files, Stop};

const SECRET: &[u8] = b"nobody's business";

/// A root with a secret beside it, and ways to it.
fn besieged() -> Files {
    let files = Files::new(8);
    let outside = files.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), SECRET).unwrap();
    fs::create_dir(files.path("inside")).unwrap();
    files.write("inside/secret", b"harmless");
    symlink(outside.join("secret"), files.path("absolute")).unwrap();
    symlink("../outside/secret", files.path("relative")).unwrap();
    symlink("../outside", files.path("directory")).unwrap();
    symlink("absolute", files.path("twice")).unwrap();
    symlink("../outside/new", files.path("dangling")).unwrap();
    symlink("/proc/self/root", files.path("magic")).unwrap();
    symlink("circle", files.path("circle")).unwrap();
    files
}

#[test]
fn no_path_leads_out_of_the_root() {
    let files = besieged();
    let secret = files.directory.path().join("outside/secret");
    let absolute = secret.to_str().unwrap();
    let up = "../outside/secret";
    let detour = "inside/../../outside/secret";
    let ways = [
        absolute,
        up,
        detour,
        "absolute",
        "relative",
        "directory/secret",
        "twice",
        "magic/etc/passwd",
        "circle",
        "",
        ".",
        "..",
        "directory",
        "a\0b",
    ];
    for way in ways {
        let error = files.try_fetch(way, 0, 100).expect_err(way);
        assert!(!error.message.contains('\n') && error.code != 0, "{way:?}: {error:?}");
        files.try_store(way, 0, b"overwritten").expect_err(way);
        if way != "." {
            files.ask(STAT, way).expect_err(way);
        }
        let change = |service, argument: &[u8]| files.tell(service, argument, 300).expect_err(way);
        change(MKDIR, &at(Path::new(way).join(".."), 0));
        change(ABANDON, &at(way, 0));
        change(CHECKSUM, &range(way, 0, 100));
        files.ask(SYNC, way).expect_err(way);
    }
    for new in ["dangling", "directory/new", "../outside/new"] {
        files.try_store(new, 0, b"new").expect_err(new);
    }
    let begin = Begin { size: 1, token: [0; 16], resume: false };
    for new in ["directory/new", "../outside/new"] {
        files.tell(BEGIN, &begin.argument(new), 300).expect_err(new);
        files.tell(MKDIR, &at(new, 0), 0).expect_err(new);
        files.list(Path::new(new).parent().unwrap(), 4096).expect_err(new);
    }
    assert_eq!(fs::read(&secret).unwrap(), SECRET);
    assert_eq!(
        fs::read_dir(files.directory.path().join("outside")).unwrap().count(),
        1,
        "nothing was created outside"
    );
    assert!(
        files.try_fetch("relative", 0, 9).unwrap_err().message.contains("leads out of the root by a link")
    );
}

#[test]
fn links_that_stay_beneath_the_root_are_followed() {
    let files = besieged();
    symlink("secret", files.path("inside/link")).unwrap();
    symlink("../inside/link", files.path("inside/up")).unwrap();
    symlink("inside/new", files.path("to-be")).unwrap();
    assert_eq!(files.fetch("inside/up", 0, 100), b"harmless");
    files.store("to-be", 0, b"made");
    assert_eq!(fs::read(files.path("inside/new")).unwrap(), b"made");
}

#[test]
fn a_directory_that_turns_into_a_link_under_way_lets_nobody_out() {
    let files = besieged();
    let done = AtomicBool::new(false);
    let (served, refused) = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let (one, other) = (files.path("inside"), files.path("directory"));
            while !done.load(Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("an exchange");
            }
        });
        let stop = Stop(&done);
        let (mut served, mut refused) = (0, 0);
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end || (served == 0 || refused == 0) && end.elapsed() < Duration::from_secs(10)
        {
            match files.try_fetch("inside/secret", 0, 100) {
                Ok(bytes) => {
                    assert_eq!(bytes, b"harmless");
                    served += 1;
                }
                Err(_) => refused += 1,
            }
            let _ = files.try_store("inside/stored", 0, b"stored");
        }
        drop(stop);
        swapper.join().expect("the swapper");
        (served, refused)
    });
    assert!(served > 0 && refused > 0, "both faces were met: {served} served, {refused} refused");
    assert_eq!(
        fs::read_dir(files.directory.path().join("outside")).unwrap().count(),
        1,
        "nothing was stored outside"
    );
}
