//! `genie compare --server net:…`: datagrams between two network namespaces, by every means.

use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Output};

use genie::net::namespaces::Pair;
use serde_json::Value;

use super::running::{assert_fails_in_one_line, genie, skip, text};
use super::{as_ordinary_user, keys, set};

const SHORT: [&str; 5] = ["--lengths", "64", "--rounds", "1", "--json"];

/// The document, unless a capability is missing.
fn document(test: &str, output: &Output) -> Option<Value> {
    if !output.status.success() {
        let error = assert_fails_in_one_line(output, 1);
        assert!(error.contains("CAP_"), "{error}");
        skip(test, &error);
        return None;
    }
    Some(serde_json::from_slice(&output.stdout).expect("one JSON document"))
}

#[test]
fn datagrams_by_every_means_are_verified_and_set_beside_the_bare_rings() {
    const NAME: &str = "datagrams_by_every_means_are_verified_and_set_beside_the_bare_rings";
    let output = genie(&[&["compare", "--server", "net:veth"], &SHORT[..]].concat()).output().unwrap();
    let Some(document) = document(NAME, &output) else { return };
    assert_eq!(keys(&document), set(["machine", "network", "rounds_dropped", "results"]));
    let rows = document["results"].as_array().unwrap();
    let names = |direction: &str| -> Vec<_> {
        rows.iter()
            .filter(|row| row["direction"] == direction)
            .map(|row| row["by"].as_str().unwrap())
            .collect()
    };
    let common = ["bare-rings", "raw", "datagram-server"];
    let sockets = ["socket-blocking", "socket-spinning", "socket-sendmmsg", "socket-gso"];
    assert_eq!(names("one way"), [&common[..], &sockets].concat());
    assert_eq!(names("there and back"), [&common[..], &["socket-spinning", "socket-blocking"]].concat());
    for row in rows {
        assert_eq!((&row["verified"], &row["length"]), (&Value::Bool(true), &Value::from(64)), "{row}");
        assert!(row["lost"].as_u64().unwrap() < row["sent"].as_u64().unwrap(), "{row}");
        assert!(row["time_us"]["median"].as_f64().unwrap() > 0.0, "{row}");
        for (share, of) in [("of_bare_rings", "bare-rings"), ("of_socket_spinning", "socket-spinning")] {
            let share = row[share].as_f64().unwrap();
            assert!(share > 0.0 && (row["by"] != of || share == 1.0), "{row}");
        }
        assert_eq!(row["direction"] == "one way", row["datagrams_s"].is_f64(), "{row}");
    }
}

/// The other end in a namespace with a name: as `ip netns` has it, in a mount namespace of the command's own.
#[test]
fn an_interface_is_compared_with_one_in_a_namespace_with_a_name() {
    const NAME: &str = "an_interface_is_compared_with_one_in_a_namespace_with_a_name";
    let pair = match Pair::new(1500) {
        Ok(pair) => pair,
        Err(unavailable) => return skip(NAME, &unavailable.to_string()),
    };
    let far = format!("/proc/{}/fd/{}", std::process::id(), pair.ends[1].namespace.as_fd().as_raw_fd());
    let script = "mount -t tmpfs none /run && mkdir /run/netns && touch /run/netns/far && \
                  mount --bind \"$1\" /run/netns/far && shift && exec \"$@\"";
    let compare = |server: &str, more: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", &far, env!("CARGO_BIN_EXE_genie")]);
        command.args(["compare", "--server", server]).args(SHORT).args(more);
        command.env("GENIE_CACHE_DIR", env!("CARGO_TARGET_TMPDIR"));
        pair.ends[0].namespace.enter(|| command.output().unwrap())
    };
    let output = compare("net:genie0,far/genie1", &[]);
    if !output.status.success() && !text(&output.stderr).starts_with("genie: ") {
        return skip(NAME, "no mount namespaces here");
    }
    let Some(document) = document(NAME, &output) else { return };
    assert_eq!(document["network"], "genie0 and genie1 (veth), MTU 1500");
    assert_eq!(document["results"].as_array().unwrap().len(), 12);
    for (server, words) in [
        ("net:genie0,near/genie1", "`ip netns`"),
        ("net:genie0,far/genie7", "genie7"),
        ("net:lo,far/genie1", "on one Ethernet"),
    ] {
        let error = assert_fails_in_one_line(&compare(server, &[]), 1);
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_right_that_is_missing_is_named() {
    const NAME: &str = "a_right_that_is_missing_is_named";
    let mut command = genie(&["compare", "--server", "net:veth", "--lengths", "64"]);
    command.env("GENIE_CACHE_DIR", "/proc/genie");
    let Ok(output) = as_ordinary_user(&mut command).output() else {
        return skip(NAME, "another user may not run the program where it was built");
    };
    let error = assert_fails_in_one_line(&output, 1);
    assert!(error.contains("CAP_SYS_ADMIN"), "{error}");
}

#[test]
fn what_means_nothing_to_datagrams_is_refused() {
    for (args, words) in [
        (&["--server", "net:eth0"][..], "net:IFACE,NETNS/PEER"),
        (&["--server", "elsewhere"], "net:veth"),
        (&["--server", "net:veth", "--schemes", "copy"], "--granule"),
        (&["--server", "net:veth", "--lengths", "7"], "8 bytes"),
        (&["--server", "net:veth", "--lengths", "64,65508"], "65507"),
    ] {
        let error = assert_fails_in_one_line(&genie(&[&["compare"], args].concat()).output().unwrap(), 2);
        assert!(error.contains(words), "{args:?}: {error}");
    }
}
