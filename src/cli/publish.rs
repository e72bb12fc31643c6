//! `tidings publish`: one write, or a batch of them, to the HTTP API of a running service.

mod batch;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderMap, IF_MATCH};
use reqwest::{Method, RequestBuilder, StatusCode};

use super::server::{Service, ServiceArgs, header_text, resource_path};
use super::{CliError, block_on, usage};
use crate::ResourceUri;
use crate::printable;

/// The bytes that a header cannot carry, and the percent sign that encodes them.
const HEADER: &AsciiSet = &CONTROLS.add(b'%');

/// The arguments of `tidings publish`.
#[derive(Debug, Args)]
pub(super) struct Publish {
    /// The resource's URI, such as demo://a
    #[arg(required_unless_present = "batch")]
    uri: Option<ResourceUri>,
    /// File with its body; "-" or nothing is standard input
    file: Option<PathBuf>,
    /// Media type of the body; guessed from the file's name or content unless given
    #[arg(short = 't', long, value_name = "TYPE")]
    media_type: Option<String>,
    /// Title for people
    #[arg(long)]
    title: Option<String>,
    /// Create it; fail where it exists
    #[arg(long, conflicts_with = "if_match")]
    create: bool,
    /// Write only where the resource still has this etag
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
    /// Send many changes: one JSON object a line, from the file or standard input; each answer is a line, too
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        conflicts_with_all = ["uri", "file", "media_type", "title", "create", "if_match"]
    )]
    batch: Option<PathBuf>,
    #[command(flatten)]
    service: ServiceArgs,
}

impl Publish {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let service = self.service.open("put")?;
        match (&self.batch, &self.uri) {
            (Some(file), _) => block_on(self.send_batches(&service, file)),
            (None, Some(uri)) => {
                let line = block_on(self.send(&service, uri, self.body()?))?;
                writeln!(std::io::stdout(), "{}", printable::line(&line))?;
                Ok(())
            }
            (None, None) => Err(usage("put", "name a resource, or use --batch")),
        }
    }

    /// Returns the file, or `None` for standard input.
    fn file(&self) -> Option<&Path> {
        match &self.file {
            Some(path) if path.as_os_str() != "-" => Some(path),
            _ => None,
        }
    }

    fn body(&self) -> Result<Vec<u8>, CliError> {
        match self.file() {
            Some(path) => std::fs::read(path)
                .map_err(|error| CliError::Failed(format!("cannot read {}: {error}", path.display()))),
            None => {
                let mut body = Vec::new();
                let read = std::io::stdin().read_to_end(&mut body);
                read.map_err(|error| CliError::Failed(format!("cannot read standard input: {error}")))?;
                Ok(body)
            }
        }
    }

    /// Sends `body` and returns the line to print.
    async fn send(&self, service: &Service, uri: &ResourceUri, body: Vec<u8>) -> Result<String, CliError> {
        let answer = service.ask(self.request(service, uri, body)).await?;
        // Refusals are errors by now, so the status tells apart what was made and what was there.
        let status = answer.status();
        Ok(describe_outcome(
            uri.as_str(),
            "changed",
            status,
            answer.headers(),
        ))
    }

    fn request(&self, service: &Service, uri: &ResourceUri, body: Vec<u8>) -> RequestBuilder {
        let method = if self.create { Method::POST } else { Method::PUT };
        let media_type = match &self.media_type {
            Some(given) => given.clone(),
            None => guess_media_type(self.file(), &body).to_owned(),
        };
        let mut request = service
            .request(method, &resource_path(uri))
            .header(CONTENT_TYPE, media_type)
            .body(body);
        if let Some(title) = &self.title {
            // A header field cannot carry every character that a title may have.
            request = request.header("Tidings-Title", utf8_percent_encode(title, HEADER).to_string());
        }
        if let Some(etag) = &self.if_match {
            request = request.header(IF_MATCH, quoted(etag));
        }
        request
    }
}

/// Guesses the media type by the file's name, or else by whether the body is text.
fn guess_media_type(file: Option<&Path>, body: &[u8]) -> &'static str {
    if let Some(path) = file
        && let Some(by_name) = mime_guess::from_path(path).first_raw()
    {
        return by_name;
    }
    match std::str::from_utf8(body) {
        Ok(_) => "text/plain",
        Err(_) => "application/octet-stream",
    }
}

/// Quotes an etag for `If-Match`, unless it is quoted already: users copy etags from JSON and from headers.
pub(super) fn quoted(etag: &str) -> String {
    match etag {
        "*" => etag.to_owned(),
        already if already.contains('"') => already.to_owned(),
        bare => format!("\"{bare}\""),
    }
}

/// Describes a successful change on one line; `done` is the word for a change that had an effect.
pub(super) fn describe_outcome(uri: &str, done: &str, status: StatusCode, headers: &HeaderMap) -> String {
    let etag = match header_text(headers, ETAG.as_str()) {
        Some(etag) => etag.trim_start_matches("W/").trim_matches('"'),
        None => "-",
    };
    let notified = header_text(headers, "Tidings-Told").unwrap_or("0");
    let done = if status == StatusCode::CREATED {
        "created"
    } else {
        done
    };
    match header_text(headers, "Tidings-Changed") {
        Some("false") => format!("{uri} {etag} unchanged"),
        _ => format!("{uri} {etag} {done}, {notified} told"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, Exit};
    use axum::Router;
    use axum::body::Bytes;
    use axum::http::{HeaderMap as Headers, Uri};
    use axum::response::{IntoResponse, Response};
    use clap::Parser;
    use std::sync::{Arc, Mutex};

    fn resource() -> ResourceUri {
        ResourceUri::new("demo://a").unwrap()
    }

    fn parse(arguments: &[&str]) -> Publish {
        let line = ["tidings", "publish"].iter().chain(arguments);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Put(publish) => publish,
            other => panic!("{other:?}"),
        }
    }

    async fn send(publish: &Publish, body: Vec<u8>) -> Result<String, CliError> {
        let service = publish.service.open("put")?;
        publish.send(&service, &resource(), body).await
    }

    #[test]
    fn uri_is_one_segment_below_the_service() {
        for base in ["http://h:1", "http://h:1/base/", "http://h:1/base/mcp"] {
            let publish = parse(&["demo://a", "--url", base]);
            let uri = ResourceUri::new("demo://a/b%20?c~d").unwrap();
            let service = publish.service.open("put").unwrap();
            let request = publish.request(&service, &uri, Vec::new()).build().unwrap();
            let base = base.trim_end_matches('/').trim_end_matches("/mcp");
            let expected = format!("{base}/v1/resources/demo%3A%2F%2Fa%2Fb%2520%3Fc~d");
            assert_eq!(request.url().as_str(), expected);
        }
    }

    #[test]
    fn media_type_is_guessed_by_name_then_content() {
        for (file, body, expected) in [
            (Some("a.md"), &b"\xff"[..], "text/markdown"),
            (Some("a.json"), b"{}", "application/json"),
            (Some("a.unheard-of"), b"text", "text/plain"),
            (None, "é".as_bytes(), "text/plain"),
            (None, b"\xff\xfe", "application/octet-stream"),
            (None, b"", "text/plain"),
        ] {
            assert_eq!(guess_media_type(file.map(Path::new), body), expected, "{file:?}");
        }
    }

    #[test]
    fn etag_is_quoted_once() {
        for (given, expected) in [
            ("v1-2", "\"v1-2\""),
            ("\"v1-2\"", "\"v1-2\""),
            ("W/\"v1-2\"", "W/\"v1-2\""),
            ("*", "*"),
        ] {
            assert_eq!(quoted(given), expected);
        }
    }

    #[test]
    fn outcomes_are_one_line() {
        for (status, changed, notified, expected) in [
            (
                StatusCode::OK,
                "true",
                "2",
                "demo://a v3-1764000000 changed, 2 told",
            ),
            (StatusCode::OK, "false", "0", "demo://a v3-1764000000 unchanged"),
            (
                StatusCode::CREATED,
                "true",
                "1",
                "demo://a v3-1764000000 created, 1 told",
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ETAG, "\"v3-1764000000\"".parse().unwrap());
            headers.insert("tidings-changed", changed.parse().unwrap());
            headers.insert("tidings-told", notified.parse().unwrap());
            assert_eq!(
                describe_outcome("demo://a", "changed", status, &headers),
                expected
            );
        }
        let bare = describe_outcome("demo://a", "changed", StatusCode::NO_CONTENT, &HeaderMap::new());
        assert_eq!(bare, "demo://a - changed, 0 told");
    }

    type Seen = (reqwest::Method, Uri, Headers, Bytes);

    /// Starts a service that answers every request with `answer` and keeps the last request.
    async fn service(
        answer: impl Fn() -> Response + Clone + Send + Sync + 'static,
    ) -> (String, Arc<Mutex<Option<Seen>>>) {
        let seen = Arc::new(Mutex::new(None));
        let remember = seen.clone();
        let router = Router::new().fallback(move |method, uri, headers, body: Bytes| {
            *remember.lock().unwrap() = Some((method, uri, headers, body));
            let answer = answer();
            async move { answer }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (url, seen)
    }

    #[tokio::test]
    async fn write_carries_the_given_options() {
        let (url, seen) = service(|| {
            let headers = [
                ("ETag", "\"v2-5\""),
                ("Tidings-Changed", "true"),
                ("Tidings-Told", "4"),
            ];
            (headers, "").into_response()
        })
        .await;
        let publish = parse(&[
            "demo://a",
            "--url",
            &url,
            "--if-match",
            "v1-4",
            "--title",
            "Zwölf %",
            "--media-type",
            "a/b",
        ]);
        assert_eq!(
            send(&publish, b"body".to_vec()).await.unwrap(),
            "demo://a v2-5 changed, 4 told"
        );
        let (method, uri, headers, body) = seen.lock().unwrap().take().unwrap();
        assert_eq!(
            (method.as_str(), uri.path()),
            ("PUT", "/v1/resources/demo%3A%2F%2Fa")
        );
        assert_eq!(headers["if-match"], "\"v1-4\"");
        assert_eq!(headers["content-type"], "a/b");
        assert_eq!(headers["tidings-title"], "Zw%C3%B6lf %25");
        assert_eq!(&body[..], b"body");

        let publish = parse(&["demo://a", "--url", &url, "--create"]);
        send(&publish, Vec::new()).await.unwrap();
        assert_eq!(seen.lock().unwrap().take().unwrap().0.as_str(), "POST");
    }

    #[tokio::test]
    async fn batch_is_sent_as_lines_and_its_refusals_fail() {
        let (url, seen) = service(|| {
            "{\"uri\":\"demo://a\",\"status\":201}\n{\"uri\":null,\"status\":400,\"error\":\"no\"}\n"
                .into_response()
        })
        .await;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("changes.ndjson");
        std::fs::write(&file, "{\"touch\":\"demo://a\"}\n\n{}").unwrap();
        let publish = parse(&["--url", &url, "--batch", file.to_str().unwrap()]);
        let error = publish
            .send_batches(&publish.service.open("put").unwrap(), &file)
            .await
            .unwrap_err();
        assert_eq!(
            (error.exit(), error.to_string().as_str()),
            (
                Exit::Failure,
                "1 of 2 changes were refused; the answers name the reasons"
            )
        );
        let (method, uri, headers, body) = seen.lock().unwrap().take().unwrap();
        assert_eq!((method.as_str(), uri.path()), ("POST", "/v1/resources"));
        assert_eq!(headers["content-type"], "application/x-ndjson");
        assert_eq!(&body[..], b"{\"touch\":\"demo://a\"}\n{}\n");
    }

    #[tokio::test]
    async fn absent_service_is_unavailable_and_refusal_fails() {
        let (url, _seen) = service(|| {
            let body = r#"{"title":"Conflict","detail":"demo://a exists"}"#;
            (
                axum::http::StatusCode::CONFLICT,
                [("content-type", "application/problem+json")],
                body,
            )
                .into_response()
        })
        .await;
        let error = send(&parse(&["demo://a", "--url", &url, "--create"]), Vec::new())
            .await
            .unwrap_err();
        assert_eq!(
            (error.exit(), error.to_string().as_str()),
            (Exit::Failure, "Conflict: demo://a exists")
        );

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = send(&parse(&["demo://a", "--url", &url]), Vec::new())
            .await
            .unwrap_err();
        assert_eq!(error.exit(), Exit::Unavailable);
        assert!(
            error.to_string().starts_with(&format!("cannot reach {url}/: ")),
            "{error}"
        );
        assert!(error.to_string().contains("tidings serve"), "{error}");
    }

    #[test]
    fn other_schemes_are_misuse() {
        let error = parse(&["demo://a", "--url", "ftp://h"]).run().unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
    }
}
