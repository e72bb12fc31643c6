//! The secrets that a webhook signs with, and the signature. No error, log line or debug output shows a
//! secret.

use std::fmt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The prefix of a secret in the notation of Standard Webhooks.
const PREFIX: &str = "whsec_";

/// The number of secrets that may sign at the same time.
const SECRETS_MAX: usize = 4;

/// The source of one or more secrets, separated by white space.
///
/// Each of several secrets signs every message, so that a receiver can change from one to the next.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A file, which is read before each request.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// The text itself.
    Text(String),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: the options, and with them the secret, would appear in debug output.
        match self {
            SecretSource::File(path) => write!(f, "File({})", path.display()),
            SecretSource::Variable(name) => write!(f, "Variable({name})"),
            SecretSource::Text(_) => f.write_str("Text(…)"),
        }
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "the file {}", path.display()),
            SecretSource::Variable(name) => write!(f, "the environment variable {name}"),
            SecretSource::Text(_) => f.write_str("the given text"),
        }
    }
}

/// The error of a secret that is missing or malformed. The message never contains a part of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no webhook secret in {source_name}: {reason}")]
pub struct InvalidSecret {
    source_name: String,
    reason: String,
}

/// A secret key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// Parses `whsec_` and the base64 of 24 to 64 bytes; the prefix is optional.
    fn parse(text: &str) -> Option<Secret> {
        let key = STANDARD.decode(text.strip_prefix(PREFIX).unwrap_or(text)).ok()?;
        // Standard Webhooks demands 192 to 512 bits.
        (24..=64).contains(&key.len()).then_some(Secret(key))
    }

    /// Returns the signature of a message as the header carries it: `v1,` and base64.
    pub fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let webhook = standardwebhooks::Webhook::from_bytes(self.0.clone()).expect("any bytes are a key");
        webhook
            .sign(id, timestamp, body.as_bytes())
            .expect("the body is text")
    }
}

impl SecretSource {
    /// Reads the secrets.
    ///
    /// # Errors
    /// [`InvalidSecret`] if there is none, too many, or a malformed one.
    pub fn read(&self) -> Result<Vec<Secret>, InvalidSecret> {
        let text = match self {
            SecretSource::File(path) => {
                std::fs::read_to_string(path).map_err(|error| self.invalid(error.to_string()))?
            }
            SecretSource::Variable(name) => {
                std::env::var(name).map_err(|error| self.invalid(error.to_string()))?
            }
            SecretSource::Text(text) => text.clone(),
        };
        let secrets: Option<Vec<_>> = text.split_whitespace().map(Secret::parse).collect();
        match secrets {
            Some(secrets) if (1..=SECRETS_MAX).contains(&secrets.len()) => Ok(secrets),
            _ => Err(self.invalid(format!(
                "expected 1 to {SECRETS_MAX} times {PREFIX} and base64 of 24 to 64 bytes; \
                 printf 'whsec_%s\\n' \"$(openssl rand -base64 32)\" makes one"
            ))),
        }
    }

    fn invalid(&self, reason: String) -> InvalidSecret {
        InvalidSecret {
            source_name: self.to_string(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret of the example in the specification.
    const KNOWN: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    #[test]
    fn signature_follows_the_specification() {
        let secrets = SecretSource::Text(KNOWN.to_owned()).read().unwrap();
        let webhook = standardwebhooks::Webhook::new(KNOWN).unwrap();
        let expected = webhook.sign("msg_1", 1_674_087_231, b"{}").unwrap();
        assert_eq!(secrets[0].sign("msg_1", 1_674_087_231, "{}"), expected);
        assert!(expected.starts_with("v1,"));
    }

    #[test]
    fn several_secrets_are_read_and_none_is_shown() {
        let two = SecretSource::Text(format!("{KNOWN}\n{KNOWN}\n"));
        assert_eq!(two.read().unwrap().len(), 2);
        for wrong in ["", "whsec_AAAA", "whsec_hunter2hunter2!", &format!("{KNOWN} x")] {
            let error = SecretSource::Text(wrong.to_owned()).read().unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(!text.contains("hunter2") && !text.contains("AAAA"), "{text}");
        }
        let shown = format!("{two:?} {:?}", two.read());
        assert!(!shown.contains("C2FV"), "{shown}");
    }

    #[test]
    fn missing_secret_is_named_by_its_source() {
        let file = SecretSource::File("/nonexistent/secret".into());
        let error = file.read().unwrap_err().to_string();
        assert!(
            error.starts_with("no webhook secret in the file /nonexistent/secret: "),
            "{error}"
        );
        let variable = SecretSource::Variable("NO_SUCH_VARIABLE_HERE".to_owned());
        let error = variable.read().unwrap_err().to_string();
        assert!(
            error.contains("the environment variable NO_SUCH_VARIABLE_HERE"),
            "{error}"
        );
    }
}
