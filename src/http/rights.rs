//! The rights of requests over plain HTTP.

use ::http::Extensions;

use super::problem::{Problem, ProblemKind};
use crate::auth::{Caller, Denied, Object, Right};

/// Returns the caller of a request.
///
/// # Errors
/// 403 for a request that no rule has let in, which is a mistake of the server that mounted the service.
pub(super) fn caller(extensions: &Extensions) -> Result<&Caller, Problem> {
    Caller::of(extensions).ok_or_else(|| ProblemKind::Forbidden.because("the request was not let in"))
}

/// Judges a right whose lack is told: it depends on the name of the object alone, never on its existence.
///
/// # Errors
/// 403, with a challenge if a token with one more scope would do.
pub(super) fn require(extensions: &Extensions, right: Right, object: Object<'_>) -> Result<(), Problem> {
    let caller = caller(extensions)?;
    match caller.may(right, object) {
        Ok(()) => Ok(()),
        Err(denied) => Err(refusal(caller, denied, || {
            ProblemKind::Forbidden.because(format!(
                "you have no right to {right} {object}; ask for a rule that gives it"
            ))
        })),
    }
}

/// Returns the refusal of a right: a challenge if a token with one more scope would do, otherwise `absent`.
pub(super) fn refusal(caller: &Caller, denied: Denied, absent: impl FnOnce() -> Problem) -> Problem {
    match (denied, caller.border()) {
        (Denied::NeedsScope(scope), Some(border)) => border.insufficient_scope(&scope).into(),
        _ => absent(),
    }
}
