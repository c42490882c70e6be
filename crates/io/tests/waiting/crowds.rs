//! Crowds: many clients of one server, many servers of one client, many threads of each.

use genie_io::channel::ServeOptions;
use genie_io::{Interface, ServerHandle};
use genie_memory::Mapping;

use super::stage::{Stage, assert_idle, await_clients, interface, memory, options, store_and_fetch};

/// Has so many threads store and fetch, each at the next of the servers.
fn crowd(interface: &Interface, servers: &[ServerHandle], threads: u32, rounds: u32, first: u32) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for round in 0..rounds {
                    let server = &servers[(thread + round) as usize % servers.len()];
                    // One name for each thread, client and server.
                    store_and_fetch(interface, server, first + thread, round);
                }
            });
        }
    });
}

#[test]
fn eight_clients_of_four_threads_share_a_server_of_two() {
    let stage = Stage::new();
    let serving = stage.bind("memory", memory(), ServeOptions { threads: 2, ..options() });
    let running = serving.start().unwrap();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let interface = interface();
            let server = stage.connect(&interface, "memory");
            (interface, server)
        })
        .collect();
    await_clients(&running, 8);
    std::thread::scope(|scope| {
        for (number, (interface, server)) in (0..).zip(&clients) {
            scope.spawn(move || crowd(interface, std::slice::from_ref(server), 4, 60, number * 4));
        }
    });
    clients.iter().for_each(|(interface, _)| assert_idle(interface));
}

#[test]
fn one_client_of_four_threads_has_eight_servers() {
    let stage = Stage::new();
    let names: Vec<String> = (0..8).map(|number| format!("memory-{number}")).collect();
    let _running: Vec<_> = names.iter().map(|name| stage.serve(name, memory())).collect();
    let interface = interface();
    let servers: Vec<_> = names.iter().map(|name| stage.connect(&interface, name)).collect();
    crowd(&interface, &servers, 4, 80, 0);
    assert_idle(&interface);
}

#[test]
fn clients_come_and_go_while_others_are_served() {
    let stage = Stage::new();
    let options = ServeOptions { threads: 2, mapping: Mapping::Transient, ..options() };
    let running = stage.bind("memory", memory(), options).start().unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let stage = &stage;
            scope.spawn(move || {
                for round in 0..15 {
                    let interface = interface();
                    let server = stage.connect(&interface, "memory");
                    crowd(&interface, std::slice::from_ref(&server), 1, 4, number * 100 + round);
                    assert_idle(&interface);
                }
            });
        }
    });
    await_clients(&running, 0);
}
