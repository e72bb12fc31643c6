//! Owners of resources: the part of a program that publishes a resource, and alone may change it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The owner of a resource. A change by another owner is refused, so that two sources never replace each
/// other's content in turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Owner {
    /// The program that embeds the bus.
    #[default]
    Embedder,
    /// Callers of an API. A store keeps the content of their resources, since they will not publish it again
    /// after a restart.
    Api,
    /// The folder of a workspace.
    Workspace,
    /// The programs that a workspace runs to register further items.
    Register,
    /// The collection with this name.
    Collection(Arc<str>),
}

impl Owner {
    /// Returns true if a store keeps the content of this owner's resources. Every other owner publishes its
    /// resources again after a restart.
    pub fn keeps_content(&self) -> bool {
        *self == Owner::Api
    }

    /// Returns true if `other` may take over this owner's resources by writing them. What a program of a
    /// workspace registers gives way to the file that appears at its place.
    pub(crate) fn yields_to(&self, other: &Owner) -> bool {
        self == other || matches!((self, other), (Owner::Register, Owner::Workspace))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Embedder => f.write_str("embedder"),
            Owner::Api => f.write_str("api"),
            Owner::Workspace => f.write_str("workspace"),
            Owner::Register => f.write_str("register"),
            Owner::Collection(name) => write!(f, "collection {name}"),
        }
    }
}

/// The error of a text that names no owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid owner {0:?}: expected embedder, api, workspace, register or collection NAME")]
pub struct InvalidOwner(pub String);

impl FromStr for Owner {
    type Err = InvalidOwner;

    fn from_str(text: &str) -> Result<Owner, InvalidOwner> {
        match text {
            "embedder" => Ok(Owner::Embedder),
            "api" => Ok(Owner::Api),
            "workspace" => Ok(Owner::Workspace),
            "register" => Ok(Owner::Register),
            _ => match text.strip_prefix("collection ") {
                Some(name) if !name.is_empty() => Ok(Owner::Collection(name.into())),
                _ => Err(InvalidOwner(text.chars().take(64).collect())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for owner in [
            Owner::Embedder,
            Owner::Api,
            Owner::Workspace,
            Owner::Register,
            Owner::Collection("annotations".into()),
        ] {
            assert_eq!(owner.to_string().parse(), Ok(owner));
        }
        for text in ["", "API", "collection ", "collection"] {
            assert!(text.parse::<Owner>().is_err(), "{text}");
        }
    }
}
