//! A webhook over TLS, with a certificate authority of our own. The certificates are valid for a hundred
//! years.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::serve::Listener;
use nix::sys::signal::Signal;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::receiver::SECRET;
use super::service::ServiceFolder;

const AUTHORITY: &str = include_str!("tls/ca.pem");
const CERTIFICATE: &str = include_str!("tls/server.pem");
const KEY: &str = include_str!("tls/server.key");

/// A listener that accepts only TLS.
struct Secure {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Secure {
    async fn bind() -> Secure {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Secure {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            acceptor: Arc::new(config).into(),
        }
    }
}

impl Listener for Secure {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, peer) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

#[tokio::test]
async fn webhook_trusts_the_authorities_of_the_system() {
    let secure = Secure::bind().await;
    let port = secure.local_addr().unwrap().port();
    let (sender, mut bodies) = tokio::sync::mpsc::channel(8);
    let router = Router::new().fallback(async move |body: String| sender.send(body).await.unwrap());
    tokio::spawn(axum::serve(secure, router).into_future());

    let folder = ServiceFolder::new(&format!(
        "[[webhook]]\nname = 'a'\nurl = 'https://localhost:{port}/'\nsecret_file = 'secret'\nallow_private = true\n\
         kinds = ['updated']\n"
    ));
    fs::write(folder.file("secret"), SECRET).unwrap();
    // The receiver's own certificate is not an authority, so it is rejected.
    fs::write(folder.file("authority.pem"), CERTIFICATE).unwrap();
    let service = folder.start().await;
    service.put("demo://a", "1").await;
    service
        .until("webhook/a", "the mistrust", |one| {
            one["error"].as_str().unwrap_or_default().contains("certificate")
        })
        .await;
    service.end(Signal::SIGKILL).await;

    fs::write(folder.file("authority.pem"), AUTHORITY).unwrap();
    let service = folder.start().await;
    service.put("demo://b", "1").await;
    let body = crate::support::within(bodies.recv()).await.unwrap();
    assert!(body.contains("demo://b"), "{body}");
    service.end(Signal::SIGTERM).await;
}
