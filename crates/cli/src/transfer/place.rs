//! Names of places: a server, and a path beneath its root.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use genie::channel;
use genie::file::{File, is_file_server};
use genie::{Connect, Error, Interface, ServerHandle};

use crate::failure::Failure;

/// The server's name where none is given.
pub(crate) const DEFAULT_NAME: &str = "files";

/// How many bytes a file server caches by default.
pub(crate) const CACHE_BYTES: usize = 64 << 20;

/// A server's name and a path beneath its root: `NAME:PATH`, or `NAME` for all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    /// The server's name.
    pub(crate) server: String,
    /// The path, relative to the server's root; empty for the root.
    pub(crate) path: PathBuf,
}

impl Remote {
    /// Reads `NAME[:PATH]`.
    pub(crate) fn parse(text: OsString) -> Result<Self, String> {
        let bytes = text.into_vec();
        let end = bytes.iter().position(|byte| *byte == b':');
        let (name, path) = bytes.split_at(end.unwrap_or(bytes.len()));
        let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty() && !name.contains('/'));
        let Some(name) = name else {
            let text = OsStr::from_bytes(&bytes);
            return Err(format!(
                "{text:?} names no server: write NAME or NAME:PATH, without \"/\" in the name"
            ));
        };
        let path = OsStr::from_bytes(path.get(1..).unwrap_or_default());
        Ok(Self { server: name.to_owned(), path: path.into() })
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.server, self.path.display())
    }
}

/// Connects to the named server, or serves a directory in this process.
pub(super) fn connect(
    genie: &Interface,
    remote: &Remote,
    in_process: Option<&Path>,
) -> Result<ServerHandle, Failure> {
    let connected = match in_process {
        Some(directory) => {
            Ok(ServerHandle::new(File::open(directory, CACHE_BYTES).map_err(Failure::could_not)?))
        }
        None => genie.connect(&remote.server),
    };
    let server = connected.map_err(|error| unreachable(&remote.server, &error))?;
    if !is_file_server(&server) {
        let names: Vec<_> = server.services().iter().map(|service| &*service.name).collect();
        return Err(Failure::could_not(format!(
            "server \"{}\" is no file server: its services are {}; `genie serve DIRECTORY` starts a file server",
            remote.server,
            names.join(", ")
        )));
    }
    Ok(server)
}

/// The error for a server that cannot be reached; it helps a user who gave a file's name in place of a server's.
fn unreachable(server: &str, error: &Error) -> Failure {
    let servers = match channel::servers() {
        Ok(servers) => servers,
        Err(error) => return Failure::could_not(error),
    };
    if servers.iter().any(|(name, _)| name == server) {
        return Failure::could_not(error);
    }
    let running: Vec<_> =
        servers.iter().filter(|(_, status)| status.is_ok()).map(|(name, _)| name.as_str()).collect();
    let running = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
    Failure::could_not(format!(
        "no server is named \"{server}\"; the file PATH of the server NAME is written NAME:PATH; servers that run: {running}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<(String, PathBuf), String> {
        let remote = Remote::parse(OsString::from_vec(text.to_vec()))?;
        Ok((remote.server, remote.path))
    }

    #[test]
    fn a_server_is_named_with_and_without_a_path() {
        for (text, server, path) in [
            (&b"files"[..], "files", &b""[..]),
            (b"files:", "files", b""),
            (b"files:a/b", "files", b"a/b"),
            (b"files:a:b", "files", b"a:b"),
            (b"files:\xff", "files", b"\xff"),
        ] {
            assert_eq!(parse(text).unwrap(), (server.to_owned(), OsStr::from_bytes(path).into()));
        }
    }

    #[test]
    fn what_names_no_server_is_refused() {
        for text in [&b""[..], b":path", b"a/b:path", b"\xff:path"] {
            assert!(parse(text).unwrap_err().contains("names no server"));
        }
    }
}
