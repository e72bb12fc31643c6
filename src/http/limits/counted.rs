//! The names under which limits per caller count.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use ::http::Extensions;

use crate::auth::{Caller, Principal};

/// The name under which the limits of a caller count. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Counted {
    /// The identity of a caller with credentials, from any address and with any of its credentials.
    Principal(Principal),
    /// The address of the connection of a caller without credentials.
    Address(IpAddr),
    /// A connection whose address the server does not tell. All of them are one caller: a limit must not end
    /// where an address is missing.
    Unknown,
}

#[derive(PartialEq, Eq, Hash)]
enum Name<'a> {
    Principal(&'a str),
    Address(&'a IpAddr),
    Unknown,
}

impl Counted {
    /// Returns the name of the caller of a request.
    pub(crate) fn of(extensions: &Extensions) -> Counted {
        match Caller::of(extensions) {
            Some(caller) => Counted::by(caller),
            None => Counted::Unknown,
        }
    }

    /// Returns the name of a caller.
    pub(crate) fn by(caller: &Caller) -> Counted {
        // Without a border every caller is the local principal, and without credentials every one is
        // anonymous.
        if caller.border().is_some() && !caller.principal().is_anonymous() {
            return Counted::Principal(caller.principal().clone());
        }
        match caller.counted() {
            Some(address) => Counted::Address(address),
            None => Counted::Unknown,
        }
    }

    fn name(&self) -> Name<'_> {
        match self {
            Counted::Principal(principal) => Name::Principal(principal.id()),
            Counted::Address(address) => Name::Address(address),
            Counted::Unknown => Name::Unknown,
        }
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Counted) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principal_is_one_caller_with_any_credential() {
        let with =
            |id, role: &str| Counted::Principal(Principal::builder(id).roles(vec![role.into()]).build());
        assert_eq!(with("a", "reader"), with("a", "writer"));
        assert_ne!(with("a", "reader"), with("b", "reader"));
        assert_ne!(with("a", "reader"), Counted::Unknown);
        assert_eq!(Counted::of(&Extensions::new()), Counted::Unknown);
    }
}
