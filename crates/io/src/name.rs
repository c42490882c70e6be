//! Names of clients, servers and services, as peers and people see them.

/// The longest name of a client, server or service, in bytes.
pub const MAX_NAME: usize = 64;

/// Whether a character changes how a terminal shows others: a control character, or one that turns the direction of text or
/// breaks lines. Names on channels have none; what a peer says besides, such as why a request failed, may have any.
pub fn is_control(char: char) -> bool {
    let turns = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(char, '\u{2028}' | '\u{2029}');
    turns || breaks || char.is_control()
}

/// The name of this program's file, as far as it can be a client's name.
pub fn program_name() -> String {
    let program = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = program.as_deref().and_then(std::path::Path::file_name);
    name.map_or_else(String::new, |name| as_name(&name.to_string_lossy()))
}

/// The part of a name that may be told to a peer.
fn as_name(text: &str) -> String {
    let mut name: String = text.chars().filter(|char| !is_control(*char)).collect();
    name.truncate(name.floor_char_boundary(MAX_NAME));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program could not connect to any server if its file's name was long, or had control characters.
    #[test]
    fn any_program_has_a_name_that_peers_can_be_told() {
        assert_eq!(as_name("x\ny\u{7f}"), "xy");
        assert_eq!(as_name(&"\u{7a0b}".repeat(30)), "\u{7a0b}".repeat(21));
        assert_eq!(as_name(&"x".repeat(65)), "x".repeat(64));
    }
}
