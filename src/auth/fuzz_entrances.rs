//! Entrances of the fuzz targets to the readers of credentials, which no public interface reaches alone.

use std::sync::Once;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::jwks::KeySet;
use super::jwt::{Parts, Signed, TokenRules};
use super::ring_provider;
use super::token_line::{TokenLine, hash_of};
use crate::config::IssuerConfig;

const ISSUER: &str = "https://issuer.example";
const RESOURCE: &str = "http://127.0.0.1:8808/mcp";

/// The signatures are verified as the service verifies them.
static PROVIDER: Once = Once::new();

/// Reads a text as a JSON Web Token, and as the header, the claims and the key set of one, line by line.
///
/// # Panics
/// A token of another issuer, or past its end, gets as far as its signature, or a signature is good.
#[doc(hidden)]
pub fn read_token(text: &str) {
    judge(text, b"");
    let mut lines = text.splitn(3, '\n');
    let header = lines.next().unwrap_or_default();
    let claims = lines.next().unwrap_or_default();
    let keys = lines.next().unwrap_or_default();
    // The fuzzer would seldom find the encoding by itself.
    let encoded = [header, claims, "signature"].map(|part| URL_SAFE_NO_PAD.encode(part));
    judge(&encoded.join("."), keys.as_bytes());
}

fn judge(token: &str, keys: &[u8]) {
    PROVIDER.call_once(ring_provider::install);
    let config = IssuerConfig {
        url: ISSUER.into(),
        ..IssuerConfig::default()
    };
    let rules = TokenRules::new(&config, RESOURCE, Duration::from_secs(60));
    // A fixed time, so that an input has one result.
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let Some(parts) = Parts::read(token) else {
        return;
    };
    let Some(claimed) = rules.check(&parts, &hash_of(token), now) else {
        return;
    };
    assert_eq!(parts.issuer(), Some(ISSUER), "another issuer's token");
    let ends: Option<SystemTime> = claimed.principal().expires();
    assert!(ends > Some(now), "a token past its end");
    if let Ok(keys) = KeySet::read(keys) {
        assert_ne!(
            claimed.verify(&keys),
            Signed::Good,
            "a signature without a private key"
        );
    }
}

/// Reads a text as the lines of a token file.
///
/// # Panics
/// A line that is read does not read back as it is printed.
#[doc(hidden)]
pub fn read_token_lines(text: &str) {
    for line in text.lines() {
        if let Ok(Some(read)) = TokenLine::read(line) {
            // A time is printed in whole seconds.
            let again = TokenLine::read(&read.to_string())
                .ok()
                .flatten()
                .expect("a printed line");
            assert_eq!(again.hash, read.hash);
            assert_eq!(again.not_after.is_some(), read.not_after.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_within_the_leeway_has_an_end_to_come() {
        // As in the seed `leeway`: an input that broke the target while such a token ended in the past.
        for exp in [
            1_800_000_001_u64,
            1_800_000_000,
            1_799_999_990,
            1_799_999_941,
            1_799_999_940,
        ] {
            read_token(&format!(
                "{{\"alg\":\"RS256\",\"typ\":\"at+jwt\"}}\n\
                 {{\"iss\":\"{ISSUER}\",\"aud\":\"{RESOURCE}\",\"exp\":{exp},\"sub\":\"ada\",\"client_id\":\"c\"}}\n\
                 {{\"keys\":[]}}"
            ));
        }
    }
}
