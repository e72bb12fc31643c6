//! The server that a command speaks to: its address and credentials, from the command line, the environment
//! or a saved context, and the requests to the HTTP API of a service.
//!
//! Credentials that are saved for one address are never presented to another one.

use std::time::Duration;

use clap::Args;
use percent_encoding::utf8_percent_encode;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::address::{self, ServiceUrl};
use super::context::Contexts;
use super::credentials::{CredentialsArgs, denial};
use super::{CliError, usage};
use crate::ResourceUri;
use crate::client::{Credentials, Target};
use crate::http_client::{self, SendError};
use crate::uri_encoding::EXCEPT_UNRESERVED;

/// The default address of a service.
const URL_DEFAULT: &str = "http://127.0.0.1:8808";

/// The variable with an address, and the one with the name of a saved context.
const URL_VARIABLE: &str = "TIDINGS_URL";
const CONTEXT_VARIABLE: &str = "TIDINGS_CONTEXT";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The limit on the size of a JSON answer in bytes: the largest page of a service is far below.
const JSON_BYTES_MAX: usize = 64 << 20;

/// The choice of a server that is not named by its address.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ServerArgs {
    /// Saved context with the address and the credentials, see `tidings context` [env: TIDINGS_CONTEXT]
    #[arg(short, long, value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    credentials: CredentialsArgs,
}

/// The service that a command speaks to.
#[derive(Debug, Clone, Args)]
pub(super) struct ServiceArgs {
    /// Address of the service, with or without /mcp [env: TIDINGS_URL] [default: http://127.0.0.1:8808]
    #[arg(short, long, conflicts_with = "context")]
    url: Option<ServiceUrl>,
    #[command(flatten)]
    server: ServerArgs,
}

/// The places besides the address on the command line that may name a server.
struct Sources {
    context: Option<String>,
    url_variable: Option<String>,
    context_variable: Option<String>,
}

impl Sources {
    /// Returns the address and its credentials, if there are some: of the context that was asked for, of the
    /// variables, of the context in use, or the default.
    fn choose(
        self,
        contexts: impl Fn() -> Result<Contexts, CliError>,
    ) -> Result<(ServiceUrl, Option<CredentialsArgs>), CliError> {
        let name = match (self.context, self.url_variable, self.context_variable) {
            (Some(name), _, _) => name,
            (None, Some(url), _) => return Ok((ServiceUrl::from(url), None)),
            (None, None, Some(name)) => name,
            (None, None, None) => match contexts()?.current {
                Some(name) => name,
                None => return Ok((ServiceUrl::from(URL_DEFAULT.to_owned()), None)),
            },
        };
        let saved = contexts()?.take(&name)?;
        Ok((ServiceUrl::from(saved.url), Some(saved.credentials)))
    }
}

/// Returns a variable of the environment that is set to something.
fn variable(name: &str) -> Option<String> {
    // Text that is not UTF-8 is an address or a name of nothing.
    let text = std::env::var_os(name)?.to_string_lossy().into_owned();
    (!text.trim().is_empty()).then_some(text)
}

impl ServerArgs {
    /// Returns the address of the service and the credentials for it.
    fn service(
        &self,
        subcommand: &str,
        url: Option<&ServiceUrl>,
    ) -> Result<(ServiceUrl, Credentials), CliError> {
        // Read here rather than by clap, which cannot tell a variable from an option of the same name.
        let sources = Sources {
            context: self.context.clone(),
            url_variable: variable(URL_VARIABLE),
            context_variable: variable(CONTEXT_VARIABLE),
        };
        // An address on the command line wins, and gets no credentials of a context.
        let (url, saved) = match url {
            Some(url) => (url.clone(), None),
            None => sources.choose(Contexts::load)?,
        };
        url.accept(subcommand)?;
        let credentials = match saved {
            // Mixed credentials would say twice who the client is, so those of the command line replace all.
            Some(saved) if self.credentials.is_empty() => saved.read(subcommand, url.as_str())?,
            _ => self.credentials.read(subcommand, url.as_str())?,
        };
        Ok((url, credentials))
    }

    /// Returns the MCP server at an address, or that of the chosen service if none is given, and the
    /// credentials for it.
    pub(super) fn target(
        &self,
        subcommand: &str,
        address: Option<&str>,
    ) -> Result<(Target, Credentials), CliError> {
        let Some(text) = address else {
            let (url, credentials) = self.service(subcommand, None)?;
            return Ok((Target::Http(url.endpoint()), credentials));
        };
        // Silently preferring one of the two would send a request to the wrong server.
        if self.context.is_some() {
            let message = "an address and --context name each a server: leave one";
            return Err(usage(subcommand, message));
        }
        let url = address::endpoint(text).map_err(|reason| usage(subcommand, &reason))?;
        let credentials = self.credentials.read(subcommand, url.as_str())?;
        Ok((Target::Http(url.into()), credentials))
    }

    /// Returns true if the command line names a context.
    pub(super) fn has_context(&self) -> bool {
        self.context.is_some()
    }

    /// Returns the credentials of the command line and the environment for a server that is known.
    #[cfg(feature = "bench")]
    pub(super) fn credentials(&self, subcommand: &str, url: &str) -> Result<Credentials, CliError> {
        self.credentials.read(subcommand, url)
    }

    /// Adds headers, each written as `NAME: VALUE`, in front of those of the command line.
    #[cfg(feature = "check")]
    #[must_use]
    pub(super) fn with_headers(mut self, headers: Vec<String>) -> ServerArgs {
        self.credentials.add_headers(headers);
        self
    }

    /// Refuses options that are of no use to a program that is started.
    pub(super) fn refuse_for_program(&self, subcommand: &str) -> Result<(), CliError> {
        if self.context.is_none() && self.credentials.is_empty() {
            return Ok(());
        }
        let message = "credentials are for a server at an address: a program takes its own from its \
                       environment";
        Err(usage(subcommand, message))
    }
}

impl ServiceArgs {
    /// Prepares requests to the service.
    pub(super) fn open(&self, subcommand: &str) -> Result<Service, CliError> {
        self.open_within(subcommand, ANSWER_TIMEOUT)
    }

    /// Prepares requests that have to be answered within `timeout`.
    pub(super) fn open_within(&self, subcommand: &str, timeout: Duration) -> Result<Service, CliError> {
        let (url, credentials) = self.server.service(subcommand, self.url.as_ref())?;
        let client = http_client::builder_with(url.as_str(), &credentials)
            .map_err(CliError::failed)?
            .connect_timeout(CONNECT_TIMEOUT.min(timeout))
            // Of each read, as a body may be large.
            .read_timeout(timeout)
            .build()
            .map_err(CliError::failed)?;
        Ok(Service {
            url,
            client,
            credentials,
        })
    }
}

/// A service, and the credentials for it.
pub(super) struct Service {
    pub(super) url: ServiceUrl,
    client: Client,
    credentials: Credentials,
}

impl Service {
    /// Begins a request for a path, which begins with a slash.
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url.at(path))
    }

    /// Sends a request and returns the answer, whose status may be an error's.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, CliError> {
        let sent = http_client::send(request, &self.credentials).await;
        let answer = sent.map_err(|error| match error {
            SendError::Http(error) => self.no_answer(&error),
            SendError::Credentials(error) => CliError::failed(error),
        })?;
        match http_client::challenge(&answer) {
            Some(challenge) => Err(denial(&self.url, &challenge)),
            None => Ok(answer),
        }
    }

    /// Sends a request and returns the answer of a success.
    pub(super) async fn ask(&self, request: RequestBuilder) -> Result<Response, CliError> {
        self.success(self.send(request).await?).await
    }

    /// Returns an answer unless its status is an error's.
    pub(super) async fn success(&self, answer: Response) -> Result<Response, CliError> {
        // 304 is the answer to a condition that the caller has set.
        let status = answer.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        // Taken before the body is, which consumes the answer.
        let asked = answer.url().to_string();
        // A body that breaks off says no more than the status does.
        let text = self.bytes(answer, JSON_BYTES_MAX).await.unwrap_or_default();
        let problem = describe_problem(&asked, status, &String::from_utf8_lossy(&text));
        Err(CliError::Failed(problem))
    }

    /// Reads the JSON at a path.
    pub(super) async fn json(&self, path: &str) -> Result<Value, CliError> {
        let answer = self.ask(self.request(Method::GET, path)).await?;
        let body = self.bytes(answer, JSON_BYTES_MAX).await?;
        serde_json::from_slice(&body).map_err(|_| {
            let text = format!("{} answered {path} with something else than JSON", self.url);
            CliError::Failed(format!("{text}; name the address of a Tidings service"))
        })
    }

    /// Reads a whole body of at most `limit` bytes.
    pub(super) async fn bytes(&self, mut answer: Response, limit: usize) -> Result<Vec<u8>, CliError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(&mut answer).await? {
            // Before the part is kept, so that no server fills the memory.
            if body.len() + chunk.len() > limit {
                let text = format!("{} answered with more than {limit} bytes", self.url);
                return Err(CliError::Failed(text));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Reads the next part of a body; none at its end.
    pub(super) async fn chunk(&self, answer: &mut Response) -> Result<Option<Vec<u8>>, CliError> {
        match answer.chunk().await {
            Ok(chunk) => Ok(chunk.map(Into::into)),
            Err(error) => Err(self.no_answer(&error)),
        }
    }

    fn no_answer(&self, error: &reqwest::Error) -> CliError {
        let cause = innermost(error);
        if !error.is_connect() {
            return CliError::Failed(format!("{} did not answer: {cause}", self.url));
        }
        CliError::Unavailable(format!(
            "cannot reach {}: {cause}; start a service with \"tidings serve\", or name its address with --url, \
             {URL_VARIABLE} or a context",
            self.url
        ))
    }
}

/// Returns the path of a resource in the HTTP API.
pub(super) fn resource_path(uri: &ResourceUri) -> String {
    format!("/v1/resources/{}", segment(uri.as_str()))
}

/// Encodes a text as one segment of a path or one value of a query.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, EXCEPT_UNRESERVED).to_string()
}

/// Returns the items of a list.
pub(super) fn items(page: &Value) -> &[Value] {
    match page.get("items").and_then(Value::as_array) {
        Some(items) => items,
        None => &[],
    }
}

pub(super) fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the innermost cause; reqwest's outer errors only say that sending failed.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// The problem details of RFC 9457, every member of which is optional.
#[derive(Default, Deserialize)]
struct ProblemDetails {
    title: Option<String>,
    detail: Option<String>,
}

/// Describes a refusal in the service's own words, or else by its status and the address that was asked.
pub(super) fn describe_problem(asked: &str, status: StatusCode, body: &str) -> String {
    // A proxy in front of the service may answer with HTML.
    let problem: ProblemDetails = serde_json::from_str(body).unwrap_or_default();
    let reason = status.canonical_reason().unwrap_or("unknown status");
    let title = match problem.title {
        Some(title) => title,
        None => format!("{} {reason}", status.as_u16()),
    };
    match problem.detail {
        Some(detail) => format!("{title}: {detail}"),
        None => format!(
            "{} answered {title}; is that the address of a Tidings service, such as {URL_DEFAULT}?",
            http_client::shown(asked)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> Result<Contexts, CliError> {
        let text = r#"{
            "current": "used",
            "context": {"used": {"url": "http://used"}, "other": {"url": "http://other/mcp", "token": "s"}}
        }"#;
        Ok(Contexts::parse(text).unwrap())
    }

    #[test]
    fn nearest_source_names_the_server() {
        let some = |text: &str| Some(text.to_owned());
        for (context, url_variable, context_variable, expected) in [
            (some("other"), some("http://v"), some("used"), "http://other/"),
            (None, some("9"), some("other"), "http://127.0.0.1:9/"),
            (None, None, some("other"), "http://other/"),
            (None, None, None, "http://used/"),
        ] {
            let sources = Sources {
                context,
                url_variable,
                context_variable,
            };
            let (url, credentials) = sources.choose(contexts).unwrap();
            assert_eq!(url.as_str(), expected);
            // The credentials of a context stay with its address.
            assert_eq!(credentials.is_some(), !expected.contains("127"), "{expected}");
        }
        let nothing = || Sources {
            context: None,
            url_variable: None,
            context_variable: None,
        };
        let (url, _) = nothing().choose(|| Ok(Contexts::default())).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:8808/");
        let unknown = Sources {
            context: some("gone"),
            ..nothing()
        };
        let error = unknown.choose(contexts).unwrap_err().to_string();
        assert!(
            error.contains("no saved context \"gone\"") && error.contains("other, used"),
            "{error}"
        );
    }

    #[test]
    fn refusal_is_in_the_words_of_the_service() {
        for (body, expected) in [
            (
                r#"{"type":"about:blank","title":"Changed meanwhile","detail":"demo://a is at v4-7","status":412}"#,
                "Changed meanwhile: demo://a is at v4-7",
            ),
            (
                "<html>",
                "http://h/x answered 412 Precondition Failed; is that the address of a Tidings service, such as \
                 http://127.0.0.1:8808?",
            ),
            (r#"{"detail":"no"}"#, "412 Precondition Failed: no"),
        ] {
            let text = describe_problem("http://h/x", StatusCode::PRECONDITION_FAILED, body);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn program_takes_no_credentials() {
        let mut server = ServerArgs::default();
        assert!(server.refuse_for_program("watch").is_ok());
        server.context = Some("a".to_owned());
        let error = server.refuse_for_program("watch").unwrap_err();
        assert_eq!(error.exit(), crate::cli::Exit::Usage);
        assert!(server.target("watch", Some("http://h")).is_err());
    }
}
