//! The answer to one request over HTTP/2, from its turn and the beginning of its body to the head of the
//! response.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::http::header;
use bytes::Bytes;
use hyper::{Method, Request, Response};
use tokio::time::{Sleep, sleep};

use super::http2_body::AnswerBody;
use super::http2_streams::RequestState;
use crate::http::problem::ProblemKind;
use crate::http::server::RequestService;
use crate::http::stream_handover::StreamHandover;
use crate::http::unread::RequestBody;
use crate::metrics::{self, Limit, Path};

/// The answer to one request.
pub(super) struct Http2Answer<S: RequestService> {
    pub(super) path: Path,
    /// True if the answer is one without its body.
    pub(super) is_head: bool,
    pub(super) handover: StreamHandover,
    pub(super) answer: Answering<S>,
}

/// The source of an answer.
pub(super) enum Answering<S: RequestService> {
    /// The request waits for its turn and for its body, until the service, which holds more memory for it, is
    /// called.
    Waiting(Option<Box<Beginning<S>>>),
    Service(S::Future),
    Refused(Box<Response<Bytes>>),
}

impl<S: RequestService> Answering<S> {
    /// Has the service called with a request in its turn.
    pub(super) fn of(
        request: Request<RequestBody>,
        service: Rc<RefCell<S>>,
        body_timeout: Duration,
    ) -> Answering<S> {
        Answering::Waiting(Some(Box::new(Beginning {
            body_timeout: awaits_body(&request).then_some(body_timeout),
            request,
            service,
            deadline: None,
        })))
    }
}

/// Makes the answer to a request that has no place.
fn no_place(path: &str) -> Response<Bytes> {
    metrics::limit_reached(Limit::Http2Requests);
    let text = "too many requests over HTTP/2 wait for their answers or bodies (http.h2_requests_max)";
    ProblemKind::Unavailable.because(text).respond(path)
}

/// Returns true if a request is handed to the service when its body comes, and not before: a handler holds
/// several times the memory of a request that waits, and its client may send no more than the head. The body
/// of a WebSocket is no such body, and a client that expects 100 waits for the service.
fn awaits_body(request: &Request<RequestBody>) -> bool {
    let has_body = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
    has_body && !request.headers().contains_key(header::EXPECT)
}

/// Makes the answer to a request whose body does not come.
fn late_body(path: &str, body_timeout: Duration) -> Response<Bytes> {
    metrics::limit_reached(Limit::BodyTimeout);
    let seconds = body_timeout.as_secs_f64();
    let text = format!("nothing of the body came within {seconds} s (http.body_timeout)");
    ProblemKind::RequestTimeout.because(text).respond(path)
}

/// A request and the service to call with it.
pub(super) struct Beginning<S> {
    request: Request<RequestBody>,
    service: Rc<RefCell<S>>,
    /// The time that the client has until its body begins; none if that is not awaited here.
    body_timeout: Option<Duration>,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S: RequestService> Beginning<S> {
    /// Takes a place and waits for the beginning of the body. An error is the answer to a request that has no
    /// place, or whose body does not come.
    fn poll_place(
        &mut self,
        state: &mut RequestState,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Response<Bytes>>> {
        let awaited = match self.body_timeout {
            Some(time) if self.request.body_mut().poll_begun(cx).is_pending() => Some(time),
            _ => None,
        };
        let has_come_whole = awaited.is_none() && self.request.body().has_come_whole();
        if !state.take_place(has_come_whole) {
            return Poll::Ready(Err(no_place(self.request.uri().path())));
        }
        let Some(time) = awaited else {
            return Poll::Ready(Ok(()));
        };
        let deadline = self.deadline.get_or_insert_with(|| {
            state.not_served();
            Box::pin(sleep(time))
        });
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(late_body(self.request.uri().path(), time)))
    }

    fn call(self) -> S::Future {
        self.service.borrow_mut().call(self.request)
    }
}

impl<S: RequestService> Http2Answer<S> {
    /// Waits for the answer, and counts it.
    pub(super) fn poll(
        &mut self,
        state: &mut RequestState,
        cx: &mut Context<'_>,
    ) -> Poll<Response<AnswerBody<S::Body>>> {
        let response = ready!(self.poll_response(state, cx));
        state.answered(self.path, response.status());
        Poll::Ready(response)
    }

    /// Calls the service once, and polls it for the response.
    fn poll_response(
        &mut self,
        state: &mut RequestState,
        cx: &mut Context<'_>,
    ) -> Poll<Response<AnswerBody<S::Body>>> {
        if let Answering::Waiting(waiting) = &mut self.answer
            && let Some(mut beginning) = waiting.take()
        {
            self.answer = match beginning.poll_place(state, cx) {
                Poll::Pending => {
                    *waiting = Some(beginning);
                    return Poll::Pending;
                }
                Poll::Ready(Err(refusal)) => {
                    state.refused();
                    Answering::Refused(Box::new(refusal))
                }
                Poll::Ready(Ok(())) => {
                    state.begun();
                    Answering::Service(beginning.call())
                }
            };
        }
        let response = match &mut self.answer {
            Answering::Service(answer) => {
                let Ok(response) = ready!(Pin::new(answer).poll(cx));
                response
            }
            Answering::Refused(response) => {
                return Poll::Ready(std::mem::take(&mut **response).map(AnswerBody::of_bytes));
            }
            Answering::Waiting(_) => return Poll::Pending,
        };
        Poll::Ready(response.map(|body| match self.handover.take_with_head() {
            Some(stream) => AnswerBody::of_stream(stream),
            None => AnswerBody::of_body(body),
        }))
    }
}
