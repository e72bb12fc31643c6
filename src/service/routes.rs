//! The paths of the service: `/mcp` is answered by the MCP endpoint, everything else by the HTTP API. The rule of
//! hosts and origins stands before all of them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tower_service::Service;

use crate::http::{Access, api};
use crate::mcp::{Endpoint, EndpointBody};

/// The path of the MCP endpoint.
pub(super) const MCP_PATH: &str = "/mcp";

/// A service that answers every path.
#[derive(Clone)]
pub(super) struct Routes {
    access: Arc<Access>,
    endpoint: Option<Endpoint>,
    api: Router,
}

impl Routes {
    /// Makes a service that answers `/mcp` with `endpoint` and every other path with `api`.
    pub(super) fn new(access: Access, endpoint: Endpoint, api: Router) -> Routes {
        Routes {
            access: Arc::new(access),
            endpoint: Some(endpoint),
            api,
        }
    }

    /// Makes a service that answers every path with `api`.
    pub(super) fn without_mcp(access: Access, api: Router) -> Routes {
        Routes {
            access: Arc::new(access),
            endpoint: None,
            api,
        }
    }
}

impl Service<Request<Incoming>> for Routes {
    type Response = Response<Either<EndpointBody, Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        if !api::is_open(request.uri().path())
            && let Err(problem) = self.access.admit(&mut request)
        {
            let refusal = problem.respond(request.uri().path());
            let refusal = refusal.map(|body| Either::Right(Body::from(body)));
            return Box::pin(std::future::ready(Ok(refusal)));
        }
        match &self.endpoint {
            Some(endpoint) if request.uri().path() == MCP_PATH => {
                let endpoint = endpoint.clone();
                Box::pin(async move { Ok(endpoint.handle(request).await.map(Either::Left)) })
            }
            _ => {
                let answered = self.api.call(request.map(Body::new));
                Box::pin(async move { Ok(answered.await?.map(Either::Right)) })
            }
        }
    }
}
