//! The tokens of authorization servers.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::authenticate::Unauthenticated;
use super::introspection::Introspection;
use super::introspection_endpoint::{IntrospectionEndpoint, IntrospectionFault};
use super::issuer_keys::IssuerKeys;
use super::jwks::KeySet;
use super::jwt::{Parts, Signed, TokenRules};
use super::principal::Principal;
use super::ring_provider;
use super::token_line::TokenHash;
use crate::config::{AuthConfig, IssuerConfig};

/// Most tokens whose check is remembered; beyond them, some are checked again at each request.
const REMEMBERED_MAX: usize = 10_000;

/// The issuers of a configuration.
pub(super) struct Issuers {
    issuers: Vec<Issuer>,
    /// The look-up of opaque tokens, with the issuer that answers it.
    introspection: Option<(usize, Introspection)>,
    remembered: Mutex<HashMap<TokenHash, Remembered>>,
}

struct Issuer {
    rules: TokenRules,
    keys: IssuerKeys,
}

/// A token that was good, with the keys that it was checked with.
struct Remembered {
    principal: Principal,
    keys: Arc<KeySet>,
    issuer: usize,
}

impl Issuers {
    /// Begins to fetch the keys. `revocations` grows when a token that was looked up is good no more. Must be
    /// called on a runtime; does not wait for an answer.
    ///
    /// # Errors
    /// A file of `auth.issuer.introspect` that cannot be used.
    pub(super) fn new(
        config: &AuthConfig,
        revocations: &Arc<AtomicU64>,
    ) -> Result<Issuers, IntrospectionFault> {
        let mut issuers = Vec::new();
        let mut introspection = None;
        for (index, issuer) in config.issuer.iter().enumerate() {
            ring_provider::install();
            if let Some(file) = &issuer.introspect {
                let endpoint = IntrospectionEndpoint::new(&issuer.url, file)?;
                let rules = rules_of(issuer, config);
                let asked = Introspection::new(endpoint, rules, issuer.introspect_age, revocations.clone());
                asked.keep_asking();
                introspection = Some((index, asked));
            }
            let keys = IssuerKeys::new(issuer);
            keys.keep_fresh();
            issuers.push(Issuer {
                rules: rules_of(issuer, config),
                keys,
            });
        }
        Ok(Issuers {
            issuers,
            introspection,
            remembered: Mutex::default(),
        })
    }

    /// Returns the principal of a token that was checked before; costs no signature and no request.
    pub(super) fn remembered(&self, hash: &TokenHash, now: SystemTime) -> Option<Principal> {
        match self.remembered_signed(hash, now) {
            Some(principal) => Some(principal),
            None => self.introspection.as_ref()?.1.remembered(hash, now),
        }
    }

    fn remembered_signed(&self, hash: &TokenHash, now: SystemTime) -> Option<Principal> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let found = remembered.get(hash)?;
        // A key that was withdrawn takes its tokens along.
        let is_fresh = Arc::ptr_eq(&found.keys, &self.issuers[found.issuer].keys.current());
        (is_fresh && !found.principal.has_ended(now)).then(|| found.principal.clone())
    }

    /// Checks a token.
    ///
    /// # Errors
    /// [`Unauthenticated::Invalid`] for every cause alike; [`Unauthenticated::Unavailable`] if there are no
    /// keys to check it with, or its issuer does not answer.
    pub(super) async fn check(&self, token: &str, hash: &TokenHash) -> Result<Principal, Unauthenticated> {
        let parts = Parts::read(token);
        let named = parts.as_ref().and_then(|parts| self.issuer_of(parts));
        if let (Some(parts), Some(index)) = (&parts, named) {
            let signed = self.check_signed(parts, index, hash).await;
            let may_be_asked = match &self.introspection {
                Some((asked, _)) => *asked == index,
                None => false,
            };
            // An issuer without keys can be asked of its signed tokens, too.
            if signed != Err(Unauthenticated::Unavailable) || !may_be_asked {
                return signed;
            }
        }
        match &self.introspection {
            Some((_, introspection)) => introspection.check(token, hash).await,
            None => Err(Unauthenticated::Invalid),
        }
    }

    /// Returns the issuer that a JSON Web Token names.
    fn issuer_of(&self, parts: &Parts<'_>) -> Option<usize> {
        let issuer = parts.issuer()?;
        self.issuers.iter().position(|known| known.rules.issuer == issuer)
    }

    async fn check_signed(
        &self,
        parts: &Parts<'_>,
        index: usize,
        hash: &TokenHash,
    ) -> Result<Principal, Unauthenticated> {
        let now = SystemTime::now();
        let issuer = &self.issuers[index];
        let claimed = issuer
            .rules
            .check(parts, hash, now)
            .ok_or(Unauthenticated::Invalid)?;
        let mut keys = issuer.keys.current();
        let mut signed = claimed.verify(&keys);
        if signed == Signed::NoKey {
            keys = issuer.keys.newer_than(&keys).await;
            signed = claimed.verify(&keys);
        }
        match signed {
            Signed::Good => {
                let principal = claimed.principal().clone();
                self.remember(
                    *hash,
                    Remembered {
                        principal: principal.clone(),
                        keys,
                        issuer: index,
                    },
                    now,
                );
                Ok(principal)
            }
            Signed::NoKey if keys.is_empty() => Err(Unauthenticated::Unavailable),
            Signed::NoKey | Signed::Wrong => Err(Unauthenticated::Invalid),
        }
    }

    fn remember(&self, hash: TokenHash, token: Remembered, now: SystemTime) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, known| !known.principal.has_ended(now));
        }
        if remembered.len() >= REMEMBERED_MAX
            && let Some(any) = remembered.keys().next().copied()
        {
            remembered.remove(&any);
        }
        remembered.insert(hash, token);
    }
}

fn rules_of(config: &IssuerConfig, auth: &AuthConfig) -> TokenRules {
    // The configuration demands a resource where there are issuers.
    let resource = auth.resource.as_deref().unwrap_or_default();
    TokenRules::new(config, resource, auth.leeway)
}

#[cfg(test)]
pub(super) mod tests;
