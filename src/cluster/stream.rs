//! The streams of a log: how they are made, and whether one that exists is fit.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use tidings_actors::shared_log::LogHistory;

use super::error::ClusterError;
use super::names::LogNames;
use super::settings::ClusterSettings;

/// The format of the streams and their subjects.
const FORMAT: &str = "1";

/// The keys of the metadata.
const FORMAT_KEY: &str = "tidings.format";
const EPOCH_KEY: &str = "tidings.epoch";
const BEGAN_KEY: &str = "tidings.began";

/// The time for which the servers know the identities of records, so that one sent again is stored once.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// Returns the configuration of the stream with the records of a new log.
pub(super) fn records(settings: &ClusterSettings, names: &LogNames, history: LogHistory) -> Config {
    let mut metadata = metadata();
    write_history(history, &mut metadata);
    Config {
        name: names.records.clone(),
        description: Some("the changes of a cluster of Tidings".to_owned()),
        subjects: names.record_subjects(),
        metadata,
        ..common(settings)
    }
}

/// Returns the configuration of the stream with the chunks of large bodies.
pub(super) fn bodies(settings: &ClusterSettings, names: &LogNames) -> Config {
    Config {
        name: names.bodies.clone(),
        description: Some("the larger bodies of a cluster of Tidings".to_owned()),
        subjects: names.body_subjects(),
        metadata: metadata(),
        ..common(settings)
    }
}

fn common(settings: &ClusterSettings) -> Config {
    Config {
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: settings.replicas,
        max_messages_per_subject: 1,
        max_bytes: i64::try_from(settings.max_bytes).unwrap_or(i64::MAX),
        // A full log refuses changes rather than forget the versions of other resources.
        discard: DiscardPolicy::New,
        allow_direct: true,
        deny_delete: true,
        duplicate_window: DUPLICATE_WINDOW,
        ..Config::default()
    }
}

fn metadata() -> HashMap<String, String> {
    HashMap::from([(FORMAT_KEY.to_owned(), FORMAT.to_owned())])
}

/// Writes the history of a log into the metadata of its stream.
pub(super) fn write_history(history: LogHistory, metadata: &mut HashMap<String, String>) {
    metadata.insert(EPOCH_KEY.to_owned(), history.epoch.to_string());
    metadata.insert(BEGAN_KEY.to_owned(), history.began.to_string());
}

/// Returns the history in the metadata of a stream.
pub(super) fn read_history(metadata: &HashMap<String, String>) -> Option<LogHistory> {
    Some(LogHistory {
        epoch: metadata.get(EPOCH_KEY)?.parse().ok()?,
        began: metadata.get(BEGAN_KEY)?.parse().ok()?,
    })
}

/// A difference between a stream and the one that a log needs.
struct Difference {
    text: String,
    /// True if the log would lose records or order with it.
    is_fatal: bool,
}

/// Checks that the stream `found` can hold what `wanted` is for, and returns the differences that do no harm.
///
/// # Errors
/// [`ClusterError`] if it was made for something else, or by a later version.
pub(super) fn check(wanted: &Config, found: &Info) -> Result<Vec<String>, ClusterError> {
    let stream = wanted.name.clone();
    let found = &found.config;
    match found.metadata.get(FORMAT_KEY).map(String::as_str) {
        Some(FORMAT) => {}
        Some(format) => {
            let format = format.to_owned();
            return Err(ClusterError::Format { stream, format });
        }
        None => {
            let differences = format!("its metadata has no {FORMAT_KEY}, so another program made it");
            return Err(ClusterError::Stream { stream, differences });
        }
    }
    // All of them, so that an operator mends them in one go.
    let mut fatal = Vec::new();
    let mut harmless = Vec::new();
    for difference in differences(wanted, found) {
        match difference.is_fatal {
            true => fatal.push(difference.text),
            false => harmless.push(difference.text),
        }
    }
    match fatal.is_empty() {
        true => Ok(harmless),
        false => Err(ClusterError::Stream {
            stream,
            differences: fatal.join("; "),
        }),
    }
}

fn differences(wanted: &Config, found: &Config) -> Vec<Difference> {
    let mut all = Differences(Vec::new());
    all.fatal("subjects", &wanted.subjects, &found.subjects);
    all.fatal("storage", &wanted.storage, &found.storage);
    all.fatal("retention", &wanted.retention, &found.retention);
    all.fatal("discard", &wanted.discard, &found.discard);
    all.fatal(
        "max_msgs_per_subject",
        &wanted.max_messages_per_subject,
        &found.max_messages_per_subject,
    );
    // Both are unlimited as 0 or -1.
    all.fatal("max_msgs", &0, &found.max_messages.max(0));
    all.fatal("max_age", &wanted.max_age, &found.max_age);
    all.fatal("discard_new_per_subject", &false, &found.discard_new_per_subject);
    all.fatal("no_ack", &false, &found.no_ack);
    all.fatal("sealed", &false, &found.sealed);
    // Bodies and the place of this node are asked from any server.
    all.fatal("allow_direct", &true, &found.allow_direct);
    all.fatal("a mirror", &false, &found.mirror.is_some());
    all.fatal("a subject transform", &false, &found.subject_transform.is_some());
    all.harmless("num_replicas", &wanted.num_replicas, &found.num_replicas);
    all.harmless("max_bytes", &wanted.max_bytes, &found.max_bytes);
    all.harmless("deny_delete", &wanted.deny_delete, &found.deny_delete);
    all.harmless(
        "duplicate_window",
        &wanted.duplicate_window,
        &found.duplicate_window,
    );
    all.harmless("max_msg_size", &0, &found.max_message_size.max(0));
    all.0
}

struct Differences(Vec<Difference>);

impl Differences {
    fn fatal<T: PartialEq + Debug>(&mut self, key: &str, wanted: &T, found: &T) {
        self.compare(key, wanted, found, true);
    }

    fn harmless<T: PartialEq + Debug>(&mut self, key: &str, wanted: &T, found: &T) {
        self.compare(key, wanted, found, false);
    }

    fn compare<T: PartialEq + Debug>(&mut self, key: &str, wanted: &T, found: &T, is_fatal: bool) {
        if wanted != found {
            let text = format!("{key} is {found:?} and should be {wanted:?}");
            self.0.push(Difference { text, is_fatal });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: LogHistory = LogHistory { epoch: 7, began: 3 };

    fn wanted() -> Config {
        records(&ClusterSettings::default(), &LogNames::new("x"), HISTORY)
    }

    fn info(config: &Config) -> Info {
        let text = serde_json::json!({
            "config": config,
            "created": "2026-01-01T00:00:00Z",
            "state": {
                "messages": 0, "bytes": 0, "first_seq": 0, "first_ts": "2026-01-01T00:00:00Z",
                "last_seq": 0, "last_ts": "2026-01-01T00:00:00Z", "consumer_count": 0,
            },
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn own_stream_has_no_difference() {
        assert!(check(&wanted(), &info(&wanted())).unwrap().is_empty());
        assert_eq!(read_history(&wanted().metadata), Some(HISTORY));
    }

    #[test]
    fn harmless_difference_is_named() {
        let mut found = wanted();
        found.num_replicas = 1;
        let named = check(&wanted(), &info(&found)).unwrap();
        assert_eq!(named, ["num_replicas is 1 and should be 3"]);
    }

    #[test]
    fn every_fatal_difference_is_named() {
        let mut found = wanted();
        found.max_messages_per_subject = 5;
        found.max_messages = 10;
        found.max_age = Duration::from_secs(1);
        found.discard = DiscardPolicy::Old;
        found.subjects = vec!["other.>".to_owned()];
        let error = check(&wanted(), &info(&found)).unwrap_err().to_string();
        for key in [
            "max_msgs_per_subject is 5",
            "max_msgs is 10",
            "max_age",
            "discard",
            "other.>",
        ] {
            assert!(error.contains(key), "{error} lacks {key}");
        }
    }

    #[test]
    fn foreign_and_newer_streams_are_refused() {
        let mut found = wanted();
        found.metadata.insert(FORMAT_KEY.to_owned(), "2".to_owned());
        let error = check(&wanted(), &info(&found)).unwrap_err();
        assert!(matches!(error, ClusterError::Format { .. }), "{error}");
        found.metadata.clear();
        let error = check(&wanted(), &info(&found)).unwrap_err();
        assert!(error.to_string().contains("another program"), "{error}");
    }
}
