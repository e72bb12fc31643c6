//! Where a server is, which revisions it is spoken to in, and by which strategy its changes become known.
//!
//! Owns these three values and their texts. It never connects to anything.

use std::ffi::OsString;
use std::fmt;

use super::error::ConnectError;
use crate::http_client;

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Over streamable HTTP, at this address.
    Http(String),
    /// Over the standard input and output of this program, started for us: its name, then its arguments.
    Command(Vec<OsString>),
}

impl Target {
    /// The server at `url`.
    ///
    /// # Errors
    /// [`ConnectError::Target`] when that is no http or https address, or https in a build without the feature `tls`.
    pub fn http(url: &str) -> Result<Target, ConnectError> {
        let refuse = |reason: &str| ConnectError::Target {
            target: url.to_owned(),
            reason: reason.to_owned(),
        };
        let parsed = reqwest::Url::parse(url)
            .map_err(|_| refuse("expected an address such as http://127.0.0.1:8808/mcp"))?;
        http_client::accept(parsed.scheme()).map_err(refuse)?;
        Ok(Target::Http(parsed.into()))
    }

    /// The server that `command`, a program and its arguments, runs.
    ///
    /// # Errors
    /// [`ConnectError::Target`] when it is empty.
    pub fn command(command: Vec<OsString>) -> Result<Target, ConnectError> {
        if command.is_empty() {
            return Err(ConnectError::Target {
                target: String::new(),
                reason: "expected a program to start".to_owned(),
            });
        }
        Ok(Target::Command(command))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Http(url) => f.write_str(url),
            // Arguments may hold secrets: a log line gets the program only.
            Target::Command(command) => f.write_str(
                &command
                    .first()
                    .map_or_else(Default::default, |name| name.to_string_lossy()),
            ),
        }
    }
}

/// Which revisions of the protocol are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Era {
    /// The newest that the server speaks.
    #[default]
    Auto,
    /// 2026-07-28, which has no sessions.
    Modern,
    /// 2025-11-25 and older, which begin with `initialize`.
    Legacy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_addresses_are_targets() {
        assert_eq!(
            Target::http("http://127.0.0.1:1/mcp").unwrap(),
            Target::Http("http://127.0.0.1:1/mcp".to_owned())
        );
        for (url, expected) in [
            ("demo://a", "expected an address that starts with http://"),
            ("h:1", "expected an address"),
            ("", "expected an address such as"),
        ] {
            let error = Target::http(url).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("cannot watch {url:?}: {expected}")),
                "{error}"
            );
        }
        assert!(Target::command(Vec::new()).is_err());
    }

    #[test]
    fn arguments_are_not_shown() {
        let target = Target::command(vec!["server".into(), "--token=x".into()]).unwrap();
        assert_eq!(target.to_string(), "server");
    }
}
