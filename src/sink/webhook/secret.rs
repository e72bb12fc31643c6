//! The secrets that a webhook is signed with.
//!
//! Owns: where they come from, what they may be, and the signature. Never: shows one, in an error, a log or a debug
//! print. Asked by the sender before each request, so that a secret can be changed without a restart.

use std::fmt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How a secret begins in the notation of Standard Webhooks.
const PREFIX: &str = "whsec_";

/// How many secrets may sign at once.
const SECRETS_MAX: usize = 4;

/// Where the secrets are: in each case one or several, with blanks or line feeds between them. Several sign at once,
/// so that a receiver can go from one to the next.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In this file, which is read before each request.
    File(PathBuf),
    /// In this environment variable.
    Variable(String),
    /// Here.
    Text(String),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// Why there is no secret to sign with. The text never has a part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no webhook secret in {source_name}: {reason}")]
pub struct InvalidSecret {
    source_name: String,
    reason: String,
}

/// A key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// Reads `whsec_` and base64 of 24 to 64 bytes; the beginning may be left out.
    fn parse(text: &str) -> Option<Secret> {
        let key = STANDARD.decode(text.strip_prefix(PREFIX).unwrap_or(text)).ok()?;
        (24..=64).contains(&key.len()).then_some(Secret(key))
    }

    /// The signature of a message, as the header has it: `v1,` and base64.
    pub fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        standardwebhooks::Webhook::from_bytes(self.0.clone())
            .and_then(|webhook| webhook.sign(id, timestamp, body.as_bytes()))
            .expect("any bytes are a key, and the body is text")
    }
}

impl SecretSource {
    /// The secrets that are there now.
    ///
    /// # Errors
    /// [`InvalidSecret`] when there is none, or one that is none.
    pub fn read(&self) -> Result<Vec<Secret>, InvalidSecret> {
        let refuse = |reason: String| InvalidSecret {
            source_name: self.to_string(),
            reason,
        };
        let text = match self {
            SecretSource::File(path) => {
                std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?
            }
            SecretSource::Variable(name) => std::env::var(name).map_err(|error| refuse(error.to_string()))?,
            SecretSource::Text(text) => text.clone(),
        };
        let secrets: Option<Vec<_>> = text.split_whitespace().map(Secret::parse).collect();
        match secrets {
            Some(secrets) if (1..=SECRETS_MAX).contains(&secrets.len()) => Ok(secrets),
            _ => Err(refuse(format!(
                "expected 1 to {SECRETS_MAX} times {PREFIX} and base64 of 24 to 64 bytes; \
                 printf 'whsec_%s\\n' \"$(openssl rand -base64 32)\" makes one"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret and the signature of the specification's own example.
    const KNOWN: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    #[test]
    fn a_message_is_signed_as_the_specification_says() {
        let secrets = SecretSource::Text(KNOWN.to_owned()).read().unwrap();
        let webhook = standardwebhooks::Webhook::new(KNOWN).unwrap();
        let expected = webhook.sign("msg_1", 1_674_087_231, b"{}").unwrap();
        assert_eq!(secrets[0].sign("msg_1", 1_674_087_231, "{}"), expected);
        assert!(expected.starts_with("v1,"));
    }

    #[test]
    fn several_secrets_are_read_and_a_wrong_one_is_never_shown() {
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
    fn a_secret_that_is_not_there_is_named_by_its_place() {
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
