//! `genie top`: what a server in another process has passed for its clients.

use std::fs;
use std::process::{Command, Stdio};

use genie::channel::Directory;
use genie::file;
use genie::mechanism::Passing;
use genie::{In, Interface, Limits, Out, ServerHandle};
use genie_channel::{Connect, ConnectOptions};
use genie_memory::{Granularity, GranuleKind, Space};
use genie_passing::Costs;
use serde_json::{Value, json};

use super::Place;
use crate::running::text;

fn connected(place: &Place, name: &str) -> (Interface, ServerHandle) {
    let memory = genie_memory::Config {
        granularity: Granularity::Only(GranuleKind::Base),
        ..genie_memory::Config::default()
    };
    let interface =
        Interface::new(Passing::new(Space::new(&memory).unwrap(), Costs::default()), Limits::default());
    let directory = Directory::at(place.directory.path().join("run")).unwrap();
    let options = ConnectOptions { name: name.to_owned(), ..ConnectOptions::default() };
    let server = interface.connect_with(&directory, "files", &options).unwrap();
    (interface, server)
}

fn top(place: &Place, args: &[&str]) -> String {
    let output = place.plain(&["top", "--once", "--interval", "0.05"]).args(args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn total(row: &Value) -> Value {
    row["total"].clone()
}

#[test]
fn the_traffic_of_each_client_is_counted_to_the_byte() {
    let mut place = Place::without_server();
    assert!(top(&place, &[]).starts_with("no server runs in /"));
    fs::write(place.served("file"), [7; 1000]).unwrap();
    place.serve(&[]);
    let (first, second) = (connected(&place, "first"), connected(&place, "second"));
    let (interface, server) = &first;
    let at = file::at("file", 0);
    for _ in 0..3 {
        let request = interface.request(server, file::STAT).argument(&at).room(file::Attributes::LEN);
        request.send().unwrap();
    }
    interface.request(server, file::STORE).out(Out::copy(&[8; 300])).argument(&at).send().unwrap();
    let mut shared = interface.allocate(5000).unwrap();
    let fetch = || interface.request(server, file::FETCH).argument(&at);
    assert_eq!(fetch().input(In::emulated_share(&mut shared)).send().unwrap().actual(), 1000);
    assert_eq!(fetch().input(In::copy(&mut [0; 600])).send().unwrap().actual(), 600);
    let (interface, server) = &second;
    interface.request(server, file::STAT).argument(&file::at("missing", 0)).send().unwrap_err();

    let servers: Value = serde_json::from_str(&top(&place, &["--json"])).unwrap();
    let files = &servers[0];
    let counts = |requests, failures, out_copied, in_copied, in_passed| {
        json!({
            "requests": requests, "failures": failures, "out_copied": out_copied, "out_passed": 0,
            "in_copied": in_copied, "in_passed": in_passed,
        })
    };
    assert_eq!(
        (&files["name"], &files["clients_total"], &files["error"]),
        (&json!("files"), &json!(2), &Value::Null)
    );
    assert_eq!(
        (&files["clients"][0]["name"], &files["clients"][1]["name"]),
        (&json!("first"), &json!("second"))
    );
    assert_eq!(total(&files["clients"][0]), counts(6, 0, 300, 600, 1000));
    assert_eq!(total(&files["clients"][1]), counts(1, 1, 0, 0, 0));
    assert_eq!(total(files), counts(7, 1, 300, 600, 1000));
    assert_eq!(files["clients"][0]["per_second"]["requests"], json!(0.0), "nothing was asked meanwhile");
    assert_eq!(files["clients"][0]["pid"], json!(std::process::id()));

    let table = top(&place, &[]);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let names: Vec<_> = table.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["server", "files", "first", "second", "rates"], "{table}");

    drop((first, second));
    place.done(&["fetch", "files:file"]);
    // The server may hear a little later that they have left.
    let listed = || serde_json::from_str::<Value>(&top(&place, &["--json"])).unwrap();
    let left = (0..200).map(|_| listed()).find(|servers| servers[0]["clients"] == json!([]));
    let left = left.expect("clients that have left are listed for ever");
    let requests = left[0]["total"]["requests"].as_u64().unwrap();
    assert!(requests > 7, "clients that have left are part of the server's numbers: {requests}");
}

#[test]
fn a_server_that_does_not_answer_is_named_below_the_table() {
    let place = Place::new();
    let pid = place.server.as_ref().unwrap().id().to_string();
    let signal = |signal: &str| {
        let sent = Command::new("kill").args([signal, pid.as_str()]).stdin(Stdio::null()).status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP");
    let table = top(&place, &[]);
    signal("-CONT");
    let said = "server files has not answered within 1s; it may be stopped\n";
    assert_eq!(table, said);
}
