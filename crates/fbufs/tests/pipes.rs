//! Pipes that a shell makes: programs that both use the library pass fbufs by reference, and all others get the bytes.
//!
//! How: a shell runs this binary once more as the programs of `a | b | c`. What a program of libtest prints would go into the pipe, so
//! the pipe comes as another descriptor, and becomes the standard one when the program has begun. Programs append what they found to a
//! file.
#![allow(unsafe_code, reason = "calls what C programs call")]

#[path = "pipes/roles.rs"]
mod roles;
#[path = "../../sys/tests/skip/mod.rs"]
mod skip;

use std::ffi::c_int;
use std::io::BufRead;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use genie_fbufs::c::calls::{uf_allocate, uf_deallocate, uf_get, uf_write};
use genie_fbufs::c::channels::{UF_PASSES_FBUFS, UF_PASSES_INPUT, uf_close, uf_explain, uf_set_nonblocking};
use genie_fbufs::c::pipes::uf_take_over;

use roles::{bytes, sentence};

const LENGTH: usize = 256 << 10;
const COUNT: usize = 200;
/// How much one reader reads before another one does.
const PART: usize = 3_000_000;
/// The descriptor that the shell gives a writer for its standard output.
const GIVEN: c_int = 4;

/// The command by which a shell runs this binary in a role, perhaps late.
fn command(role: &str) -> String {
    let (wait, role) = role.strip_prefix("late ").map_or(("", role), |role| ("sleep 0.2; ", role));
    let own = std::env::current_exe().unwrap();
    let own = own.display();
    format!("({wait}ROLE={role} exec {own} --exact role --ignored --nocapture {GIVEN}>&1 >/dev/null)")
}

/// Runs programs of a shell's, connected by pipes; returns the output, and what roles have reported.
fn pipeline(programs: &[&str]) -> (Vec<u8>, String) {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report");
    let mut shell = Command::new("sh");
    shell.args(["-c", &programs.join(" | ")]).env("REPORT", &report).stdin(Stdio::null());
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{programs:?}: {}", String::from_utf8_lossy(&output.stderr));
    (output.stdout, std::fs::read_to_string(report).unwrap_or_default())
}

/// As [`pipeline`], of roles alone.
fn roles(roles: &[&str]) -> String {
    let commands: Vec<_> = roles.iter().map(|role| command(role)).collect();
    pipeline(&commands.iter().map(String::as_str).collect::<Vec<_>>()).1
}

#[test]
#[ignore = "run by tests below, in processes of its own"]
fn role() {
    let Ok(role) = std::env::var("ROLE") else { return };
    // SAFETY: descriptors of this process's, of which nothing else uses the standard ones any more.
    unsafe { assert_eq!(libc::dup2(GIVEN, 1), 1) };
    // SAFETY: as above.
    unsafe { libc::close(GIVEN) };
    roles::play(&role);
    std::process::exit(0);
}

/// The lines of a report that begin with a word, without it.
fn said<'r>(report: &'r str, word: &str) -> Vec<&'r str> {
    report.lines().filter_map(|line| line.strip_prefix(word)).collect()
}

/// That most buffers went by reference: those that were passed lie in the same pages of the same object at both ends.
fn ensure_passed(report: &str) {
    let read: Vec<_> = said(report, "read ");
    let written: std::collections::BTreeMap<_, _> =
        said(report, "written ").into_iter().filter_map(|line| line.split_once(" passed ")).collect();
    assert!(read.len() >= COUNT - 10, "{} of {COUNT} were passed", read.len());
    for line in read {
        let (at, place) = line.split_once(' ').unwrap();
        assert_eq!(written.get(at), Some(&place), "buffer {at}");
    }
}

#[test]
fn programs_of_a_pipeline_pass_buffers_by_reference() {
    for all in [["source", "sink"], ["late source", "sink"], ["source", "late sink"]] {
        let report = roles(&all);
        ensure_passed(&report);
        assert_eq!(said(&report, "sink "), [(COUNT * LENGTH).to_string()]);
    }
}

#[test]
fn what_a_filter_passes_on_is_the_pages_that_the_first_program_wrote() {
    ensure_passed(&roles(&["source", "filter", "sink"]));
    ensure_passed(&roles(&["source", "late filter", "filter", "late sink"]));
}

#[test]
fn other_programs_of_a_pipeline_get_the_bytes() {
    let (output, report) = pipeline(&[&command("source"), "cat"]);
    assert_eq!(output.len(), COUNT * LENGTH);
    assert!(output.chunks(LENGTH).enumerate().all(|(at, part)| part.iter().all(|byte| *byte == bytes(at))));
    assert!(said(&report, "written ").iter().all(|line| line.contains(" copied ")), "{report}");
    let (_, report) = pipeline(&[&command("source"), "cat", &command("sink")]);
    assert_eq!((said(&report, "read ").len(), said(&report, "sink ").len()), (0, 1));
    let (output, report) = pipeline(&[&command("lines"), &command("filter"), "tail -n 1"]);
    assert_eq!((&output[..], said(&report, "lines ")), (&b"line 99999\n"[..], vec!["1"]));
}

#[test]
fn lines_of_streams_arrive_in_order_from_one_writer_after_the_other() {
    assert_eq!(roles(&["lines", "reader-of-lines"]), "lines 1\nall lines\n");
    // No call but uf_take_over takes a pipe over.
    assert_eq!(roles(&["lines-unasked", "reader-of-lines"]), "lines 0\nall lines\n");
    // The second writer finds no listener, and the pipe goes on.
    let lines = command("lines");
    let both = format!("(printf 'first\\n'; {lines}; printf 'between\\n'; {lines})");
    let (output, _) = pipeline(&[&both, &command("filter"), "cat"]);
    let found = String::from_utf8(output).unwrap();
    let lines = || (0..100_000).map(|at| format!("line {at}"));
    let expected =
        ["first".to_owned()].into_iter().chain(lines()).chain(["between".to_owned()]).chain(lines());
    assert!(found.lines().eq(expected));
}

#[test]
fn a_writer_whose_reader_ends_is_told_by_the_pipe() {
    let (_, report) = pipeline(&[&command("endless"), "head -c 100000 | wc -c >&2"]);
    assert_eq!(report, "");
    assert_eq!(roles(&["endless", "short"]), "read some\n");
}

/// Once, what the first reader had not read of a channel was freed when it ended, and no error told.
#[test]
fn what_one_reader_has_not_read_the_next_one_reads() {
    for (first, rest) in
        [("part", "rest"), ("part-and-close", "rest"), ("nothing", "sink"), ("late nothing", "sink")]
    {
        for source in ["source", "source-of-many"] {
            let readers = format!("({}; {})", command(first), command(rest));
            let (_, report) = pipeline(&[&command(source), &readers]);
            assert_eq!(said(&report, "sink "), [(COUNT * LENGTH).to_string()], "{source}, {first}");
        }
    }
    // The next program may be any.
    let readers = format!("({}; wc -c)", command("part"));
    let (output, _) = pipeline(&[&command("source"), &readers]);
    assert_eq!(String::from_utf8(output).unwrap().trim(), (COUNT * LENGTH - PART).to_string());
}

/// Once, the rest of the buffer was lost, since it was the reader's while a part was copied.
#[test]
fn what_a_reader_has_not_read_that_is_killed_in_a_read_the_next_one_reads() {
    let readers = format!("({}; {})", command("killed"), command("rest-of-killed"));
    let (_, report) = pipeline(&[&command("source"), &readers]);
    assert_eq!((said(&report, "killed at ").len(), said(&report, "not killed").len()), (1, 0));
    assert_eq!(said(&report, "sink "), [(COUNT * LENGTH).to_string()]);
}

/// Another user's process takes the name that a pipe's ends find each other by, and waits for what it is sent.
#[test]
fn a_stranger_that_has_taken_a_pipes_name_is_sent_nothing() {
    if !rustix::process::geteuid().is_root() {
        let reason = "only root can start a process of another user";
        return skip::skip("a_stranger_that_has_taken_a_pipes_name_is_sent_nothing", reason);
    }
    use std::os::fd::IntoRawFd;

    let (read, write) = std::io::pipe().unwrap();
    let found = rustix::fs::fstat(&read).unwrap();
    let name = format!("genie-fbufs/0/pipe-{:x}-{}", found.st_dev, found.st_ino);
    let mut stranger = Command::new("setpriv");
    stranger.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(std::env::current_exe().unwrap());
    stranger.args(["--exact", "take_a_name", "--ignored", "--nocapture"]).env("NAME", name);
    let mut stranger = stranger.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let said = std::io::BufReader::new(stranger.stdout.take().unwrap()).lines();
    let mut said =
        said.map_while(Result::ok).filter_map(|line| Some(line.strip_prefix("stranger ")?.to_owned()));
    assert_eq!(said.next().unwrap(), "listens");
    let (read, write) = (read.into_raw_fd(), write.into_raw_fd());
    // SAFETY: the ends are the library's from here on; the buffer is this test's.
    unsafe {
        assert_eq!((uf_take_over(write), uf_take_over(read)), (0, 0));
        let sent = uf_allocate(1000);
        sent.cast::<u8>().write_bytes(1, 1000);
        assert_eq!(uf_write(write, sent, 1000), 1000);
        let mut got = null_mut();
        assert_eq!(uf_get(read, &mut got), 1000);
        uf_deallocate(got, 1000);
        assert_eq!(uf_explain(write, null_mut()) & UF_PASSES_FBUFS, 0);
        assert_eq!((uf_close(write), uf_close(read)), (0, 0));
    }
    drop(stranger.stdin.take());
    assert_eq!(said.collect::<Vec<_>>(), ["got 0 bytes and 0 descriptors of user 0"]);
    assert!(stranger.wait().unwrap().success());
}

#[test]
#[ignore = "run by the test above, in a process of another user"]
fn take_a_name() {
    let Ok(name) = std::env::var("NAME") else { return };
    let listener = genie_sys::socket::Listener::bind_name(&name).unwrap();
    println!("\nstranger listens");
    std::io::stdin().lines().for_each(drop);
    while let Some(victim) = listener.accept().unwrap() {
        let got = victim.receive(&mut [0; 100]).unwrap();
        let (len, count, user) = (got.len, got.descriptors.len(), victim.peer().unwrap().uid);
        println!("stranger got {len} bytes and {count} descriptors of user {user}");
    }
}

#[test]
fn what_was_in_the_pipe_comes_before_what_the_channel_brings() {
    use std::os::fd::IntoRawFd;

    let (read, write) = std::io::pipe().unwrap();
    let (read, write) = (read.into_raw_fd(), write.into_raw_fd());
    let mut got = null_mut();
    // SAFETY: the ends are this test's, and then the library's.
    unsafe {
        assert_eq!((uf_take_over(read), uf_take_over(read)), (0, 0), "once more does nothing");
        assert_eq!(uf_explain(read, null_mut()) & (UF_PASSES_FBUFS | UF_PASSES_INPUT), 0);
        assert_eq!(uf_set_nonblocking(read, 1), -1);
        // By the kernel's call, as another program would.
        assert_eq!(libc::write(write, c"plain".as_ptr().cast(), 5), 5);
        assert_eq!(uf_get(read, &mut got), 5, "{}", sentence());
        uf_deallocate(got, 5);
        assert_eq!(libc::write(write, c"first".as_ptr().cast(), 5), 5);
        assert_eq!(uf_take_over(write), 0);
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // SAFETY: as above.
            unsafe {
                for at in 0..8 {
                    let sent = uf_allocate(LENGTH);
                    sent.cast::<u8>().write_bytes(at, LENGTH);
                    assert_eq!(uf_write(write, sent, LENGTH), LENGTH as isize, "{}", sentence());
                }
                assert_ne!(uf_explain(write, null_mut()) & UF_PASSES_FBUFS, 0);
                assert_eq!(uf_close(write), 0);
            }
        });
        let mut all = Vec::new();
        // SAFETY: as above.
        unsafe {
            loop {
                let count = uf_get(read, &mut got);
                assert!(count >= 0, "{}", sentence());
                if count == 0 {
                    break;
                }
                all.extend_from_slice(std::slice::from_raw_parts(got.cast::<u8>(), count as usize));
                uf_deallocate(got, count as usize);
            }
            assert_eq!(uf_close(read), 0);
        }
        assert_eq!((&all[..5], all.len()), (&b"first"[..], 5 + 8 * LENGTH));
        assert!(
            all[5..].chunks(LENGTH).enumerate().all(|(at, part)| part.iter().all(|byte| *byte == at as u8))
        );
    });
}
