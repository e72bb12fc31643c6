//! Sinks: subscribers that write notices to files, to a debug log, or to webhooks.
//!
//! Attach one from code with [`Bus::attach`](tidings_actors::Bus::attach), or let [`Sinks`] attach those of
//! the configuration. Each runs on a thread of its own behind a bounded queue, so a slow sink delays nothing
//! else.
//!
//! ```
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let file = dir.path().join("journal.jsonl");
//! use tidings::sink::{FileOptions, JsonLines};
//! use tidings::{Bus, Resource};
//! use tidings::attach::AttachOptions;
//! let bus = Bus::builder().start()?;
//! let options = FileOptions::new(&file);
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
mod in_turn;

pub use append_file::{FileOptions, Fsync};
pub use configured::{SinkChanges, SinkError, Sinks};
pub use debug_log::DebugLog;
pub use in_turn::{MakeTurn, SinkTurn};
pub use json_lines::JsonLines;
pub use webhook::{InvalidSecret, Secret, SecretSource, Webhook, WebhookOptions};
