//! The options of a check.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::tool_call::ToolCall;
use crate::client::{Credentials, Era};

/// The variables that are added to the environment of a server's program. Their values are never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(pub Vec<(OsString, OsString)>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

/// The options of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The shell command that changes the resource under test; without it, the checks that need a change are
    /// skipped.
    pub touch: Option<String>,
    /// The tools whose calls change the resource under test, or a list; called after the command, in this
    /// order.
    pub touch_tools: Vec<ToolCall>,
    /// The resource under test; by default the first one that the server lists.
    pub uri: Option<String>,
    /// The time for which the check listens for messages that must not come; 3 s by default.
    pub quiet_time: Duration,
    /// The time within which a change must be announced; 5 s by default.
    pub wait: Duration,
    /// The time within which a silent stream must carry a keep-alive; not checked by default.
    pub idle: Option<Duration>,
    /// The limit on the first answer in each era, and so on the start of a program; 30 s by default.
    pub start_timeout: Duration,
    /// The limit on every later answer; 10 s by default.
    pub answer_timeout: Duration,
    /// The limit on all checks together, besides the waits for a first answer; 120 s by default. The checks
    /// that are left then are skipped, and the report is incomplete.
    pub timeout: Duration,
    /// The revisions to check; by default all that the server speaks.
    pub era: Era,
    /// The credentials that are presented to a server over HTTP; none by default.
    pub credentials: Credentials,
    /// The variables for a program that is the server; it inherits all others.
    pub variables: Variables,
    /// The working folder of a program that is the server; by default that of this process.
    pub folder: Option<PathBuf>,
}

impl Options {
    /// Returns true if there is a way to change the resource under test.
    pub(super) fn can_touch(&self) -> bool {
        self.touch.is_some() || !self.touch_tools.is_empty()
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            touch: None,
            touch_tools: Vec::new(),
            uri: None,
            quiet_time: Duration::from_secs(3),
            wait: Duration::from_secs(5),
            idle: None,
            start_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(120),
            era: Era::Auto,
            credentials: Credentials::default(),
            variables: Variables::default(),
            folder: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_variables_are_not_shown() {
        let options = Options {
            variables: Variables(vec![("KEY".into(), "s3cr3t".into())]),
            ..Options::default()
        };
        let shown = format!("{options:?}");
        assert!(shown.contains("KEY") && !shown.contains("s3cr3t"), "{shown}");
    }
}
