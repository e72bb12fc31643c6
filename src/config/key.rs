//! The one table of every key: where it stands, what it means, its default, its range and what happens at the limit.
//!
//! Reading the file and the environment, checking, suggesting, printing and the documentation all walk this table;
//! none of them names a key of its own. The structs in `section` have one field per row, which the first load
//! of the defaults proves. It holds no values in use: those are in `Config`.

use super::kind::Kind;
use std::time::Duration;

/// One row of the table.
#[derive(Debug)]
pub(super) struct Key {
    /// Section and name with a dot between them.
    pub(super) path: &'static str,
    /// Type and range.
    pub(super) kind: Kind,
    /// Default, as an environment variable would carry it.
    pub(super) default: &'static str,
    /// What the value decides.
    pub(super) meaning: &'static str,
    /// What happens when the limit is reached; empty where the value is no limit.
    pub(super) at_limit: &'static str,
}

impl Key {
    /// The row of a dotted path.
    pub(super) fn find(path: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.path == path)
    }

    /// The section's part of the path.
    pub(super) fn section(&self) -> &'static str {
        self.split().0
    }

    /// The name within the section.
    pub(super) fn name(&self) -> &'static str {
        self.split().1
    }

    fn split(&self) -> (&'static str, &'static str) {
        self.path
            .split_once('.')
            .expect("every path of the table has a section and a name")
    }

    /// The environment variable that sets this key.
    pub(super) fn variable(&self) -> String {
        format!("TIDINGS_{}", self.path.replace('.', "__").to_ascii_uppercase())
    }
}

/// Sections in the order in which they are printed and documented, with what they are about.
pub(super) const SECTIONS: &[(&str, &str)] = &[
    (
        "http",
        "The listener: where it stands, whom it lets in, and how long it waits for them.",
    ),
    ("session", "Connected MCP clients and what each may hold."),
    ("bus", "What the bus keeps, and the door in front of it."),
    (
        "mcp",
        "What MCP clients are told about the server, its lists and its tools.",
    ),
    (
        "workspace",
        "The folder whose files are served, and how files are watched.",
    ),
    (
        "tools",
        "The tools of that folder: executables that clients call.",
    ),
    (
        "register",
        "The executable `register` of that folder, which prints further registrations.",
    ),
    ("store", "Where versions outlive the process."),
    (
        "events",
        "The streams of `GET /v1/events` and the history they read from.",
    ),
    ("ws", "The connections of `GET /v1/ws`."),
    ("log", "What is logged, and how."),
    ("metrics", "What is measured, and where it is shown."),
    ("shutdown", "How the service ends."),
];

/// Bytes of a kibibyte.
pub(super) const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Bytes of a gibibyte.
pub(super) const GIB: u64 = 1 << 30;
/// Seconds of a day.
pub(super) const DAY: u64 = 24 * 3600;

/// A whole number in this range.
pub(super) const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max }
}

/// A duration in this range of seconds.
pub(super) const fn seconds(min: u64, max: u64) -> Kind {
    Kind::Time {
        min: Duration::from_secs(min),
        max: Duration::from_secs(max),
    }
}

/// Every key, grouped by section in the order of [`SECTIONS`].
pub(super) const KEYS: &[Key] = &[
    Key {
        path: "http.listen",
        kind: Kind::Address,
        default: "127.0.0.1:8808",
        meaning: "Address to accept connections on; port 0 takes a free one.",
        at_limit: "An address other machines can reach needs `http.allowed_hosts`, or the service does not start.",
    },
    Key {
        path: "http.allowed_hosts",
        kind: Kind::Hosts,
        default: "",
        meaning: "Names the `Host` header may carry, on any port, besides localhost, 127.0.0.1 and [::1].",
        at_limit: "A request with another name gets 403.",
    },
    Key {
        path: "http.allowed_origins",
        kind: Kind::Origins,
        default: "",
        meaning: "Origins of web pages that may call, besides http and https of localhost, 127.0.0.1 and [::1] on any port.",
        at_limit: "A request from another origin gets 403; one without `Origin` passes.",
    },
    Key {
        path: "http.body_bytes_max",
        kind: bytes(KIB, 64 * MIB),
        default: "4MiB",
        meaning: "Largest request body.",
        at_limit: "A larger one gets 413 and is not read further.",
    },
    Key {
        path: "http.connections_max",
        kind: count(1, 1_000_000),
        default: "20000",
        meaning: "Open connections in all.",
        at_limit: "Further connections are closed at once and counted.",
    },
    Key {
        path: "http.header_timeout",
        kind: seconds(1, 300),
        default: "10s",
        meaning: "Time a client has to send the headers of a request, also after the one before it on the same connection.",
        at_limit: "A slower connection is closed.",
    },
    Key {
        path: "http.keep_alive",
        kind: seconds(1, 300),
        default: "15s",
        meaning: "How often an idle stream carries a comment, so that proxies keep it and dead peers are noticed.",
        at_limit: "",
    },
    Key {
        path: "http.write_timeout",
        kind: seconds(1, 3600),
        default: "5m",
        meaning: "How long a connection may take nothing of what is written to it.",
        at_limit: "It is closed. A listen stream ends with it; the client of a session comes back and is told what it missed.",
    },
    Key {
        path: "http.not_sent_low_water",
        kind: bytes(KIB, 4 * MIB),
        default: "16KiB",
        meaning: "Unsent bytes the kernel may hold per stream (`TCP_NOTSENT_LOWAT`); more means staler notices for slow readers.",
        at_limit: "Notices wait in the outbox, where repeats of one URI become one.",
    },
    Key {
        path: "session.max",
        kind: count(1, 1_000_000),
        default: "20000",
        meaning: "Sessions at a time.",
        at_limit: "Further `initialize` and `subscriptions/listen` requests get an error with status 503.",
    },
    Key {
        path: "session.subscriptions_max",
        kind: count(1, 100_000),
        default: "1000",
        meaning: "Subscriptions of one session or of one listen stream.",
        at_limit: "Further ones get an error that names the limit.",
    },
    Key {
        path: "session.idle_timeout",
        kind: seconds(10, DAY),
        default: "5m",
        meaning: "How long a session lives with neither an open stream nor a request.",
        at_limit: "The session ends and its next request gets 404.",
    },
    Key {
        path: "session.stall_timeout",
        kind: seconds(0, DAY),
        default: "0s",
        meaning: "How long a session may take nothing of what waits for it though its stream is open; 0s is for ever, since what waits is bounded by its subscriptions.",
        at_limit: "It is ended and its connection cut; the next request gets 404 with the reason.",
    },
    Key {
        path: "session.age_max",
        kind: seconds(0, 30 * DAY),
        default: "0s",
        meaning: "Greatest age of a session or listen stream; 0s is none. Each ends up to a tenth earlier, so that those that came together do not come back together.",
        at_limit: "It is told what is pending and ended; the next request of a session gets 404 with the reason, a listen stream its result.",
    },
    Key {
        path: "session.per_peer_max",
        kind: count(0, 1_000_000),
        default: "0",
        meaning: "Sessions and listen streams of one IP address, or of one /64 of IPv6; 0 is no limit. Behind a proxy all clients are one address.",
        at_limit: "Further `initialize` and `subscriptions/listen` requests get an error with status 429.",
    },
    Key {
        path: "session.announce_on_connect",
        kind: Kind::Flag,
        default: "true",
        meaning: "Whether a fresh session is told once of every list that is not empty.",
        at_limit: "",
    },
    Key {
        path: "session.streams_max",
        kind: count(1, 1_000_000),
        default: "20000",
        meaning: "Open streams in all.",
        at_limit: "A request for a further stream gets 503.",
    },
    Key {
        path: "bus.in_flight_max",
        kind: count(1, 65_536),
        default: "1024",
        meaning: "Changes inside the bus at a time: the width of its door.",
        at_limit: "Publishers wait at the door.",
    },
    Key {
        path: "bus.resources_max",
        kind: count(1, 10_000_000),
        default: "100000",
        meaning: "Registered resources.",
        at_limit: "A further registration gets an error that names the limit.",
    },
    Key {
        path: "bus.body_bytes_max",
        kind: bytes(KIB, GIB),
        default: "16MiB",
        meaning: "Largest body of one resource.",
        at_limit: "A larger one is refused, over HTTP with 413.",
    },
    Key {
        path: "bus.list_items_max",
        kind: count(1, 1_000_000),
        default: "10000",
        meaning: "Tools, prompts and templates, each.",
        at_limit: "A further registration gets an error that names the limit.",
    },
    Key {
        path: "bus.shards",
        kind: count(0, 64),
        default: "0",
        meaning: "Threads among which connections and their subscriptions are dealt; 0 means one per core.",
        at_limit: "With 0, cores above 64 carry no shard.",
    },
    Key {
        path: "bus.removed_max",
        kind: count(0, 10_000_000),
        default: "100000",
        meaning: "Removed URIs that keep a version of their own.",
        at_limit: "The oldest share one floor, so versions still never go backward but may jump.",
    },
    Key {
        path: "mcp.page_size",
        kind: count(1, 1000),
        default: "100",
        meaning: "Items on one page of a list.",
        at_limit: "The rest follows under a cursor.",
    },
    Key {
        path: "mcp.ttl",
        kind: seconds(0, DAY),
        default: "0s",
        meaning: "How long clients of revision 2026-07-28 may keep a result without asking again (`ttlMs`).",
        at_limit: "",
    },
    Key {
        path: "mcp.cache_scope",
        kind: Kind::Choice(&["private", "public"]),
        default: "private",
        meaning: "Who may keep a result: one user's cache, or a shared one.",
        at_limit: "",
    },
    Key {
        path: "mcp.wait_max",
        kind: seconds(1, 25),
        default: "25s",
        meaning: "Longest wait of one `wait_for_resource_change` call; hosts cut longer calls.",
        at_limit: "A call that asks for more waits this long and answers that nothing changed.",
    },
    Key {
        path: "mcp.items_max",
        kind: count(1, 1000),
        default: "100",
        meaning: "Items of one `get_resource_etags` or `wait_for_resource_change` call.",
        at_limit: "A call with more gets a tool error that names the limit.",
    },
    Key {
        path: "mcp.name",
        kind: Kind::Text { min: 1, max: 256 },
        default: "tidings",
        meaning: "Name of the server, as clients show it.",
        at_limit: "",
    },
    Key {
        path: "mcp.instructions",
        kind: Kind::Text { min: 0, max: 65_536 },
        default: "",
        meaning: "What the server tells a model about its use; empty sends none.",
        at_limit: "",
    },
    Key {
        path: "workspace.dir",
        kind: Kind::Folder,
        default: "",
        meaning: "Folder to serve, relative to where the service was started; empty serves none.",
        at_limit: "",
    },
    Key {
        path: "workspace.scheme",
        kind: Kind::Scheme,
        default: "workspace",
        meaning: "Scheme of the URIs that files get.",
        at_limit: "",
    },
    Key {
        path: "workspace.debounce",
        kind: Kind::Time {
            min: Duration::from_millis(10),
            max: Duration::from_secs(10),
        },
        default: "100ms",
        meaning: "Quiet time after a file event before the folder, or the file of a collection, is read.",
        at_limit: "",
    },
    Key {
        path: "workspace.debounce_max",
        kind: Kind::Time {
            min: Duration::from_millis(10),
            max: Duration::from_secs(60),
        },
        default: "1s",
        meaning: "Longest wait while a burst of events goes on; not shorter than `workspace.debounce`.",
        at_limit: "It is read in the middle of the burst.",
    },
    Key {
        path: "workspace.rescan",
        kind: seconds(1, DAY),
        default: "30s",
        meaning: "How often the folder, or the file of a collection, is looked at without any event, as a safety net.",
        at_limit: "",
    },
    Key {
        path: "workspace.file_bytes_max",
        kind: bytes(KIB, GIB),
        default: "4MiB",
        meaning: "Largest file that is served.",
        at_limit: "Larger files are skipped and reported.",
    },
    Key {
        path: "workspace.files_max",
        kind: count(1, 10_000_000),
        default: "50000",
        meaning: "Files that are served.",
        at_limit: "Further files are skipped and reported.",
    },
    Key {
        path: "workspace.hidden",
        kind: Kind::Flag,
        default: "false",
        meaning: "Whether files and folders whose name starts with a dot are served.",
        at_limit: "",
    },
    Key {
        path: "workspace.collection_bytes_max",
        kind: bytes(KIB, GIB),
        default: "64MiB",
        meaning: "Largest file of a collection.",
        at_limit: "A larger one is reported, and what was read before stays.",
    },
    Key {
        path: "workspace.collection_items_max",
        kind: count(1, 1_000_000),
        default: "100000",
        meaning: "Items of one collection.",
        at_limit: "A file with more is reported, and what was read before stays.",
    },
    Key {
        path: "tools.timeout",
        kind: seconds(1, 600),
        default: "30s",
        meaning: "Time of one call; the sidecar of a tool may set another for it.",
        at_limit: "All processes of the call are killed and it gets a tool error that names this key.",
    },
    Key {
        path: "tools.output_bytes_max",
        kind: bytes(KIB, 64 * MIB),
        default: "1MiB",
        meaning: "What one call may print.",
        at_limit: "All processes of the call are killed and it gets a tool error that names this key.",
    },
    Key {
        path: "tools.concurrency_max",
        kind: count(1, 1024),
        default: "8",
        meaning: "Calls that run at a time.",
        at_limit: "Further calls wait, at most their timeout; then they get a tool error that says busy.",
    },
    Key {
        path: "register.refresh",
        kind: seconds(1, 3600),
        default: "5s",
        meaning: "Pause between two runs.",
        at_limit: "",
    },
    Key {
        path: "register.timeout",
        kind: seconds(1, 600),
        default: "10s",
        meaning: "Time of one run.",
        at_limit: "It is killed and reported, and what it last printed stays.",
    },
    Key {
        path: "store.dir",
        kind: Kind::Folder,
        default: "",
        meaning: "Folder of the durable store; empty keeps versions in memory, for one life of the process.",
        at_limit: "",
    },
    Key {
        path: "events.history_max",
        kind: count(1, 10_000_000),
        default: "10000",
        meaning: "Events kept for streams that are behind or come back.",
        at_limit: "The oldest is forgotten; a stream that still wanted it is told how many it missed.",
    },
    Key {
        path: "events.history_bytes_max",
        kind: bytes(64 * KIB, 16 * GIB),
        default: "16MiB",
        meaning: "Memory of those events.",
        at_limit: "The oldest are forgotten.",
    },
    Key {
        path: "events.streams_max",
        kind: count(0, 1_000_000),
        default: "10000",
        meaning: "Open streams; 0 turns `/v1/events` off.",
        at_limit: "A further one gets 503.",
    },
    Key {
        path: "events.retry",
        kind: Kind::Time {
            min: Duration::from_millis(100),
            max: Duration::from_secs(3600),
        },
        default: "3s",
        meaning: "How long a browser is asked to wait before it connects again (`retry`).",
        at_limit: "",
    },
    Key {
        path: "ws.connections_max",
        kind: count(0, 1_000_000),
        default: "10000",
        meaning: "Open connections, which are sessions too; 0 turns `/v1/ws` off.",
        at_limit: "A further one is closed with code 1013.",
    },
    Key {
        path: "ws.message_bytes_max",
        kind: bytes(KIB, 4 * MIB),
        default: "64KiB",
        meaning: "Largest message of a client.",
        at_limit: "The connection is closed with code 1009.",
    },
    Key {
        path: "ws.pong_timeout",
        kind: seconds(1, 3600),
        default: "30s",
        meaning: "How long a client may take to answer a ping, which is sent after `http.keep_alive` of silence.",
        at_limit: "The connection is closed with code 1008.",
    },
    Key {
        path: "log.level",
        kind: Kind::Text { min: 1, max: 4096 },
        default: "info",
        meaning: "Filter directives such as `info` or `warn,tidings=debug`.",
        at_limit: "",
    },
    Key {
        path: "log.format",
        kind: Kind::Choice(&["text", "json"]),
        default: "text",
        meaning: "One line of text, or one JSON object, per event.",
        at_limit: "",
    },
    Key {
        path: "metrics.enabled",
        kind: Kind::Flag,
        default: "true",
        meaning: "Whether numbers are kept for Prometheus and served as `/metrics`.",
        at_limit: "",
    },
    Key {
        path: "metrics.listen",
        kind: Kind::OptionalAddress,
        default: "",
        meaning: "Address that serves `/metrics` alone; empty serves it on `http.listen`.",
        at_limit: "An address other machines can reach needs `http.allowed_hosts`, or the service does not start.",
    },
    Key {
        path: "shutdown.drain_timeout",
        kind: seconds(0, 600),
        default: "10s",
        meaning: "How long a stopping service goes on delivering what its clients have not been told.",
        at_limit: "What is left is dropped with a warning that counts it.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_path_stands_once_and_under_its_section() {
        let paths: BTreeSet<_> = KEYS.iter().map(|key| key.path).collect();
        assert_eq!(paths.len(), KEYS.len());
        let mut sections: Vec<_> = KEYS.iter().map(Key::section).collect();
        sections.dedup();
        assert_eq!(
            sections,
            SECTIONS.iter().map(|(name, _)| *name).collect::<Vec<_>>()
        );
    }

    #[test]
    fn variables_follow_from_paths() {
        let key = Key::find("session.subscriptions_max").unwrap();
        assert_eq!(key.variable(), "TIDINGS_SESSION__SUBSCRIPTIONS_MAX");
    }

    #[test]
    fn every_row_says_what_it_means_in_a_table_cell() {
        for Key {
            path,
            meaning,
            at_limit,
            ..
        } in KEYS
        {
            assert!(meaning.ends_with('.'), "{path}");
            assert!(at_limit.is_empty() || at_limit.ends_with('.'), "{path}");
            assert!(!format!("{meaning}{at_limit}").contains(['|', '\n']), "{path}");
        }
    }
}
