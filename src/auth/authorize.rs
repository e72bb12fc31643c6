//! The port for authorization.

use std::sync::Arc;

use tidings_actors::rights::Audience;

use super::principal::Principal;
use super::right::{Object, Right};

/// A judgement of one right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The rule with this name gives the right.
    Allowed(String),
    /// A rule would give the right to a token that has this scope, too, and the principal could obtain one.
    NeedsScope(String),
    /// No rule gives the right.
    Denied,
}

/// Judges rights. An implementation that cannot judge answers [`Verdict::Denied`].
pub trait Authorize: Send + Sync + 'static {
    /// Judges one right of a principal.
    fn judge(&self, principal: &Principal, right: Right, object: Object<'_>) -> Verdict;

    /// A number that grows whenever a verdict may be another one.
    fn generation(&self) -> u64 {
        0
    }

    /// Returns true if a principal has the right to be told of every change, of any URI, now. The ids of its
    /// events are then positions in the order of all changes; those of others are encrypted.
    fn may_be_told_all(&self, principal: &Principal) -> bool {
        let _ = principal;
        false
    }

    /// Returns the part of the lists that a principal sees now. The answers of one never change; principals
    /// with equal rights should have one of the same id, since lists are hashed once for each.
    fn audience(&self, principal: &Principal) -> Arc<dyn Audience>;
}
