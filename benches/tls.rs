//! Row `tls`: the cost of TLS on the listener, beside the same service without it.
//!
//! Each session is a listen stream on one resource, which is changed as often as it was told to all. CPU is
//! that of the service, kernel included; memory is the growth of its resident part by the open sessions.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use memchr::memmem;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;

use crate::Options;
use crate::server_process::{ListeningServer, serve_command};
use crate::support::{Column, Cpu, RUNS, Spread, Table, Threads, ratios, resident_kib};

/// The numbers of sessions, unless `--sessions` has another one.
const SESSIONS: [usize; 1] = [1_000];
/// The changes that are counted, after some that warm caches.
const CHANGES: usize = 50;
const WARM: usize = 5;
/// The time that one step may take.
const STEP_MAX: Duration = Duration::from_secs(60);

/// The method of a delivery, which stands in each once.
const UPDATED: &[u8] = b"notifications/resources/updated";

const COLUMNS: &[Column] = &[
    ("cpu_us", "CPU µs per delivery", 1),
    ("plain_x", "x plain", 2),
    ("idle_kib", "KiB per idle session", 1),
];

trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Bytes for T {}

/// The figures of one run.
struct Run {
    cpu_us: f64,
    idle_kib: f64,
}

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("tls", COLUMNS);
    let runtime = tokio::runtime::Runtime::new()?;
    for sessions in options.sizes(&SESSIONS) {
        let mut runs: [Vec<Run>; 2] = Default::default();
        for _ in 0..RUNS {
            for (secure, runs) in [false, true].into_iter().zip(&mut runs) {
                runs.push(runtime.block_on(measure(secure, sessions))?);
            }
        }
        let [plain, _] = &runs;
        let cpu = |runs: &[Run]| runs.iter().map(|run| run.cpu_us).collect::<Vec<_>>();
        let plain = cpu(plain);
        for (label, runs) in ["plain", "TLS"].iter().zip(&runs) {
            let figures = vec![
                Spread::of(cpu(runs)),
                ratios(&cpu(runs), &plain),
                Spread::of(runs.iter().map(|run| run.idle_kib)),
            ];
            table.add_spreads(format!("{label}, {sessions}"), figures);
        }
    }
    Ok(table)
}

/// The service under test, and the way to connect to it.
struct Service {
    server: ListeningServer,
    client: Option<TlsConnector>,
}

impl Service {
    fn start(secure: bool) -> anyhow::Result<Service> {
        let folder = tempfile::tempdir().context("cannot make a folder for the server")?;
        let served = folder.path().join("served");
        fs::create_dir(&served)?;
        let mut command = serve_command(&served);
        let client = match secure {
            true => {
                let certificate = folder.path().join("cert.pem");
                let key = folder.path().join("key.pem");
                let pair = KeyPair::generate()?;
                let own = CertificateParams::new(["localhost".to_owned()])?.self_signed(&pair)?;
                fs::write(&certificate, own.pem())?;
                fs::write(&key, pair.serialize_pem())?;
                command.env("TIDINGS_TLS__CERTIFICATE", certificate);
                command.env("TIDINGS_TLS__KEY", key);
                let mut roots = RootCertStore::empty();
                roots.add(own.der().clone())?;
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let config = ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()?
                    .with_root_certificates(roots)
                    .with_no_client_auth();
                Some(TlsConnector::from(Arc::new(config)))
            }
            false => None,
        };
        let server = ListeningServer::start(command, folder)?;
        Ok(Service { server, client })
    }

    async fn connect(&self) -> anyhow::Result<Box<dyn Bytes>> {
        let stream = TcpStream::connect(self.server.address).await?;
        stream.set_nodelay(true)?;
        match &self.client {
            Some(client) => {
                let name = ServerName::try_from("localhost")?;
                Ok(Box::new(client.connect(name, stream).await?))
            }
            None => Ok(Box::new(stream)),
        }
    }
}

/// Sends a request and reads its answer, or the head of one without a length.
async fn ask(stream: &mut Box<dyn Bytes>, head: &str, body: &str) -> anyhow::Result<()> {
    let length = body.len();
    let request = format!("{head}\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await?);
    }
    ensure!(
        answer.starts_with(b"HTTP/1.1 2"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    Ok(())
}

/// The deliveries that all sessions have read.
#[derive(Default)]
struct Told {
    count: AtomicUsize,
    more: Notify,
}

impl Told {
    /// Waits until `count` deliveries were read.
    async fn until(&self, count: usize) -> anyhow::Result<()> {
        let all = async {
            while self.count.load(Ordering::Acquire) < count {
                self.more.notified().await;
            }
        };
        match tokio::time::timeout(STEP_MAX, all).await {
            Ok(()) => Ok(()),
            Err(_elapsed) => bail!("not all sessions were told within {STEP_MAX:?}"),
        }
    }

    /// Reads a stream to its end.
    async fn read(&self, mut stream: Box<dyn Bytes>) {
        let mut bytes = Vec::with_capacity(4 << 10);
        while let Ok(1..) = stream.read_buf(&mut bytes).await {
            let mut end = 0;
            for found in memmem::find_iter(&bytes, UPDATED) {
                end = found + UPDATED.len();
                self.count.fetch_add(1, Ordering::AcqRel);
                self.more.notify_one();
            }
            bytes.drain(..end.max(bytes.len().saturating_sub(UPDATED.len() - 1)));
        }
    }
}

async fn measure(secure: bool, sessions: usize) -> anyhow::Result<Run> {
    let service = Service::start(secure)?;
    let put = "PUT /v1/resources/demo%3A%2F%2Fa HTTP/1.1\r\ncontent-type: text/plain";
    let mut publisher = service.connect().await?;
    ask(&mut publisher, put, "0").await?;
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let listen = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{{meta},"notifications":{{"resourceSubscriptions":["demo://a"]}}}}}}"#
    );
    let head = "POST /mcp HTTP/1.1\r\ncontent-type: application/json\r\n\
                accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
                mcp-method: subscriptions/listen";
    let pid = service.server.pid();
    let before = resident_kib(pid)?;
    let told = Arc::<Told>::default();
    for _ in 0..sessions {
        let mut stream = service.connect().await?;
        ask(&mut stream, head, &listen).await?;
        let told = told.clone();
        tokio::spawn(async move { told.read(stream).await });
    }
    let idle_kib = (resident_kib(pid)? - before) / sessions as f64;
    for change in 1..=WARM {
        ask(&mut publisher, put, &change.to_string()).await?;
        told.until(change * sessions).await?;
    }
    let cpu = Cpu::read(pid, Threads::All)?;
    for change in WARM + 1..=WARM + CHANGES {
        ask(&mut publisher, put, &change.to_string()).await?;
        told.until(change * sessions).await?;
    }
    let cpu_us = cpu.since()? / 1_000.0 / (CHANGES * sessions) as f64;
    Ok(Run { cpu_us, idle_kib })
}
