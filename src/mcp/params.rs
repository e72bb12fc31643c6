//! The parameters of requests, checked before rmcp reads them.
//!
//! rmcp takes a request whose parameters it cannot read for one of an unknown method, so its client would
//! not learn which field is wrong. It also reads an array in place of an object, and a cursor of another type
//! as none.

use std::borrow::Cow;
use std::fmt;

use rmcp::ErrorData;
use rmcp::model::{ClientCapabilities, ErrorCode, Implementation};
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor,
};
use serde_json::value::RawValue;

use super::error;

/// The length to which a refusal shortens the reason of rmcp's types, which may repeat a text of the request.
const REASON_LEN_MAX: usize = 200;

/// The revisions that have a method.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Availability {
    Everywhere,
    InSessions,
    WithoutSession,
}

/// A method with parameters that are checked. Methods that the bus does not have are for rmcp to refuse.
struct Method {
    name: &'static str,
    available: Availability,
    fields: &'static [Field],
}

struct Field {
    name: &'static str,
    is_required: bool,
    shape: Shape,
}

/// The form of a field's value.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Flag,
    Texts,
    OneOf(&'static [&'static str]),
    Object(&'static [Field]),
    /// An object of one of rmcp's types, with the fields that a refusal names.
    Typed(&'static [Field], fn(&str) -> serde_json::Result<()>),
}

const fn required(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        is_required: true,
        shape,
    }
}

const fn optional(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        is_required: false,
        shape,
    }
}

const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

static META: [Field; 1] = [optional("_meta", Shape::Object(&[]))];
static DISCOVER: [Field; 1] = [required("_meta", Shape::Object(&[]))];
static URI: [Field; 1] = [required("uri", Shape::Text)];
static CURSOR: [Field; 1] = [optional("cursor", Shape::Text)];
static READ: [Field; 3] = [
    required("uri", Shape::Text),
    optional("inputResponses", Shape::Object(&[])),
    optional("requestState", Shape::Text),
];
static CALL: [Field; 4] = [
    required("name", Shape::Text),
    optional("arguments", Shape::Object(&[])),
    optional("inputResponses", Shape::Object(&[])),
    optional("requestState", Shape::Text),
];
static LEVEL: [Field; 1] = [required("level", Shape::OneOf(&LEVELS))];
static INITIALIZE: [Field; 3] = [
    required("protocolVersion", Shape::Text),
    required("capabilities", Shape::Typed(&[], reads::<ClientCapabilities>)),
    required("clientInfo", Shape::Typed(&CLIENT, reads::<Implementation>)),
];
static CLIENT: [Field; 2] = [required("name", Shape::Text), required("version", Shape::Text)];
static LISTEN: [Field; 1] = [required("notifications", Shape::Object(&NOTIFICATIONS))];
static NOTIFICATIONS: [Field; 4] = [
    optional("toolsListChanged", Shape::Flag),
    optional("promptsListChanged", Shape::Flag),
    optional("resourcesListChanged", Shape::Flag),
    optional("resourceSubscriptions", Shape::Texts),
];

#[rustfmt::skip]
static METHODS: [Method; 14] = [
    Method { name: "initialize",               available: Availability::InSessions,     fields: &INITIALIZE },
    Method { name: "ping",                     available: Availability::InSessions,     fields: &[] },
    Method { name: "logging/setLevel",         available: Availability::InSessions,     fields: &LEVEL },
    Method { name: "resources/subscribe",      available: Availability::InSessions,     fields: &URI },
    Method { name: "resources/unsubscribe",    available: Availability::InSessions,     fields: &URI },
    Method { name: "server/discover",          available: Availability::WithoutSession, fields: &DISCOVER },
    Method { name: "subscriptions/listen",     available: Availability::WithoutSession, fields: &LISTEN },
    Method { name: "resources/list",           available: Availability::Everywhere,     fields: &CURSOR },
    Method { name: "resources/templates/list", available: Availability::Everywhere,     fields: &CURSOR },
    Method { name: "resources/read",           available: Availability::Everywhere,     fields: &READ },
    Method { name: "tools/list",               available: Availability::Everywhere,     fields: &CURSOR },
    Method { name: "tools/call",               available: Availability::Everywhere,     fields: &CALL },
    Method { name: "prompts/list",             available: Availability::Everywhere,     fields: &CURSOR },
    Method { name: "prompts/get",              available: Availability::Everywhere,     fields: &CALL },
];

/// Checks the parameters of a request, which belongs to a session or is `stateless`. Passes those of methods
/// that such a request cannot call.
///
/// # Errors
/// -32602, with a text that names the first field that is missing or of another form.
pub(super) fn check(method: &str, params: Option<&RawValue>, stateless: bool) -> Result<(), ErrorData> {
    let Some(method) = find(method, stateless) else {
        return Ok(());
    };
    let object = match params.map(RawValue::get) {
        // Clients leave the params out, or write null, where no field is required.
        None | Some("null") => "{}",
        Some(object) => object,
    };
    let checked =
        check_object("params", object, &META).and_then(|()| check_object("params", object, method.fields));
    checked.map_err(error::invalid_params)
}

/// Makes the error of a request that rmcp does not read though it passed [`check`]: -32602 when its method is
/// known; none otherwise.
pub(super) fn unread(method: &str, stateless: bool) -> Option<ErrorData> {
    find(method, stateless).map(|method| unreadable(method.name))
}

/// The methods of all revisions that rmcp reads beside those that are checked here.
const UNCHECKED: [&str; 7] = [
    "completion/complete",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
    "skills/list",
    "skills/get",
    "resources/directory/read",
];

/// The request of 2025-11-25 for the result of a task, which rmcp does not read.
const TASK_RESULT: &str = "tasks/result";

/// Returns true for a method of requests that a revision of the protocol defines and servers here answer.
pub(super) fn is_defined(method: &str) -> bool {
    METHODS.iter().any(|other| other.name == method) || UNCHECKED.contains(&method) || method == TASK_RESULT
}

/// Makes the error of a request that rmcp does not read, in front of a server that has all methods: that of
/// [`unread`], and -32601 for a method of other revisions; none for one that the protocol does not define.
pub(super) fn unread_in_front(method: &str, stateless: bool) -> Option<ErrorData> {
    if UNCHECKED.contains(&method) {
        return Some(unreadable(method));
    }
    let is_defined = METHODS.iter().any(|other| other.name == method);
    match unread(method, stateless) {
        None if is_defined => Some(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            method.to_owned(),
            None,
        )),
        unread => unread,
    }
}

fn unreadable(method: &str) -> ErrorData {
    error::invalid_params(format!(
        "the params of {method} are not of the form that the protocol gives them"
    ))
}

fn find(name: &str, stateless: bool) -> Option<&'static Method> {
    let elsewhere = if stateless {
        Availability::InSessions
    } else {
        Availability::WithoutSession
    };
    METHODS
        .iter()
        .find(|method| method.name == name && method.available != elsewhere)
}

/// Checks the fields of an object.
///
/// # Errors
/// A text that names the wrong field, or `path` if the value is no object.
fn check_object(path: &str, object: &str, fields: &'static [Field]) -> Result<(), String> {
    if !object.starts_with('{') {
        return Err(must_be(path, "an object", object));
    }
    let mut reader = serde_json::Deserializer::from_str(object);
    let members = Members { fields }
        .deserialize(&mut reader)
        .map_err(|error| format!("{path} cannot be read: {}", reason(&error)))?;
    for (field, member) in fields.iter().zip(members) {
        let path = format!("{path}.{}", field.name);
        match member {
            Member::One(value) if value.get() != "null" || field.is_required => {
                check_value(&path, value.get(), field.shape)?;
            }
            Member::Missing if field.is_required => {
                return Err(format!("{path} is missing; it must be {}", field.shape));
            }
            Member::Several => return Err(format!("{path} is there more than once; send it once")),
            Member::One(_) | Member::Missing => {}
        }
    }
    Ok(())
}

fn check_value(path: &str, value: &str, shape: Shape) -> Result<(), String> {
    let fits = match shape {
        Shape::Text => reads::<AnyText>(value).is_ok(),
        Shape::Texts => value.starts_with('[') && reads::<Vec<AnyText>>(value).is_ok(),
        Shape::Flag => matches!(value, "true" | "false"),
        Shape::OneOf(texts) => match serde_json::from_str::<Cow<'_, str>>(value) {
            Ok(text) => texts.contains(&text.as_ref()),
            Err(_) => false,
        },
        Shape::Object(fields) => return check_object(path, value, fields),
        Shape::Typed(fields, read) => {
            check_object(path, value, fields)?;
            return read(value).map_err(|error| format!("{path} cannot be read: {}", reason(&error)));
        }
    };
    if fits {
        return Ok(());
    }
    Err(must_be(path, shape, value))
}

fn must_be(path: &str, expected: impl fmt::Display, value: &str) -> String {
    let found = match value.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    };
    let expected = expected.to_string();
    if expected.starts_with(found) {
        // An array of other values, or a string with half a character.
        return format!("{path} must be {expected}");
    }
    format!("{path} must be {expected}, not {found}")
}

/// Returns the reason of an error without its place, which is not one of the whole request.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = match text.rsplit_once(" at line ") {
        Some((reason, _)) => reason,
        None => &text,
    };
    // The reason may repeat a value of the request, which may be as long as a body.
    reason.chars().take(REASON_LEN_MAX).collect()
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Text => f.write_str("a string"),
            Shape::Texts => f.write_str("an array of strings"),
            Shape::Flag => f.write_str("a boolean"),
            Shape::OneOf(texts) => write!(f, "one of {}", texts.join(", ")),
            Shape::Object(_) | Shape::Typed(..) => f.write_str("an object"),
        }
    }
}

fn reads<T: DeserializeOwned>(text: &str) -> serde_json::Result<()> {
    serde_json::from_str::<T>(text).map(drop)
}

/// A string whose content is not kept.
struct AnyText;

impl<'de> Deserialize<'de> for AnyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AnyText, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = AnyText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, _: &str) -> Result<AnyText, E> {
                Ok(AnyText)
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// The value that an object has for a field.
#[derive(Clone, Copy)]
enum Member<'a> {
    Missing,
    One(&'a RawValue),
    Several,
}

/// Reads the values of `fields` in an object, as they are written. Others are skipped, however many they are.
struct Members {
    fields: &'static [Field],
}

impl<'de> DeserializeSeed<'de> for Members {
    type Value = Vec<Member<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Vec<Member<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = vec![Member::Missing; self.fields.len()];
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let Some(at) = self.fields.iter().position(|field| field.name == name) else {
                // Fields that later revisions add pass, so that their clients are understood.
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value()?;
            members[at] = match members[at] {
                Member::Missing => Member::One(value),
                // Readers differ in which of several fields of one name they take, so none is taken.
                _ => Member::Several,
            };
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests;
