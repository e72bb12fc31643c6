//! The checks of a JSON Web Token of an issuer (RFC 7519, RFC 8725, RFC 9068).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use super::jwks::KeySet;
use super::principal::{Principal, PrincipalBuilder};
use super::token_line::TokenHash;
use super::tokens::credential_of;
use crate::config::IssuerConfig;

/// Most bytes of a token that is looked at.
pub(super) const TOKEN_LEN_MAX: usize = 16 << 10;
/// Most bytes of a name in a token.
const NAME_LEN_MAX: usize = 512;
/// Most roles or scopes of a token.
const WORDS_MAX: usize = 256;

/// The rules for the tokens of one issuer.
pub(super) struct TokenRules {
    /// Compared exactly with the claim `iss`.
    pub(super) issuer: String,
    /// One of the audiences of each token.
    resource: String,
    algorithms: Vec<Algorithm>,
    /// The type in lower case, without `application/`; none for any.
    typ: Option<String>,
    leeway: Duration,
    subject_claim: String,
    roles_claim: String,
}

/// A token whose parts can be read and whose claims are good, if its signature is.
pub(super) struct Claimed<'a> {
    /// The header and the claims as they were signed.
    message: &'a str,
    signature: &'a str,
    algorithm: Algorithm,
    kid: Option<String>,
    principal: Principal,
}

/// The result of the look for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signed {
    /// A key of the issuer made the signature.
    Good,
    /// A key of this name and kind did not make it.
    Wrong,
    /// There is no key of this name and kind.
    NoKey,
}

/// The parts of a token, of which nothing is verified.
pub(super) struct Parts<'a> {
    message: &'a str,
    signature: &'a str,
    header: Map<String, Value>,
    claims: Value,
}

impl<'a> Parts<'a> {
    /// Reads a token; none if it is no JSON Web Token.
    pub(super) fn read(token: &'a str) -> Option<Parts<'a>> {
        if token.len() > TOKEN_LEN_MAX {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let Ok(Value::Object(header)) = serde_json::from_slice(&decode(header)?) else {
            return None;
        };
        let claims: Value = serde_json::from_slice(&decode(claims)?).ok()?;
        claims.is_object().then_some(Parts {
            message,
            signature,
            header,
            claims,
        })
    }

    /// The issuer that the token names.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }
}

impl TokenRules {
    pub(super) fn new(config: &IssuerConfig, resource: &str, leeway: Duration) -> TokenRules {
        let typ = bare_type(&config.typ);
        TokenRules {
            issuer: config.url.clone(),
            resource: resource.to_owned(),
            // The configuration allows no other names.
            algorithms: config
                .algorithms
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect(),
            typ: Some(typ).filter(|typ| !typ.is_empty()),
            leeway,
            subject_claim: config.subject_claim.clone(),
            roles_claim: config.roles_claim.clone(),
        }
    }

    /// Checks everything but the signature.
    pub(super) fn check<'a>(
        &self,
        parts: &Parts<'a>,
        hash: &TokenHash,
        now: SystemTime,
    ) -> Option<Claimed<'a>> {
        let (algorithm, kid) = self.check_header(&parts.header)?;
        let principal = self.check_claims(&parts.claims, hash, now)?;
        Some(Claimed {
            message: parts.message,
            signature: parts.signature,
            algorithm,
            kid,
            principal,
        })
    }

    fn check_header(&self, header: &Map<String, Value>) -> Option<(Algorithm, Option<String>)> {
        let algorithm = header.get("alg")?.as_str()?.parse().ok()?;
        if !self.algorithms.contains(&algorithm) {
            return None;
        }
        // RFC 7515, section 4.1.11: extensions that are not understood must be refused, and none is.
        if header.contains_key("crit") {
            return None;
        }
        if let Some(expected) = &self.typ
            && bare_type(header.get("typ")?.as_str()?) != *expected
        {
            return None;
        }
        // The header's own keys (jwk, jku, x5u) are not looked at: they are the caller's.
        let kid = match header.get("kid") {
            None => None,
            Some(kid) => Some(kid.as_str()?.to_owned()),
        };
        Some((algorithm, kid))
    }

    fn check_claims(&self, claims: &Value, hash: &TokenHash, now: SystemTime) -> Option<Principal> {
        if claims.get("iss")?.as_str()? != self.issuer {
            return None;
        }
        let expires = time(claims.get("exp")?)?;
        Some(self.identify(claims, Some(expires), hash, now)?.build())
    }

    /// Checks what the issuer says of a token that it calls active (RFC 7662, section 2.2).
    pub(super) fn check_answer(
        &self,
        answer: &Value,
        hash: &TokenHash,
        now: SystemTime,
    ) -> Option<PrincipalBuilder> {
        // The issuer itself has answered, so it need not name itself; another name must not pass.
        if let Some(issuer) = answer.get("iss")
            && issuer.as_str() != Some(&self.issuer)
        {
            return None;
        }
        // A token that is bound to a key of its holder must not pass for one that needs no proof.
        if let Some(kind) = answer.get("token_type")
            && !kind.as_str()?.eq_ignore_ascii_case("bearer")
        {
            return None;
        }
        let expires = match answer.get("exp") {
            Some(at) => Some(time(at)?),
            None => None,
        };
        self.identify(answer, expires, hash, now)
    }

    /// Checks the claims that JSON Web Tokens and answers of the issuer have in common.
    fn identify(
        &self,
        claims: &Value,
        expires: Option<SystemTime>,
        hash: &TokenHash,
        now: SystemTime,
    ) -> Option<PrincipalBuilder> {
        // Bound to a key (RFC 8705, RFC 9449) that a bearer need not have; no proof of it is asked for here.
        if claims.get("cnf").is_some() {
            return None;
        }
        if !self.is_meant_for_us(claims.get("aud")?) {
            return None;
        }
        let expires = match expires {
            // The sender's clock may be slow. Streams from before end at `exp` all the same.
            Some(ended) if ended <= now => {
                let end = ended.checked_add(self.leeway);
                Some(end.filter(|end| *end > now)?)
            }
            expires => expires,
        };
        if let Some(begins) = claims.get("nbf")
            && time(begins)? > now.checked_add(self.leeway)?
        {
            return None;
        }
        let credential = match claims.get("jti").and_then(Value::as_str) {
            Some(jti) if is_plain_name(jti) => format!("jti:{jti}"),
            _ => credential_of(hash),
        };
        let subject = claim(claims, &self.subject_claim)?.as_str()?;
        let client = claims.get("client_id").or_else(|| claims.get("azp"));
        let client = client.and_then(Value::as_str);
        let id = identity(&self.issuer, subject, client)?;
        let scopes = claims.get("scope").or_else(|| claims.get("scp"));
        Some(
            Principal::builder(id)
                .roles(words(claim(claims, &self.roles_claim))?)
                .scopes(words(scopes)?)
                .credential(credential)
                .expires(expires),
        )
    }

    fn is_meant_for_us(&self, audience: &Value) -> bool {
        match audience {
            Value::String(one) => *one == self.resource,
            Value::Array(all) => all.iter().any(|one| one.as_str() == Some(&self.resource)),
            _ => false,
        }
    }
}

impl Claimed<'_> {
    /// Checks the signature with the keys of the issuer.
    pub(super) fn verify(&self, keys: &KeySet) -> Signed {
        let mut result = Signed::NoKey;
        for key in keys.fitting(self.kid.as_deref(), self.algorithm) {
            let message = self.message.as_bytes();
            match jsonwebtoken::crypto::verify(self.signature, message, key, self.algorithm) {
                Ok(true) => return Signed::Good,
                Ok(false) | Err(_) => result = Signed::Wrong,
            }
        }
        // Without a name, a key that is new would look like a wrong signature.
        match (&self.kid, result) {
            (None, Signed::Wrong) => Signed::NoKey,
            (_, result) => result,
        }
    }

    /// The principal, if the signature is good.
    pub(super) fn principal(&self) -> &Principal {
        &self.principal
    }
}

/// Returns a media type in lower case without `application/`, as RFC 7515, section 4.1.9, compares it.
fn bare_type(typ: &str) -> String {
    let typ = typ.to_ascii_lowercase();
    typ.strip_prefix("application/").unwrap_or(&typ).to_owned()
}

fn time(claim: &Value) -> Option<SystemTime> {
    let seconds = claim.as_f64().filter(|seconds| (0.0..1e11).contains(seconds))?;
    Some(UNIX_EPOCH + Duration::from_secs_f64(seconds))
}

/// Finds a claim by its name, by a path with dots, or by a JSON pointer.
pub(super) fn claim<'a>(claims: &'a Value, path: &str) -> Option<&'a Value> {
    if path.starts_with('/') {
        return claims.pointer(path);
    }
    // Claims of one's own have addresses for names, which have dots.
    if let Some(found) = claims.get(path) {
        return Some(found);
    }
    path.split('.').try_fold(claims, |value, name| value.get(name))
}

/// Reads a list of texts, or a text with blanks between them. None if it is anything else.
pub(super) fn words(claim: Option<&Value>) -> Option<Vec<String>> {
    let words: Vec<String> = match claim {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => text
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect(),
        Some(Value::Array(items)) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<_>>()?
        }
        Some(_) => return None,
    };
    (words.len() <= WORDS_MAX).then_some(words)
}

fn is_plain_name(text: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Returns the identity of a subject of an issuer. The parts are escaped, so that no two are alike.
pub(super) fn identity(issuer: &str, subject: &str, client: Option<&str>) -> Option<String> {
    let escape = |text: &str| text.replace('%', "%25").replace('#', "%23");
    if !is_plain_name(subject) {
        return None;
    }
    let mut id = format!("{issuer}#{}", escape(subject));
    if let Some(client) = client {
        if !is_plain_name(client) {
            return None;
        }
        id.push('#');
        id.push_str(&escape(client));
    }
    Some(id)
}
