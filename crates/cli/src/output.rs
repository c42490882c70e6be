//! Results on standard output: coloured for people, plain for programs, and without an error when nobody reads them.
//!
//! Why: `print!` panics when a reader such as `head` closes the pipe; that is no error of the command.
//! Trust: servers, and whoever names their files, choose words that are printed. This is the one place where such words become
//! harmless: control characters are written out, in text as `\\u{1b}` and in JSON as `\\u001b`.

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};

use genie_channel::is_control;

use crate::failure::Failure;

/// Prints text, whatever a peer may have put into it.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_styled(&harmless(text, |char| char == '\n', |char| char.escape_unicode().to_string()))
}

/// Prints text of the command's own with its colours, or another control sequence. Nothing that a peer said may be in it.
pub(crate) fn print_styled(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::could_not(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a result as one indented JSON document, whose strings are what they were.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print_styled(&harmless(&(text + "\n"), |char| char == '\n', json_escape)),
        Err(error) => Err(Failure::could_not(format!("the result cannot be written as JSON: {error}"))),
    }
}

/// Text in one line, which does to a terminal what letters do.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    harmless(&line, |_| false, |char| char.escape_unicode().to_string()).into_owned()
}

/// Text in which each control character that may not stay is written out, so that no terminal acts on it.
fn harmless(text: &str, stays: impl Fn(char) -> bool, written: impl Fn(char) -> String) -> Cow<'_, str> {
    let acts = |char: char| is_control(char) && !stays(char);
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let write = |mut safe: String, char| {
        if acts(char) {
            safe += &written(char)
        } else {
            safe.push(char)
        }
        safe
    };
    Cow::Owned(text.chars().fold(String::with_capacity(text.len()), write))
}

/// A character as JSON's strings may have it.
fn json_escape(char: char) -> String {
    char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

/// Whether results may be coloured: on a terminal, unless NO_COLOR is set to anything.
pub(crate) fn is_coloured() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server said of a failure was printed as it came, so that it could clear the screen, write the clipboard and turn lines
    /// around.
    #[test]
    fn what_a_peer_said_is_shown_and_not_obeyed() {
        let said =
            "no\x1b[2J\x1b]52;c;aGk=\x07 \u{9b}31m\u{202e}txt.exe\u{2028}\u{61c}\u{2066}\r\n caf\u{e9}";
        let line = one_line(said);
        assert!(!line.contains(is_control), "{line:?}");
        assert_eq!(
            line,
            r"no\u{1b}[2J\u{1b}]52;c;aGk=\u{7} \u{9b}31m\u{202e}txt.exe\u{2028}\u{61c}\u{2066} café"
        );
    }

    #[test]
    fn documents_are_harmless_and_lose_nothing() {
        let said = "a\x1b[2J\u{9b}\u{202e}\u{7f}\u{1f600}\n";
        let text = serde_json::to_string_pretty(&[said]).unwrap();
        let printed = harmless(&text, |char| char == '\n', json_escape);
        assert!(printed.lines().all(|line| !line.contains(is_control)), "{printed:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&printed).unwrap(), [said]);
    }
}
