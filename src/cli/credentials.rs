//! The arguments of every subcommand that speaks to a server: its address, and the credentials for it.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{CliError, usage};
use crate::client::{Credentials, CredentialsError, OAuthClient};
use crate::credentials::Challenge;

/// The variable with a token, for callers that have no file.
const TOKEN_VARIABLE: &str = "TIDINGS_TOKEN";

/// The remedy for a server that refuses the client.
const REMEDY: &str = "name a file with a token that it accepts by --token-file, or set TIDINGS_TOKEN, or add another header by --header";

/// A text of the command line that no message repeats.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Hidden(String);

impl From<String> for Hidden {
    fn from(text: String) -> Hidden {
        Hidden(text)
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The credentials for a server over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Credentials")]
#[serde(default)]
pub(super) struct CredentialsArgs {
    /// The token of a saved context.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Hidden>,
    /// Header of every request, such as 'X-Key: abc'; may be given several times
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<Hidden>,
    /// File with a bearer token, read again when it changes or the token is refused; TIDINGS_TOKEN in the
    /// environment is the token itself
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    /// Id of an OAuth client, whose tokens are obtained when the server asks for one: with its own secret, or
    /// else with the consent of a user, for which an address to open is printed
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oauth_client_id: Option<String>,
    /// File with the secret of the OAuth client
    #[arg(long, value_name = "FILE", requires = "oauth_client_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oauth_client_secret_file: Option<PathBuf>,
    /// Scope to ask for besides those that the server names; may be given several times
    #[arg(long, value_name = "SCOPE", requires = "oauth_client_id")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    oauth_scope: Vec<String>,
    /// Ask a user although the OAuth client has a secret
    #[arg(long, requires = "oauth_client_id")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    oauth_user: bool,
    /// PEM file with the certificate, and the chain below its authority, that is presented over https
    #[arg(long, value_name = "FILE", requires = "client_key")]
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    #[serde(skip_serializing_if = "Option::is_none")]
    client_key: Option<PathBuf>,
    /// PEM file with the authorities that may certify the server, in place of the system's
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_certificate: Option<PathBuf>,
}

impl CredentialsArgs {
    /// Returns true if the arguments name no credentials.
    pub(super) fn is_empty(&self) -> bool {
        *self == CredentialsArgs::default()
    }

    /// Keeps a token beside the others, as a saved context has it.
    pub(super) fn set_token(&mut self, token: String) {
        self.token = Some(Hidden(token));
    }

    /// Adds headers, each written as `NAME: VALUE`, in front of the others.
    #[cfg(feature = "check")]
    pub(super) fn add_headers(&mut self, headers: Vec<String>) {
        self.headers.splice(0..0, headers.into_iter().map(Hidden));
    }

    /// Makes the paths of files independent of the current folder.
    pub(super) fn make_absolute(&mut self) -> std::io::Result<()> {
        let paths = [
            &mut self.token_file,
            &mut self.oauth_client_secret_file,
            &mut self.client_certificate,
            &mut self.client_key,
            &mut self.ca_certificate,
        ];
        for path in paths.into_iter().flatten() {
            *path = std::path::absolute(&*path)?;
        }
        Ok(())
    }

    /// Describes them line by line, without a secret.
    pub(super) fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.token.is_some() {
            lines.push("token: saved".to_owned());
        }
        for Hidden(header) in &self.headers {
            let (name, _) = header.split_once(':').unwrap_or_default();
            lines.push(format!("header: {}: ***", name.trim()));
        }
        for (name, path) in [
            ("token file", &self.token_file),
            ("client secret file", &self.oauth_client_secret_file),
            ("client certificate", &self.client_certificate),
            ("client key", &self.client_key),
            ("CA certificate", &self.ca_certificate),
        ] {
            if let Some(path) = path {
                lines.push(format!("{name}: {}", path.display()));
            }
        }
        if let Some(id) = &self.oauth_client_id {
            lines.push(format!("OAuth client: {id}"));
        }
        lines
    }

    /// Returns the credentials of the arguments and of the environment for the server at `url`.
    pub(super) fn read(&self, subcommand: &str, url: &str) -> Result<Credentials, CliError> {
        let token = match std::env::var(TOKEN_VARIABLE) {
            Ok(token) => Some(token),
            Err(std::env::VarError::NotPresent) => None,
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(usage(subcommand, &format!("{TOKEN_VARIABLE} is not text")));
            }
        };
        let read = self.with_environment(url, token.as_deref());
        read.map_err(|error| usage(subcommand, &error.to_string()))
    }

    fn oauth_client(&self) -> Option<OAuthClient> {
        let id = self.oauth_client_id.as_deref()?;
        let client = match &self.oauth_client_secret_file {
            Some(file) if !self.oauth_user => OAuthClient::with_secret(id, file),
            Some(file) => OAuthClient::with_user(id, ask_to_open).and_secret(file),
            None => OAuthClient::with_user(id, ask_to_open),
        };
        Some(client.scopes(self.oauth_scope.iter().map(String::as_str)))
    }

    /// Returns the credentials; `token` counts if the arguments say nothing about who the client is.
    fn with_environment(&self, url: &str, token: Option<&str>) -> Result<Credentials, CredentialsError> {
        let mut credentials = Credentials::default();
        for Hidden(header) in &self.headers {
            // Without a colon both are empty, and the error is that of a header without a name.
            let (name, value) = header.split_once(':').unwrap_or_default();
            credentials = credentials.with_header(name.trim(), value)?;
        }
        if let (Some(certificate), Some(key)) = (&self.client_certificate, &self.client_key) {
            credentials = credentials.with_certificate(certificate, key);
        }
        if let Some(path) = &self.ca_certificate {
            credentials = credentials.with_authorities(path);
        }
        let has_header = credentials.has_authorization();
        match (&self.token_file, self.oauth_client()) {
            (None, None) => {}
            (Some(path), None) if !has_header => return Ok(credentials.with_token_file(path)),
            (None, Some(client)) if !has_header => return client.authorize(url, credentials),
            _ => {
                let reason = "a header Authorization, --token-file and --oauth-client-id say each who the client is: \
                              leave one";
                return Err(CredentialsError::Invalid(reason.to_owned()));
            }
        }
        let saved = match &self.token {
            Some(Hidden(token)) => Some(token.as_str()),
            None => token,
        };
        match saved {
            Some(token) if !credentials.has_authorization() && !token.is_empty() => {
                let with_token = credentials.with_token(token);
                with_token.map_err(|error| CredentialsError::Invalid(format!("{TOKEN_VARIABLE}: {error}")))
            }
            _ => Ok(credentials),
        }
    }
}

/// Prints the address that the user is to open.
fn ask_to_open(address: &str) {
    let line = format!("open this address in a browser on this machine to authorize: {address}\n");
    if let Err(error) = std::io::stderr().write_all(line.as_bytes()) {
        tracing::warn!(%error, "the address to open could not be printed");
    }
}

/// Returns the error of a command that `server` does not let in.
pub(super) fn denial(server: impl fmt::Display, challenge: &Challenge) -> CliError {
    denied(format!("{server} does not let this client in: {challenge}"))
}

/// Returns the error of a command that a server does not let in, for this reason.
pub(super) fn denied(reason: impl fmt::Display) -> CliError {
    CliError::Denied(format!("{reason}; {REMEDY}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Exit};
    use clap::Parser;

    const SECRET: &str = "s3cr3t";

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        credentials: CredentialsArgs,
    }

    fn parse(arguments: &[&str]) -> CredentialsArgs {
        let line = ["x"].iter().chain(arguments);
        Only::try_parse_from(line).unwrap().credentials
    }

    /// Returns the headers of a request, each as one line.
    async fn headers(arguments: &[&str], token: Option<&str>) -> Result<Vec<String>, CredentialsError> {
        let credentials = parse(arguments).with_environment("http://h/mcp", token)?;
        let mut lines = Vec::new();
        for (name, value) in credentials.headers().await? {
            lines.push(format!("{name}: {}", value.to_str().unwrap()));
        }
        Ok(lines)
    }

    #[tokio::test]
    async fn explicit_credentials_win_over_the_variable() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "of-file\n").unwrap();
        let file = file.to_str().unwrap();
        for (arguments, token, expected) in [
            (&[][..], None, &[][..]),
            (&[], Some(""), &[]),
            (&[], Some("of-variable"), &["authorization: Bearer of-variable"]),
            (
                &["--token-file", file],
                Some("of-variable"),
                &["authorization: Bearer of-file"],
            ),
            (
                &["--header", "Authorization: Basic x", "--header", "X-Key:y:z"],
                Some("of-variable"),
                &["authorization: Basic x", "x-key: y:z"],
            ),
        ] {
            assert_eq!(
                headers(arguments, token).await.unwrap(),
                expected,
                "{arguments:?}"
            );
        }
        let twice = headers(&["--header", "Authorization: x", "--token-file", file], None).await;
        assert!(twice.unwrap_err().to_string().contains("--token-file"));
    }

    #[tokio::test]
    async fn misuse_does_not_repeat_the_secret() {
        for (arguments, token) in [
            (&["--header", SECRET][..], None),
            (&["--header", "X Y: s3cr3t"], None),
            (&["--header", "X: s3cr3t\u{7}"], None),
            (&[], Some("two s3cr3t")),
        ] {
            let error = headers(arguments, token).await.unwrap_err().to_string();
            assert!(!error.contains(SECRET), "{error}");
        }
        assert!(!format!("{:?}", parse(&["--header", SECRET])).contains(SECRET));
    }

    #[test]
    fn address_with_user_info_is_refused_unseen() {
        for address in ["http://user:s3cr3t@h:1", "http://user:s3cr3t@h:x", "s3cr3t@h"] {
            let line = ["tidings", "publish", "demo://a", "--url", address];
            let Ok(Cli {
                command: crate::cli::Command::Put(publish),
                ..
            }) = Cli::try_parse_from(line)
            else {
                panic!("{address}");
            };
            assert!(!format!("{publish:?}").contains(SECRET));
            let error = publish.run().unwrap_err();
            assert_eq!(error.exit(), Exit::Usage);
            assert!(!error.to_string().contains(SECRET), "{error}");
        }
    }
}
