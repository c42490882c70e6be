//! `genie top`: what servers pass, for each of their clients, as it happens.
//!
//! How: servers count, and say how much in answer to a query; the difference of two answers is what was passed in between.

mod rates;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use comfy_table::ContentArrangement;

use crate::failure::Failure;
use crate::servers::none_runs;
use crate::{output, tables};
use rates::{Numbers, Row, Sample, Server, servers};

/// How long servers may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest name that is shown whole.
const NAME: usize = 17;
/// The upper left corner of the terminal, and nothing on it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Show what the servers that run pass, and for which clients: requests, bytes out and in, bytes that were copied and bytes that
/// were passed without copying, each for a second, and the requests that are pending. The table is renewed until you interrupt it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one table. That is also done where standard output is no terminal.
    #[arg(long)]
    once: bool,
    /// How many seconds the numbers are of: from 0.01 to 3600.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("{text:?} is no number of seconds from 0.01 to 3600"))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Shows tables until it is interrupted, or one.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let is_live = !args.once && !args.json && std::io::stdout().is_terminal();
    let mut before = sample()?;
    loop {
        std::thread::sleep(args.interval);
        let now = sample()?;
        let servers = servers(&before, &now);
        match is_live {
            true => {
                output::print_styled(CLEAR)?;
                output::print(&text(&servers, args.interval))?;
            }
            false if args.json => return output::print_json(&servers),
            false => return output::print(&text(&servers, args.interval)),
        }
        before = now;
    }
}

fn sample() -> Result<Sample, Failure> {
    let answers = genie_channel::traffic(PATIENCE).map_err(Failure::could_not)?;
    Ok(Sample { at: Instant::now(), answers })
}

fn text(servers: &[Server], interval: Duration) -> String {
    let answering: Vec<_> = servers.iter().filter(|server| server.error.is_none()).collect();
    let mut text = match (servers, answering.as_slice()) {
        ([], _) => none_runs(),
        (_, []) => String::new(),
        (_, answering) => {
            let seconds = interval.as_secs_f64();
            table(answering)
                + &format!(
                    "rates over the last {seconds} s; a server's row includes clients that have left\n"
                )
        }
    };
    for error in servers.iter().filter_map(|server| server.error.as_deref()) {
        text += &(output::one_line(error) + "\n");
    }
    text
}

fn table(servers: &[&Server]) -> String {
    let headings =
        ["server", "process", "req/s", "fail/s", "out/s", "in/s", "copied/s", "passed/s", "pending"];
    let mut table = tables::new(headings, 1..headings.len());
    table.set_content_arrangement(ContentArrangement::Disabled);
    // Eighty columns are enough for the longest numbers.
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 1));
    });
    for server in servers {
        table.add_row(cells("", &server.row));
        table.add_rows(server.clients.iter().map(|client| cells("  ", client)));
    }
    tables::text(&table)
}

fn cells(indent: &str, row: &Row) -> Vec<String> {
    let name = indent.chars().chain(row.name.chars());
    let is_long = name.clone().count() > NAME;
    let mut name: String = name.take(if is_long { NAME - 1 } else { NAME }).collect();
    if is_long {
        name.push('\u{2026}');
    }
    let Numbers { requests, failures, out_copied, out_passed, in_copied, in_passed } = row.per_second;
    vec![
        name,
        row.pid.to_string(),
        number(requests),
        number(failures),
        bytes(out_copied + out_passed),
        bytes(in_copied + in_passed),
        bytes(out_copied + in_copied),
        bytes(out_passed + in_passed),
        number(row.pending_requests as f64),
    ]
}

/// A number of requests in at most five letters: 0.5, 12345, 12.3M.
fn number(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        few if few < 10.0 => format!("{few:.1}"),
        some if some < 99_999.5 => format!("{some:.0}"),
        many => scaled(many, 1000.0, ["k", "M", "G"]),
    }
}

/// A number of bytes in at most five letters: 512, 4.0K, 12.3G.
fn bytes(bytes: f64) -> String {
    if bytes < 1024.0 { format!("{bytes:.0}") } else { scaled(bytes, 1024.0, ["K", "M", "G"]) }
}

/// A number with three digits or so, and the unit that makes it so short; more than the last unit allows are "lots".
fn scaled(number: f64, step: f64, units: [&str; 3]) -> String {
    let mut left = number;
    for unit in units {
        left /= step;
        match left {
            left if left < 99.95 => return format!("{left:.1}{unit}"),
            left if left < 999.5 => return format!("{left:.0}{unit}"),
            _ => {}
        }
    }
    "lots".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_table_has_eighty_columns() {
        let most = (1u64 << 40) as f64 - 1.0;
        let per_second = Numbers {
            requests: 9_999_999_999.0,
            failures: 99_999_999.0,
            out_copied: most / 2.0,
            out_passed: most / 2.0,
            in_copied: most / 2.0,
            in_passed: most / 2.0,
        };
        let row = |name: &str| Row {
            name: name.repeat(64),
            pid: 4_194_304,
            per_second,
            total: Numbers::default(),
            pending_requests: 9_999_999,
            pending_bytes: 0,
        };
        let server = Server {
            row: row("s"),
            uptime_s: 1,
            interval_s: 1.0,
            clients_total: 1,
            clients: vec![row("\u{e9}")],
            error: None,
        };
        let table = text(&[server], Duration::from_secs(1));
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}: {table}");
        assert_eq!(table.matches('\u{2026}').count(), 2, "{table}");
    }

    #[test]
    fn numbers_are_short_and_of_three_digits() {
        for (count, shown) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (12_345.0, "12345"),
            (123_456.0, "123k"),
            (9e9, "9.0G"),
            (1e300, "lots"),
        ] {
            assert_eq!(number(count), shown);
        }
        for (count, shown) in [(1000.0, "1000"), (1024.0, "1.0K"), (1_047_527.0, "1.0M"), (5e12, "lots")] {
            assert_eq!(bytes(count), shown);
        }
    }

    #[test]
    fn intervals_are_positive_and_not_for_ever() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "1e9", "inf", "nan", "soon", ""] {
            assert!(interval(wrong).unwrap_err().contains("from 0.01 to 3600"), "{wrong}");
        }
    }
}
