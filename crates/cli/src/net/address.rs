//! HOST:PORT on the command line.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The addresses of HOST:PORT, at least one.
pub(crate) fn resolve(text: &str) -> io::Result<Vec<SocketAddr>> {
    let found = text.to_socket_addrs().map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => io::Error::other(format!(
            "\"{text}\" is no HOST:PORT, such as 192.0.2.1:7000, [fd00::1]:7000 or localhost:7000"
        )),
        _ => io::Error::other(format!("the host of \"{text}\" is not known: {error}")),
    })?;
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        Err(io::Error::other(format!("the host of \"{text}\" has no address")))
    } else {
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_said_with_one_that_is() {
        assert_eq!(resolve("[::1]:7").unwrap(), ["[::1]:7".parse().unwrap()]);
        for wrong in ["10.9.0.2", "10.9.0.2:70000", "10.9.0.2:", ""] {
            let error = resolve(wrong).unwrap_err().to_string();
            assert!(
                error.contains(&format!("\"{wrong}\" is no HOST:PORT, such as 192.0.2.1:7000")),
                "{error}"
            );
        }
    }
}
