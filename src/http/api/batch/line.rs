//! One line of a batch: a change of one resource as a JSON object.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tidings_actors::{Change, Content, Descriptor, Etag, Resource, ResourceUri};

use crate::http::api::body::{MediaType, text_fault};
use crate::http::api::conditions::Preconditions;
use crate::http::problem::{Problem, ProblemKind};

/// The longest text of a line, in bytes, that the error about it repeats.
const SHOWN_LEN_MAX: usize = 2_048;

/// The change of a line, and the conditions under which it is made.
#[derive(Debug)]
pub(super) struct BatchLine {
    pub(super) change: Change,
    pub(super) preconditions: Preconditions,
    /// The etag of the template member that the URI names, once it is looked up.
    pub(super) member: Option<Etag>,
}

/// A line that is not handed to the bus.
#[derive(Debug)]
pub(super) struct RefusedLine {
    /// The URI as the line has it, if it has one.
    pub(super) uri: Option<String>,
    pub(super) problem: Problem,
}

/// A string that is copied only if it has escapes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The fields of a line. `null` counts as left out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http::api) struct Fields<'a> {
    #[serde(borrow)]
    put: Option<Text<'a>>,
    #[serde(borrow)]
    touch: Option<Text<'a>>,
    #[serde(borrow)]
    remove: Option<Text<'a>>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    base64: Option<Text<'a>>,
    #[serde(borrow)]
    media_type: Option<Text<'a>>,
    #[serde(borrow)]
    title: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    description: Option<Text<'a>>,
    subscribable: Option<bool>,
    #[serde(borrow)]
    if_match: Option<Text<'a>>,
    #[serde(borrow)]
    if_none_match: Option<Text<'a>>,
}

/// The fields that hold a string.
const TEXT_FIELDS: [&str; 11] = [
    "put",
    "touch",
    "remove",
    "text",
    "base64",
    "mediaType",
    "title",
    "name",
    "description",
    "ifMatch",
    "ifNoneMatch",
];

/// Reads the line with this number.
pub(super) fn parse(number: usize, line: &[u8]) -> Result<BatchLine, RefusedLine> {
    let fields: Fields<'_> = match serde_json::from_slice(line) {
        Ok(fields) => fields,
        Err(error) => {
            let detail = format!("line {number} {}", fault_of(line, &error));
            return Err(RefusedLine {
                uri: None,
                problem: ProblemKind::BadRequest.because(detail),
            });
        }
    };
    match fields.change() {
        Ok((change, preconditions)) => Ok(BatchLine {
            change,
            preconditions,
            member: None,
        }),
        Err(problem) => {
            let detail = format!("line {number}: {}", problem.detail());
            Err(RefusedLine {
                uri: fields.shown_uri(),
                problem: problem.kind().because(detail),
            })
        }
    }
}

impl Fields<'_> {
    /// Returns the URI for the answer.
    fn shown_uri(&self) -> Option<String> {
        let uri = [&self.put, &self.touch, &self.remove]
            .into_iter()
            .flatten()
            .next();
        match uri {
            Some(Text(uri)) if uri.len() <= SHOWN_LEN_MAX => Some(uri.clone().into_owned()),
            _ => None,
        }
    }

    fn change(&self) -> Result<(Change, Preconditions), Problem> {
        let preconditions = Preconditions::of_fields(text_of(&self.if_match), text_of(&self.if_none_match))?;
        let change = match (&self.put, &self.touch, &self.remove) {
            (Some(uri), None, None) => Change::Upsert(self.resource(parse_uri("put", uri)?)?),
            (None, Some(uri), None) => {
                self.check_no_resource("touch")?;
                Change::Touch(parse_uri("touch", uri)?)
            }
            (None, None, Some(uri)) => {
                self.check_no_resource("remove")?;
                Change::Remove(parse_uri("remove", uri)?)
            }
            _ => {
                let text = "exactly one of put, touch and remove must be there, with the URI";
                return Err(ProblemKind::BadRequest.because(text));
            }
        };
        Ok((change, preconditions))
    }

    fn resource(&self, uri: ResourceUri) -> Result<Resource, Problem> {
        let default_type = match &self.text {
            Some(_) => "text/plain",
            None => "application/octet-stream",
        };
        let media_type = match text_of(&self.media_type) {
            Some(text) => MediaType::from_field(text)?,
            None => MediaType::parse(default_type)?,
        };
        let body = match (&self.text, &self.base64) {
            (Some(Text(text)), None) => media_type.body_of_text(text),
            (None, Some(Text(encoded))) => match STANDARD.decode(encoded.as_bytes()) {
                Ok(bytes) => media_type.body(Bytes::from(bytes))?,
                Err(error) => {
                    return Err(ProblemKind::BadRequest.because(format!(
                        "base64 cannot be decoded: {error}; use the standard alphabet with padding"
                    )));
                }
            },
            _ => {
                let text = "put needs the body, as either text or base64";
                return Err(ProblemKind::BadRequest.because(text));
            }
        };
        let mut descriptor = Descriptor::new(uri);
        if let Some(name) = described("name", &self.name)?
            && !name.is_empty()
        {
            descriptor.name = name;
        }
        descriptor.title = described("title", &self.title)?;
        descriptor.description = described("description", &self.description)?;
        descriptor.media_type = Some(media_type.into_text().into());
        descriptor.subscribable = self.subscribable.unwrap_or(true);
        Ok(Resource::new(descriptor, Content::Held(body)))
    }

    /// Refuses fields that only a `put` has: a client that sends them expects an effect.
    fn check_no_resource(&self, action: &str) -> Result<(), Problem> {
        let unused = [
            ("text", self.text.is_some()),
            ("base64", self.base64.is_some()),
            ("mediaType", self.media_type.is_some()),
            ("title", self.title.is_some()),
            ("name", self.name.is_some()),
            ("description", self.description.is_some()),
            ("subscribable", self.subscribable.is_some()),
        ];
        for (name, is_there) in unused {
            if is_there {
                let text = format!("{name} belongs to put; {action} takes the URI and conditions");
                return Err(ProblemKind::BadRequest.because(text));
            }
        }
        Ok(())
    }
}

fn text_of<'f>(field: &'f Option<Text<'_>>) -> Option<&'f str> {
    match field {
        Some(Text(text)) => Some(text),
        None => None,
    }
}

fn parse_uri(name: &str, Text(text): &Text<'_>) -> Result<ResourceUri, Problem> {
    match ResourceUri::new(text) {
        Ok(uri) => Ok(uri),
        Err(error) => Err(ProblemKind::BadRequest.because(format!("{name}: {error}"))),
    }
}

/// Returns a text for people, which every reader of the list gets.
fn described(name: &str, field: &Option<Text<'_>>) -> Result<Option<String>, Problem> {
    let Some(text) = text_of(field) else {
        return Ok(None);
    };
    match text_fault(text) {
        Some(fault) => Err(ProblemKind::BadRequest.because(format!("{name} {fault}"))),
        None => Ok(Some(text.to_owned())),
    }
}

/// Describes the fault of a line that could not be read. Slower than reading it, but names the field.
fn fault_of(line: &[u8], error: &serde_json::Error) -> String {
    let fields = match serde_json::from_slice(line) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return "is no JSON object".to_owned(),
        Err(error) => return format!("is no JSON from column {} on", error.column()),
    };
    for (name, value) in &fields {
        let is_flag = name == "subscribable";
        if !is_flag && !TEXT_FIELDS.contains(&name.as_str()) {
            let name: String = name.chars().take(40).collect();
            return format!(
                "has the unknown field {name:?}; the fields are {}, subscribable",
                TEXT_FIELDS.join(", ")
            );
        }
        match value {
            Value::Null => {}
            Value::Bool(_) if is_flag => {}
            Value::String(_) if !is_flag => {}
            _ if is_flag => return "has subscribable that is neither true nor false".to_owned(),
            _ => return format!("has {name} that is no string"),
        }
    }
    // A field that stands twice.
    let text = error.to_string();
    match text.split_once(" at line") {
        Some((fault, _)) => format!("is wrong: {fault}"),
        None => format!("is wrong: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use tidings_actors::{Body, EtagSet};

    fn refusal(line: &str) -> (u16, String) {
        let refused = parse(3, line.as_bytes()).unwrap_err();
        let problem = refused.problem;
        (problem.status().as_u16(), problem.detail().to_owned())
    }

    fn put(line: &str) -> Resource {
        match parse(1, line.as_bytes()).unwrap().change {
            Change::Upsert(resource) => resource,
            other => panic!("{other:?}"),
        }
    }

    fn held(resource: &Resource) -> &Body {
        match resource.content() {
            Content::Held(body) => body,
            Content::Lazy(_) => panic!("a batch holds bodies"),
        }
    }

    #[test]
    fn put_has_body_and_description() {
        let resource = put(
            r#"{"put":"demo://a","text":"é\n","mediaType":"text/markdown","title":"T","name":"n","description":"d","subscribable":false}"#,
        );
        let descriptor = resource.descriptor();
        assert_eq!(descriptor.uri.as_str(), "demo://a");
        assert_eq!(descriptor.name, "n");
        assert_eq!(descriptor.title.as_deref(), Some("T"));
        assert_eq!(descriptor.description.as_deref(), Some("d"));
        assert_eq!(descriptor.media_type.as_deref(), Some("text/markdown"));
        assert!(!descriptor.subscribable);
        assert_eq!(held(&resource), &Body::text("é\n"));
        // As with PUT, the media type decides whether a body is text.
        let resource = put(r#"{"put":"demo://a","base64":"AP8="}"#);
        assert_eq!(held(&resource), &Body::blob(vec![0, 255]));
        let resource = put(r#"{"put":"demo://a","base64":"YQ==","mediaType":"text/plain"}"#);
        assert_eq!(held(&resource), &Body::text("a"));
        let resource = put(r#"{"put":"demo://a","text":"a","mediaType":"image/png","title":null}"#);
        assert_eq!(held(&resource), &Body::blob("a"));
    }

    #[test]
    fn conditions_take_bare_and_quoted_etags() {
        for (text, expected) in [
            ("v3-7", EtagSet::Listed(vec!["v3-7".parse().unwrap()])),
            ("\"v3-7\"", EtagSet::Listed(vec!["v3-7".parse().unwrap()])),
            ("*", EtagSet::Any),
        ] {
            for remove in [true, false] {
                let action = if remove { "remove" } else { "touch" };
                let line = json!({ action: "demo://a", "ifMatch": text }).to_string();
                let line = parse(1, line.as_bytes()).unwrap();
                assert_eq!(matches!(line.change, Change::Remove(_)), remove);
                assert_eq!(
                    line.preconditions.condition(None).if_match,
                    Some(expected.clone())
                );
            }
        }
    }

    #[test]
    fn bad_line_names_field_and_number() {
        for (line, status, part) in [
            ("{", 400, "line 3 is no JSON from column 1 on"),
            ("[]", 400, "line 3 is no JSON object"),
            ("{}", 400, "line 3: exactly one of put, touch and remove"),
            (r#"{"put":"demo://a","touch":"demo://a"}"#, 400, "exactly one"),
            (r#"{"put":7}"#, 400, "line 3 has put that is no string"),
            (r#"{"put":"a:b","put":"a:b"}"#, 400, "duplicate field `put`"),
            (r#"{"put":"a:b","texts":""}"#, 400, "unknown field \"texts\""),
            (
                r#"{"put":"a:b","subscribable":"yes"}"#,
                400,
                "subscribable that is neither",
            ),
            (r#"{"put":"a:b"}"#, 400, "line 3: put needs the body"),
            (
                r#"{"put":"a:b","text":"","base64":""}"#,
                400,
                "put needs the body",
            ),
            (
                r#"{"put":"a:b","base64":"?"}"#,
                400,
                "line 3: base64 cannot be decoded",
            ),
            (r#"{"put":"none","text":""}"#, 400, "line 3: put: "),
            (
                r#"{"remove":"a:b","text":""}"#,
                400,
                "line 3: text belongs to put",
            ),
            (
                r#"{"touch":"a:b","ifMatch":"a b"}"#,
                400,
                "line 3: ifMatch \"a b\"",
            ),
            (
                r#"{"put":"a:b","text":"","title":"\u0000"}"#,
                400,
                "line 3: title has a control",
            ),
            (
                r#"{"put":"a:b","text":"","mediaType":"text"}"#,
                415,
                "line 3: mediaType \"text\"",
            ),
            (
                r#"{"put":"a:b","base64":"/w==","mediaType":"text/plain"}"#,
                415,
                "not UTF-8",
            ),
        ] {
            let (found, detail) = refusal(line);
            assert_eq!(found, status, "{line}: {detail}");
            assert!(detail.contains(part), "{line}: {detail}");
        }
    }

    #[test]
    fn refused_line_keeps_its_uri() {
        let refused = parse(1, br#"{"put":"demo://a"}"#).unwrap_err();
        assert_eq!(refused.uri.as_deref(), Some("demo://a"));
        assert_eq!(parse(1, b"{").unwrap_err().uri, None);
    }

    proptest! {
        #[test]
        fn written_put_is_read_back(
            path in "[a-z0-9/]{1,20}",
            text in any::<String>(),
            title in "[^\\p{Cc}]{0,20}",
            blob in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let uri = format!("demo://{path}");
            let line = json!({ "put": uri, "text": text, "title": title }).to_string();
            let resource = put(&line);
            prop_assert_eq!(resource.uri().as_str(), uri.as_str());
            prop_assert_eq!(held(&resource), &Body::text(text));
            prop_assert_eq!(resource.descriptor().title.as_deref(), Some(title.as_str()));
            let line = json!({ "put": uri, "base64": STANDARD.encode(&blob) }).to_string();
            let resource = put(&line);
            prop_assert_eq!(held(&resource), &Body::blob(blob));
        }

        #[test]
        fn arbitrary_bytes_do_not_break_parser(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Err(refused) = parse(9, &bytes) {
                prop_assert!(refused.problem.detail().starts_with("line 9"));
            }
        }

        #[test]
        fn arbitrary_fields_do_not_break_parser(
            names in prop::collection::vec(prop::sample::select(&TEXT_FIELDS[..]), 0..4),
            values in prop::collection::vec("\\PC{0,12}|a:b|\"v1-2\"", 4),
        ) {
            let fields: serde_json::Map<String, Value> =
                std::iter::zip(names, values).map(|(name, value)| (name.to_owned(), value.into())).collect();
            if let Err(refused) = parse(9, Value::from(fields).to_string().as_bytes()) {
                prop_assert!(refused.problem.detail().starts_with("line 9"));
            }
        }
    }
}
