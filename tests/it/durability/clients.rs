//! MCP clients of both eras that tell the service what they know when they subscribe, and note every notice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidings::wire::dialect::{ACKNOWLEDGED, Dialect, ETAG_META_KEY, RESOURCE_UPDATED, Revision};
use tidings::wire::http1::{HttpTarget, ResponseReader};
use tidings::wire::jsonrpc::request;
use tidings::wire::sse::EventReader;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::home::{Connection, Life};

const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A notice that a client read.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) uri: String,
    pub(super) etag: String,
}

/// The knowledge of a client, which outlives its connections.
#[derive(Debug)]
pub(super) struct Client {
    revision: Revision,
    /// The etag that it knows of each of its URIs, if it has ever seen one.
    pub(super) known: BTreeMap<String, Option<String>>,
    stream: Option<Stream>,
}

#[derive(Debug)]
struct Stream {
    told: Arc<Mutex<Vec<Told>>>,
    reader: JoinHandle<()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Client {
    /// Makes a client that is interested in these URIs and knows nothing of them.
    pub(super) fn new(revision: Revision, uris: impl IntoIterator<Item = String>) -> Client {
        Client {
            revision,
            known: uris.into_iter().map(|uri| (uri, None)).collect(),
            stream: None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.revision.as_str()
    }

    /// Connects and subscribes to every URI with the etag that it knows.
    pub(super) async fn connect(&mut self, life: &Life) -> Result<(), String> {
        let mut dialect = Dialect::new(self.revision, "returning");
        match self.revision.is_stateless() {
            true => self.listen(life, &dialect).await,
            false => self.subscribe(life, &mut dialect).await,
        }
    }

    async fn listen(&mut self, life: &Life, dialect: &Dialect) -> Result<(), String> {
        let uris: Vec<&String> = self.known.keys().collect();
        let filter = json!({ "resourceSubscriptions": uris });
        let mut params = dialect.params(json!({ "notifications": filter }));
        let known: Map<String, Value> = self
            .known
            .iter()
            .map(|(uri, etag)| (uri.clone(), json!(etag)))
            .collect();
        params["_meta"][ETAG_META_KEY] = known.into();
        let message = request(1, "subscriptions/listen", params);
        self.open(&life.target, &dialect.post(&life.target, &message), false)
            .await
    }

    async fn subscribe(&mut self, life: &Life, dialect: &mut Dialect) -> Result<(), String> {
        let mut connection = life.connect();
        let answer = connection.ask(&dialect.initialize(&life.target)).await?;
        answer.result()?;
        dialect.session = answer.head.session().map(str::to_owned);
        connection.ask(&dialect.initialized(&life.target)).await?;
        self.open(&life.target, &dialect.session_stream(&life.target, None), true)
            .await?;
        for (uri, etag) in &self.known {
            let params = json!({ "uri": uri, "_meta": { ETAG_META_KEY: etag } });
            let message = request(2, "resources/subscribe", params);
            let answer = connection.ask(&dialect.post(&life.target, &message)).await?;
            if let Err(refusal) = answer.result() {
                return Err(format!("subscribing to {uri} with {etag:?}: {refusal}"));
            }
        }
        Ok(())
    }

    /// Opens the stream and waits for its head, or for the acknowledgement of a listen stream.
    async fn open(&mut self, target: &HttpTarget, request: &[u8], is_open: bool) -> Result<(), String> {
        let connected = TcpStream::connect(target.address).await;
        let mut socket = connected.map_err(|error| error.to_string())?;
        socket
            .write_all(request)
            .await
            .map_err(|error| error.to_string())?;
        let told = Arc::<Mutex<Vec<Told>>>::default();
        let (opened, open) = oneshot::channel();
        let mut reader = StreamReader {
            told: told.clone(),
            is_open,
            opened: Some(opened),
        };
        let reader = tokio::spawn(async move { reader.run(socket).await });
        self.stream = Some(Stream { told, reader });
        match timeout(ANSWER_MAX, open).await {
            Ok(Ok(opened)) => opened,
            _ => Err(format!("the stream of {} did not open", self.name())),
        }
    }

    /// Returns the notices of the stream so far.
    pub(super) fn told(&self) -> Vec<Told> {
        match &self.stream {
            Some(stream) => stream.told.lock().unwrap().clone(),
            None => Vec::new(),
        }
    }

    /// Ends the stream, and knows from then on the etags that it was told.
    pub(super) fn disconnect(&mut self) {
        for told in self.told() {
            self.known.insert(told.uri, Some(told.etag));
        }
        self.stream = None;
    }
}

struct StreamReader {
    told: Arc<Mutex<Vec<Told>>>,
    /// True if the stream is open with its head.
    is_open: bool,
    /// Answered when the stream is open, or refused.
    opened: Option<oneshot::Sender<Result<(), String>>>,
}

impl StreamReader {
    async fn run(&mut self, mut socket: TcpStream) {
        let mut response = ResponseReader::default();
        let mut events = EventReader::default();
        let mut bytes = vec![0; 8 << 10];
        loop {
            // The service may be killed at any moment.
            let Ok(count) = socket.read(&mut bytes).await else {
                return;
            };
            if count == 0 {
                return;
            }
            let mut body = Vec::new();
            let read = response.read(&bytes[..count], |part| body.extend_from_slice(part));
            read.unwrap();
            let Some(head) = response.head() else {
                continue;
            };
            if !head.is_stream {
                let text = String::from_utf8_lossy(&body).into_owned();
                self.answer(Err(format!("no stream: {text}")));
                return;
            }
            if self.is_open {
                self.answer(Ok(()));
            }
            let split = events.read(&body, |event| {
                if !event.data.is_empty() {
                    let message: Value = serde_json::from_slice(event.data).unwrap();
                    self.take(&message);
                }
            });
            split.unwrap();
        }
    }

    fn answer(&mut self, opened: Result<(), String>) {
        if let Some(waiting) = self.opened.take() {
            // A client that has given up fails its test by itself.
            waiting.send(opened).ok();
        }
    }

    fn take(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str() {
            Some(RESOURCE_UPDATED) => self.told.lock().unwrap().push(Told {
                uri: params["uri"].as_str().unwrap_or_default().to_owned(),
                etag: params["_meta"][ETAG_META_KEY]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
            }),
            Some(ACKNOWLEDGED) => self.answer(Ok(())),
            _ => {
                if let Some(error) = message.get("error") {
                    self.answer(Err(error.to_string()));
                }
            }
        }
    }
}

/// Calls `get_resource_etag` of the newest revision; returns the etag.
pub(super) async fn tool_etag(connection: &mut Connection, uri: &str) -> Result<String, String> {
    let dialect = Dialect::new(Revision::R2026_07_28, "poller");
    let params = json!({ "name": "get_resource_etag", "arguments": { "uri": uri } });
    let request = dialect.request(&connection.target, 1, "tools/call", params);
    let result = connection.ask(&request).await?.result()?;
    match result["structuredContent"]["etag_encoded"].as_str() {
        Some(etag) => Ok(etag.to_owned()),
        None => Err(format!("no etag in {result}")),
    }
}
