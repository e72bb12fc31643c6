//! Resource URIs.
//!
//! URIs are not resolved or normalised: two URIs name the same resource if their texts are equal, which is
//! the rule of MCP.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The maximum length of a URI in bytes.
pub(crate) const URI_LEN_MAX: usize = 2048;

/// A resource URI: a scheme, a colon, and a rest without spaces and control characters (RFC 3986). Cheap to
/// clone.
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
    /// Checks `text` and keeps it unchanged.
    ///
    /// # Errors
    /// [`InvalidUri`] if the text has no scheme, has a space, a control character or a mark of writing
    /// direction, or is longer than 2,048 bytes.
    pub fn new(text: &str) -> Result<Self, InvalidUri> {
        check(text).map_err(|reason| InvalidUri {
            uri: shorten(text),
            reason,
        })?;
        Ok(Self(Arc::from(text)))
    }

    /// The text of the URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The error of a text that is not a resource URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid resource URI {uri:?}: {reason}")]
pub struct InvalidUri {
    /// The rejected text, cut to its first 120 characters.
    pub uri: String,
    reason: &'static str,
}

fn check(text: &str) -> Result<(), &'static str> {
    if text.len() > URI_LEN_MAX {
        return Err("longer than 2048 bytes; shorten it");
    }
    let Some(colon) = text.bytes().position(|byte| byte == b':') else {
        return Err("it has no scheme; write scheme:rest, for example demo://name");
    };
    // RFC 3986, section 3.1.
    let scheme = &text.as_bytes()[..colon];
    let starts_well = matches!(scheme, [first, ..] if first.is_ascii_alphabetic());
    let mut bytes = scheme.iter();
    if !starts_well || !bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)) {
        return Err("its scheme is not a letter followed by letters, digits, '+', '-' or '.'");
    }
    // Nearly all URIs are printable ASCII, for which the check of bytes is much cheaper than that of
    // characters. It looks at all of them, so that the compiler can take many at once.
    let plain = text
        .bytes()
        .fold(true, |plain, byte| plain & byte.is_ascii_graphic());
    if !plain && text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("it has a space or control character; percent-encode it");
    }
    if !plain && text.contains(turns_direction) {
        return Err("it has a mark of writing direction, which would disguise it; leave it out");
    }
    Ok(())
}

/// Returns true for a character that changes the order in which a text is shown. RFC 3987, section 4.1,
/// forbids them in identifiers, of which `exe.txt` could otherwise be shown as `txt.exe`.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn shorten(text: &str) -> String {
    // The text may come from a client, and the error is logged and sent back.
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
        // Maps with URIs as keys can be searched with text, without an allocation.
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
    fn any_scheme_is_accepted_unchanged() {
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
    fn invalid_uri_is_rejected_and_quoted() {
        let long = format!("demo://{}", "x".repeat(URI_LEN_MAX));
        for text in [
            "",
            "plain",
            ":x",
            "1a:x",
            "demo://a b",
            "demo://a\n",
            "d\u{0}:x",
            "demo://\u{202e}gpj.exe",
            "demo://a\u{2066}",
            &long,
        ] {
            let error = ResourceUri::new(text).unwrap_err();
            assert!(error.to_string().contains("invalid resource URI"), "{error}");
        }
    }
}
