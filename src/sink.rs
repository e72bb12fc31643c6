//! Where notices go besides MCP sessions: files, a debug log, signed webhooks, server-sent events, a WebSocket.
//!
//! Owns: the subscribers that come with Tidings, each an implementation of [`Subscriber`](tidings_actors::attach::Subscriber),
//! to be attached with [`Bus::attach`](tidings_actors::Bus::attach) from code, and by [`Sinks`] as the configuration
//! says. Never: is waited for by anybody; each runs on a thread of its own behind a bounded queue.
//! Receives deliveries from the bus; writes to files, standard error and HTTP receivers.
//!
//! ```
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let file = dir.path().join("journal.jsonl");
//! use tidings::sink::{JsonLines, JsonLinesOptions};
//! use tidings::{Bus, Resource};
//! use tidings::attach::AttachOptions;
//! let bus = Bus::builder().start()?;
//! let options = JsonLinesOptions::new(&file);
//! let journal = bus.attach(AttachOptions::new("journal"), move || JsonLines::open(&options)).await?;
//! bus.register(Resource::text("demo://greeting", "hello")?).await?;
//! journal.detach(std::time::Duration::from_secs(10)).await;
//! assert!(std::fs::read_to_string(&file)?.contains(r#""kind":"updated","uri":"demo://greeting""#));
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(run()).unwrap();
//! ```

mod record;
mod append_file;
mod json_lines;
mod debug_log;
mod webhook;
mod configured;

pub use append_file::{FileOptions, Fsync};
pub use configured::{SinkChanges, SinkError, Sinks};
pub use debug_log::{DebugLog, DebugLogOptions, DebugLogTarget};
pub use json_lines::{JsonLines, JsonLinesOptions};
pub use webhook::{InvalidSecret, Secret, SecretSource, Webhook, WebhookOptions};
