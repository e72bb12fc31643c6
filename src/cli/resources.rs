//! `tidings ls`, `get`, `rm` and `touch`: the resources of a running service, over its HTTP API.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use reqwest::header::{CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::output::status;
use super::publish::{describe_outcome, quoted};
use super::server::{Service, ServiceArgs, header_text, items, resource_path, segment};
use super::table::{TextTable, cell, print, print_json};
use super::{CliError, block_on, usage};
use crate::{ResourceUri, printable};

/// The items of one request.
const PAGE_LEN: usize = 1_000;

/// The limit on the size of a body that is printed on a terminal or as JSON, in bytes.
const SHOWN_BYTES_MAX: usize = 64 << 20;

/// The arguments of `tidings ls`.
#[derive(Debug, Args)]
pub(super) struct Ls {
    /// Only resources whose URI begins with this
    prefix: Option<String>,
    /// Print one JSON object a line
    #[arg(short, long)]
    json: bool,
    /// Print this many at most; all unless set
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    service: ServiceArgs,
}

impl Ls {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let service = self.service.open("ls")?;
        block_on(self.list(&service))
    }

    /// Prints page by page, so that a large service needs no large memory here.
    async fn list(&self, service: &Service) -> Result<(), CliError> {
        let mut table = TextTable::new(&["URI", "ETAG", "TYPE", "TITLE"]);
        let mut left = self.limit.unwrap_or(usize::MAX);
        // The list is in the order of URIs, so those with the prefix stand together. `q` is no such filter:
        // it looks into names, too, takes no note of capitals, and may be a second behind.
        let mut after = self.prefix.as_deref().map(just_before);
        loop {
            let mut path = format!("/v1/resources?limit={}", left.clamp(1, PAGE_LEN));
            if let Some(after) = &after {
                path.push_str(&format!("&after={}", segment(after)));
            }
            let page = service.json(&path).await?;
            let mut found = items(&page).to_vec();
            let is_past = matches!(found.last(), Some(last) if self.is_behind(last));
            found.retain(|item| self.wants(item));
            found.truncate(left);
            left -= found.len();
            match self.json {
                true => print_json(&found)?,
                false => print(&table.part(found.iter().map(row).collect()))?,
            }
            let next = page.get("next").and_then(Value::as_str);
            match next {
                // A page that repeats its predecessor's end would go on for ever.
                Some(next) if left > 0 && !is_past && after.as_deref() != Some(next) => {
                    after = Some(next.to_owned());
                }
                _ => return Ok(()),
            }
        }
    }

    fn wants(&self, item: &Value) -> bool {
        match (&self.prefix, item.get("uri").and_then(Value::as_str)) {
            (Some(prefix), Some(uri)) => uri.starts_with(prefix),
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }

    /// Returns true for an item behind all that have the prefix.
    fn is_behind(&self, item: &Value) -> bool {
        match (&self.prefix, item.get("uri").and_then(Value::as_str)) {
            (Some(prefix), Some(uri)) => uri > prefix.as_str() && !uri.starts_with(prefix.as_str()),
            _ => false,
        }
    }
}

/// Returns a text that stands before `prefix` in the order of texts, with few URIs between the two.
fn just_before(prefix: &str) -> String {
    let mut text = prefix.to_owned();
    if let Some(last) = text.pop() {
        // There is no character before the first one, and none among the surrogates.
        if let Some(before) = u32::from(last).checked_sub(1).and_then(char::from_u32) {
            text.push(before);
            text.push(char::MAX);
        }
    }
    text
}

fn row(item: &Value) -> Vec<String> {
    let title = match item.get("title") {
        Some(_) => cell(item, "/title"),
        None => cell(item, "/name"),
    };
    vec![
        cell(item, "/uri"),
        cell(item, "/etag"),
        cell(item, "/mediaType"),
        title,
    ]
}

/// The arguments of `tidings get`.
#[derive(Debug, Args)]
pub(super) struct Get {
    /// The resource's URI
    uri: ResourceUri,
    /// Write the body to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the etag and the media type on standard error
    #[arg(short, long)]
    include: bool,
    /// Print nothing if the resource still has this etag
    #[arg(long, value_name = "ETAG")]
    if_none_match: Option<String>,
    /// Print the body, its etag and its media type as one JSON object
    #[arg(short, long, conflicts_with = "output")]
    json: bool,
    #[command(flatten)]
    service: ServiceArgs,
}

impl Get {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let service = self.service.open("get")?;
        block_on(self.get(&service))
    }

    async fn get(&self, service: &Service) -> Result<(), CliError> {
        let mut request = service.request(Method::GET, &resource_path(&self.uri));
        // The service compares, so an unchanged body does not travel.
        if let Some(etag) = &self.if_none_match {
            request = request.header(IF_NONE_MATCH, quoted(etag));
        }
        let answer = service.ask(request).await?;
        let etag = etag_of(&answer);
        let media_type = header_text(answer.headers(), CONTENT_TYPE.as_str()).map(str::to_owned);
        if answer.status() == StatusCode::NOT_MODIFIED {
            return status(&format!("{} {etag} unchanged", self.uri));
        }
        if self.include {
            status(&format!(
                "{} {etag} {}",
                self.uri,
                media_type.as_deref().unwrap_or("-")
            ))?;
        }
        if self.json {
            let body = service.bytes(answer, SHOWN_BYTES_MAX).await?;
            let mut item = json!({"uri": self.uri.as_str(), "etag": etag, "mediaType": media_type});
            match String::from_utf8(body) {
                Ok(text) => item["text"] = text.into(),
                Err(error) => item["base64"] = STANDARD.encode(error.as_bytes()).into(),
            }
            return print_json([&item]);
        }
        self.write_body(service, answer).await
    }

    async fn write_body(&self, service: &Service, mut answer: Response) -> Result<(), CliError> {
        let mut out: Box<dyn Write> = match &self.output {
            Some(path) if path.as_os_str() != "-" => {
                let file = File::create(path)
                    .map_err(|error| CliError::Failed(format!("cannot write {}: {error}", path.display())))?;
                Box::new(file)
            }
            _ if std::io::stdout().is_terminal() => {
                let body = service.bytes(answer, SHOWN_BYTES_MAX).await?;
                return show(body);
            }
            _ => Box::new(std::io::stdout().lock()),
        };
        while let Some(chunk) = service.chunk(&mut answer).await? {
            out.write_all(&chunk)?;
        }
        Ok(out.flush()?)
    }
}

/// Prints a body on a terminal, which must not obey it.
fn show(body: Vec<u8>) -> Result<(), CliError> {
    let Ok(text) = String::from_utf8(body) else {
        let text = "the body is no text; write it to a file with --output, or see it with --json";
        return Err(CliError::Failed(text.to_owned()));
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    print(&format!("{}{end}", printable::lines(&text)))
}

fn etag_of(answer: &Response) -> String {
    let etag = header_text(answer.headers(), ETAG.as_str()).unwrap_or("-");
    etag.trim_start_matches("W/").trim_matches('"').to_owned()
}

/// The arguments of `tidings rm` and `tidings touch`.
#[derive(Debug, Args)]
pub(super) struct Change {
    /// URIs of the resources
    #[arg(required = true, value_name = "URI")]
    uris: Vec<ResourceUri>,
    /// Change it only where it still has this etag
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
    #[command(flatten)]
    service: ServiceArgs,
}

impl Change {
    pub(super) fn remove(&self) -> Result<(), CliError> {
        self.run("rm")
    }

    pub(super) fn touch(&self) -> Result<(), CliError> {
        self.run("touch")
    }

    fn run(&self, subcommand: &str) -> Result<(), CliError> {
        if self.if_match.is_some() && self.uris.len() > 1 {
            // Etags of several resources differ, so one condition for all would refuse most of them.
            return Err(usage(subcommand, "--if-match is for one resource"));
        }
        let service = self.service.open(subcommand)?;
        block_on(self.change_all(subcommand, &service))
    }

    /// Changes all of them, also if some are refused.
    async fn change_all(&self, subcommand: &str, service: &Service) -> Result<(), CliError> {
        let mut refused = Vec::new();
        for uri in &self.uris {
            match self.change(subcommand, service, uri).await {
                Ok(line) => print(&format!("{}\n", printable::line(&line)))?,
                Err(CliError::Failed(reason)) => refused.push(reason),
                Err(error) => return Err(error),
            }
        }
        match refused.is_empty() {
            true => Ok(()),
            false => Err(CliError::Failed(refused.join("; "))),
        }
    }

    async fn change(
        &self,
        subcommand: &str,
        service: &Service,
        uri: &ResourceUri,
    ) -> Result<String, CliError> {
        let path = resource_path(uri);
        let mut request = match subcommand {
            "rm" => service.request(Method::DELETE, &path),
            _ => service.request(Method::POST, &format!("{path}/touch")),
        };
        if let Some(etag) = &self.if_match {
            request = request.header(IF_MATCH, quoted(etag));
        }
        let answer = service.ask(request).await?;
        let word = match subcommand {
            "rm" => "removed",
            _ => "touched",
        };
        Ok(describe_outcome(
            uri.as_str(),
            word,
            answer.status(),
            answer.headers(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn list_begins_before_the_prefix(prefix in any::<String>(), rest in any::<String>()) {
            let begin = just_before(&prefix);
            prop_assert!(begin <= prefix.clone() + &rest);
            // It is `after` of the list, which leaves out the one of that name.
            prop_assert!(begin < prefix || prefix.is_empty());
        }
    }

    #[test]
    fn few_stand_before_the_prefix() {
        assert_eq!(just_before("demo://b"), "demo://a\u{10ffff}");
        assert_eq!(just_before("demo://\u{e000}"), "demo://");
        assert_eq!(just_before("\0"), "");
        assert_eq!(just_before(""), "");
    }
}
