//! The steps of a check, told while it works.

/// A step that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step<'a> {
    /// The revision of the protocol that is tried, or the newest one of several.
    pub revision: &'a str,
    /// The work that begins. It has no text of the server.
    pub text: &'a str,
}

impl<'a> Step<'a> {
    /// Makes a step, as a check does.
    pub fn new(revision: &'a str, text: &'a str) -> Step<'a> {
        Step { revision, text }
    }
}

/// The function that is told of each step.
pub(super) type OnStep<'a> = &'a (dyn Fn(Step<'_>) + Sync);
