//! The address of a server, and the revisions that are tried there.

use std::ffi::OsString;
use std::fmt;

use super::error::ConnectError;
use crate::{http_client, printable};

/// The address of a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// A server at this URL, over streamable HTTP.
    Http(String),
    /// A program to start, followed by its arguments; it speaks MCP on its standard input and output.
    Command(Vec<OsString>),
}

impl Target {
    /// Returns the server at `url`.
    ///
    /// # Errors
    /// [`ConnectError::Target`] if `url` is not an http or https address, or is https in a build without the
    /// feature `tls`, or has a user name or a password.
    pub fn http(url: &str) -> Result<Target, ConnectError> {
        let Ok(parsed) = reqwest::Url::parse(url) else {
            return Err(invalid(
                url,
                "expected an address such as http://127.0.0.1:8808/mcp",
            ));
        };
        match http_client::accept_url(&parsed) {
            Ok(()) => Ok(Target::Http(parsed.into())),
            Err(reason) => Err(invalid(url, reason)),
        }
    }

    /// Returns the server that `command`, a program and its arguments, runs.
    ///
    /// # Errors
    /// [`ConnectError::Target`] if `command` is empty.
    pub fn command(command: Vec<OsString>) -> Result<Target, ConnectError> {
        if command.is_empty() {
            return Err(invalid("", "expected a program to start"));
        }
        Ok(Target::Command(command))
    }
}

impl Target {
    /// Returns the end of a message that names the usual path, for an address with another one.
    pub(crate) fn endpoint_hint(&self) -> String {
        let Target::Http(url) = self else {
            return String::new();
        };
        match reqwest::Url::parse(url) {
            Ok(mut url) if !url.path().trim_end_matches('/').ends_with("/mcp") => {
                url.set_path("/mcp");
                let url = Target::Http(url.into());
                format!("; did you mean \"{url}\"?")
            }
            _ => String::new(),
        }
    }
}

fn invalid(target: &str, reason: &str) -> ConnectError {
    ConnectError::Target {
        target: http_client::shown(target).into_owned(),
        reason: reason.to_owned(),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Http(url) => f.write_str(&printable::without_secrets(&http_client::shown(url))),
            // Only the program: arguments may contain secrets, and this text is logged.
            Target::Command(command) => match command.first() {
                Some(program) => f.write_str(&program.to_string_lossy()),
                None => Ok(()),
            },
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Http(url) => f.debug_tuple("Http").field(&http_client::shown(url)).finish(),
            Target::Command(command) => f.debug_tuple("Command").field(command).finish(),
        }
    }
}

/// The protocol revisions to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Era {
    /// The newest revision that the server speaks.
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
    fn http_accepts_http_addresses_only() {
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
                error.starts_with(&format!("cannot reach {url:?}: {expected}")),
                "{error}"
            );
        }
        assert!(Target::command(Vec::new()).is_err());
    }

    #[test]
    fn user_info_is_refused_and_hidden() {
        let error = Target::http("http://user:s3cr3t@h/mcp").unwrap_err().to_string();
        assert!(
            error.contains("\"http://***@h/mcp\": an address with a user name"),
            "{error}"
        );
        let target = Target::Http("http://user:s3cr3t@h/mcp".to_owned());
        assert_eq!(target.to_string(), "http://***@h/mcp");
        assert!(!format!("{target:?}").contains("s3cr3t"));
    }

    #[test]
    fn hint_names_the_usual_path() {
        for (url, expected) in [
            ("http://h/", "; did you mean \"http://h/mcp\"?"),
            ("http://h/foo", "; did you mean \"http://h/mcp\"?"),
            ("http://h/a/mcp/", ""),
        ] {
            assert_eq!(Target::http(url).unwrap().endpoint_hint(), expected);
        }
    }

    #[test]
    fn display_hides_the_arguments() {
        let target = Target::command(vec!["server".into(), "--token=x".into()]).unwrap();
        assert_eq!(target.to_string(), "server");
        let target = Target::Http("http://ann:secret@h/mcp?token=secret".to_owned());
        assert_eq!(target.to_string(), "http://***@h/mcp?***");
    }
}
