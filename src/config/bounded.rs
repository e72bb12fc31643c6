//! The types and ranges that configured values may have, each for use as `#[serde(with = "Count::<1, 100>")]`.
//!
//! A field keeps the plain type that the program computes with, such as `usize` or `Option<Duration>`. The rule in
//! its attribute is the only place that states the range: reading, messages, the JSON Schema and the page of the
//! documentation all take it from there.

use super::units::{size, time};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(super) use super::syntax::*;

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

/// The type and the range of a value. Both bounds of a range are allowed.
pub(super) trait Rule {
    /// The normal form of a value, which [`Held`] converts to the type of a field.
    type Normal;

    /// Returns the normal form of `value`, or `None` when its type or its range is wrong.
    fn read(value: &Value) -> Option<Self::Normal>;

    /// Writes the normal form as a file would have it.
    fn write(normal: Self::Normal) -> Value;

    /// Names the type and the range, for messages and for the documentation.
    fn allowed() -> String;

    /// The type and the range as JSON Schema.
    fn json() -> Value;

    /// Reads a field, for serde.
    fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: Held<Self::Normal>,
    {
        let value = Value::deserialize(deserializer)?;
        match Self::read(&value) {
            Some(normal) => {
                T::hold(normal).ok_or_else(|| D::Error::custom("the value does not fit this machine"))
            }
            None => Err(D::Error::custom(format_args!("expected {}", Self::allowed()))),
        }
    }

    /// Writes a field, for serde.
    fn serialize<S: Serializer, T: Held<Self::Normal>>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        Self::write(value.normal()).serialize(serializer)
    }
}

/// A type of a field that holds values of the normal form `N`. Zero and empty text stand for `None` in a file.
pub(super) trait Held<N>: Sized {
    /// Converts from the normal form; `None` when the machine has no such number.
    fn hold(normal: N) -> Option<Self>;
    /// Converts to the normal form.
    fn normal(&self) -> N;
}

/// Declares types of fields that are the normal form themselves.
macro_rules! normal_forms {
    ($($form:ty),+) => {$(
        impl Held<$form> for $form {
            fn hold(normal: $form) -> Option<$form> {
                Some(normal)
            }
            fn normal(&self) -> $form {
                self.clone()
            }
        }
    )+};
}

normal_forms!(u64, Duration, String, Vec<String>, Value, Vec<Value>);

impl Held<u64> for usize {
    fn hold(normal: u64) -> Option<usize> {
        normal.try_into().ok()
    }
    fn normal(&self) -> u64 {
        *self as u64
    }
}

impl Held<u64> for Option<usize> {
    fn hold(normal: u64) -> Option<Option<usize>> {
        let number = usize::hold(normal)?;
        Some((number > 0).then_some(number))
    }
    fn normal(&self) -> u64 {
        self.unwrap_or(0) as u64
    }
}

impl Held<Duration> for Option<Duration> {
    fn hold(normal: Duration) -> Option<Option<Duration>> {
        Some((!normal.is_zero()).then_some(normal))
    }
    fn normal(&self) -> Duration {
        self.unwrap_or(Duration::ZERO)
    }
}

impl Held<String> for SocketAddr {
    fn hold(normal: String) -> Option<SocketAddr> {
        normal.parse().ok()
    }
    fn normal(&self) -> String {
        self.to_string()
    }
}

impl Held<String> for PathBuf {
    fn hold(normal: String) -> Option<PathBuf> {
        Some(normal.into())
    }
    fn normal(&self) -> String {
        self.to_string_lossy().into_owned()
    }
}

impl<T: Held<String>> Held<String> for Option<T> {
    fn hold(normal: String) -> Option<Option<T>> {
        if normal.is_empty() {
            Some(None)
        } else {
            T::hold(normal).map(Some)
        }
    }
    fn normal(&self) -> String {
        self.as_ref().map(T::normal).unwrap_or_default()
    }
}

/// A whole number from `MIN` to `MAX`.
pub(super) struct Count<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Rule for Count<MIN, MAX> {
    type Normal = u64;

    fn read(value: &Value) -> Option<u64> {
        value.as_u64().filter(|number| (MIN..=MAX).contains(number))
    }

    fn write(normal: u64) -> Value {
        normal.into()
    }

    fn allowed() -> String {
        format!("an integer from {MIN} to {MAX}")
    }

    fn json() -> Value {
        json!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A size from `MIN` to `MAX` bytes, written as a number or as text with a unit.
pub(super) struct Bytes<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Rule for Bytes<MIN, MAX> {
    type Normal = u64;

    fn read(value: &Value) -> Option<u64> {
        let bytes = match value {
            Value::String(text) => size::parse(text),
            number => number.as_u64(),
        };
        bytes.filter(|bytes| (MIN..=MAX).contains(bytes))
    }

    fn write(normal: u64) -> Value {
        size::text(normal).into()
    }

    fn allowed() -> String {
        format!("a size from \"{}\" to \"{}\"", size::text(MIN), size::text(MAX))
    }

    fn json() -> Value {
        json!({ "type": ["integer", "string"], "minimum": MIN, "maximum": MAX, "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" })
    }
}

/// A duration from `MIN` to `MAX` milliseconds.
pub(super) struct Time<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Time<MIN, MAX> {
    fn bounds() -> (String, String) {
        let [shortest, longest] = [MIN, MAX].map(|millis| time::text(Duration::from_millis(millis)));
        (shortest, longest)
    }
}

impl<const MIN: u64, const MAX: u64> Rule for Time<MIN, MAX> {
    type Normal = Duration;

    fn read(value: &Value) -> Option<Duration> {
        let range = Duration::from_millis(MIN)..=Duration::from_millis(MAX);
        time::parse(value.as_str()?).filter(|duration| range.contains(duration))
    }

    fn write(normal: Duration) -> Value {
        time::text(normal).into()
    }

    fn allowed() -> String {
        let (shortest, longest) = Self::bounds();
        format!("a duration from \"{shortest}\" to \"{longest}\"")
    }

    fn json() -> Value {
        let (shortest, longest) = Self::bounds();
        // JSON Schema has no range of texts, so the bounds stand under names of our own.
        json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$", "x-minimum": shortest, "x-maximum": longest })
    }
}

/// A text of `MIN` to `MAX` bytes.
pub(super) struct Text<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Rule for Text<MIN, MAX> {
    type Normal = String;

    fn read(value: &Value) -> Option<String> {
        let text = value.as_str()?;
        (MIN..=MAX)
            .contains(&(text.len() as u64))
            .then(|| text.to_owned())
    }

    fn write(normal: String) -> Value {
        normal.into()
    }

    fn allowed() -> String {
        format!("a text of {MIN} to {MAX} bytes")
    }

    fn json() -> Value {
        json!({ "type": "string", "minLength": MIN, "maxLength": MAX })
    }
}

/// A value that may be left out, which is then `None`.
pub(super) struct Optional<R>(std::marker::PhantomData<R>);

impl<R: Rule> Rule for Optional<R> {
    type Normal = Option<R::Normal>;

    fn read(value: &Value) -> Option<Option<R::Normal>> {
        if value.is_null() {
            Some(None)
        } else {
            R::read(value).map(Some)
        }
    }

    fn write(normal: Option<R::Normal>) -> Value {
        normal.map(R::write).unwrap_or_default()
    }

    fn allowed() -> String {
        R::allowed()
    }

    fn json() -> Value {
        R::json()
    }
}

impl<N, T: Held<N>> Held<Option<N>> for Option<T> {
    fn hold(normal: Option<N>) -> Option<Option<T>> {
        match normal {
            Some(normal) => T::hold(normal).map(Some),
            None => Some(None),
        }
    }
    fn normal(&self) -> Option<N> {
        self.as_ref().map(T::normal)
    }
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

/// Gives rules to schemars, which has no way to implement its trait for every [`Rule`] at once.
macro_rules! described {
    ($($rule:ident $(<$($bound:ident),+>)?),+ $(,)?) => {$(
        impl $(<$(const $bound: u64),+>)? schemars::JsonSchema for $rule $(<$($bound),+>)? {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($rule).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schema_of::<Self>()
            }
        }
    )+};
}

described! {
    Count<MIN, MAX>, Bytes<MIN, MAX>, Time<MIN, MAX>, Text<MIN, MAX>, Address, AddressOrNone, Scheme, PathOrNone,
    File, Name, SchemeName, Pointer, Field, Url, Variable, Hosts, Origins, Patterns, NoticeKinds, Scalar, Scalars,
}

impl<R: Rule> schemars::JsonSchema for Optional<R> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Optional".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schema_of::<Self>()
    }
}

fn schema_of<R: Rule>() -> schemars::Schema {
    let mut schema = R::json();
    schema["x-allowed"] = R::allowed().into();
    schema
        .try_into()
        .expect("every rule describes itself as a JSON object: a test prints them all")
}
