//! The `genie` command: measures what passing data costs on this machine, and finds what the machine lacks for it.
//!
//! Invariants: results go to standard output, everything else to standard error. A failure is one line on standard error,
//! and an exit status of 1 (could not do its work) or 2 (wrong usage). A reader that closes the pipe early is no failure.

mod bar;
mod calibrate;
mod circumstances;
mod compare;
mod doctor;
mod explain;
mod failure;
mod fetch;
mod lab;
mod net;
mod number;
mod output;
mod peer;
mod serve;
mod servers;
mod signals;
mod store;
mod stream;
mod tables;
mod thresholds;
mod top;
mod transfer;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use failure::Failure;

/// I/O in which every buffer says how its data is to be passed.
#[derive(Debug, clap::Parser)]
#[command(name = "genie", version, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Say what Genie finds on this machine, what each lack costs, and which command remedies it.
    Doctor(doctor::Args),
    Compare(compare::Args),
    #[command(hide = true)]
    Peer(peer::Args),
    Calibrate(calibrate::Args),
    Explain(explain::Args),
    Lab(lab::Args),
    Serve(serve::Args),
    Servers(servers::Args),
    Top(top::Args),
    Fetch(fetch::Args),
    Store(store::Args),
    Net(net::Args),
    Stream(stream::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(error) => explain_usage(&error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Peer(args) => peer::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Servers(args) => servers::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Fetch(args) => fetch::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Net(args) => net::run(&args),
        Command::Stream(args) => stream::run(&args),
    }
}

/// Prints help and version as they are; shortens a usage error to one line.
fn explain_usage(error: &clap::Error) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => output::print(&error.render().to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let command = command_of(&error.render().to_string());
            Err(Failure::usage(format!("a subcommand is needed; `{command} --help` lists them")))
        }
        kind => {
            let text = error.render().to_string();
            let message = first_paragraph(&text);
            let accepted = match kind {
                ErrorKind::UnknownArgument => accepted(&command_of(&text), false),
                ErrorKind::InvalidSubcommand => accepted(&command_of(&text), true),
                _ => None,
            };
            Err(Failure::usage(accepted.map_or(message.clone(), |accepted| format!("{message}; {accepted}"))))
        }
    }
}

/// The words of the usage line before its first placeholder: the command that lacks a subcommand.
fn command_of(help: &str) -> String {
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or("genie");
    let words = usage.split_whitespace().take_while(|word| !word.starts_with(['<', '[']));
    words.collect::<Vec<_>>().join(" ")
}

/// What a command, named by its words, accepts: its subcommands, or its options.
fn accepted(command: &str, subcommands: bool) -> Option<String> {
    let mut known = <Cli as clap::CommandFactory>::command();
    known.build();
    let mut words = command.split_whitespace().skip(1);
    let known = words.try_fold(&known, |known, word| known.find_subcommand(word))?;
    let (what, names): (_, Vec<_>) = if subcommands {
        let shown = known.get_subcommands().filter(|one| !one.is_hide_set());
        ("subcommands", shown.map(|one| one.get_name().to_owned()).collect())
    } else {
        let shown = known.get_arguments().filter(|one| !one.is_hide_set());
        ("options", shown.filter_map(|one| Some(format!("--{}", one.get_long()?))).collect())
    };
    Some(format!("the {what} of `{command}` are {}", names.join(", ")))
}

/// The parser's message without its advice, in one line.
fn first_paragraph(text: &str) -> String {
    let words = text.lines().take_while(|line| !line.trim().is_empty()).flat_map(str::split_whitespace);
    let line = words.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_word_that_is_not_known_is_answered_by_those_that_are() {
        let message = |line: &str| {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            explain_usage(&error).unwrap_err().message
        };
        let lab = message("genie lab frobnicate");
        assert!(lab.contains("the subcommands of `genie lab` are list, run, report, compare"), "{lab}");
        let option = message("genie compare --frobnicate");
        assert!(option.contains("the options of `genie compare` are --all, --lengths, --touch"), "{option}");
        assert!(!option.contains("--in-process"), "{option}");
        for (line, accepted) in [
            ("genie compare --touch everybody", "none, client, server, both, full"),
            ("genie compare --outstanding some", "1 to 1024"),
            ("genie compare --rounds 0", "1 to 1000000"),
            ("genie compare --schemes emulated", "emulated weak move"),
            ("genie compare --lengths long", "64, 4K, 16M or 1G"),
            ("genie fetch files --jobs 0", "1 to"),
            ("genie serve . --threads many", "1 to"),
            ("genie lab run all --seed none", "0 to"),
            ("genie lab run all --sittings 100", "1 to 99"),
            ("genie explain sideways 4K 0 copy", "out, in"),
            ("genie fetch files --scheme quick", "emulated copy"),
        ] {
            assert!(message(line).contains(accepted), "{line}: {}", message(line));
        }
    }

    #[test]
    fn schemes_are_accepted_however_their_words_are_joined() {
        for spelled in ["emulated-copy", "emulated copy", "Emulated-Copy", "emulated_copy", "EMULATED COPY"] {
            for line in [
                &["genie", "compare", "--schemes", spelled][..],
                &["genie", "explain", "out", "4K", "0", spelled],
                &["genie", "fetch", "files", "--scheme", spelled],
                &["genie", "store", "file", "--scheme", spelled],
            ] {
                assert!(Cli::try_parse_from(line).is_ok(), "{line:?}");
            }
        }
    }

    #[test]
    fn a_usage_error_of_several_lines_becomes_one() {
        let text = "error: the following arguments were not provided:\n  <OUT>\n\nUsage: genie\n";
        assert_eq!(first_paragraph(text), "the following arguments were not provided: <OUT>");
    }
}
