//! The types and ranges of configured values, for fields with `#[serde(with = "Checked::<Count<1, 100>>")]`.
//!
//! A field keeps the plain type that the program computes with, such as `usize` or `Option<Duration>`. The
//! rule in its attribute is the only place that states the range: reading, messages, the JSON Schema and the
//! documentation all take it from there.

use super::names;
use super::units::{size, time};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::time::Duration;
use tidings_actors::{NoticeKind, UriPattern};

/// Bytes of a kibibyte.
pub(super) const KIB: u64 = 1 << 10;
/// Bytes of a mebibyte.
pub(super) const MIB: u64 = 1 << 20;
/// Bytes of a gibibyte.
pub(super) const GIB: u64 = 1 << 30;
/// Milliseconds of a second, the unit of the bounds of [`Time`].
pub(super) const SECOND: u64 = 1_000;
/// Milliseconds of a minute.
pub(super) const MINUTE: u64 = 60 * SECOND;
/// Milliseconds of an hour.
pub(super) const HOUR: u64 = 60 * MINUTE;

/// The type and the range of a value.
pub(super) trait Rule {
    /// Converts a value of a file to the form from which serde reads the field; `None` refuses it.
    fn read(written: &Value) -> Option<Value>;

    /// Converts a field, as serde writes it, to a value of a file.
    fn write(field: Value) -> Value {
        field
    }

    /// The value of a file that stands for `None` in an optional field.
    fn none() -> Value {
        Value::from("")
    }

    /// Names the type and the range, for messages and for the documentation.
    fn allowed() -> String;

    /// The type and the range as JSON Schema.
    #[cfg_attr(
        not(feature = "service"),
        allow(dead_code, reason = "the service prints the schema")
    )]
    fn schema() -> Value;
}

/// Reads and writes a field by a rule.
pub(super) struct Checked<R>(PhantomData<R>);

impl<R: Rule> Checked<R> {
    pub(super) fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: DeserializeOwned,
    {
        let written = Value::deserialize(deserializer)?;
        let field =
            R::read(&written).ok_or_else(|| D::Error::custom(format_args!("expected {}", R::allowed())))?;
        // Fails only where the machine has no such number: a size beyond its address space.
        T::deserialize(field).map_err(D::Error::custom)
    }

    pub(super) fn serialize<S: Serializer, T: Serialize>(
        field: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let written = match serde_json::to_value(field) {
            Ok(field) => R::write(field),
            // A path outside UTF-8, which a program can set though no file can.
            Err(error) => Value::from(error.to_string()),
        };
        written.serialize(serializer)
    }
}

#[cfg(feature = "service")]
impl<R: Rule> schemars::JsonSchema for Checked<R> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        std::any::type_name::<R>().into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut schema = R::schema();
        schema["x-allowed"] = R::allowed().into();
        schemars::Schema::try_from(schema).expect("every rule describes itself as a JSON object")
    }
}

/// A whole number from `MIN` to `MAX`.
pub(super) struct Count<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Rule for Count<MIN, MAX> {
    fn read(written: &Value) -> Option<Value> {
        let number = written.as_u64()?;
        (MIN..=MAX).contains(&number).then(|| number.into())
    }

    fn none() -> Value {
        Value::from(0)
    }

    fn allowed() -> String {
        format!("an integer from {MIN} to {MAX}")
    }

    fn schema() -> Value {
        json!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A size from `MIN` to `MAX` bytes, written as a number or as text with a unit.
pub(super) struct Bytes<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Rule for Bytes<MIN, MAX> {
    fn read(written: &Value) -> Option<Value> {
        let bytes = match written {
            Value::String(text) => size::parse(text)?,
            number => number.as_u64()?,
        };
        (MIN..=MAX).contains(&bytes).then(|| bytes.into())
    }

    fn write(field: Value) -> Value {
        match field.as_u64() {
            Some(bytes) => size::text(bytes).into(),
            None => field,
        }
    }

    fn allowed() -> String {
        format!("a size from \"{}\" to \"{}\"", size::text(MIN), size::text(MAX))
    }

    fn schema() -> Value {
        json!({ "type": ["integer", "string"], "minimum": MIN, "maximum": MAX, "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" })
    }
}

/// A duration from `MIN` to `MAX` milliseconds.
pub(super) struct Time<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Time<MIN, MAX> {
    fn bounds() -> [String; 2] {
        [MIN, MAX].map(|millis| time::text(Duration::from_millis(millis)))
    }
}

impl<const MIN: u64, const MAX: u64> Rule for Time<MIN, MAX> {
    fn read(written: &Value) -> Option<Value> {
        let duration = time::parse(written.as_str()?)?;
        let range = Duration::from_millis(MIN)..=Duration::from_millis(MAX);
        range.contains(&duration).then(|| json!(duration))
    }

    fn write(field: Value) -> Value {
        match Duration::deserialize(&field) {
            Ok(duration) => time::text(duration).into(),
            Err(_) => field,
        }
    }

    fn none() -> Value {
        Value::from("0s")
    }

    fn allowed() -> String {
        let [shortest, longest] = Self::bounds();
        format!("a duration from \"{shortest}\" to \"{longest}\"")
    }

    fn schema() -> Value {
        let [shortest, longest] = Self::bounds();
        // JSON Schema has no range of texts, so the bounds stand under names of our own.
        json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$", "x-minimum": shortest, "x-maximum": longest })
    }
}

/// A text of `MIN` to `MAX` bytes.
pub(super) struct Text<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Rule for Text<MIN, MAX> {
    fn read(written: &Value) -> Option<Value> {
        let length = written.as_str()?.len() as u64;
        (MIN..=MAX).contains(&length).then(|| written.clone())
    }

    fn allowed() -> String {
        format!("a text of {MIN} to {MAX} bytes")
    }

    fn schema() -> Value {
        json!({ "type": "string", "minLength": MIN, "maxLength": MAX })
    }
}

/// An array of `MIN` to `MAX` values of the rule `R`.
pub(super) struct List<R, const MIN: usize, const MAX: usize>(PhantomData<R>);

impl<R: Rule, const MIN: usize, const MAX: usize> Rule for List<R, MIN, MAX> {
    fn read(written: &Value) -> Option<Value> {
        let items = written.as_array()?;
        if !(MIN..=MAX).contains(&items.len()) {
            return None;
        }
        items.iter().map(R::read).collect()
    }

    fn allowed() -> String {
        format!("a list of {MIN} to {MAX} items, each {}", R::allowed())
    }

    fn schema() -> Value {
        json!({ "type": "array", "items": R::schema(), "minItems": MIN, "maxItems": MAX })
    }
}

/// A value that may be left out, which is then `None`.
pub(super) struct Optional<R>(PhantomData<R>);

impl<R: Rule> Rule for Optional<R> {
    fn read(written: &Value) -> Option<Value> {
        R::read(written)
    }

    fn write(field: Value) -> Value {
        if field.is_null() { field } else { R::write(field) }
    }

    fn allowed() -> String {
        R::allowed()
    }

    fn schema() -> Value {
        R::schema()
    }
}

/// A value that is always written, with zero or empty text for `None`.
pub(super) struct OrNone<R>(PhantomData<R>);

impl<R: Rule> Rule for OrNone<R> {
    fn read(written: &Value) -> Option<Value> {
        if *written == R::none() {
            return Some(Value::Null);
        }
        let field = R::read(written)?;
        // "0ms" is zero as well as "0s".
        let is_none = R::read(&R::none()).as_ref() == Some(&field);
        Some(if is_none { Value::Null } else { field })
    }

    fn write(field: Value) -> Value {
        if field.is_null() {
            R::none()
        } else {
            R::write(field)
        }
    }

    fn allowed() -> String {
        match R::read(&R::none()) {
            Some(_) => R::allowed(),
            None => format!("{}, or \"\" for none", R::allowed()),
        }
    }

    fn schema() -> Value {
        R::schema()
    }
}

/// A text, a number or a boolean.
pub(super) struct Scalar;

impl Rule for Scalar {
    fn read(written: &Value) -> Option<Value> {
        matches!(written, Value::Bool(_) | Value::Number(_) | Value::String(_)).then(|| written.clone())
    }

    fn allowed() -> String {
        "a text, a number, true or false".to_owned()
    }

    fn schema() -> Value {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

/// Declares rules for text with a syntax: a name, the words for it, an example, and the normal form of a
/// text.
macro_rules! texts {
    ($($(#[$doc:meta])* $rule:ident = $allowed:expr, $example:literal, $normal:expr;)+) => {$(
        $(#[$doc])*
        pub(super) struct $rule;

        impl Rule for $rule {
            fn read(written: &Value) -> Option<Value> {
                let normal: fn(&str) -> Option<String> = $normal;
                Some(Value::from(normal(written.as_str()?)?))
            }

            fn allowed() -> String {
                $allowed.to_string()
            }

            fn schema() -> Value {
                json!({ "type": "string", "examples": [$example] })
            }
        }
    )+};
}

texts! {
    /// A socket address.
    Address = "an IP address and a port", "127.0.0.1:8808", |text| {
        Some(text.parse::<SocketAddr>().ok()?.to_string())
    };
    /// A host without a port.
    Host = "a host name or IP address without a port", "bus.example", names::host;
    /// An origin as browsers send it.
    Origin = "an origin such as \"https://app.example\"", "https://app.example", names::origin;
    /// The scheme of URIs.
    Scheme = "a URI scheme: a letter, then letters, digits, \"+\", \"-\" or \".\", 64 at most", "workspace",
        names::scheme;
    /// A pattern of URIs.
    Pattern = "a URI, the beginning of URIs such as \"note://*\", or a template such as \"note://{name}\"",
        "note://*", |text| if_allowed(text, text.parse::<UriPattern>().is_ok());
    /// The name of a kind of notices.
    Kind = format!("one of {}", NoticeKind::ALL.map(NoticeKind::name).join(", ")), "updated", |text| {
        if_allowed(text, NoticeKind::from_name(text).is_some())
    };
    /// The path of a file or folder.
    File = "a path in UTF-8", "data/notes.json", |text| if_allowed(text, !text.is_empty() && !text.contains('\0'));
    /// A name that fits into URIs and into names of tools.
    Name = "a lower-case letter, then lower-case letters, digits, \"_\" or \"-\", 48 at most", "notes", |text| {
        if_allowed(text, names::is_identifier(text))
    };
    /// A name that is the scheme of URIs too.
    SchemeName = "a lower-case letter, then lower-case letters, digits or \"-\", 48 at most", "notes", |text| {
        if_allowed(text, names::is_identifier(text) && !text.contains('_'))
    };
    /// A JSON pointer, or empty text for the whole document.
    Pointer = "a JSON pointer such as \"/items\", or \"\"", "/items", |text| {
        if_allowed(text, names::is_json_pointer(text))
    };
    /// The path of a field in a JSON object.
    Field = "a path such as \"author.name\", or a JSON pointer such as \"/author/name\"", "author.name", |text| {
        if_allowed(text, names::is_field_path(text))
    };
    /// The address of a webhook.
    Url = "an address such as \"https://hooks.example/tidings\", without user and password",
        "https://hooks.example/tidings", |text| if_allowed(text, names::is_webhook_url(text));
    /// The name of an environment variable.
    Variable = "the name of an environment variable that does not begin with TIDINGS_", "WEBHOOK_SECRET", |text| {
        if_allowed(text, names::is_foreign_variable(text))
    };
}

fn if_allowed(text: &str, is_allowed: bool) -> Option<String> {
    is_allowed.then(|| text.to_owned())
}

/// The default of a number in a table of a list.
pub(super) fn count<const DEFAULT: usize>() -> usize {
    DEFAULT
}

/// The default of a size in a table of a list.
pub(super) fn bytes<const DEFAULT: u64>() -> u64 {
    DEFAULT
}

/// The default of a duration in a table of a list.
pub(super) fn millis<const DEFAULT: u64>() -> Duration {
    Duration::from_millis(DEFAULT)
}
