//! `GET /v1/store/backup`: a backup of the store, while the service goes on.

use std::io::{self, Write};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Extensions, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tracing::{info, warn};

use crate::auth::{Object, Right};
use crate::http::access::Access;
use crate::http::layers::guarded;
use crate::http::limits::SharedLimits;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::rights::require;
use crate::http::service_route::ServiceRoute;

/// The bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// The chunks that wait for the client.
const CHUNKS_MAX: usize = 4;

/// The headers of a backup.
const HEADERS: [(header::HeaderName, &str); 2] = [
    (header::CONTENT_TYPE, "application/x-ndjson"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Writes a backup. It blocks, so it is called on a thread of its own; the error says why the store cannot be
/// read.
pub type WriteBackup = Arc<dyn Fn(&mut dyn Write) -> Result<(), String> + Send + Sync>;

/// Returns a router of `/v1/store/backup` alone, to be merged with others. One backup is made at a time. Its
/// requests count among those of `limits`.
pub fn backup_router(write: WriteBackup, access: Access, limits: SharedLimits) -> Router {
    let free = Arc::new(Semaphore::new(1));
    let route = get(async move |extensions: Extensions| {
        require(&extensions, Right::Admin, Object::Service)?;
        answer(&write, &free)
    });
    // Of its own: the handler above would write a backup, and its answer has no body.
    let route = route.head(async |extensions: Extensions| {
        require(&extensions, Right::Admin, Object::Service)?;
        Ok::<_, Problem>(HEADERS)
    });
    let routes = Router::new().route(ServiceRoute::Backup.template(), route);
    guarded(routes, access, limits)
}

fn answer(write: &WriteBackup, free: &Arc<Semaphore>) -> Result<Response, Problem> {
    // A state that is read holds its pages and files, so that two would need twice the room.
    let Ok(permit) = free.clone().try_acquire_owned() else {
        return Err(ProblemKind::Unavailable.because("another backup is being written; try again later"));
    };
    let (sender, mut chunks) = mpsc::channel(CHUNKS_MAX);
    let write = write.clone();
    tokio::task::spawn_blocking(move || {
        let mut out = Chunks {
            sender,
            chunk: Vec::with_capacity(CHUNK_BYTES),
        };
        match write(&mut out) {
            Ok(()) => info!("a backup was written"),
            Err(reason) => {
                warn!(reason, "a backup was not finished");
                // The error ends the connection, so that the client does not take a part for the whole.
                out.send(Err(io::Error::other(reason)));
            }
        }
        drop(permit);
    });
    let chunks = futures_util::stream::poll_fn(move |context| chunks.poll_recv(context));
    Ok((HEADERS, Body::from_stream(chunks)).into_response())
}

/// Hands bytes to the response in chunks.
struct Chunks {
    sender: mpsc::Sender<io::Result<Bytes>>,
    chunk: Vec<u8>,
}

impl Chunks {
    /// Waits until the client has room. Returns false if it is gone.
    fn send(&self, chunk: io::Result<Bytes>) -> bool {
        self.sender.blocking_send(chunk).is_ok()
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        match chunk.is_empty() || self.send(Ok(chunk.into())) {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Request, StatusCode};
    use http_body_util::BodyExt;
    use tower_service::Service;

    async fn request(router: &mut Router) -> Response {
        let request = Request::get("/v1/store/backup").header("host", "localhost");
        let request = request.body(Body::empty()).unwrap();
        router.as_service().call(request).await.unwrap()
    }

    #[tokio::test]
    async fn backup_is_streamed_whole() {
        let text = "line\n".repeat(100_000);
        let expected = text.clone();
        let write: WriteBackup = Arc::new(move |out| {
            out.write_all(text.as_bytes()).unwrap();
            out.flush().map_err(|error| error.to_string())
        });
        let mut router = backup_router(write, Access::default(), SharedLimits::default());
        let response = request(&mut router).await;
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, expected);
    }

    #[tokio::test]
    async fn head_writes_no_backup() {
        let write: WriteBackup = Arc::new(|_| panic!("nobody reads it"));
        let request = Request::head("/v1/store/backup").header("host", "localhost");
        let request = request.body(Body::empty()).unwrap();
        let mut router = backup_router(write, Access::default(), SharedLimits::default());
        let response = router.as_service().call(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    }

    #[tokio::test]
    async fn failed_backup_ends_in_an_error() {
        let write: WriteBackup = Arc::new(|_| Err("the store is closed".into()));
        let response = request(&mut backup_router(
            write,
            Access::default(),
            SharedLimits::default(),
        ))
        .await;
        assert!(response.into_body().collect().await.is_err());
    }

    #[tokio::test]
    async fn second_backup_is_refused_meanwhile() {
        let write: WriteBackup = Arc::new(move |out| {
            // More than the chunks that may wait, so that it blocks until the client reads.
            out.write_all(&vec![b'x'; 2 * CHUNKS_MAX * CHUNK_BYTES])
                .map_err(|error| error.to_string())?;
            out.flush().map_err(|error| error.to_string())?;
            for _ in 0..2 * CHUNKS_MAX {
                out.write_all(&vec![b'x'; CHUNK_BYTES])
                    .map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        let mut router = backup_router(write, Access::default(), SharedLimits::default());
        let first = request(&mut router).await;
        let second = request(&mut router).await;
        assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
        first.into_body().collect().await.unwrap();
    }
}
