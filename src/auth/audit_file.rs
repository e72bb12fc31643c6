//! The audit as a file of JSON lines.
//!
//! Requests hand their lines to a bounded queue, and one thread writes them, so a slow disk delays no
//! request. The file is opened anew for each burst of lines, so a program that rotates logs may move it away.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::SystemTime;

use metrics::Counter;
use serde::Serialize;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tracing::{error, info};

use super::authorize::Verdict;
use super::border::{AuditEntry, RecordAudit};
use crate::metrics::AuditMetrics;
use crate::timestamp::utc_millis;

/// Lines that may wait for the disk. Beyond that a line is lost, and counted.
const QUEUE_MAX: usize = 10_000;

/// Lines that are written at a time.
const BURST_MAX: usize = 1_000;

/// One line of the file.
#[derive(Serialize)]
struct AuditLine<'a> {
    time: String,
    /// The node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    right: Option<&'static str>,
    object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    /// The scope that a token lacked.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    request: u64,
}

impl<'a> AuditLine<'a> {
    fn of(entry: &'a AuditEntry<'_>, node: Option<&'a str>) -> AuditLine<'a> {
        let (decision, rule, scope) = match entry.verdict {
            Verdict::Allowed(rule) => ("allowed", Some(rule.as_str()), None),
            Verdict::NeedsScope(scope) => ("denied", None, Some(scope.as_str())),
            Verdict::Denied => ("denied", None, None),
        };
        let credential = entry.principal.map(|principal| principal.credential());
        AuditLine {
            time: utc_millis(SystemTime::now()),
            node,
            decision,
            principal: entry.principal.map(|principal| principal.id()),
            credential: credential.filter(|credential| !credential.is_empty()),
            right: entry.right.map(|right| right.name()),
            object: entry.object.to_string(),
            rule,
            scope,
            peer: entry.peer.map(|peer| peer.to_string()),
            request: entry.request,
        }
    }
}

/// The audit as a file. When it is dropped, the lines that wait are written first.
pub struct AuditFile {
    /// None while it is dropped.
    queue: Option<SyncSender<Vec<u8>>>,
    lost: Counter,
    node: Option<String>,
    writer: Option<JoinHandle<()>>,
}

impl AuditFile {
    /// Opens the file, which is created readable by its owner alone, and starts the thread that writes it.
    ///
    /// # Errors
    /// A file that cannot be opened for appending.
    pub fn open(path: &Path) -> io::Result<AuditFile> {
        append_to(path)?;
        let metrics = AuditMetrics::new();
        let lost = metrics.lost.clone();
        let (queue, lines) = sync_channel(QUEUE_MAX);
        let path = path.to_owned();
        let writer = std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || write_lines(&path, &lines, &metrics))?;
        Ok(AuditFile {
            queue: Some(queue),
            lost,
            node: None,
            writer: Some(writer),
        })
    }

    /// Names this node of a cluster in each line.
    #[must_use]
    pub fn with_node(mut self, node: Option<String>) -> AuditFile {
        self.node = node;
        self
    }
}

impl RecordAudit for AuditFile {
    fn record(&self, entry: &AuditEntry<'_>) {
        let Some(queue) = &self.queue else { return };
        let Ok(mut line) = serde_json::to_vec(&AuditLine::of(entry, self.node.as_deref())) else {
            return self.lost.increment(1);
        };
        line.push(b'\n');
        if queue.try_send(line).is_err() {
            self.lost.increment(1);
        }
    }
}

impl Drop for AuditFile {
    fn drop(&mut self) {
        // Closes the queue, which ends the thread after its last line.
        self.queue = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            error!("the thread of the audit has panicked");
        }
    }
}

/// Writes lines until the queue is closed. A disk that fails costs lines, which are counted, and no request.
fn write_lines(path: &Path, lines: &Receiver<Vec<u8>>, metrics: &AuditMetrics) {
    let mut is_failing = false;
    while let Ok(first) = lines.recv() {
        let mut burst = first;
        let mut count = 1;
        while count < BURST_MAX
            && let Ok(line) = lines.try_recv()
        {
            burst.extend(line);
            count += 1;
        }
        match append_to(path).and_then(|mut file| file.write_all(&burst)) {
            Ok(()) => {
                metrics.written.increment(count as u64);
                if std::mem::take(&mut is_failing) {
                    info!(file = %path.display(), "the audit is written again");
                }
            }
            Err(fault) => {
                metrics.lost.increment(count as u64);
                if !std::mem::replace(&mut is_failing, true) {
                    error!(file = %path.display(), %fault, "the audit cannot be written; its lines are lost");
                }
            }
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Object, Principal, Right};
    use serde_json::{Value, json};

    fn entry<'a>(principal: &'a Principal, verdict: &'a Verdict) -> AuditEntry<'a> {
        AuditEntry {
            principal: Some(principal),
            right: Some(Right::Publish),
            object: Object::Resource("note://\"a\"\nb"),
            verdict,
            peer: Some("192.0.2.1".parse().unwrap()),
            request: 7,
        }
    }

    #[test]
    fn judgement_is_one_json_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = AuditFile::open(&path).unwrap();
        let principal = Principal::builder("token:ci").credential("sha256:12ab").build();
        audit.record(&entry(&principal, &Verdict::Allowed("rule 2".into())));
        audit.record(&entry(&principal, &Verdict::NeedsScope("notes:write".into())));
        // Writes what waits.
        drop(audit);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        let mut first = lines[0].clone();
        assert!(first["time"].as_str().unwrap().ends_with('Z'));
        first["time"] = json!("");
        assert_eq!(
            first,
            json!({
                "time": "", "decision": "allowed", "principal": "token:ci", "credential": "sha256:12ab",
                "right": "publish", "object": "note://\"a\"\nb", "rule": "rule 2", "peer": "192.0.2.1",
                "request": 7
            })
        );
        assert_eq!(
            (&lines[1]["decision"], &lines[1]["scope"]),
            (&json!("denied"), &json!("notes:write"))
        );
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn node_of_a_cluster_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = AuditFile::open(&path)
            .unwrap()
            .with_node(Some("node-1".to_owned()));
        audit.record(&entry(&Principal::local(), &Verdict::Denied));
        drop(audit);
        let line: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(line["node"], "node-1");
    }

    #[test]
    fn file_that_was_moved_away_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = AuditFile::open(&path).unwrap();
        std::fs::rename(&path, folder.path().join("audit.jsonl.1")).unwrap();
        audit.record(&entry(&Principal::local(), &Verdict::Denied));
        drop(audit);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[test]
    fn folder_that_is_missing_is_refused_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        assert!(AuditFile::open(&folder.path().join("none/audit.jsonl")).is_err());
    }
}
