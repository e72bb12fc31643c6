//! The paths of the service: the MCP endpoint, the HTTP API, and the routers of the transports beside them.
//! The rule of hosts and origins stands before all of them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use tower_service::Service;

use crate::http::Access;
use crate::http::api::{self, Api};
use crate::mcp::{Endpoint, EndpointBody};
use crate::metrics;

/// The path of the MCP endpoint.
pub(super) const MCP_PATH: &str = "/mcp";

/// The body of an answer: of the endpoint, of the API, or of a router.
type AnswerBody = Either<EndpointBody, Either<Full<Bytes>, Body>>;

/// A service that answers every path.
#[derive(Clone)]
pub(super) struct Routes {
    access: Arc<Access>,
    endpoint: Option<Endpoint>,
    api: Option<Api>,
    /// Answers the paths that are neither the endpoint's nor the API's.
    others: Router,
}

impl Routes {
    /// Makes a service that answers `/mcp` with `endpoint`, the paths of `others`, and every other path with
    /// `api`.
    pub(super) fn new(access: Access, endpoint: Endpoint, api: Api, others: Router) -> Routes {
        Routes {
            access: Arc::new(access),
            endpoint: Some(endpoint),
            api: Some(api.clone()),
            others: others.fallback_service(api),
        }
    }

    /// Makes a service that answers the paths of `others` alone.
    pub(super) fn only(access: Access, others: Router) -> Routes {
        Routes {
            access: Arc::new(access),
            endpoint: None,
            api: None,
            others,
        }
    }
}

impl Service<Request<Incoming>> for Routes {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path();
        let is_open = api::is_open(path);
        // The API's busiest paths pass the router by, which costs more than their answers.
        let is_api = is_open || path.starts_with("/v1/resources");
        let is_mcp = path == MCP_PATH;
        if !is_open && let Err(problem) = self.access.admit(&mut request) {
            // A POST to MCP is a question more often than a change, so it counts as no failed source.
            if !is_mcp && !request.method().is_safe() {
                metrics::source_failed(metrics::Source::Http);
            }
            let refusal = problem.respond(request.uri().path());
            let refusal = refusal.map(|body| Either::Right(Either::Left(Full::new(body))));
            return Box::pin(std::future::ready(Ok(refusal)));
        }
        match (&self.endpoint, &self.api) {
            (Some(endpoint), _) if is_mcp => {
                let endpoint = endpoint.clone();
                Box::pin(async move { Ok(endpoint.handle(request).await.map(Either::Left)) })
            }
            (_, Some(api)) if is_api => {
                let api = api.clone();
                Box::pin(async move {
                    let response = api.handle(request).await;
                    Ok(response.map(|body| Either::Right(Either::Left(body))))
                })
            }
            _ => {
                // The body is boxed only for axum; the services above take the library's own type.
                let answered = self.others.call(request.map(Body::new));
                Box::pin(async move { Ok(answered.await?.map(|body| Either::Right(Either::Right(body)))) })
            }
        }
    }
}
