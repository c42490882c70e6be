//! What was passed between two samples.
//!
//! How: servers are known by their instances, clients by their numbers. A client that is new in the second sample has connected
//! in between, so all that it has passed counts. What was passed for clients that have left is part of their server's numbers.

use std::time::{Duration, Instant};

use genie_channel::{Answer, ClientCounts, Counts, Status, Traffic};
use genie_io::Error;
use serde::Serialize;

use crate::servers::saturating_sum;

/// All servers' answers, and when they were there.
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) answers: Vec<Answer<(Status, Traffic)>>,
}

/// A server as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Server {
    #[serde(flatten)]
    pub(super) row: Row,
    pub(super) uptime_s: u64,
    /// What the rates are of.
    pub(super) interval_s: f64,
    pub(super) clients_total: u32,
    pub(super) clients: Vec<Row>,
    /// Why nothing is known of it.
    pub(super) error: Option<String>,
}

/// A server with all of its clients, or a client.
#[derive(Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) per_second: Numbers<f64>,
    pub(super) total: Numbers<u64>,
    pub(super) pending_requests: u64,
    pub(super) pending_bytes: u64,
}

/// Requests and bytes, as servers count them.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Numbers<T> {
    pub(super) requests: T,
    pub(super) failures: T,
    pub(super) out_copied: T,
    pub(super) out_passed: T,
    pub(super) in_copied: T,
    pub(super) in_passed: T,
}

impl<T> Numbers<T> {
    fn of(counts: Counts, number: impl Fn(u64) -> T) -> Self {
        Self {
            requests: number(counts.requests),
            failures: number(counts.failures),
            out_copied: number(counts.out_copied),
            out_passed: number(counts.out_passed),
            in_copied: number(counts.in_copied),
            in_passed: number(counts.in_passed),
        }
    }
}

impl Row {
    fn new(name: &str, pid: u32, counts: Counts, since: Counts, interval: Duration) -> Self {
        let rate = |count| count as f64 / interval.as_secs_f64();
        Self {
            name: name.to_owned(),
            pid,
            per_second: Numbers::of(counts.since(since), rate),
            total: Numbers::of(counts, |count| count),
            ..Self::default()
        }
    }
}

/// What the servers of the second sample have passed since the first one. Killed servers, whose sockets are still there, are
/// left out.
pub(super) fn servers(before: &Sample, now: &Sample) -> Vec<Server> {
    let interval = now.at - before.at;
    let earlier = |status: &Status| {
        let mut answers = before.answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        answers.find(|(other, _)| other.instance == status.instance).map(|(_, traffic)| traffic)
    };
    let server = |(name, answer): &Answer<(Status, Traffic)>| match answer {
        Ok((status, traffic)) => Some(server(name, status, traffic, earlier(status), interval)),
        Err(Error::NoServer { .. }) => None,
        Err(error) => Some(Server {
            row: Row { name: name.clone(), ..Row::default() },
            uptime_s: 0,
            interval_s: interval.as_secs_f64(),
            clients_total: 0,
            clients: Vec::new(),
            error: Some(error.to_string()),
        }),
    };
    now.answers.iter().filter_map(server).collect()
}

/// The server that has answered at the socket of this name, whatever it calls itself.
fn server(
    name: &str,
    status: &Status,
    traffic: &Traffic,
    earlier: Option<&Traffic>,
    interval: Duration,
) -> Server {
    // A server that ran before, but gave no answer then, shows no rates yet.
    let earlier = earlier.or((status.uptime > interval).then_some(traffic));
    let before = |client: u64| {
        let mut clients = earlier.iter().flat_map(|traffic| &traffic.clients);
        clients.find(|other| other.client == client).map(|other| other.counts).unwrap_or_default()
    };
    let clients: Vec<_> = status
        .clients
        .iter()
        .zip(&traffic.clients)
        .map(|(client, ClientCounts { client: number, counts })| Row {
            pending_requests: client.pending.pending_requests.into(),
            pending_bytes: client.pending.pending_bytes,
            ..Row::new(&client.name, client.pid, *counts, before(*number), interval)
        })
        .collect();
    let total = earlier.map(Traffic::total).unwrap_or_default();
    Server {
        row: Row {
            pending_requests: saturating_sum(clients.iter().map(|client| client.pending_requests)),
            pending_bytes: saturating_sum(clients.iter().map(|client| client.pending_bytes)),
            ..Row::new(name, status.pid, traffic.total(), total, interval)
        },
        uptime_s: status.uptime.as_secs(),
        interval_s: interval.as_secs_f64(),
        clients_total: status.clients_total,
        clients,
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use genie_channel::{ClientStatus, Limits};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn answers(
        instance: u64,
        uptime: Duration,
        departed: u64,
        clients: &[(u64, u64)],
    ) -> Answer<(Status, Traffic)> {
        let counts = |requests| Counts { requests, ..Counts::default() };
        let client =
            |(client, requests): &(u64, u64)| ClientCounts { client: *client, counts: counts(*requests) };
        let status = |_: &_| ClientStatus {
            name: "client".to_owned(),
            pid: 1,
            pending: Limits { pending_bytes: 10, pending_requests: 2 },
        };
        let status = Status {
            name: "what it calls itself".to_owned(),
            instance,
            pid: 1,
            uptime,
            services: Vec::new(),
            clients_total: clients.len() as u32,
            clients: clients.iter().map(status).collect(),
        };
        let traffic = Traffic { departed: counts(departed), clients: clients.iter().map(client).collect() };
        ("server".to_owned(), Ok((status, traffic)))
    }

    /// The rates of the server, and of its clients, between two answers that are half a second apart.
    fn rates(before: Vec<Answer<(Status, Traffic)>>, now: Answer<(Status, Traffic)>) -> (f64, Vec<f64>) {
        let at = Instant::now();
        let now = Sample { at: at + SECOND / 2, answers: vec![now] };
        let servers = servers(&Sample { at, answers: before }, &now);
        assert_eq!(servers[0].row.name, "server");
        let clients = servers[0].clients.iter().map(|client| client.per_second.requests).collect();
        (servers[0].row.per_second.requests, clients)
    }

    #[test]
    fn clients_that_come_and_go_between_the_samples_count() {
        let before = vec![answers(7, SECOND, 5, &[(1, 10), (2, 20)])];
        // The first client made 3 requests and left; the third came and made 4; the fourth came, made 6 and left.
        let now = answers(7, 2 * SECOND, 5 + 13 + 6, &[(2, 25), (3, 4)]);
        assert_eq!(rates(before, now), (36.0, vec![10.0, 8.0]));
    }

    #[test]
    fn a_server_that_was_not_seen_before_has_rates_only_if_it_did_not_run() {
        assert_eq!(rates(Vec::new(), answers(7, SECOND / 4, 2, &[(1, 1)])), (6.0, vec![2.0]));
        assert_eq!(rates(Vec::new(), answers(7, SECOND, 2, &[(1, 1)])), (0.0, vec![0.0]));
        let before = vec![answers(6, SECOND, 90, &[(1, 50)])];
        assert_eq!(
            rates(before, answers(7, SECOND / 4, 0, &[(1, 1)])),
            (2.0, vec![2.0]),
            "another of its name"
        );
    }

    #[test]
    fn what_is_pending_is_added_up() {
        let sample =
            || Sample { at: Instant::now(), answers: vec![answers(7, SECOND, 0, &[(1, 1), (2, 1)])] };
        let servers = servers(&sample(), &sample());
        assert_eq!((servers[0].row.pending_requests, servers[0].row.pending_bytes), (4, 20));
    }

    /// The sum of what a server said was pending overflowed.
    #[test]
    fn a_server_that_says_the_largest_numbers_is_listed_with_them() {
        let most = u64::MAX;
        let (name, answer) = answers(most, Duration::MAX, most, &[(1, most), (2, most)]);
        let (mut status, traffic) = answer.unwrap();
        let pending = Limits { pending_bytes: most, pending_requests: u32::MAX };
        status.clients.iter_mut().for_each(|client| client.pending = pending);
        let later = |seconds, counts: Counts| {
            let clients = traffic.clients.iter().map(|client| ClientCounts { counts, ..*client }).collect();
            let traffic = Traffic { departed: counts, clients };
            Sample {
                at: Instant::now() + seconds * SECOND,
                answers: vec![(name.clone(), Ok((status.clone(), traffic)))],
            }
        };
        let all = |count| Counts {
            requests: count,
            failures: count,
            out_copied: count,
            out_passed: count,
            in_copied: count,
            in_passed: count,
        };
        let listed = servers(&later(0, all(0)), &later(1, all(most)));
        let Row { pending_bytes, pending_requests, total, .. } = listed[0].row;
        assert_eq!((pending_bytes, pending_requests, total.requests), (most, 2 * u64::from(u32::MAX), most));
        // They go backwards, too.
        assert_eq!(servers(&later(0, all(most)), &later(1, all(0)))[0].row.per_second.requests, 0.0);
    }

    #[test]
    fn servers_that_were_killed_are_left_out_and_silent_ones_are_named() {
        let name = || "server".to_owned();
        let killed = (name(), Err(Error::NoServer { server: name(), why: String::new() }));
        let silent = (name(), Err(Error::Silent { server: name(), timeout: SECOND }));
        let before = Sample { at: Instant::now(), answers: Vec::new() };
        let servers = servers(&before, &Sample { at: Instant::now(), answers: vec![killed, silent] });
        assert_eq!(servers.len(), 1);
        assert!(servers[0].error.as_ref().is_some_and(|error| error.contains("not answered within 1s")));
    }
}
