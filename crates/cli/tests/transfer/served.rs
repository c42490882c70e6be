//! `genie serve` and `genie servers`: a server that starts, is found, is interrupted and is killed.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{MIB, Place, pattern, same};
use crate::running::text;

impl Place {
    fn servers(&self) -> Value {
        let output = self.plain(&["servers", "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON document")
    }
}

#[test]
fn a_server_is_listed_while_it_runs_and_gives_its_name_up_when_it_is_interrupted() {
    let mut place = Place::without_server();
    assert_eq!(place.servers(), Value::Array(Vec::new()));
    let listed = place.plain(&["servers"]).output().unwrap();
    let listed = text(&listed.stdout);
    assert!(listed.starts_with("no server runs in /") && listed.lines().count() == 1, "{listed}");
    for signal in ["-INT", "-TERM"] {
        place.serve(&[]);
        let mut server = place.server.take().unwrap();
        let servers = place.servers();
        assert_eq!((&servers[0]["name"], &servers[0]["pid"]), (&"files".into(), &server.id().into()));
        let services = servers[0]["services"].as_array().unwrap();
        assert!(services.contains(&"fetch".into()) && services.contains(&"commit".into()), "{servers}");
        let killed = Command::new("kill").args([signal, &server.id().to_string()]).status().unwrap();
        assert!(killed.success() && server.wait().unwrap().success());
        assert_eq!(place.servers(), Value::Array(Vec::new()));
    }
}

#[test]
fn a_killed_server_is_not_listed_as_if_it_ran() {
    let mut place = Place::new();
    let mut server = place.server.take().unwrap();
    server.kill().and_then(|()| server.wait()).unwrap();
    let listed = place.plain(&["servers"]).output().unwrap();
    let names = "killed; their sockets remain until servers of the same names start: files";
    let listed = text(&listed.stdout);
    assert!(listed.starts_with("no server runs in /") && listed.lines().last() == Some(names), "{listed}");
    let output = place.plain(&["fetch", "files:file"]).output().unwrap();
    let error = crate::running::assert_fails_in_one_line(&output, 1);
    assert!(error.contains("no server files: ") && error.contains("start it again"), "{error}");
}

#[test]
fn a_name_that_is_taken_and_a_directory_that_is_none_are_refused() {
    let place = Place::new();
    let serve = |directory: &str, name: &str| {
        let output = place.plain(&["serve", directory, "--name", name]).output().unwrap();
        crate::running::assert_fails_in_one_line(&output, 1)
    };
    assert!(serve(".", "files").contains("is running already"));
    assert!(serve("missing", "other").contains("cannot serve files beneath"));
    assert!(serve(".", "no/name").contains("cannot be a server's name"));
    let error = place.refused(&["fetch", "nobody:file"], 1);
    assert!(error.contains("no server is named \"nobody\""), "{error}");
    assert!(error.contains("is written NAME:PATH; servers that run: files"), "{error}");
}

#[test]
fn a_server_for_reading_lets_nobody_store() {
    let mut place = Place::without_server();
    fs::write(place.served("file"), b"bytes").unwrap();
    fs::write(place.here("new"), b"new").unwrap();
    place.serve(&["--read-only"]);
    place.done(&["fetch", "files:file"]);
    same(place.here("file"), b"bytes");
    let error = place.refused(&["store", "new"], 1);
    assert!(error.contains("to be read only"), "{error}");
    assert_eq!(place.names(place.served("")), ["file"]);
}

#[test]
fn mapped_files_are_fetched_and_stored_all_the_same() {
    let mut place = Place::without_server();
    let bytes = pattern(1, 70 * MIB + 5);
    fs::write(place.here("file"), &bytes).unwrap();
    place.serve(&["--mapped"]);
    place.done(&["store", "file"]);
    place.done(&["fetch", "files:file", "back"]);
    same(place.here("back"), &bytes);
}

#[test]
fn a_store_whose_server_was_killed_fails_in_time_and_goes_on_with_the_next_server() {
    let mut place = Place::without_server();
    let bytes = pattern(1, 96 * MIB);
    fs::write(place.here("file"), &bytes).unwrap();
    let part = |place: &Place| {
        let names = place.names(place.served(""));
        names.iter().find(|name| name.ends_with(".part")).map(|name| place.served(name))
    };
    for _ in 0..20 {
        place.serve(&[]);
        let mut store = place.command(&["store", "file"]);
        let mut store = store.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        let stored = || part(&place).and_then(|part| part.metadata().ok()).map_or(0, |of| of.len());
        while store.try_wait().unwrap().is_none() && stored() <= 20 * MIB as u64 {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing is stored");
        }
        let mut server = place.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        let is_done = store.wait().unwrap().success();
        assert_eq!(place.served("file").exists(), is_done, "whole or not at all");
        if part(&place).is_some() {
            break;
        }
        let _ = fs::remove_file(place.served("file"));
    }
    assert!(part(&place).is_some(), "each store was done before its server could be killed");
    place.serve(&[]);
    let summary = place.done(&["store", "file", "--resume"]);
    assert!(summary["kept_bytes"].as_u64().unwrap() >= 8 * MIB as u64, "{summary}");
    same(place.served("file"), &bytes);
    assert_eq!(place.names(place.served("")), ["file"]);
}

#[test]
fn many_clients_fetch_and_store_at_a_time() {
    let place = Place::new();
    let contents: Vec<_> = (0..4).map(|seed| pattern(seed, 9 * MIB)).collect();
    for (at, bytes) in contents.iter().enumerate() {
        fs::write(place.here(&format!("file {at}")), bytes).unwrap();
        fs::write(place.served(&format!("served {at}")), bytes).unwrap();
    }
    let clients: Vec<_> = (0..4)
        .flat_map(|at| {
            [["store".to_owned(), format!("file {at}")], ["fetch".to_owned(), format!("files:served {at}")]]
        })
        .map(|args| place.command(&[&args[0], &args[1]]).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    for mut client in clients {
        assert!(client.wait().unwrap().success());
    }
    for (at, bytes) in contents.iter().enumerate() {
        same(place.served(&format!("file {at}")), bytes);
        same(place.here(&format!("served {at}")), bytes);
    }
}
