//! The task of one request over HTTP/2: from its head to the end of its answer, and of what its client still
//! sends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::http::Response;
use h2::Reason;
use h2::server::SendResponse;
use tracing::debug;

use super::http2_answer::Http2Answer;
use super::http2_body::AnswerBody;
use super::http2_head::set_connection_headers;
use super::http2_streams::{RequestState, TaskEnd};
use super::http2_writer::BodyWriter;
use super::request_tasks::RequestTask;
use super::sent_frames::{FramePlace, SentFrame};
use crate::http::server::RequestService;

/// A request and its answer.
pub(super) struct Http2Request<S: RequestService> {
    part: Part<S>,
    state: RequestState,
}

/// The part that a request is at. What is large is boxed, since the place of this is kept while a stream is
/// open.
enum Part<S: RequestService> {
    /// The service makes the answer.
    Answer(Box<AwaitedAnswer<S>>),
    /// The body of the answer is written.
    Body(BodyWriter<S::Body>),
    /// The answer is written, and the rest of the request's body is dropped.
    Rest(Pin<Box<dyn Future<Output = ()>>>),
}

struct AwaitedAnswer<S: RequestService> {
    answer: Http2Answer<S>,
    respond: SendResponse<SentFrame>,
}

impl<S: RequestService> Http2Request<S> {
    pub(super) fn new(
        answer: Http2Answer<S>,
        respond: SendResponse<SentFrame>,
        state: RequestState,
    ) -> Http2Request<S> {
        Http2Request {
            part: Part::Answer(Box::new(AwaitedAnswer { answer, respond })),
            state,
        }
    }

    /// Polls the library's part of the request.
    fn poll_library(&mut self, place: &FramePlace<'_>, cx: &mut Context<'_>) -> Poll<TaskEnd> {
        if let Part::Answer(awaited) = &mut self.part {
            match ready!(awaited.poll(&mut self.state, cx)) {
                // The future of the service ends here, since it may hold more than a stream needs.
                Some(body) => self.part = Part::Body(body),
                None => return Poll::Ready(TaskEnd::Done),
            }
        }
        match &mut self.part {
            Part::Body(body) => body.poll(&self.state, place, cx),
            _ => Poll::Pending,
        }
    }
}

impl<S: RequestService> RequestTask for Http2Request<S> {
    fn poll(&mut self, place: &FramePlace<'_>, cx: &mut Context<'_>) -> Poll<()> {
        if !matches!(self.part, Part::Rest(_)) {
            let end = ready!(self.poll_library(place, cx));
            match self.state.rest_after(end) {
                Some(rest) => self.part = Part::Rest(rest),
                None => return Poll::Ready(()),
            }
        }
        match &mut self.part {
            Part::Rest(rest) => rest.as_mut().poll(cx),
            _ => Poll::Pending,
        }
    }
}

impl<S: RequestService> AwaitedAnswer<S> {
    /// Waits for the answer and gives the library its head. Ready with the body, if there is one and a client
    /// to read it.
    fn poll(&mut self, state: &mut RequestState, cx: &mut Context<'_>) -> Poll<Option<BodyWriter<S::Body>>> {
        let Poll::Ready(response) = self.answer.poll(state, cx) else {
            // A client that is gone waits for no answer.
            return match self.respond.poll_reset(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        };
        Poll::Ready(self.send_head(response))
    }

    fn send_head(&mut self, response: Response<AnswerBody<S::Body>>) -> Option<BodyWriter<S::Body>> {
        let (mut head, mut body) = response.into_parts();
        set_connection_headers(&mut head.headers, &body);
        if self.answer.is_head {
            body.leave_out();
        }
        let is_end = body.is_end();
        match self.respond.send_response(Response::from_parts(head, ()), is_end) {
            Ok(sender) => (!is_end).then(|| BodyWriter::new(body, sender)),
            Err(error) => {
                // The client has reset the stream meanwhile, or a header is one that HTTP/2 does not have.
                debug!(%error, "the head of an answer could not be sent");
                self.respond.send_reset(Reason::INTERNAL_ERROR);
                None
            }
        }
    }
}
