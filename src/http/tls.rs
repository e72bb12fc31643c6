//! TLS in front of the HTTP server: the handshakes, and the certificates that are read again when their files
//! change.
//!
//! A connection takes all that its handshake needs at one moment, as one value of one reading of the files,
//! so it never sees half of a pair. Open connections keep what they began with.

mod files;
mod handshakes;
mod stream;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::auth::{PeerCertificate, Trust};
use crate::config::{HttpConfig, TlsConfig};
use crate::file_watch::{self, FileStamps, Looks};
use crate::metrics::TlsMetrics;
use files::{Loaded, TlsFiles};
use handshakes::Handshakes;
pub(super) use stream::TlsStream;

/// The time between two looks at the files. A change is read when two looks in a row find it the same, so
/// that files which are replaced one after the other are read together.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The longest wait for the end of a revocation list: a clock that is set meanwhile wakes nothing.
const LIST_END_WAIT_MAX: Duration = Duration::from_secs(60);

/// TLS that cannot be used, with the file or key at fault and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// The TLS side of listeners. Cheap to clone; all clones have the same certificates.
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    files: TlsFiles,
    tickets: Arc<dyn ProducesTickets>,
    current: Mutex<Current>,
    /// The number of times that the files were read anew.
    generation: watch::Sender<u64>,
    handshakes: Arc<Handshakes>,
    metrics: TlsMetrics,
}

struct Current {
    loaded: Arc<Loaded>,
    /// The state of the files before they were read last, with success or not.
    stamps: FileStamps,
}

impl Tls {
    /// Reads the files of `config`; none if TLS is off. Blocks while it reads.
    ///
    /// # Errors
    /// A file cannot be read or used, or certificate and key are no pair.
    pub fn load(config: &TlsConfig) -> Result<Option<Tls>, TlsError> {
        let Some(files) = TlsFiles::of(config) else {
            return Ok(None);
        };
        let tickets = ring::Ticketer::new();
        let tickets = tickets.map_err(|error| TlsError(format!("TLS cannot make keys: {error}")))?;
        let stamps = files.stamps();
        let loaded = Arc::new(files.load(&tickets)?);
        let metrics = TlsMetrics::new();
        note_expiry(&loaded, &metrics);
        let shared = Shared {
            files,
            tickets,
            current: Mutex::new(Current { loaded, stamps }),
            generation: watch::Sender::new(0),
            handshakes: Arc::default(),
            metrics,
        };
        Ok(Some(Tls(Arc::new(shared))))
    }

    /// Returns each mistake in the files of `config`. Blocks while it reads.
    pub fn check(config: &TlsConfig) -> Vec<TlsError> {
        match TlsFiles::of(config) {
            Some(files) => files.faults(),
            None => Vec::new(),
        }
    }

    /// Reads the files again, for connections that open from now on. If they cannot be used, the present
    /// certificates stay, and the log says so.
    pub async fn reload(&self) {
        let shared = self.0.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || shared.reload()).await {
            error!(%error, "the files of TLS could not be read; the present certificates stay");
        }
    }

    /// Reads the files again whenever they have changed, until the last handle is dropped. A revocation list
    /// that ends is a change, too: from then on no certificate of its authority is trusted.
    pub fn follow_files(&self) {
        tokio::spawn(follow_lists(Arc::downgrade(&self.0)));
        let mut looks = Looks::default();
        file_watch::watch(&self.0, LOOK_INTERVAL, move |shared| {
            let read = shared.current().stamps.clone();
            if looks.is_due(shared.files.stamps(), &read) {
                shared.reload();
            }
        });
    }

    /// Returns the number of times that the files were read anew, which wakes its holder. After each, clients
    /// with certificates may no longer be [trusted](PeerCertificate::is_trusted).
    pub fn generation(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }

    /// Shakes hands over `io` within `header_timeout` of `config`, and agrees on a protocol. Returns the
    /// stream, and the certificate of a client that presented one.
    ///
    /// # Errors
    /// The client is no client of TLS, is late, is refused, or goes away; or its place was given to a newer
    /// one.
    pub(super) async fn accept<T>(
        &self,
        io: T,
        peer: SocketAddr,
        config: &HttpConfig,
    ) -> io::Result<(TlsStream<T>, Option<PeerCertificate>)>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let loaded = self.0.current().loaded.clone();
        let server = match config.h2_streams_max {
            0 => loaded.http1_alone.clone(),
            _ => loaded.server.clone(),
        };
        let time = config.header_timeout;
        let accepted = self.0.handshakes.shake(io, server, time).await;
        match &accepted {
            Ok(_) => self.0.metrics.accepted(),
            Err(failure) => {
                self.0.metrics.failed(failure.outcome);
                tracing::debug!(%peer, outcome = failure.outcome.label(), error = %failure.error, "a handshake failed");
            }
        }
        let stream = accepted.map_err(|failure| failure.error)?;
        let certificate = match stream.tls().peer_certificates() {
            Some(chain) => {
                let chain = chain.iter().map(|certificate| certificate.to_vec()).collect();
                let read = PeerCertificate::read(chain, self.0.clone());
                // It was verified, but without its name and end the client must not pass for another one.
                Some(read.ok_or_else(|| io::Error::other("the client's certificate cannot be read"))?)
            }
            None => None,
        };
        Ok((stream, certificate))
    }
}

impl Shared {
    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        // Each write replaces a whole value, so a panic of another holder does no harm.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files, and replaces the present certificates if they can be used.
    fn reload(&self) {
        // Taken first: a file that changes while it is read is read again.
        let stamps = self.files.stamps();
        let read = self.files.load(&self.tickets);
        let mut current = self.current();
        current.stamps = stamps;
        match read {
            Ok(loaded) => {
                note_expiry(&loaded, &self.metrics);
                current.loaded = Arc::new(loaded);
                drop(current);
                self.generation.send_modify(|generation| *generation += 1);
                self.metrics.replaced();
                info!("the files of TLS were read again; new connections get their certificates");
            }
            Err(error) => {
                drop(current);
                self.metrics.kept();
                error!(%error, "the files of TLS cannot be used; the present certificates stay");
            }
        }
    }
}

/// Has certificates verified again when a revocation list ends, which changes no file, until `shared` is
/// dropped.
async fn follow_lists(shared: Weak<Shared>) {
    let mut looked = SystemTime::now();
    loop {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        // Before the lists are looked at, so that none is replaced unnoticed.
        let mut replaced = strong.generation.subscribe();
        let loaded = strong.current().loaded.clone();
        let now = SystemTime::now();
        if loaded.list_ends.iter().any(|end| looked < *end && *end <= now) {
            strong.generation.send_modify(|generation| *generation += 1);
            warn_of_ended_list();
        }
        looked = now;
        let next = loaded.list_ends.iter().filter(|end| **end > now).min();
        let wait = match next {
            Some(end) => end.duration_since(now).unwrap_or_default(),
            None => LIST_END_WAIT_MAX,
        };
        // Dropped for the wait, so that it keeps neither the certificates nor their old lists.
        drop((strong, loaded));
        tokio::select! {
            () = tokio::time::sleep(wait.min(LIST_END_WAIT_MAX)) => {}
            changed = replaced.changed() => if changed.is_err() { return },
        }
    }
}

fn warn_of_ended_list() {
    warn!(
        "a revocation list has ended, so no certificate of its authority is trusted; publish the next one \
         (tls.client_crl)"
    );
}

impl Trust for Shared {
    fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    fn verifies(&self, chain: &[Vec<u8>]) -> bool {
        let loaded = self.current().loaded.clone();
        let (Some(verifier), Some((own, others))) = (&loaded.verifier, chain.split_first()) else {
            return false;
        };
        let own = CertificateDer::from(own.as_slice());
        let others: Vec<_> = others
            .iter()
            .map(|der| CertificateDer::from(der.as_slice()))
            .collect();
        verifier
            .verify_client_cert(&own, &others, UnixTime::now())
            .is_ok()
    }
}

fn note_expiry(loaded: &Loaded, metrics: &TlsMetrics) {
    match loaded.list_ends.iter().min() {
        Some(end) => {
            metrics.first_list_ends(since_epoch(*end));
            if *end <= SystemTime::now() {
                warn_of_ended_list();
            }
        }
        None => metrics.first_list_ends(Duration::ZERO),
    }
    let Some(expires) = loaded.expires else {
        return;
    };
    metrics.expires(since_epoch(expires));
    if expires <= SystemTime::now() {
        warn!(
            "the certificate of the listener has expired, so clients refuse it; renew it (tls.certificate)"
        );
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.0.files)
            .finish_non_exhaustive()
    }
}
