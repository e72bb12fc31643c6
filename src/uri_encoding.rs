//! The characters that stay when text is percent-encoded into a URI (RFC 3986).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// Encodes everything but unreserved characters (section 2.3), so that each text has exactly one encoding.
pub(crate) const EXCEPT_UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Encodes everything but the characters of a path segment, `pchar` (section 3.3).
pub(crate) const EXCEPT_PATH_SEGMENT: &AsciiSet = &EXCEPT_UNRESERVED
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');
