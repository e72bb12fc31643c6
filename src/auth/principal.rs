//! The identity of a caller.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

/// The role of a request without credentials.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// An identity with its roles, made of one credential. Cheap to clone.
///
/// Two credentials of one principal, such as a token and the one that replaces it, have the same
/// [`id`](Principal::id), to which sessions are bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal(Arc<Identity>);

/// A credential that may end before its time, such as one that its issuer takes back.
pub trait Revocable: fmt::Debug + Send + Sync + 'static {
    /// Returns true once the credential is not good any more. Called for each judgement, so it must be quick.
    fn is_revoked(&self) -> bool;
}

#[derive(Debug)]
struct Identity {
    id: String,
    roles: Vec<String>,
    scopes: Vec<String>,
    takes_scopes: bool,
    // Only a name of it, so that no debug text can show a secret.
    credential: String,
    expires: Option<SystemTime>,
    revocable: Option<Arc<dyn Revocable>>,
}

impl PartialEq for Identity {
    /// Compares what was told of the credential; whether it was taken back is asked of each by itself.
    fn eq(&self, other: &Identity) -> bool {
        self.id == other.id
            && self.roles == other.roles
            && self.scopes == other.scopes
            && self.takes_scopes == other.takes_scopes
            && self.credential == other.credential
            && self.expires == other.expires
    }
}

impl Eq for Identity {}

static LOCAL: LazyLock<Principal> = LazyLock::new(|| Principal::builder("local").build());
static NAMELESS: LazyLock<Principal> = LazyLock::new(|| {
    let roles = vec![ANONYMOUS.to_owned()];
    Principal::builder(ANONYMOUS).roles(roles).build()
});

impl Principal {
    /// Begins a principal with this identity: a text that no other principal has, such as the issuer and the
    /// subject of a token.
    pub fn builder(id: impl Into<String>) -> PrincipalBuilder {
        PrincipalBuilder(Identity {
            id: id.into(),
            roles: Vec::new(),
            scopes: Vec::new(),
            takes_scopes: false,
            credential: String::new(),
            expires: None,
            revocable: None,
        })
    }

    /// The principal of a process that needs no credentials: stdio, and a service without a border.
    pub fn local() -> Principal {
        LOCAL.clone()
    }

    /// The principal of a request without credentials; its role is `anonymous`.
    pub fn anonymous() -> Principal {
        NAMELESS.clone()
    }

    /// The identity, to which sessions are bound. Not a secret.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The roles, which rules name.
    pub fn roles(&self) -> &[String] {
        &self.0.roles
    }

    /// Returns true for a principal with this role.
    pub fn has_role(&self, role: &str) -> bool {
        self.0.roles.iter().any(|own| own == role)
    }

    /// The scopes of its token.
    pub fn scopes(&self) -> &[String] {
        &self.0.scopes
    }

    /// Returns true for a principal whose token has this scope.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.0.scopes.iter().any(|own| own == scope)
    }

    /// Returns true for a principal that could obtain a token with more scopes.
    pub fn takes_scopes(&self) -> bool {
        self.0.takes_scopes
    }

    /// The credential as the audit names it, such as the beginning of a token's hash; never the credential
    /// itself. Empty without one.
    pub fn credential(&self) -> &str {
        &self.0.credential
    }

    /// The time at which the credential ends; none if it does not.
    pub fn expires(&self) -> Option<SystemTime> {
        self.0.expires
    }

    /// Returns true if the credential has ended by `now`.
    pub fn has_ended(&self, now: SystemTime) -> bool {
        match self.0.expires {
            Some(at) => at <= now,
            None => false,
        }
    }

    /// Returns true if the credential was taken back.
    pub fn is_revoked(&self) -> bool {
        match &self.0.revocable {
            Some(credential) => credential.is_revoked(),
            None => false,
        }
    }

    /// Returns true if there are other clones, such as those of a request or a session.
    #[cfg(feature = "service")]
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Returns true for a request without credentials.
    pub fn is_anonymous(&self) -> bool {
        self.0.id == ANONYMOUS
    }
}

/// Collects the properties of a [`Principal`].
#[derive(Debug)]
pub struct PrincipalBuilder(Identity);

impl PrincipalBuilder {
    /// Sets the roles (default: none).
    #[must_use]
    pub fn roles(mut self, roles: Vec<String>) -> PrincipalBuilder {
        self.0.roles = roles;
        self
    }

    /// Sets the scopes of a token of an authorization server, which has tokens with more scopes, too
    /// (default: no such token).
    #[must_use]
    pub fn scopes(mut self, scopes: Vec<String>) -> PrincipalBuilder {
        self.0.scopes = scopes;
        // Told apart from an empty list: a token without scopes may be replaced by one that has some.
        self.0.takes_scopes = true;
        self
    }

    /// Sets the name of the credential in the audit, which must not be the credential itself.
    #[must_use]
    pub fn credential(mut self, credential: impl Into<String>) -> PrincipalBuilder {
        self.0.credential = credential.into();
        self
    }

    /// Sets the time at which the credential ends (default: never).
    #[must_use]
    pub fn expires(mut self, expires: Option<SystemTime>) -> PrincipalBuilder {
        self.0.expires = expires;
        self
    }

    /// Sets the credential that is asked whether it was taken back (default: none, which never is). What is
    /// open is judged again when the number of [`Authenticate::generation`](super::Authenticate::generation)
    /// grows.
    #[must_use]
    pub fn revocable(mut self, credential: Arc<dyn Revocable>) -> PrincipalBuilder {
        self.0.revocable = Some(credential);
        self
    }

    /// Makes the principal.
    pub fn build(self) -> Principal {
        Principal(Arc::new(self.0))
    }
}
