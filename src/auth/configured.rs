//! The border of a configuration: whose credentials are good, and the rules for what they may do.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use http::Extensions;
use tidings_actors::rights::{Audience, WholeAudience};
use tokio::sync::watch;
use tracing::warn;

use super::audit_file::AuditFile;
use super::authenticate::{Authenticate, Credentials, Unauthenticated};
use super::authorize::{Authorize, Verdict};
use super::border::{Border, Challenge};
use super::caller::PeerAddress;
use super::introspection_endpoint::{IntrospectionEndpoint, IntrospectionFault};
use super::issuers::Issuers;
use super::peer_certificate::PeerCertificate;
use super::policy::{InvalidRule, Policy, Rules};
use super::principal::Principal;
use super::protected_resource::ProtectedResource;
use super::right::{Object, Right};
use super::token_line::hash_of;
use super::tokens::{TokenFault, Tokens};
use super::{issuer_keys, policy, tokens};
use crate::config::{Anonymous, AuditConfig, AuthConfig};
use crate::metrics::{self, Limit};
use crate::rate_limiter::RateLimiter;

/// The time in which an address may send `auth.failures_max` wrong tokens.
const FAILURES_PERIOD: Duration = Duration::from_secs(60);

/// The error of a section `[auth]` that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BorderFault {
    /// The token files.
    #[error(transparent)]
    Tokens(#[from] TokenFault),
    /// The rules.
    #[error(transparent)]
    Rule(#[from] InvalidRule),
    /// The file of `auth.issuer.introspect`.
    #[error(transparent)]
    Introspection(#[from] IntrospectionFault),
    /// The file of `auth.issuer.jwks`.
    #[error("the keys of an issuer: {0}")]
    Keys(String),
    /// The file of the audit.
    #[error("the audit cannot be written to {}: {fault}", file.display())]
    Audit {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        fault: std::io::Error,
    },
}

/// The border of a configuration, with the parts of it that change while the service runs. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ConfiguredBorder {
    border: Option<Arc<Border>>,
    /// True if every caller may do everything, and the border is there for the audit alone.
    is_open: bool,
    tokens: Tokens,
    policy: Policy,
    /// Grows when a credential that is no static token may have been taken back.
    revocations: Arc<AtomicU64>,
}

impl ConfiguredBorder {
    /// Reads the token files and the rules. The audit names `node`, a node of a cluster, if there is one.
    ///
    /// # Errors
    /// A token file or a rule that cannot be used.
    pub(crate) fn new(
        config: &AuthConfig,
        audit: &AuditConfig,
        node: Option<String>,
    ) -> Result<ConfiguredBorder, BorderFault> {
        let is_open = !is_needed(config);
        if is_open && audit.file.is_none() {
            return Ok(ConfiguredBorder::default());
        }
        let tokens = Tokens::new(&config.token)?;
        let policy = Policy::new(&config.rule)?;
        let revocations = Arc::new(AtomicU64::new(0));
        let credentials = ConfiguredCredentials {
            anonymous: if is_open { Anonymous::All } else { config.anonymous },
            tokens: tokens.clone(),
            issuers: Issuers::new(config, &revocations)?,
            certificates: certificates(config),
            failures: failures(config),
            revocations: revocations.clone(),
        };
        let authorize: Arc<dyn Authorize> = match is_open {
            true => Arc::new(NoRules),
            false => Arc::new(policy.clone()),
        };
        let mut border = Border::new(Arc::new(credentials), authorize);
        border = border.with_challenge(challenge(config));
        if let Some(file) = &audit.file {
            let opened = AuditFile::open(file).map_err(|fault| BorderFault::Audit {
                file: file.clone(),
                fault,
            })?;
            border = border.with_audit(Arc::new(opened.with_node(node)));
        }
        if !is_open {
            warn_of_nobody(config);
        }
        Ok(ConfiguredBorder {
            border: Some(Arc::new(border)),
            is_open,
            tokens,
            policy,
            revocations,
        })
    }

    /// Returns each mistake in the rules and in the files that the configuration names. Starts nothing.
    pub(crate) fn check(config: &AuthConfig) -> Vec<BorderFault> {
        let mut faults: Vec<BorderFault> = Vec::new();
        faults.extend(tokens::faults(&config.token).into_iter().map(BorderFault::from));
        faults.extend(policy::faults(&config.rule).into_iter().map(BorderFault::from));
        for issuer in &config.issuer {
            if let Some(file) = &issuer.introspect {
                let endpoint = IntrospectionEndpoint::new(&issuer.url, file);
                faults.extend(endpoint.err().map(BorderFault::from));
            }
            // The keys at an address are fetched, and may come later.
            if !issuer.jwks.is_empty() && !issuer.jwks.contains("://") {
                let read = issuer_keys::check_file(Path::new(&issuer.jwks));
                faults.extend(read.err().map(BorderFault::Keys));
            }
        }
        faults
    }

    /// The border; none if every caller may do everything.
    pub(crate) fn border(&self) -> Option<Arc<Border>> {
        self.border.clone()
    }

    /// Encrypts the ids of events by this key, unless there are ids by another one already.
    pub(crate) fn use_position_key(&self, key: &[u8; 32]) {
        if let Some(border) = &self.border {
            border.use_position_key(key);
        }
    }

    /// Reads files of credentials again when they change, until the last clone is dropped. Has open streams
    /// judged again when the authorities of `certificates` or their revocation lists were replaced.
    pub(crate) fn watch(&self, certificates: Option<watch::Receiver<u64>>) {
        if self.border.is_none() {
            return;
        }
        self.tokens.watch();
        if let Some(mut changes) = certificates {
            // Weak, so that the task ends with the border.
            let revocations = Arc::downgrade(&self.revocations);
            tokio::spawn(async move {
                while let (Ok(()), Some(revocations)) = (changes.changed().await, revocations.upgrade()) {
                    revocations.fetch_add(1, Ordering::Release);
                }
            });
        }
    }

    /// Replaces the rules and the static tokens by those of a configuration, and reads their files again.
    /// Sessions and streams that are open go on with the rights that are left to them.
    ///
    /// # Errors
    /// As [`new`](Self::new); nothing was changed.
    pub(crate) fn follow(&self, config: &AuthConfig) -> Result<(), BorderFault> {
        if self.border.is_none() || self.is_open {
            if is_needed(config) {
                warn!(
                    "the service was started without a border; the section [auth] takes effect at the next start"
                );
            }
            return Ok(());
        }
        // Read first, so that a mistake in either changes neither.
        let rules = Rules::read(&config.rule)?;
        self.tokens.replace(&config.token)?;
        self.policy.set(rules);
        warn_of_nobody(config);
        Ok(())
    }
}

/// Returns true if the configuration keeps any caller from anything.
pub(crate) fn is_needed(config: &AuthConfig) -> bool {
    config.has_credentials() || !config.rule.is_empty() || config.anonymous == Anonymous::None
}

/// Warns of a configuration that lets no caller do anything.
fn warn_of_nobody(config: &AuthConfig) {
    if config.rule.is_empty() {
        warn!("there is no [[auth.rule]], so nobody may do anything; add rules that give rights");
    } else if config.anonymous == Anonymous::None && !config.has_credentials() {
        warn!(
            "auth.anonymous is \"none\" and there are no credentials, so nobody is let in; add [[auth.token]], \
             [[auth.issuer]] or [[auth.certificate]]"
        );
    }
}

/// Gives every right to every caller.
struct NoRules;

impl Authorize for NoRules {
    fn judge(&self, _: &Principal, _: Right, _: Object<'_>) -> Verdict {
        Verdict::Allowed("no rules".to_owned())
    }

    fn may_be_told_all(&self, _: &Principal) -> bool {
        true
    }

    fn audience(&self, _: &Principal) -> Arc<dyn Audience> {
        Arc::new(WholeAudience)
    }
}

/// Counts wrong tokens by address.
fn failures(config: &AuthConfig) -> RateLimiter<Option<IpAddr>> {
    // Far below, in the configuration.
    let max = u32::try_from(config.failures_max).unwrap_or(u32::MAX);
    RateLimiter::new(max, FAILURES_PERIOD)
}

fn too_many(wait: Duration) -> Unauthenticated {
    metrics::limit_reached(Limit::AuthFailures);
    // At most the period, so it fits.
    let retry_after = wait.as_secs_f64().ceil() as u32;
    Unauthenticated::TooMany { retry_after }
}

/// Returns the roles of client certificates by their names.
fn certificates(config: &AuthConfig) -> HashMap<String, Vec<String>> {
    let named = config.certificate.iter();
    named.map(|one| (one.name.clone(), one.roles.clone())).collect()
}

/// Returns the parts of challenges that name the authorization servers; none without one.
fn challenge(config: &AuthConfig) -> Challenge {
    let metadata = ProtectedResource::new(config);
    Challenge {
        resource_metadata: metadata.map(|metadata| metadata.address),
        scopes: config.scopes.clone(),
    }
}

/// The credentials of a configuration.
struct ConfiguredCredentials {
    anonymous: Anonymous,
    tokens: Tokens,
    issuers: Issuers,
    /// The roles of client certificates by their names.
    certificates: HashMap<String, Vec<String>>,
    /// Wrong tokens by the address that sent them; callers without one are counted together.
    failures: RateLimiter<Option<IpAddr>>,
    revocations: Arc<AtomicU64>,
}

impl ConfiguredCredentials {
    async fn principal(&self, credentials: Credentials<'_>) -> Result<Principal, Unauthenticated> {
        let address = credentials.address.map(PeerAddress);
        let Some(token) = credentials.bearer else {
            return match self.of_certificate(credentials.extensions) {
                Some(principal) => Ok(principal),
                None => self.without_credentials(address),
            };
        };
        let hash = hash_of(token);
        // Known tokens cost nothing to look up, so they are good also where the address has sent others that
        // were not: behind a proxy all clients have one address.
        if let Some(principal) = self.tokens.find(&hash) {
            return Ok(principal);
        }
        if let Some(principal) = self.issuers.remembered(&hash, SystemTime::now()) {
            return Ok(principal);
        }
        let counted = address.map(PeerAddress::counted);
        if let Some(wait) = self.failures.wait(&counted) {
            return Err(too_many(wait));
        }
        let checked = self.issuers.check(token, &hash).await;
        if checked == Err(Unauthenticated::Invalid)
            && let Err(wait) = self.failures.take(&counted, 1)
        {
            // Others of the same address were checked meanwhile, and have used up its share.
            return Err(too_many(wait));
        }
        checked
    }

    /// Returns the principal of a client certificate, which the listener has verified, if it has a name in
    /// the configuration.
    fn of_certificate(&self, extensions: &Extensions) -> Option<Principal> {
        let certificate: &PeerCertificate = extensions.get()?;
        let name = certificate.name()?;
        let roles = self.certificates.get(name)?;
        // A connection may outlive the trust in its certificate.
        if !certificate.is_trusted() {
            return None;
        }
        Some(
            Principal::builder(format!("certificate:{name}"))
                .roles(roles.clone())
                .credential(format!("serial:{}", certificate.serial()))
                .expires(Some(certificate.not_after()))
                .revocable(Arc::new(certificate.clone()))
                .build(),
        )
    }

    fn without_credentials(&self, address: Option<PeerAddress>) -> Result<Principal, Unauthenticated> {
        let is_let_in = match (self.anonymous, address) {
            (Anonymous::All, _) => true,
            (Anonymous::Loopback, Some(address)) => address.0.to_canonical().is_loopback(),
            (Anonymous::Loopback, None) | (Anonymous::None, _) => false,
        };
        match is_let_in {
            true => Ok(Principal::anonymous()),
            false => Err(Unauthenticated::Missing),
        }
    }
}

impl Authenticate for ConfiguredCredentials {
    fn authenticate<'a>(
        &'a self,
        credentials: Credentials<'a>,
    ) -> BoxFuture<'a, Result<Principal, Unauthenticated>> {
        Box::pin(self.principal(credentials))
    }

    fn is_current(&self, principal: &Principal) -> bool {
        self.tokens.is_current(principal).unwrap_or(true)
    }

    fn generation(&self) -> u64 {
        // Both only grow, so their sum changes with either.
        self.tokens
            .generation()
            .wrapping_add(self.revocations.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::token_line::NewToken;
    use crate::config::AuthTokenConfig;
    use http::{HeaderMap, HeaderValue, StatusCode, header};
    use std::net::IpAddr;

    /// Lets a request from this address in. Returns the identity, or the status and the challenge.
    async fn admit(border: &Arc<Border>, from: &str, token: Option<&str>) -> Result<String, (u16, String)> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
            headers.insert(header::AUTHORIZATION, value);
        }
        let mut extensions = Extensions::new();
        if let Ok(address) = from.parse::<IpAddr>() {
            extensions.insert(PeerAddress(address));
        }
        match border.admit(headers, extensions).await {
            Ok(caller) => Ok(caller.principal().id().to_owned()),
            Err(refusal) => {
                let challenge = refusal.challenge.unwrap_or(HeaderValue::from_static(""));
                Err((refusal.status.as_u16(), challenge.to_str().unwrap().to_owned()))
            }
        }
    }

    fn border(config: &AuthConfig) -> Arc<Border> {
        ConfiguredBorder::new(config, &AuditConfig::default(), None)
            .unwrap()
            .border()
            .unwrap()
    }

    #[tokio::test]
    async fn anonymous_callers_are_let_in_as_configured() {
        for (anonymous, from, is_let_in) in [
            (Anonymous::Loopback, "127.0.0.1", true),
            (Anonymous::Loopback, "::ffff:127.0.0.1", true),
            (Anonymous::Loopback, "::1", true),
            (Anonymous::Loopback, "192.0.2.1", false),
            (Anonymous::Loopback, "", false),
            (Anonymous::All, "192.0.2.1", true),
            (Anonymous::All, "", true),
            (Anonymous::None, "127.0.0.1", false),
        ] {
            let mut config = AuthConfig {
                anonymous,
                ..AuthConfig::default()
            };
            config.rule.push(crate::config::RuleConfig::default());
            config.rule[0].may = vec!["admin".into()];
            let expected = match is_let_in {
                true => Ok("anonymous".to_owned()),
                false => Err((401, "Bearer".to_owned())),
            };
            assert_eq!(
                admit(&border(&config), from, None).await,
                expected,
                "{anonymous:?} {from}"
            );
        }
    }

    #[test]
    fn border_is_there_when_something_is_forbidden() {
        let has_border = |config: &AuthConfig| {
            ConfiguredBorder::new(config, &AuditConfig::default(), None)
                .unwrap()
                .border()
                .is_some()
        };
        let mut config = AuthConfig::default();
        assert!(!has_border(&config));
        config.anonymous = Anonymous::All;
        assert!(!has_border(&config));
        config.anonymous = Anonymous::None;
        assert!(has_border(&config));
    }

    #[tokio::test]
    async fn audit_alone_forbids_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let audit = AuditConfig {
            file: Some(folder.path().join("audit.jsonl")),
        };
        let config = AuthConfig::default();
        let border = ConfiguredBorder::new(&config, &audit, None)
            .unwrap()
            .border()
            .unwrap();
        for from in ["192.0.2.1", "127.0.0.1", ""] {
            assert_eq!(admit(&border, from, None).await, Ok("anonymous".to_owned()));
        }
        let extensions = Extensions::new();
        let Ok(caller) = border.admit(HeaderMap::new(), extensions).await else {
            panic!("a caller was refused");
        };
        for (right, object) in [
            (Right::Publish, Object::Resource("demo://a")),
            (Right::Call, Object::Tool("run")),
            (Right::Admin, Object::Service),
        ] {
            assert!(caller.may(right, object).is_ok(), "{right} {object}");
        }
    }

    #[test]
    fn check_finds_every_mistake() {
        let token = |name: &str| AuthTokenConfig {
            name: name.into(),
            file: format!("/nonexistent/{name}").into(),
            roles: Vec::new(),
        };
        let rule = || crate::config::RuleConfig {
            may: vec!["read".into()],
            ..crate::config::RuleConfig::default()
        };
        let issuer = crate::config::IssuerConfig {
            url: "https://issuer.example".into(),
            jwks: "/nonexistent/keys.json".into(),
            introspect: Some("/nonexistent/client".into()),
            ..crate::config::IssuerConfig::default()
        };
        let config = AuthConfig {
            token: vec![token("a"), token("b")],
            rule: vec![rule(), rule()],
            issuer: vec![issuer],
            ..AuthConfig::default()
        };
        let faults = ConfiguredBorder::check(&config);
        let texts: Vec<_> = faults.iter().map(BorderFault::to_string).collect();
        assert_eq!(texts.len(), 6, "{texts:#?}");
    }

    #[tokio::test]
    async fn wrong_credentials_are_limited_and_good_ones_not() {
        let made = NewToken::make("a", None).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &made.line).unwrap();
        let config = AuthConfig {
            failures_max: 2,
            token: vec![AuthTokenConfig {
                name: "a".into(),
                file: file.path().to_owned(),
                roles: Vec::new(),
            }],
            ..AuthConfig::default()
        };
        let border = border(&config);
        let invalid = Err((401, "Bearer error=\"invalid_token\"".to_owned()));
        let too_many = Err((StatusCode::TOO_MANY_REQUESTS.as_u16(), String::new()));
        let peer = "192.0.2.1";
        for expected in [&invalid, &invalid, &too_many] {
            assert_eq!(admit(&border, peer, Some("x")).await, *expected);
        }
        assert_eq!(admit(&border, "192.0.2.2", Some("x")).await, invalid);
        assert_eq!(
            admit(&border, peer, Some(&made.token)).await,
            Ok("token:a".to_owned())
        );
        assert_eq!(admit(&border, peer, None).await, Err((401, "Bearer".to_owned())));
    }
}
