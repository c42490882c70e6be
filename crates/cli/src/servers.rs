//! `genie servers`: which servers run, what they offer, and to whom.

use genie_channel::Status;
use genie_channel::directory::Directory;
use genie_io::Error;
use genie_lab::length;
use serde::Serialize;

use crate::failure::Failure;

use crate::{output, tables};

/// List the servers that run, with their services, clients and pending bytes. Killed servers whose sockets are still there are named
/// below them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

/// A server as it is printed.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    facts: Option<Facts>,
    /// Why the server's status is not known.
    error: Option<String>,
    /// It was killed: only its socket is still there.
    #[serde(skip)]
    is_gone: bool,
}

#[derive(Debug, Serialize)]
struct Facts {
    pid: u32,
    uptime_s: u64,
    services: Vec<String>,
    clients: u32,
    pending_requests: u64,
    pending_bytes: u64,
}

/// Asks all servers for their status.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let servers = genie_channel::servers().map_err(Failure::could_not)?;
    let rows: Vec<Row> = servers
        .into_iter()
        .map(|(name, status)| match status {
            Ok(status) => Row { name, facts: Some(Facts::of(&status)), error: None, is_gone: false },
            Err(error) => {
                let is_gone = matches!(error, Error::NoServer { .. });
                Row { name, facts: None, error: Some(error.to_string()), is_gone }
            }
        })
        .collect();
    if args.json { output::print_json(&rows) } else { output::print(&text(&rows)) }
}

impl Facts {
    fn of(status: &Status) -> Self {
        let pending = status.clients.iter().map(|client| &client.pending);
        Self {
            pid: status.pid,
            uptime_s: status.uptime.as_secs(),
            services: status.services.iter().map(|offer| offer.name.to_string()).collect(),
            clients: status.clients_total,
            pending_requests: saturating_sum(pending.clone().map(|pending| pending.pending_requests.into())),
            pending_bytes: saturating_sum(pending.map(|pending| pending.pending_bytes)),
        }
    }
}

/// The sum of what a server says, however large it says that is.
pub(crate) fn saturating_sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// What is said if there is no server.
pub(crate) fn none_runs() -> String {
    let directory = Directory::open().map(|directory| format!(" in {}", directory.path().display()));
    format!("no server runs{}\n", directory.unwrap_or_default())
}

fn text(rows: &[Row]) -> String {
    let (gone, rows): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.is_gone);
    let mut text = if rows.is_empty() { none_runs() } else { table(&rows) };
    if !gone.is_empty() {
        let names: Vec<_> = gone.iter().map(|row| row.name.as_str()).collect();
        text += &tables::fold(&format!(
            "killed; their sockets remain until servers of the same names start: {}",
            names.join(", ")
        ));
    }
    text
}

/// The services' names, without what typed services add for their clients.
fn names(services: &[String]) -> String {
    let names = services.iter().filter_map(|service| service.split('#').next());
    names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(" ")
}

fn table(rows: &[&Row]) -> String {
    let mut table = tables::new(["server", "process", "up", "clients", "pending", "services"], []);
    for row in rows {
        let cells = match (&row.facts, &row.error) {
            (Some(facts), _) => [
                row.name.clone(),
                facts.pid.to_string(),
                format!("{} s", facts.uptime_s),
                facts.clients.to_string(),
                format!("{} ({})", facts.pending_requests, length::approximate(facts.pending_bytes)),
                names(&facts.services),
            ],
            (None, error) => {
                let none = || "-".to_owned();
                [
                    row.name.clone(),
                    none(),
                    none(),
                    none(),
                    none(),
                    output::one_line(error.as_deref().unwrap_or_default()),
                ]
            }
        };
        table.add_row(cells);
    }
    tables::text(&table)
}
