//! `POST /v1/resources`: many changes in one request, one a line.
//!
//! All lines are one request inside the bus, one step of the store and at most one change of the resource
//! list. Each line has an answer of its own, so a bad one does not hide the others.

pub(super) mod line;

use std::collections::HashMap;
use std::error::Error;

use ::http::request::Parts;
use ::http::{Extensions, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body::Body as HttpBody;
use http_body_util::Full;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use tidings_actors::{Change, Closed, Condition, Content, Etag, Outcome, PublishError, ResourceUri};

use super::body::receive_bytes;
use super::conditions::Preconditions;
use super::resources::{current, refusal};
use super::{Api, ApiResponse};
use crate::auth::{Object, Right};
use crate::http::limits::{Counted, Reservation};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::rights::require;
use crate::metrics::{self, Limit};
use line::{BatchLine, RefusedLine};

/// The media type of a batch and of its answer: JSON texts, each on a line of its own.
const MEDIA_TYPE: &str = "application/x-ndjson";

/// The lines after which other connections of the thread have a turn.
const LINES_PER_TURN: usize = 1_000;

/// A change that was handed to the bus, as far as its answer depends on it.
struct Sent {
    uri: ResourceUri,
    /// The bytes of a body among those of the client, if they are counted.
    reserved: Option<Reservation>,
    /// True for a line that removes the resource.
    removes: bool,
    preconditions: Preconditions,
}

/// The answer to one line.
#[derive(Serialize, JsonSchema)]
pub(super) struct AnswerLine<'a> {
    uri: Option<&'a str>,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_etag")]
    #[schemars(with = "Option<String>")]
    etag: Option<Etag>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

fn write_etag<S: Serializer>(etag: &Option<Etag>, serializer: S) -> Result<S::Ok, S::Error> {
    match etag {
        Some(etag) => serializer.collect_str(etag),
        None => serializer.serialize_none(),
    }
}

impl Api {
    /// Makes the change of each line, in order, and answers with one line for each.
    pub(super) async fn publish_batch<B>(&self, head: &Parts, body: B) -> Result<ApiResponse, Problem>
    where
        B: HttpBody<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        check_head(head)?;
        let bytes_max = self.batch_bytes_max;
        let received = receive_bytes(&self.limits, &head.headers, body, bytes_max, Limit::HttpBodyBytes);
        // The body counts as in flight until it is answered.
        let received = received.await?;
        let split = self.split(&received.bytes)?;
        let caller = Counted::of(&head.extensions);
        // One of them was counted when the request came.
        self.limits.requests(&caller, split.len().saturating_sub(1))?;
        let mut lines = Vec::new();
        for (number, line) in split {
            if lines.len() % LINES_PER_TURN == LINES_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            let line = line::parse(number, line);
            lines.push(line.and_then(|line| permitted(line, number, &head.extensions)));
        }
        self.in_time(self.find_members(&mut lines)).await??;
        let mut changes = Vec::with_capacity(lines.len());
        let mut sent = Vec::with_capacity(lines.len());
        for line in lines {
            sent.push(match line.and_then(|line| self.reserve(line, &caller)) {
                Ok((line, reserved)) => {
                    let uri = line.change.uri().clone();
                    let removes = matches!(line.change, Change::Remove(_));
                    changes.push((line.change, condition(&line.preconditions, line.member)));
                    Ok(Sent {
                        uri,
                        reserved,
                        removes,
                        preconditions: line.preconditions,
                    })
                }
                Err(refused) => Err(refused),
            });
        }
        let results = self.bus.update_many(changes).await?;
        let mut answer = Vec::with_capacity(96 * sent.len());
        let mut results = results.into_iter();
        let mut made = MadeVersions::before(&sent);
        for sent in sent {
            match sent {
                Ok(sent) => {
                    // Every change that was sent has a result.
                    let result = results.next().unwrap_or(Err(PublishError::Closed(Closed)));
                    let result = made.note(&sent, result);
                    self.answer_change(&mut answer, sent, result);
                }
                Err(RefusedLine { uri, problem }) => answer_problem(&mut answer, uri.as_deref(), &problem),
            }
        }
        Ok(answer_of(answer))
    }

    /// Returns the lines that are not blank, with their numbers.
    fn split<'b>(&self, bytes: &'b [u8]) -> Result<Vec<(usize, &'b [u8])>, Problem> {
        let mut lines = Vec::new();
        for (place, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if !line.trim_ascii().is_empty() {
                lines.push((place + 1, line));
            }
        }
        let max = self.bus.limits().batch_max;
        if lines.len() > max {
            metrics::limit_reached(Limit::BatchLines);
            let text = format!(
                "the batch has {} lines: the limit is {max}, and none was applied; send it in parts or raise \
                 http.batch_max",
                lines.len()
            );
            return Err(ProblemKind::BodyTooLarge.because(text).lines_max(max));
        }
        Ok(lines)
    }

    /// Finds the etags of the template members that guarded lines name.
    async fn find_members(&self, lines: &mut [Result<BatchLine, RefusedLine>]) -> Result<(), Problem> {
        let mut places = Vec::new();
        let mut uris = Vec::new();
        for (place, line) in lines.iter().enumerate() {
            if let Ok(line) = line
                && !line.preconditions.is_empty()
                && self.bus.cached_etag(line.change.uri().as_str())?.is_none()
            {
                places.push(place);
                uris.push(line.change.uri().clone());
            }
        }
        if places.is_empty() {
            return Ok(());
        }
        // One request for all: most of the URIs are new ones, which no template has.
        let etags = self.bus.etags(uris.clone()).await?;
        for (place, (uri, etag)) in std::iter::zip(places, std::iter::zip(uris, etags)) {
            if etag.is_none() {
                continue;
            }
            match (current(&self.bus, &uri).await, &mut lines[place]) {
                (Ok(member), Ok(line)) => line.member = member,
                (Ok(_), Err(_)) => {}
                (Err(problem), line) => {
                    let uri = Some(uri.as_str().to_owned());
                    *line = Err(RefusedLine { uri, problem });
                }
            }
        }
        Ok(())
    }

    /// Counts the bytes of a line's body among those of the client.
    fn reserve(
        &self,
        line: BatchLine,
        caller: &Counted,
    ) -> Result<(BatchLine, Option<Reservation>), RefusedLine> {
        let Change::Upsert(resource) = &line.change else {
            return Ok((line, None));
        };
        let len = match resource.content() {
            Content::Held(body) => body.as_bytes().len(),
            Content::Lazy(_) => 0,
        };
        match self.limits.publish(caller, line.change.uri(), len) {
            Ok(reserved) => Ok((line, reserved)),
            Err(problem) => {
                let uri = Some(line.change.uri().as_str().to_owned());
                Err(RefusedLine { uri, problem })
            }
        }
    }

    fn answer_change(&self, answer: &mut Vec<u8>, sent: Sent, result: Result<Outcome, PublishError>) {
        match result {
            Ok(outcome) => {
                if sent.removes {
                    self.limits.removed(&sent.uri);
                }
                let status = match outcome.created {
                    true => StatusCode::CREATED,
                    false => StatusCode::NO_CONTENT,
                };
                let line = AnswerLine {
                    uri: Some(sent.uri.as_str()),
                    status: status.as_u16(),
                    etag: Some(outcome.etag),
                    changed: Some(outcome.changed),
                    error: None,
                };
                write_line(answer, &line);
            }
            Err(error) => {
                if let Some(reserved) = sent.reserved {
                    reserved.refused();
                }
                let problem = refusal(error, &sent.preconditions);
                answer_problem(answer, Some(sent.uri.as_str()), &problem);
            }
        }
    }
}

/// Makes the answer of these lines.
fn answer_of(lines: Vec<u8>) -> ApiResponse {
    let mut response = Response::new(Full::new(Bytes::from(lines)));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    response
}

/// The versions that the lines of a batch have made so far. The bus decides all lines before any of their
/// versions exists, so a refused condition cannot name the version of a line before it.
struct MadeVersions {
    by_uri: HashMap<ResourceUri, Etag>,
    /// False if no line has a condition: then no answer names a version of another line.
    noted: bool,
}

impl MadeVersions {
    /// Begins before the first of the lines.
    fn before(lines: &[Result<Sent, RefusedLine>]) -> MadeVersions {
        let mut lines = lines.iter().flatten();
        MadeVersions {
            by_uri: HashMap::new(),
            noted: lines.any(|line| !line.preconditions.is_empty()),
        }
    }

    /// Notes the version that a line made, or gives a refused condition the version of the lines before it.
    fn note(&mut self, line: &Sent, result: Result<Outcome, PublishError>) -> Result<Outcome, PublishError> {
        match result {
            Ok(outcome) if self.noted => {
                let etag = match line.removes {
                    true => Etag::UNKNOWN,
                    false => outcome.etag,
                };
                self.by_uri.insert(line.uri.clone(), etag);
                Ok(outcome)
            }
            Err(PublishError::Conflict { uri, current }) => {
                let current = self.by_uri.get(&uri).copied().or(current);
                Err(PublishError::Conflict { uri, current })
            }
            result => result,
        }
    }
}

/// Refuses a line whose resource the caller may not publish.
fn permitted(line: BatchLine, number: usize, extensions: &Extensions) -> Result<BatchLine, RefusedLine> {
    let uri = line.change.uri().as_str();
    match require(extensions, Right::Publish, Object::Resource(uri)) {
        Ok(()) => Ok(line),
        Err(problem) => Err(RefusedLine {
            uri: Some(uri.to_owned()),
            problem: problem
                .kind()
                .because(format!("line {number}: {}", problem.detail())),
        }),
    }
}

/// Refuses a request that is no batch, or that asks for more than a batch does.
fn check_head(head: &Parts) -> Result<(), Problem> {
    if head.uri.query().is_some() {
        return Err(ProblemKind::BadRequest.because("a batch takes no query; leave it out"));
    }
    let media_type = match head.headers.get(header::CONTENT_TYPE) {
        Some(value) => value.to_str().unwrap_or_default(),
        None => "",
    };
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case(MEDIA_TYPE) {
        let text =
            format!("a batch is {MEDIA_TYPE}; send that content-type, or PUT one resource to its own path");
        return Err(ProblemKind::UnsupportedMediaType.because(text));
    }
    // A guard that were ignored would let through a write that its client wanted to be refused.
    if !Preconditions::parse(&head.headers)?.is_empty() {
        let text = "a batch as a whole has no conditions; write ifMatch and ifNoneMatch in its lines";
        return Err(ProblemKind::BadRequest.because(text));
    }
    Ok(())
}

fn condition(preconditions: &Preconditions, member: Option<Etag>) -> Condition {
    match preconditions.is_empty() {
        true => Condition::Always,
        false => preconditions.condition(member).into(),
    }
}

/// Answers a line that changed nothing.
fn answer_problem(answer: &mut Vec<u8>, uri: Option<&str>, problem: &Problem) {
    // As for single requests: a refused write is a change that did not arrive.
    metrics::source_failed(metrics::Source::Http);
    let line = AnswerLine {
        uri,
        status: problem.status().as_u16(),
        etag: None,
        changed: None,
        error: Some(problem.detail()),
    };
    write_line(answer, &line);
}

fn write_line(answer: &mut Vec<u8>, line: &AnswerLine<'_>) {
    serde_json::to_writer(&mut *answer, line).expect("texts and numbers are JSON");
    answer.push(b'\n');
}
