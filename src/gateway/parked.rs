//! Calls that wait for input of a client without a session.
//!
//! A server of an older revision asks its client in the middle of a call. A client of 2026-07-28 is answered
//! with the question instead, and calls again with its input; the call at the server goes on from there.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rmcp::ErrorData;
use rmcp::model::{ClientResult, InputRequest, InputRequiredResult, InputResponses, ServerRequest};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::call::Call;
use super::failure::UpstreamFailure;
use super::hearing::ServerQuestion;
use super::road::Road;
use super::speakers::ClientKey;
use crate::metrics::UpstreamMetrics;

/// Calls that wait at once, of all clients and of one named principal.
const PARKED_MAX: usize = 1_000;
const PER_PRINCIPAL_MAX: usize = 16;

/// The time that a call waits for its client.
const PARKED_TIME: Duration = Duration::from_secs(5 * 60);

/// The name of the one question in the result, under which the client sends its input.
const QUESTION: &str = "input";

/// A call that waits for input.
pub(super) struct ParkedCall {
    pub(super) call: Call,
    pub(super) asked: ServerQuestion,
    /// The connection; one that was leased is no other call's meanwhile.
    pub(super) road: Road,
    pub(super) key: ClientKey,
}

/// The calls that wait for input, by the state that their client was given.
pub(super) struct ParkedCalls {
    calls: Mutex<HashMap<String, (ParkedCall, Instant)>>,
    metrics: Arc<UpstreamMetrics>,
}

impl ParkedCalls {
    pub(super) fn new(metrics: Arc<UpstreamMetrics>) -> ParkedCalls {
        ParkedCalls {
            calls: Mutex::default(),
            metrics,
        }
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<String, (ParkedCall, Instant)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of calls that wait.
    pub(super) fn count(&self) -> usize {
        self.calls().len()
    }

    /// Keeps a call until its client calls again. Returns the question for the client.
    ///
    /// # Errors
    /// Too many calls wait, or the question is of a kind that has no place in a result.
    pub(super) fn park(&self, parked: ParkedCall) -> Result<InputRequiredResult, ErrorData> {
        let question = question(&parked.asked.request)?;
        let mut random = [0; 16];
        if getrandom::fill(&mut random).is_err() {
            let text = "the system has no source of random numbers";
            return Err(ErrorData::internal_error(text, None));
        }
        // Nothing but its client can know it, and it leads nowhere with another principal.
        let state = URL_SAFE_NO_PAD.encode(random);
        let mut calls = self.calls();
        // Counted each time: calls that wait are few, and a count of its own could go wrong.
        let mut of_principal = 0;
        for (other, _) in calls.values() {
            of_principal +=
                usize::from(parked.key.principal.is_some() && other.key.principal == parked.key.principal);
        }
        if calls.len() == PARKED_MAX || of_principal == PER_PRINCIPAL_MAX {
            return Err(UpstreamFailure::TooManyParked.answer());
        }
        // Last, so that a refusal leaves nothing behind.
        calls.insert(state.clone(), (parked, Instant::now()));
        self.metrics.parked.set(calls.len() as f64);
        let questions = BTreeMap::from([(QUESTION.to_owned(), question)]);
        Ok(InputRequiredResult::new(Some(questions), Some(state)))
    }

    /// Returns the call of this state, if it waits for this client.
    pub(super) fn resume(&self, state: &str, key: &ClientKey) -> Option<ParkedCall> {
        let mut calls = self.calls();
        // Looked at before it is taken, so that the state of another is of no use to a client, and no harm.
        let (parked, _) = calls.get(state)?;
        if parked.key.principal != key.principal {
            return None;
        }
        let (parked, _) = calls.remove(state)?;
        self.metrics.parked.set(calls.len() as f64);
        Some(parked)
    }

    /// Ends the calls that have waited too long; the server is told that they are cancelled.
    pub(super) fn end_expired(&self) {
        let mut calls = self.calls();
        calls.retain(|_, (_, since)| since.elapsed() < PARKED_TIME);
        self.metrics.parked.set(calls.len() as f64);
    }
}

fn question(request: &ServerRequest) -> Result<InputRequest, ErrorData> {
    match request {
        ServerRequest::CreateMessageRequest(request) => Ok(InputRequest::CreateMessage(request.clone())),
        ServerRequest::ElicitRequest(request) => Ok(InputRequest::Elicitation(request.clone())),
        ServerRequest::ListRootsRequest(request) => Ok(InputRequest::ListRoots(request.clone())),
        _ => Err(ErrorData::internal_error(
            "the server asked a question that clients of this revision cannot be asked",
            None,
        )),
    }
}

/// Returns the input of the client as the answer to the question of the server.
///
/// # Errors
/// The input is missing or of another kind.
pub(super) fn answer(
    request: &ServerRequest,
    responses: Option<&InputResponses>,
) -> Result<ClientResult, ErrorData> {
    let Some(input) = responses.and_then(|responses| responses.get(QUESTION)) else {
        let text = format!("inputResponses has no entry {QUESTION:?}, which inputRequests asked for");
        return Err(ErrorData::invalid_params(text, None));
    };
    match request {
        ServerRequest::CreateMessageRequest(_) => {
            read(input).map(Box::new).map(ClientResult::CreateMessageResult)
        }
        ServerRequest::ElicitRequest(_) => read(input).map(ClientResult::ElicitResult),
        _ => read(input).map(ClientResult::ListRootsResult),
    }
}

fn read<T: DeserializeOwned>(input: &Value) -> Result<T, ErrorData> {
    serde_json::from_value(input.clone()).map_err(|error| {
        let text = format!("inputResponses.{QUESTION} does not fit the question: {error}");
        ErrorData::invalid_params(text, None)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn input_is_read_as_the_question_asks() {
        let roots = ServerRequest::ListRootsRequest(Default::default());
        let missing = answer(&roots, None).unwrap_err();
        assert!(
            missing.message.contains("inputResponses has no entry"),
            "{missing}"
        );
        let wrong = InputResponses::from([(QUESTION.to_owned(), json!(1))]);
        assert!(answer(&roots, Some(&wrong)).is_err());
        let right = InputResponses::from([(QUESTION.to_owned(), json!({ "roots": [] }))]);
        assert!(matches!(
            answer(&roots, Some(&right)),
            Ok(ClientResult::ListRootsResult(_))
        ));
    }
}
