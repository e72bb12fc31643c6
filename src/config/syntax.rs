//! The rules for values with a syntax of their own: names, addresses, paths, lists of them, and scalars.

use super::bounded::Rule;
use super::names;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tidings_actors::{NoticeKind, PATTERNS_MAX, UriPattern};

/// Most items of a list of names; each is compared with a header of every request.
const NAMES_MAX: usize = 256;

/// Most tables of a list, and most values of one `in`.
pub(super) const TABLES_MAX: usize = 256;

/// Declares rules for text with a syntax: a name, the words for it, and a function that makes the normal form.
macro_rules! texts {
    ($($(#[$doc:meta])* $rule:ident = $allowed:literal, $normal:expr;)+) => {$(
        $(#[$doc])*
        pub(super) struct $rule;

        impl Rule for $rule {
            type Normal = String;

            fn read(value: &Value) -> Option<String> {
                let normal: fn(&str) -> Option<String> = $normal;
                normal(value.as_str()?)
            }

            fn write(normal: String) -> Value {
                normal.into()
            }

            fn allowed() -> String {
                $allowed.to_owned()
            }

            fn json() -> Value {
                json!({ "type": "string" })
            }
        }
    )+};
}

fn given(text: &str, is_allowed: bool) -> Option<String> {
    is_allowed.then(|| text.to_owned())
}

texts! {
    /// A socket address.
    Address = "an IP address and a port", |text| {
        text.parse::<SocketAddr>().ok().map(|address| address.to_string())
    };
    /// A socket address, or empty text for none.
    AddressOrNone = "an IP address and a port, or \"\" for none", |text| {
        if text.is_empty() { Some(String::new()) } else { Address::read(&text.into()) }
    };
    /// The scheme of URIs.
    Scheme = "a URI scheme: a letter, then letters, digits, \"+\", \"-\" or \".\", 64 at most", names::scheme;
    /// A path, or empty text for none.
    PathOrNone = "a path in UTF-8, or \"\" for none", |text| given(text, !text.contains('\0'));
    /// The path of a file.
    File = "a path in UTF-8", |text| given(text, !text.is_empty() && !text.contains('\0'));
    /// A name that fits into URIs and into names of tools.
    Name = "a lower-case letter, then lower-case letters, digits, \"_\" or \"-\", 48 at most", |text| {
        given(text, names::is_identifier(text))
    };
    /// A name that is the scheme of URIs too.
    SchemeName = "a lower-case letter, then lower-case letters, digits or \"-\", 48 at most", |text| {
        given(text, names::is_identifier(text) && !text.contains('_'))
    };
    /// A JSON pointer, or empty text for the whole document.
    Pointer = "a JSON pointer such as \"/items\", or \"\"", |text| given(text, names::is_json_pointer(text));
    /// The path of a field in a JSON object.
    Field = "a path such as \"author.name\", or a JSON pointer such as \"/author/name\"", |text| {
        given(text, names::is_field_path(text))
    };
    /// The address of a webhook.
    Url = "an address such as \"https://hooks.example/tidings\", without user and password", |text| {
        given(text, names::is_webhook_url(text))
    };
    /// The name of an environment variable.
    Variable = "the name of an environment variable that does not begin with TIDINGS_", |text| {
        given(text, names::is_foreign_variable(text))
    };
}

/// Declares rules for lists of texts: a name, the words for it, the most items, and the normal form of one item.
macro_rules! lists {
    ($($(#[$doc:meta])* $rule:ident = $allowed:expr, $max:expr, $normal:expr;)+) => {$(
        $(#[$doc])*
        pub(super) struct $rule;

        impl Rule for $rule {
            type Normal = Vec<String>;

            fn read(value: &Value) -> Option<Vec<String>> {
                let normal: fn(&str) -> Option<String> = $normal;
                let items = value.as_array().filter(|items| items.len() <= $max)?;
                items.iter().map(|item| normal(item.as_str()?)).collect()
            }

            fn write(normal: Vec<String>) -> Value {
                normal.into()
            }

            fn allowed() -> String {
                $allowed
            }

            fn json() -> Value {
                json!({ "type": "array", "items": { "type": "string" }, "maxItems": $max })
            }
        }
    )+};
}

lists! {
    /// Hosts without ports.
    Hosts = format!("a list of at most {NAMES_MAX} host names or IP addresses, without ports"),
        NAMES_MAX, names::host;
    /// Origins as browsers send them.
    Origins = format!("a list of at most {NAMES_MAX} origins such as \"https://app.example\""),
        NAMES_MAX, names::origin;
    /// Patterns of URIs.
    Patterns = format!(
            "a list of at most {PATTERNS_MAX} URIs, beginnings of URIs such as \"note://*\", \
             or templates such as \"note://{{name}}\""
        ),
        PATTERNS_MAX, |text| given(text, text.parse::<UriPattern>().is_ok());
    /// Names of kinds of notices.
    NoticeKinds = format!("a list of {}", NoticeKind::ALL.map(NoticeKind::name).join(", ")),
        NAMES_MAX, |text| given(text, NoticeKind::from_name(text).is_some());
}

/// A text, a number or a boolean.
pub(super) struct Scalar;

impl Rule for Scalar {
    type Normal = Value;

    fn read(value: &Value) -> Option<Value> {
        matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_)).then(|| value.clone())
    }

    fn write(normal: Value) -> Value {
        normal
    }

    fn allowed() -> String {
        "a text, a number, true or false".to_owned()
    }

    fn json() -> Value {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

/// One to [`TABLES_MAX`] values of the rule [`Scalar`].
pub(super) struct Scalars;

impl Rule for Scalars {
    type Normal = Vec<Value>;

    fn read(value: &Value) -> Option<Vec<Value>> {
        let items = value.as_array()?;
        if !(1..=TABLES_MAX).contains(&items.len()) {
            return None;
        }
        items.iter().map(Scalar::read).collect()
    }

    fn write(normal: Vec<Value>) -> Value {
        normal.into()
    }

    fn allowed() -> String {
        format!("a list of 1 to {TABLES_MAX} texts, numbers, true or false")
    }

    fn json() -> Value {
        json!({ "type": "array", "items": Scalar::json(), "minItems": 1, "maxItems": TABLES_MAX })
    }
}
