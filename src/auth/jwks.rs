//! The keys of an issuer (RFC 7517).

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde_json::Value;

/// Most keys of one issuer.
const KEYS_MAX: usize = 100;

/// The public keys of one issuer. Keys of other issuers never come together with them.
#[derive(Default)]
pub(super) struct KeySet {
    keys: Vec<NamedKey>,
    /// The text that they were read from, by which a change is noticed.
    text: Vec<u8>,
}

struct NamedKey {
    kid: Option<String>,
    /// The algorithms that the key can have.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl KeySet {
    /// Reads a key set. Keys of other kinds and uses are passed over.
    ///
    /// # Errors
    /// The text is no key set, or has no key that can verify a token.
    pub(super) fn read(text: &[u8]) -> Result<KeySet, String> {
        let document: Value = serde_json::from_slice(text).map_err(|_| "it is no JSON")?;
        // Read one by one: a key of a kind that is not known here must not hide the others.
        let Some(items) = document.get("keys").and_then(Value::as_array) else {
            return Err("it has no list \"keys\"".into());
        };
        let keys: Vec<NamedKey> = items.iter().take(KEYS_MAX).filter_map(named_key).collect();
        match keys.is_empty() {
            true => Err("it has no key that can verify a token".into()),
            false => Ok(KeySet {
                keys,
                text: text.to_owned(),
            }),
        }
    }

    /// The keys with this name that can have this algorithm; all of the kind for a token without a name.
    pub(super) fn fitting(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &DecodingKey> {
        let fitting = self.keys.iter().filter(move |key| {
            let is_named = kid.is_none() || key.kid.as_deref() == kid;
            is_named && key.algorithms.contains(&algorithm)
        });
        fitting.map(|key| &key.key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns true if both were read from the same text.
    pub(super) fn is_same(&self, other: &KeySet) -> bool {
        self.text == other.text
    }
}

fn named_key(item: &Value) -> Option<NamedKey> {
    let jwk: Jwk = serde_json::from_value(item.clone()).ok()?;
    let for_signatures = match (&jwk.common.public_key_use, &jwk.common.key_operations) {
        (Some(PublicKeyUse::Signature) | None, None) => true,
        (Some(PublicKeyUse::Signature) | None, Some(operations)) => {
            operations.contains(&KeyOperations::Verify)
        }
        _ => false,
    };
    if !for_signatures {
        return None;
    }
    let mut algorithms = algorithms_of(&jwk.algorithm);
    // A key that names its algorithm is not used with another one (RFC 8725, section 3.1).
    if let Some(only) = item.get("alg") {
        let only = only.as_str()?.parse().ok()?;
        algorithms.retain(|algorithm| *algorithm == only);
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    // A shared secret would let every reader of the document sign tokens.
    let is_public = key.family() != AlgorithmFamily::Hmac;
    (is_public && !algorithms.is_empty()).then_some(NamedKey {
        kid: jwk.common.key_id,
        algorithms,
        key,
    })
}

/// Returns the algorithms that a key of this kind can have.
fn algorithms_of(parameters: &AlgorithmParameters) -> Vec<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match parameters {
        AlgorithmParameters::RSA(_) => vec![RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => vec![ES256],
            EllipticCurve::P384 => vec![ES384],
            _ => Vec::new(),
        },
        AlgorithmParameters::OctetKeyPair(key) => match key.curve {
            EllipticCurve::Ed25519 => vec![EdDSA],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}
