//! The name of a resource.
//!
//! Owns: what may serve as a resource URI and what may not. Never: resolves, normalises or fetches; two URIs are
//! the same resource exactly when their text is the same, as the protocols that carry them compare them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Longest URI the bus accepts, in bytes. Longer ones are refused with [`InvalidUri`].
pub(crate) const URI_LEN_MAX: usize = 2048;

/// A checked, cheaply cloned resource URI (RFC 3986 shape: a scheme, a colon, no spaces or control characters).
///
/// ```
/// use tidings_actors::ResourceUri;
/// let uri: ResourceUri = "demo://greeting".parse()?;
/// assert_eq!(uri.as_str(), "demo://greeting");
/// assert!("no scheme".parse::<ResourceUri>().is_err());
/// # Ok::<(), tidings_actors::InvalidUri>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceUri(Arc<str>);

impl ResourceUri {
    /// Checks `text` and takes it over unchanged.
    ///
    /// # Errors
    /// [`InvalidUri`] when the text has no scheme, has a space or control character, or is longer than
    /// [`URI_LEN_MAX`].
    pub fn new(text: &str) -> Result<Self, InvalidUri> {
        check(text).map_err(|reason| InvalidUri {
            uri: shorten(text),
            reason,
        })?;
        Ok(Self(Arc::from(text)))
    }

    /// The URI as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Text that is no resource URI, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid resource URI {uri:?}: {reason}")]
pub struct InvalidUri {
    /// The refused text, shortened to its first 120 characters.
    pub uri: String,
    reason: &'static str,
}

fn check(text: &str) -> Result<(), &'static str> {
    if text.len() > URI_LEN_MAX {
        return Err("longer than 2048 bytes; shorten it");
    }
    let Some((scheme, _)) = text.split_once(':') else {
        return Err("it has no scheme; write scheme:rest, for example demo://name");
    };
    let mut letters = scheme.bytes();
    let starts_well = letters.next().is_some_and(|first| first.is_ascii_alphabetic());
    if !starts_well || !letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) {
        return Err("its scheme is not a letter followed by letters, digits, '+', '-' or '.'");
    }
    // Most are ASCII, of which what may stand in one is easily told.
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    if !plain && text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("it has a space or control character; percent-encode it");
    }
    Ok(())
}

fn shorten(text: &str) -> String {
    text.chars().take(120).collect()
}

impl std::str::FromStr for ResourceUri {
    type Err = InvalidUri;

    fn from_str(text: &str) -> Result<Self, InvalidUri> {
        Self::new(text)
    }
}

impl TryFrom<&str> for ResourceUri {
    type Error = InvalidUri;

    fn try_from(text: &str) -> Result<Self, InvalidUri> {
        Self::new(text)
    }
}

impl TryFrom<String> for ResourceUri {
    type Error = InvalidUri;

    fn try_from(text: String) -> Result<Self, InvalidUri> {
        Self::new(&text)
    }
}

impl TryFrom<&ResourceUri> for ResourceUri {
    type Error = InvalidUri;

    fn try_from(uri: &ResourceUri) -> Result<Self, InvalidUri> {
        Ok(uri.clone())
    }
}

impl From<std::convert::Infallible> for InvalidUri {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl Borrow<str> for ResourceUri {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ResourceUri {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_any_scheme_and_keeps_the_text() {
        for text in [
            "demo://a",
            "file:///x%20y",
            "urn:isbn:0",
            "a+b-c.d:e",
            "review://page/%2Fpricing?x=1#f",
        ] {
            assert_eq!(ResourceUri::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn refuses_what_is_no_uri_and_names_it() {
        let long = format!("demo://{}", "x".repeat(URI_LEN_MAX));
        for text in [
            "",
            "plain",
            ":x",
            "1a:x",
            "demo://a b",
            "demo://a\n",
            "d\u{0}:x",
            &long,
        ] {
            let error = ResourceUri::new(text).unwrap_err();
            assert!(error.to_string().contains("invalid resource URI"), "{error}");
        }
    }
}
