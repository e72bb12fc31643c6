//! The types and ranges of configured values, for fields with `#[serde(with = "Checked::<Count<1, 100>>")]`.
//!
//! A field keeps the plain type that the program computes with, such as `usize` or `Option<Duration>`. The
//! rule in its attribute is a JSON Schema, and the only place that states the range: reading, messages,
//! printing and the documentation all take it from there.

use crate::hosts::{self, WebOrigin};
use crate::units::{size, time};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::time::Duration;
use tidings_actors::{NoticeKind, UriPattern};

// The bounds of `Bytes` are bytes.
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
// The bounds of `Time` are milliseconds.
pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
/// Milliseconds of a day.
pub(super) const DAY: u64 = 24 * HOUR;

/// The type and the range of a value.
pub(super) trait Rule {
    /// The JSON Schema of the value as a file has it. `x-allowed` tells type and range in words, `x-none` the
    /// value that stands for `None`.
    fn schema() -> Value;
}

/// Converts a value of a file to the form from which serde reads the field; `None` if `schema` refuses it.
pub(super) fn read(schema: &Value, written: &Value) -> Option<Value> {
    let field = convert(schema, written);
    match schema.get("x-none") {
        // "0ms" is zero as well as "0s".
        Some(none) if written == none || field.is_some() && field == convert(schema, none) => {
            Some(Value::Null)
        }
        _ => field,
    }
}

fn convert(schema: &Value, written: &Value) -> Option<Value> {
    if let Some(choices) = schema["oneOf"].as_array() {
        let is_choice = choices.iter().any(|choice| choice["const"] == *written);
        return is_choice.then(|| written.clone());
    }
    let types = match &schema["type"] {
        Value::Array(types) => &types[..],
        one => std::slice::from_ref(one),
    };
    let is_size = *types == ["integer", "string"];
    match written {
        Value::Bool(_) if types.contains(&json!("boolean")) => Some(written.clone()),
        Value::Number(_) if types.contains(&json!("number")) => Some(written.clone()),
        Value::Number(number) if types.contains(&json!("integer")) => {
            in_range(schema, ["minimum", "maximum"], number.as_u64()?)
        }
        Value::String(text) if is_size => in_range(schema, ["minimum", "maximum"], size::parse(text)?),
        Value::String(text) if types.contains(&json!("string")) => match schema["x-minimum"].as_str() {
            Some(shortest) => {
                let duration = time::parse(text)?;
                let range = time::parse(shortest)?..=time::parse(schema["x-maximum"].as_str()?)?;
                range.contains(&duration).then(|| json!(duration))
            }
            None if schema.get("maxLength").is_some() => {
                in_range(schema, ["minLength", "maxLength"], text.len() as u64)?;
                Some(written.clone())
            }
            None => Some(normal_form(schema["x-syntax"].as_str(), text)?.into()),
        },
        Value::Array(items) if types.contains(&json!("array")) => {
            in_range(schema, ["minItems", "maxItems"], items.len() as u64)?;
            items.iter().map(|item| read(&schema["items"], item)).collect()
        }
        Value::Object(fields) if types.contains(&json!("object")) => {
            in_range(schema, ["minProperties", "maxProperties"], fields.len() as u64)?;
            let mut fields = fields.iter();
            let are_texts = fields.all(|(name, value)| is_foreign_variable(name) && value.is_string());
            are_texts.then(|| written.clone())
        }
        _ => None,
    }
}

fn in_range(schema: &Value, bounds: [&str; 2], number: u64) -> Option<Value> {
    let [least, most] = bounds.map(|bound| schema[bound].as_u64());
    (least.unwrap_or_default()..=most?)
        .contains(&number)
        .then(|| number.into())
}

/// Converts a field, as serde writes it, to a value of a file.
fn write(schema: &Value, field: Value) -> Value {
    match (&field, Duration::deserialize(&field)) {
        (Value::Null, _) => schema.get("x-none").cloned().unwrap_or_default(),
        (_, Ok(duration)) => time::text(duration).into(),
        (Value::Number(bytes), _) if schema.get("pattern").is_some() => {
            size::text(bytes.as_u64().unwrap_or_default()).into()
        }
        _ => field,
    }
}

/// Reads and writes a field by a rule.
pub(super) struct Checked<R>(PhantomData<R>);

impl<R: Rule> Checked<R> {
    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: DeserializeOwned>(d: D) -> Result<T, D::Error> {
        let schema = R::schema();
        let Some(field) = read(&schema, &Value::deserialize(d)?) else {
            return Err(D::Error::custom(format_args!("expected {}", schema["x-allowed"])));
        };
        // Fails only where the machine has no such number: a size beyond its address space.
        T::deserialize(field).map_err(D::Error::custom)
    }

    pub(super) fn serialize<S: Serializer, T: Serialize>(field: &T, to: S) -> Result<S::Ok, S::Error> {
        let written = match serde_json::to_value(field) {
            Ok(field) => write(&R::schema(), field),
            // A path outside UTF-8, which a program can set though no file can.
            Err(error) => Value::from(error.to_string()),
        };
        written.serialize(to)
    }
}

impl<R: Rule> schemars::JsonSchema for Checked<R> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        std::any::type_name::<R>().into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let schema = R::schema().try_into();
        schema.expect("every rule describes itself as a JSON object")
    }
}

/// Declares rules by their words and the rest of their schemas.
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident $(<$($bound:ident),+>)? = $words:expr, $schema:tt;)+) => {$(
        $(#[$doc])*
        pub(super) struct $rule $(<$(const $bound: u64),+>)?;

        impl $(<$(const $bound: u64),+>)? Rule for $rule $(<$($bound),+>)? {
            fn schema() -> Value {
                let mut schema = json!($schema);
                schema["x-allowed"] = $words.to_string().into();
                schema
            }
        }
    )+};
}

rules! {
    /// A whole number from `MIN` to `MAX`.
    Count<MIN, MAX> = format!("an integer from {MIN} to {MAX}"),
        { "type": "integer", "minimum": MIN, "maximum": MAX, "x-zero": 0 };
    /// A size from `MIN` to `MAX` bytes, written as a number or as text with a unit.
    Bytes<MIN, MAX> = format!("a size from \"{}\" to \"{}\"", size::text(MIN), size::text(MAX)),
        { "type": ["integer", "string"], "pattern": "^[0-9]+(B|KiB|MiB|GiB)$",
          "minimum": MIN, "maximum": MAX, "x-zero": 0 };
    /// A duration from `MIN` to `MAX` milliseconds. JSON Schema has no range of texts, so the bounds stand
    /// under names of our own.
    Time<MIN, MAX> = format!("a duration from \"{}\" to \"{}\"", millis_text(MIN), millis_text(MAX)),
        { "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$", "x-zero": "0s",
          "x-minimum": millis_text(MIN), "x-maximum": millis_text(MAX) };
    /// A text of `MIN` to `MAX` bytes.
    Text<MIN, MAX> = format!("a text of {MIN} to {MAX} bytes"),
        { "type": "string", "minLength": MIN, "maxLength": MAX };
    /// Whether something is served.
    Served = "\"loopback\", true or false",
        { "oneOf": [{ "const": "loopback" }, { "const": true }, { "const": false }] };
    /// True, false, or by the circumstances.
    AutoFlag = "\"auto\", true or false", { "type": "boolean", "x-none": "auto" };
    /// Texts by the names of environment variables.
    Variables<MAX> = format!("a table of at most {MAX} texts by the names of environment variables"),
        { "type": "object", "maxProperties": MAX, "additionalProperties": { "type": "string" },
          "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,127}$" } };
    /// A text, a number or a boolean.
    Scalar = "a text, a number, true or false", { "type": ["string", "number", "boolean"] };
}

fn millis_text(millis: u64) -> String {
    time::text(Duration::from_millis(millis))
}

/// An array of `MIN` to `MAX` values of the rule `R`.
pub(super) struct List<R, const MIN: usize, const MAX: usize>(PhantomData<R>);

impl<R: Rule, const MIN: usize, const MAX: usize> Rule for List<R, MIN, MAX> {
    fn schema() -> Value {
        let items = R::schema();
        let words = format!("a list of {MIN} to {MAX} items, each {}", words(&items));
        json!({ "type": "array", "items": items, "minItems": MIN, "maxItems": MAX, "x-allowed": words })
    }
}

/// A value that is always written, with zero or empty text for `None`.
pub(super) struct OrNone<R>(PhantomData<R>);

impl<R: Rule> Rule for OrNone<R> {
    fn schema() -> Value {
        let mut schema = R::schema();
        let none = schema.get("x-zero").cloned().unwrap_or("".into());
        if read(&schema, &none).is_none() {
            schema["x-allowed"] = format!("{}, or {none} for none", words(&schema)).into();
        }
        schema["x-none"] = none;
        schema
    }
}

/// The type and the range that a rule tells in words.
fn words(schema: &Value) -> &str {
    schema["x-allowed"].as_str().unwrap_or_default()
}

/// Declares rules for text with a syntax: a name, the words for it, an example, and the normal form of a
/// text.
macro_rules! texts {
    ($($rule:ident $(($name:literal: $value:tt))? = $words:expr, $example:literal, $normal:expr;)+) => {
        rules! {$(
            #[doc = concat!("A text such as `", $example, "`.")]
            $rule = $words,
              { "type": "string", "x-syntax": stringify!($rule), "examples": [$example]$(, $name: $value)? };
        )+}

        /// The normal form of a text by the rule of this name; other texts are as they should be.
        fn normal_form(rule: Option<&str>, text: &str) -> Option<String> {
            let normal: fn(&str) -> Option<String> = match rule {
                $(Some(stringify!($rule)) => $normal,)+
                _ => |text| Some(text.to_owned()),
            };
            normal(text)
        }
    };
}

texts! {
    Address = "an IP address and a port", "127.0.0.1:8808",
        |text| Some(text.parse::<SocketAddr>().ok()?.to_string());
    Host = "a host name or IP address without a port", "bus.example",
        |text| Some(hosts::Host::parse(text)?.to_string());
    Origin = "an origin such as \"https://app.example\"", "https://app.example",
        |text| Some(WebOrigin::parse(text)?.to_string());
    Scheme = "a URI scheme: a letter, then letters, digits, \"+\", \"-\" or \".\", 64 at most", "workspace",
        |text| keep(&text.to_ascii_lowercase(), hosts::is_scheme(text));
    Pattern = "a URI, the beginning of URIs such as \"note://*\", or a template such as \"note://{name}\"",
        "note://*", |text| keep(text, text.parse::<UriPattern>().is_ok());
    Kind = format!("one of {}", NoticeKind::ALL.map(NoticeKind::name).join(", ")), "updated",
        |text| keep(text, NoticeKind::from_name(text).is_some());
    File = "a path in UTF-8", "data/notes.json", |text| keep(text, !text.is_empty() && !text.contains('\0'));
    Name ("x-unique": []) =
        "a lower-case letter, then lower-case letters, digits, \"_\" or \"-\", 48 at most", "notes",
        |text| keep(text, is_identifier(text));
    SchemeName ("x-unique": []) = "a lower-case letter, then lower-case letters, digits or \"-\", 48 at most",
        "notes", |text| keep(text, is_identifier(text) && !text.contains('_'));
    UpstreamName = "a lower-case letter, then lower-case letters, digits or \"-\", 16 at most", "files",
        |text| keep(text, is_identifier(text) && !text.contains('_') && text.len() <= 16);
    Pointer = "a JSON pointer such as \"/items\", or \"\"", "/items",
        |text| keep(text, is_json_pointer(text));
    Field = "a path such as \"author.name\", or a JSON pointer such as \"/author/name\"", "author.name",
        |text| keep(text, is_field_path(text));
    Url = "an address such as \"https://hooks.example/tidings\", without user and password",
        "https://hooks.example/tidings", |text| keep(text, hosts::is_webhook_url(text));
    HttpUrl = "an address that begins with https:// or http://, without user, query and fragment",
        "https://bus.example/mcp", |text| keep(text, hosts::is_service_url(text));
    BrokerUrl = "an address such as \"nats://broker:4222\" or \"tls://broker:4222\", without user and password",
        "nats://broker:4222", |text| keep(text, hosts::is_broker_url(text));
    Namespace = "letters, digits and \"-\", 1 to 32", "default",
        |text| keep(text, is_namespace(text));
    NodeName = "letters, digits and \"-\", 63 at most", "node-1",
        |text| keep(text, is_node_name(text));
    Scope = "a scope: printable ASCII without blanks, quotes and backslashes, 128 at most", "notes:read",
        |text| keep(text, is_scope(text));
    Role = "a role: printable ASCII without blanks, quotes and backslashes, 128 at most", "editor",
        |text| keep(text, is_scope(text));
    Algorithm = "one of ES256, ES384, RS256, RS384, RS512, PS256, PS384, PS512, EdDSA", "ES256",
        |text| keep(text, ALGORITHMS.contains(&text));
    RightName = "one of list, read, subscribe, publish, call, admin, metrics", "read",
        |text| keep(text, RIGHTS.contains(&text));
    ObjectPattern = "a URI, the beginning of URIs such as \"note://*\", a template such as \"note://{name}\", \
        \"tool:NAME\", \"prompt:NAME\", \"method:NAME\", or the beginning of such names", "note://*",
        |text| keep(text, is_object_pattern(text));
    Variable = "the name of an environment variable that does not begin with TIDINGS_", "WEBHOOK_SECRET",
        |text| keep(text, is_foreign_variable(text));
}

fn keep(text: &str, is_allowed: bool) -> Option<String> {
    is_allowed.then(|| text.to_owned())
}

/// Returns true for a lower-case name of letters, digits, `_` and `-`.
fn is_identifier(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
    starts && has_only(text, b"_-") && !text.contains(|c: char| c.is_ascii_uppercase()) && text.len() <= 48
}

/// Returns true for the name of a cluster, which is a part of the names of its streams.
fn is_namespace(text: &str) -> bool {
    !text.is_empty() && text.len() <= 32 && has_only(text, b"-")
}

/// Returns true for a name by which nodes of a cluster tell each other apart.
fn is_node_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= 63 && has_only(text, b"-")
}

/// Returns true for a JSON pointer (RFC 6901), the empty one included.
fn is_json_pointer(text: &str) -> bool {
    // `~` is always part of an escape: `~0` or `~1`.
    let mut escapes = text.split('~').skip(1);
    (text.is_empty() || text.starts_with('/')) && escapes.all(|part| part.starts_with(['0', '1']))
}

/// Returns true for a path to a field: names with dots between them, or a JSON pointer that is not empty.
fn is_field_path(text: &str) -> bool {
    if text.starts_with('/') {
        return is_json_pointer(text);
    }
    text.split('.').all(|part| !part.is_empty())
}

/// Returns true for the name of an environment variable of another program.
fn is_foreign_variable(text: &str) -> bool {
    // Names with the prefix of Tidings are left to keys, of which there may be more one day.
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && has_only(text, b"_") && text.len() <= 128 && !text.starts_with("TIDINGS_")
}

/// The signature algorithms of tokens: all of them are asymmetric.
const ALGORITHMS: &[&str] = &[
    "ES256", "ES384", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA",
];

const RIGHTS: &[&str] = &["list", "read", "subscribe", "publish", "call", "admin", "metrics"];

/// Returns true for the characters of a scope (RFC 6749, section 3.3), which a challenge repeats in quotes.
fn is_scope(text: &str) -> bool {
    let mut bytes = text.bytes();
    !text.is_empty()
        && text.len() <= 128
        && bytes.all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

fn is_object_pattern(text: &str) -> bool {
    let mut kinds = ["tool:", "prompt:", "method:"].into_iter();
    let Some(name) = kinds.find_map(|kind| text.strip_prefix(kind)) else {
        return text.parse::<UriPattern>().is_ok();
    };
    let stem = name.strip_suffix('*').unwrap_or(name);
    !name.is_empty() && !stem.contains('*')
}

fn has_only(text: &str, others: &[u8]) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

/// Declares the struct of a section, or of the tables of a list, with a line per key: name, type, default and
/// rule.
///
/// A key whose default its rule refuses, such as an empty name, is required in the file. Without a rule, any
/// value of the type is allowed.
macro_rules! table {
    ($(#[$attribute:meta])* $table:ident = $doc:literal;
        $($(#[$about:meta])* $key:ident: $type:ty = $default:expr $(, $rule:literal)?;)+) => {
        #[doc = $doc]
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        $(#[$attribute])*
        pub struct $table {
            $($(#[$about])* $(#[serde(with = $rule)])? pub $key: $type,)+
        }

        impl Default for $table {
            fn default() -> $table {
                $table { $($key: $default,)+ }
            }
        }
    };
}

pub(super) use table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_path_is_dotted_or_a_pointer() {
        for right in ["a", "author.name", "/a~1b/~0", "/", "a b"] {
            assert!(is_field_path(right), "{right}");
        }
        for wrong in ["", "a..b", ".a", "a.", "/~2", "/~"] {
            assert!(!is_field_path(wrong), "{wrong}");
        }
        assert!(is_json_pointer("") && is_json_pointer("/items/0") && !is_json_pointer("items"));
    }

    #[test]
    fn identifier_is_lower_case() {
        assert!(is_identifier("a") && is_identifier("my-notes_2") && is_identifier(&"a".repeat(48)));
        for wrong in ["", "A", "1a", "aB", "_a", "a.b", "a b", "é", &"a".repeat(49)] {
            assert!(!is_identifier(wrong), "{wrong}");
        }
    }
}
