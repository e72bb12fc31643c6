//! The opening handshake of a WebSocket: over HTTP/1.1 (RFC 6455, section 4.2) and over HTTP/2 (RFC 8441).

use std::io;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::response::Response;
use futures_util::TryStreamExt;
use h2::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, duplex, join};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_util::io::{ReaderStream, StreamReader};
use tracing::debug;

/// The bytes of messages over HTTP/2 that wait between a WebSocket and the body of its answer.
const WAITING_BYTES: usize = 16 << 10;

/// The bytes that carry a WebSocket.
pub(super) trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

/// An open WebSocket.
pub(super) type WebSocket = WebSocketStream<Box<dyn Carrier>>;

/// A request for a WebSocket.
pub(super) enum Upgrade {
    /// The whole connection becomes the WebSocket.
    Http1 { accept: HeaderValue, upgrade: OnUpgrade },
    /// The bodies of request and answer become the WebSocket.
    Http2 { body: Body },
}

impl Upgrade {
    /// Reads a request.
    ///
    /// # Errors
    /// The reason for which it is none for a WebSocket.
    pub(super) fn of(request: Request) -> Result<Upgrade, &'static str> {
        let (mut head, body) = request.into_parts();
        let upgrade = if head.version <= Version::HTTP_11 {
            if head.method != Method::GET {
                return Err("the method is not GET");
            }
            if !has_token(&head.headers, &header::CONNECTION, "upgrade") {
                return Err("the header Connection does not have upgrade");
            }
            if !has_token(&head.headers, &header::UPGRADE, "websocket") {
                return Err("the header Upgrade does not have websocket");
            }
            let key = head.headers.get(header::SEC_WEBSOCKET_KEY);
            let key = key.ok_or("the header Sec-WebSocket-Key is missing")?;
            let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
            let upgrade = head.extensions.remove::<OnUpgrade>();
            match (accept, upgrade) {
                (Ok(accept), Some(upgrade)) => Upgrade::Http1 { accept, upgrade },
                _ => return Err("the connection can become none"),
            }
        } else {
            if head.method != Method::CONNECT {
                return Err("the method is not CONNECT, as over HTTP/2");
            }
            match head.extensions.get::<Protocol>() {
                Some(protocol) if protocol.as_str() == "websocket" => Upgrade::Http2 { body },
                _ => return Err("the pseudo-header :protocol is not websocket"),
            }
        };
        match has_token(&head.headers, &header::SEC_WEBSOCKET_VERSION, "13") {
            true => Ok(upgrade),
            false => Err("the header Sec-WebSocket-Version is not 13"),
        }
    }

    /// Answers the request, and has the WebSocket served in a task of its own.
    pub(super) fn accept<F>(
        self,
        config: WebSocketConfig,
        serve: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut response = Response::new(Body::empty());
        match self {
            Upgrade::Http1 { accept, upgrade } => {
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                let headers = response.headers_mut();
                headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
                // The connection is handed over once the answer is written.
                tokio::spawn(async move {
                    match upgrade.await {
                        Ok(upgraded) => serve(open(TokioIo::new(upgraded), config).await).await,
                        Err(error) => debug!(%error, "a WebSocket was not opened"),
                    }
                });
            }
            Upgrade::Http2 { body } => {
                let received = StreamReader::new(body.into_data_stream().map_err(io::Error::other));
                let (sent, written) = duplex(WAITING_BYTES);
                *response.body_mut() = Body::from_stream(ReaderStream::new(written));
                // The task of the request carries both bodies, and has to go on meanwhile.
                tokio::spawn(async move { serve(open(join(received, sent), config).await).await });
            }
        }
        response
    }
}

async fn open(carrier: impl Carrier + 'static, config: WebSocketConfig) -> WebSocket {
    let carrier: Box<dyn Carrier> = Box::new(carrier);
    WebSocketStream::from_raw_socket(carrier, Role::Server, Some(config)).await
}

/// Returns true if a header has a token among those of its list.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    // A list may have other tokens, and may be sent as several headers.
    let values = headers.get_all(name).into_iter();
    let mut texts = values.filter_map(|value| value.to_str().ok());
    texts.any(|text| {
        text.split(',')
            .any(|part| part.trim().eq_ignore_ascii_case(token))
    })
}
