//! The options of a check.

use std::time::Duration;

use crate::client::{Credentials, Era};

/// The options of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The shell command that changes the resource under test; without it, the checks that need a change are
    /// skipped.
    pub touch: Option<String>,
    /// The resource under test; by default the first one that the server lists.
    pub uri: Option<String>,
    /// The time for which the check listens for messages that must not come; 3 s by default.
    pub quiet_time: Duration,
    /// The time within which a change must be announced; 5 s by default.
    pub wait: Duration,
    /// The time within which a silent stream must carry a keep-alive; not checked by default.
    pub idle: Option<Duration>,
    /// The limit on the whole check; 60 s by default. The checks that are left then are skipped, and the
    /// report is incomplete.
    pub timeout: Duration,
    /// The revisions to check; by default all that the server speaks.
    pub era: Era,
    /// The credentials that are presented to a server over HTTP; none by default.
    pub credentials: Credentials,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            touch: None,
            uri: None,
            quiet_time: Duration::from_secs(3),
            wait: Duration::from_secs(5),
            idle: None,
            timeout: Duration::from_secs(60),
            era: Era::Auto,
            credentials: Credentials::default(),
        }
    }
}
