//! The errors of the shared log, each with its remedy.

use std::path::PathBuf;

/// The error of a log that cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// No server is named.
    #[error("no address of a NATS server; set cluster.urls, for example [\"nats://127.0.0.1:4222\"]")]
    NoUrls,
    /// An address is malformed.
    #[error("invalid address {url:?} of a NATS server: {reason}; write nats://host:port or tls://host:port")]
    Url {
        /// The address, without credentials in it.
        url: String,
        /// The reason.
        reason: String,
    },
    /// A name has characters that NATS forbids in names and subjects.
    #[error("invalid name {name:?} for cluster.{key}; write at most 64 letters, digits and hyphens")]
    Name {
        /// The key.
        key: &'static str,
        /// The name.
        name: String,
    },
    /// The number of copies is not one that JetStream offers.
    #[error("{0} copies of each record are not possible; set cluster.replicas to 1, 3 or 5")]
    Replicas(usize),
    /// A certificate without its key, or the reverse.
    #[error("cluster.tls_cert and cluster.tls_key go together; set both or neither")]
    HalfCertificate,
    /// A file cannot be read.
    #[error("{path} cannot be read: {error}; check its path and its permissions", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The system gives no random numbers, of which the identity of a node is made.
    #[error("the system has no source of random numbers: {0}")]
    Random(getrandom::Error),
    /// The thread of the log cannot begin.
    #[error("the runtime of the shared log cannot start: {0}; check the limits of the process")]
    Runtime(std::io::Error),
    /// No server answers.
    #[error("no NATS server answers: {0}; check cluster.urls, and that the servers run with JetStream")]
    Unreachable(String),
    /// The server is too old.
    #[error("the NATS server has version {0:?}; the shared log needs 2.10 or later, and 2.15 to be durable")]
    ServerTooOld(String),
    /// A stream exists that is not made for a log.
    #[error(
        "the stream {stream} is not as the shared log needs it: {differences}; edit it, or set another \
         cluster.namespace"
    )]
    Stream {
        /// The name of the stream.
        stream: String,
        /// The settings that differ, with the values that are needed.
        differences: String,
    },
    /// The log has a format that this version does not know.
    #[error("the stream {stream} has format {format:?}, which this version does not know; update this node")]
    Format {
        /// The name of the stream.
        stream: String,
        /// The format.
        format: String,
    },
    /// The server refuses the log.
    #[error("the NATS server refuses the stream {stream}: {reason}; check the limits of its account")]
    Refused {
        /// The name of the stream.
        stream: String,
        /// The answer of the server.
        reason: String,
    },
    /// Durability is required and not there, or not known.
    #[error("cluster.require_durable is set, and the log is not known to be durable: {0}")]
    NotDurable(String),
}

impl ClusterError {
    /// Returns the error of an address, without the credentials that may stand in it.
    pub(super) fn url(url: &str, reason: &str) -> ClusterError {
        let url = match url.rsplit_once('@') {
            Some((_, host)) => format!("…@{host}"),
            None => url.to_owned(),
        };
        let url = url.chars().take(120).collect();
        let reason = reason.to_owned();
        ClusterError::Url { url, reason }
    }
}
