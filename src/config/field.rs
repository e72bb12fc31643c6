//! The one table of the keys of lists of tables (`[[collection]]`, `[[journal]]`, …), the twin of the table in `key`.
//!
//! Reading, checking, suggesting, printing and the documentation walk this table. It holds no values in use, and
//! knows nothing of text: what a value may be stands in `list`.

use super::key::{DAY, GIB, KIB, count, seconds};
use super::kind::Kind;
use super::list::Shape;
use std::time::Duration;

/// Every list of tables, in the order in which they are printed.
pub(super) const LISTS: &[&str] = &["collection", "journal", "webhook", "debug_log"];

const QUEUE: Kind = count(1, 1_000_000);
const FILES: Kind = count(0, 1000);
const FILE_BYTES: Kind = Kind::Bytes {
    min: KIB,
    max: 1024 * GIB,
};
const FSYNC_EVERY: Kind = Kind::Time {
    min: Duration::from_millis(10),
    max: Duration::from_secs(3600),
};

/// One row of the table.
#[derive(Debug)]
pub(super) struct Field {
    /// Dotted path from the list.
    pub(super) path: &'static str,
    /// What it may be.
    pub(super) shape: Shape,
    /// What happens without it.
    pub(super) need: Need,
    /// What it decides.
    pub(super) meaning: &'static str,
}

/// What happens when a key is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// An error.
    Required,
    /// This text is used.
    Default(&'static str),
    /// Nothing is used.
    Optional,
}

const fn field(path: &'static str, shape: Shape, need: Need, meaning: &'static str) -> Field {
    Field {
        path,
        shape,
        need,
        meaning,
    }
}

/// Every key, parents before children.
pub(super) const FIELDS: &[Field] = {
    use Need::{Default, Optional, Required};
    &[
        field(
            "collection.name",
            Shape::Scheme,
            Required,
            "Scheme of the URIs (`NAME://all`) and end of the tool `list_NAME`; each is used once.",
        ),
        field(
            "collection.item",
            Shape::Name,
            Required,
            "What one item is called: end of the tool `get_ITEM`; each is used once.",
        ),
        field(
            "collection.file",
            Shape::File,
            Required,
            "The JSON file. A relative path starts at `workspace.dir`, without one at the folder of the configuration file.",
        ),
        field(
            "collection.pointer",
            Shape::Pointer,
            Default(""),
            "JSON pointer (RFC 6901) to the array of items; empty for the document itself.",
        ),
        field(
            "collection.id",
            Shape::Field,
            Default("id"),
            "Field that names an item: a text or a whole number that no other item has.",
        ),
        field(
            "collection.title",
            Shape::Title,
            Optional,
            "What people call the items; without it, the name.",
        ),
        field(
            "collection.view",
            Shape::Tables,
            Optional,
            "A part of the items, `[[collection.view]]`, with either `filter` or `group_by`.",
        ),
        field(
            "collection.view.name",
            Shape::Name,
            Required,
            "Rest of its URI; `all` is taken.",
        ),
        field(
            "collection.view.filter",
            Shape::Table,
            Optional,
            "Shows the items that pass, as one resource `NAME://VIEW`: `field` and one test.",
        ),
        field(
            "collection.view.group_by",
            Shape::Field,
            Optional,
            "Shows the items by value of this field, as one resource `NAME://VIEW/{value}` for each value.",
        ),
        field(
            "collection.view.filter.field",
            Shape::Field,
            Required,
            "The field that is tested; `null` counts as missing.",
        ),
        field(
            "collection.view.filter.equals",
            Shape::Scalar,
            Optional,
            "It has this value.",
        ),
        field(
            "collection.view.filter.not_equals",
            Shape::Scalar,
            Optional,
            "It has another value, or is missing.",
        ),
        field(
            "collection.view.filter.in",
            Shape::Scalars,
            Optional,
            "It has one of these values.",
        ),
        field(
            "collection.view.filter.exists",
            Shape::Flag,
            Optional,
            "Whether it is there.",
        ),
        field(
            "collection.view.filter.contains",
            Shape::Text,
            Optional,
            "It is a text with this in it, or a list that has this text.",
        ),
        field(
            "journal.name",
            Shape::Name,
            Required,
            "Its name: `journal/NAME` in metrics and logs; each is used once.",
        ),
        field(
            "journal.file",
            Shape::File,
            Required,
            "The file. A relative path starts at the folder of the configuration file.",
        ),
        field(
            "journal.uris",
            Shape::Patterns,
            Default(""),
            "Resources it is told of; empty means all.",
        ),
        field(
            "journal.kinds",
            Shape::News,
            Default(""),
            "Kinds of news it is told of; empty means all.",
        ),
        field(
            "journal.class",
            Shape::Of(Kind::Choice(&["every", "latest"])),
            Default("every"),
            "Every notice, or, while it is behind, only the newest of each resource and list.",
        ),
        field(
            "journal.queue",
            Shape::Of(QUEUE),
            Default("10000"),
            "How many may wait; what is lost beyond, `overflow` says, and a gap is told.",
        ),
        field(
            "journal.overflow",
            Shape::Of(Kind::Choice(&["drop_oldest", "drop_newest"])),
            Default("drop_oldest"),
            "What a full queue loses, with the class `every`.",
        ),
        field(
            "journal.bytes_max",
            Shape::Of(FILE_BYTES),
            Default("64MiB"),
            "Size at which the file is rotated: FILE becomes FILE.1, FILE.1 becomes FILE.2, and so on.",
        ),
        field(
            "journal.files_max",
            Shape::Of(FILES),
            Default("5"),
            "Rotated files that are kept besides FILE; the oldest is removed.",
        ),
        field(
            "journal.fsync",
            Shape::Of(Kind::Choice(&["never", "rotate", "interval", "always"])),
            Default("interval"),
            "When lines are brought to the disk; the page on sinks has what each may lose.",
        ),
        field(
            "journal.fsync_every",
            Shape::Of(FSYNC_EVERY),
            Default("1s"),
            "How long a line may wait for that with `interval`.",
        ),
        field(
            "webhook.name",
            Shape::Name,
            Required,
            "Its name: `webhook/NAME` in metrics and logs; each is used once.",
        ),
        field(
            "webhook.url",
            Shape::Url,
            Required,
            "Where notices are sent by POST.",
        ),
        field(
            "webhook.secret_file",
            Shape::File,
            Optional,
            "File with the secret, `whsec_` and base64 of 24 to 64 bytes; several lines sign several times. A relative path starts at the folder of the configuration file.",
        ),
        field(
            "webhook.secret_variable",
            Shape::Variable,
            Optional,
            "Environment variable with the secret, in place of `secret_file`; several are separated by blanks.",
        ),
        field(
            "webhook.uris",
            Shape::Patterns,
            Default(""),
            "Resources it is told of; empty means all.",
        ),
        field(
            "webhook.kinds",
            Shape::News,
            Default(""),
            "Kinds of news it is told of; empty means all.",
        ),
        field(
            "webhook.class",
            Shape::Of(Kind::Choice(&["every", "latest"])),
            Default("every"),
            "Every notice, or, while it is behind, only the newest of each resource and list.",
        ),
        field(
            "webhook.queue",
            Shape::Of(QUEUE),
            Default("10000"),
            "How many may wait; what is lost beyond, `overflow` says, and a gap is told.",
        ),
        field(
            "webhook.overflow",
            Shape::Of(Kind::Choice(&["drop_oldest", "drop_newest"])),
            Default("drop_oldest"),
            "What a full queue loses, with the class `every`.",
        ),
        field(
            "webhook.timeout",
            Shape::Of(seconds(1, 300)),
            Default("10s"),
            "Time of one request, from the look-up of the name to the end of the answer.",
        ),
        field(
            "webhook.attempts",
            Shape::Of(count(1, 1000)),
            Default("10"),
            "Requests for one notice; then it is a dead letter.",
        ),
        field(
            "webhook.retry_for",
            Shape::Of(seconds(0, DAY)),
            Default("15m"),
            "Time for the requests for one notice; then it is a dead letter, whatever `attempts` says.",
        ),
        field(
            "webhook.backoff_max",
            Shape::Of(seconds(1, 3600)),
            Default("1m"),
            "Longest pause between two of them; the first is about half a second, and each is twice the one before.",
        ),
        field(
            "webhook.dead_letters",
            Shape::Of(Kind::Folder),
            Default(""),
            "JSON-lines file for notices that could not be delivered; empty keeps none. A relative path starts at the folder of the configuration file.",
        ),
        field(
            "webhook.dead_letter_bytes_max",
            Shape::Of(FILE_BYTES),
            Default("16MiB"),
            "Size at which that file is rotated; one rotated file is kept.",
        ),
        field(
            "webhook.allow_private",
            Shape::Flag,
            Default("false"),
            "Whether the address may be a loopback, private, link-local or otherwise special one.",
        ),
        field(
            "debug_log.name",
            Shape::Name,
            Required,
            "Its name: `debug_log/NAME` in metrics and logs; each is used once.",
        ),
        field(
            "debug_log.uris",
            Shape::Patterns,
            Default(""),
            "Resources whose notices are traced; empty means all.",
        ),
        field(
            "debug_log.lists",
            Shape::Flag,
            Default("true"),
            "Whether changes of lists are traced too.",
        ),
        field(
            "debug_log.sample",
            Shape::Of(count(1, 1_000_000_000)),
            Default("1"),
            "Of every so many notices one is traced, counted by position.",
        ),
        field(
            "debug_log.format",
            Shape::Of(Kind::Choice(&["text", "json"])),
            Default("text"),
            "One line of text, or one JSON object, per step.",
        ),
        field(
            "debug_log.file",
            Shape::Of(Kind::Folder),
            Default(""),
            "The file; empty means standard error. A relative path starts at the folder of the configuration file.",
        ),
        field(
            "debug_log.bytes_max",
            Shape::Of(FILE_BYTES),
            Default("64MiB"),
            "Size at which the file is rotated.",
        ),
        field(
            "debug_log.files_max",
            Shape::Of(FILES),
            Default("2"),
            "Rotated files that are kept besides it.",
        ),
        field(
            "debug_log.queue",
            Shape::Of(QUEUE),
            Default("10000"),
            "How many steps may wait; the oldest are lost beyond, and a gap is written.",
        ),
    ]
};

/// Of these keys of a table, exactly one must be there.
pub(super) const ONE_OF: &[(&str, &[&str])] = &[
    ("collection.view", &["filter", "group_by"]),
    (
        "collection.view.filter",
        &["equals", "not_equals", "in", "exists", "contains"],
    ),
    ("webhook", &["secret_file", "secret_variable"]),
];

/// Within the table above them, no two may have the same value.
pub(super) const UNIQUE: &[(&str, &[&str])] = &[
    ("collection.name", &[]),
    ("collection.item", &[]),
    ("collection.view.name", &["all"]),
    ("journal.name", &[]),
    ("webhook.name", &[]),
    ("debug_log.name", &[]),
];

/// The keys of the table at `path`.
pub(super) fn fields_of(path: &str) -> impl Iterator<Item = &'static Field> {
    FIELDS
        .iter()
        .filter(move |field| field.path.rsplit_once('.').map(|(parent, _)| parent) == Some(path))
}

impl Field {
    /// The last part of the path.
    pub(super) fn name(&self) -> &'static str {
        self.path.rsplit_once('.').map_or(self.path, |(_, name)| name)
    }
}
