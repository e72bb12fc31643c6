//! The pure core of a collection: builds the views of a document from the bytes of a file.
//!
//! Items are written in one form (keys sorted, items in the order of the file), so that equal items have
//! equal text and the bus sees no change in them.

use super::field_path::FieldPath;
use super::filter::ItemFilter;
use super::naming;
use crate::config::CollectionConfig;
use crate::metrics::Limit;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use tidings_actors::ResourceUri;

/// A collection as configured, with paths and filters parsed.
#[derive(Debug, Clone)]
pub(super) struct CollectionSpec {
    /// The name of the collection.
    pub(super) name: String,
    /// The name of one item.
    pub(super) item: String,
    /// The name of the collection for people.
    pub(super) title: String,
    /// JSON pointer to the array of items.
    pub(super) pointer: String,
    /// The field that identifies an item.
    pub(super) id: FieldPath,
    /// The views other than `all`.
    pub(super) views: Vec<ViewSpec>,
    /// Most items in a document.
    pub(super) items_max: usize,
    /// Most bytes in the text of one view.
    pub(super) body_bytes_max: usize,
}

/// A configured view.
#[derive(Debug, Clone)]
pub(super) struct ViewSpec {
    /// Its name.
    pub(super) name: String,
    /// The items it shows.
    pub(super) rule: ViewRule,
}

/// The items that a view shows.
#[derive(Debug, Clone)]
pub(super) enum ViewRule {
    /// The items that pass a filter, as one resource.
    Filter(ItemFilter),
    /// The items with the same value of a field, as one resource per value.
    Group(FieldPath),
}

/// A view with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    /// Its name for programs.
    pub(super) name: String,
    /// Its name for people.
    pub(super) title: String,
    /// The items it shows, in words.
    pub(super) description: String,
    /// Its items as a JSON array.
    pub(super) text: Arc<str>,
}

/// The views of one document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Views {
    /// The views by URI.
    pub(super) views: BTreeMap<ResourceUri, View>,
    /// The position of each item in the view `all`, by id.
    pub(super) positions: HashMap<String, usize>,
    /// Number of group values that have no resource, because their URI would be too long.
    pub(super) omitted: usize,
}

/// The reason that the file of a collection is not valid.
#[derive(Debug, thiserror::Error)]
pub(super) enum DocumentError {
    #[error("not JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("no array at {pointer:?}; set collection.pointer to where the items are")]
    NoArray { pointer: String },
    #[error("item {position} is no object")]
    NotAnObject { position: usize },
    #[error(
        "item {position} has no {field:?} that is a text or a whole number; set collection.id to the field that names items"
    )]
    NoId { position: usize, field: String },
    #[error("items {first} and {second} are both {id:?}; give each its own")]
    SameId { first: usize, second: usize, id: String },
    #[error("{len} items and the limit is {max}; raise workspace.collection_items_max")]
    TooMany { len: usize, max: usize },
    #[error("{len} bytes and the limit is {max}; raise workspace.collection_bytes_max")]
    TooLarge { len: u64, max: u64 },
    #[error("{uri} would have {len} bytes and the limit is {max}; raise bus.body_bytes_max")]
    ViewTooLarge { uri: String, len: usize, max: usize },
    #[error("not a file")]
    NotAFile,
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

impl DocumentError {
    /// Returns the configured limit that the file exceeds, if that is the reason.
    pub(super) fn limit(&self) -> Option<Limit> {
        match self {
            DocumentError::TooLarge { .. } => Some(Limit::CollectionBytes),
            DocumentError::TooMany { .. } => Some(Limit::CollectionItems),
            DocumentError::ViewTooLarge { .. } => Some(Limit::BodyBytes),
            _ => None,
        }
    }
}

impl CollectionSpec {
    /// Parses a configured collection, whose values were checked with the configuration.
    pub(super) fn new(config: &CollectionConfig, items_max: usize, body_bytes_max: usize) -> CollectionSpec {
        let views = config.views.iter().map(|view| ViewSpec {
            name: view.name.clone(),
            rule: match (&view.filter, &view.group_by) {
                (None, Some(field)) => ViewRule::Group(FieldPath::parse(field)),
                // Loading refuses a view without either; one that a program makes shows nothing.
                (filter, _) => ViewRule::Filter(ItemFilter::new(filter.clone().unwrap_or_default())),
            },
        });
        let title = match &config.title {
            Some(title) => title.clone(),
            None => naming::title_from_name(&config.name),
        };
        CollectionSpec {
            name: config.name.clone(),
            item: config.item.clone(),
            title,
            pointer: config.pointer.clone(),
            id: FieldPath::parse(&config.id),
            views: views.collect(),
            items_max,
            body_bytes_max,
        }
    }

    /// Returns a small collection of annotations.
    #[cfg(test)]
    pub(super) fn for_test() -> CollectionSpec {
        CollectionSpec::new(&annotations_config("annotations.json".into()), 100, 1 << 20)
    }

    /// Returns the URI of the view `all`.
    pub(super) fn all_uri(&self) -> ResourceUri {
        naming::view_uri(&self.name, "all")
    }

    /// Returns the title as it reads within a sentence.
    pub(super) fn label(&self) -> String {
        naming::within_sentence(&self.title)
    }

    /// Builds the views of a file with these bytes. A file with nothing but white space is an empty list.
    pub(super) fn build(&self, bytes: &[u8]) -> Result<Views, DocumentError> {
        // Some editors write a byte order mark, which is not JSON.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return self.build_items(&[]);
        }
        let document: Value = serde_json::from_slice(bytes)?;
        match document.pointer(&self.pointer) {
            Some(Value::Array(items)) => self.build_items(items),
            _ => Err(DocumentError::NoArray {
                pointer: self.pointer.clone(),
            }),
        }
    }

    fn build_items(&self, items: &[Value]) -> Result<Views, DocumentError> {
        let mut builder = ViewBuilder {
            spec: self,
            items,
            texts: Vec::new(),
            views: Views {
                // Checked before a view is built, so that an invalid document costs little.
                positions: self.positions(items)?,
                ..Views::default()
            },
        };
        builder.texts.extend(items.iter().map(item_text));
        builder.add_all();
        for view in &self.views {
            match &view.rule {
                ViewRule::Filter(filter) => builder.add_filtered(&view.name, filter),
                ViewRule::Group(field) => builder.add_groups(&view.name, field),
            }
        }
        // The bus would refuse the view, but then the others of the same document would show a different
        // state.
        let max = self.body_bytes_max;
        for (uri, view) in &builder.views.views {
            if view.text.len() > max {
                return Err(DocumentError::ViewTooLarge {
                    uri: uri.to_string(),
                    len: view.text.len(),
                    max,
                });
            }
        }
        Ok(builder.views)
    }

    /// Returns the position of each item by id.
    fn positions(&self, items: &[Value]) -> Result<HashMap<String, usize>, DocumentError> {
        let len = items.len();
        let max = self.items_max;
        if len > max {
            return Err(DocumentError::TooMany { len, max });
        }
        let mut positions = HashMap::with_capacity(len);
        for (position, item) in items.iter().enumerate() {
            if !item.is_object() {
                return Err(DocumentError::NotAnObject { position });
            }
            let Some(id) = self.id_of(item) else {
                let field = self.id.to_string();
                return Err(DocumentError::NoId { position, field });
            };
            if let Some(first) = positions.insert(id.clone(), position) {
                let second = position;
                return Err(DocumentError::SameId { first, second, id });
            }
        }
        Ok(positions)
    }

    /// Returns the id of an item, which is a text that is not empty, or a whole number.
    pub(super) fn id_of(&self, item: &Value) -> Option<String> {
        match self.id.get(item)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) if !number.is_f64() => Some(number.to_string()),
            _ => None,
        }
    }
}

/// Builds the views of one document.
struct ViewBuilder<'a> {
    spec: &'a CollectionSpec,
    items: &'a [Value],
    /// The text of each item, made once although several views show it.
    texts: Vec<String>,
    views: Views,
}

impl ViewBuilder<'_> {
    fn add_all(&mut self) {
        let label = self.spec.label();
        let view = View {
            name: format!("{}_all", self.spec.name),
            title: format!("All {label}"),
            description: format!("All {label}, in the order of the file"),
            text: list_text(&self.texts),
        };
        self.views.views.insert(self.spec.all_uri(), view);
    }

    fn add_filtered(&mut self, name: &str, filter: &ItemFilter) {
        let label = self.spec.label();
        let mut members = Vec::new();
        for (item, text) in std::iter::zip(self.items, &self.texts) {
            if filter.passes(item) {
                members.push(text);
            }
        }
        let view = View {
            name: format!("{}_{name}", self.spec.name),
            title: format!("{} {label}", naming::title_from_name(name)),
            description: format!("The {label} whose {filter}"),
            text: list_text(&members),
        };
        self.views
            .views
            .insert(naming::view_uri(&self.spec.name, name), view);
    }

    /// Adds a view for each value of `field`.
    fn add_groups(&mut self, name: &str, field: &FieldPath) {
        let label = self.spec.label();
        let mut groups = BTreeMap::<String, Vec<&String>>::new();
        for (item, text) in std::iter::zip(self.items, &self.texts) {
            // An item without the field is in no group.
            if let Some(value) = field.scalar(item) {
                groups.entry(value).or_default().push(text);
            }
        }
        for (value, members) in groups {
            let Ok(uri) = naming::value_uri(&self.spec.name, name, &value) else {
                self.views.omitted += 1;
                continue;
            };
            let short = naming::shorten(&value);
            let view = View {
                name: format!("{}_{name}/{}", self.spec.name, naming::encode(&value)),
                title: format!("{} for {short}", self.spec.title),
                description: format!("The {label} whose {field} is {short}"),
                text: list_text(&members),
            };
            self.views.views.insert(uri, view);
        }
    }
}

/// Writes an item with the indentation it has in a list.
fn item_text(item: &Value) -> String {
    let mut item = item.clone();
    // Maps keep the order of the file if any crate of the build enables that feature of serde_json.
    item.sort_all_objects();
    let text =
        serde_json::to_string_pretty(&item).expect("a JSON value has string keys, so it can be written");
    text.replace('\n', "\n  ")
}

/// Joins the texts of items to a JSON array.
fn list_text(items: &[impl AsRef<str>]) -> Arc<str> {
    if items.is_empty() {
        return Arc::from("[]");
    }
    let len: usize = items.iter().map(|item| item.as_ref().len() + 4).sum();
    let mut list = String::with_capacity(len + 3);
    for (position, item) in items.iter().enumerate() {
        list.push_str(if position == 0 { "[\n  " } else { ",\n  " });
        list.push_str(item.as_ref());
    }
    list.push_str("\n]");
    Arc::from(list)
}

/// Returns a collection of annotations in `file`, with a filtered and a grouped view.
#[cfg(test)]
pub(super) fn annotations_config(file: std::path::PathBuf) -> CollectionConfig {
    use crate::config::{FilterConfig, ViewConfig};
    let open = FilterConfig {
        field: "status".to_owned(),
        equals: Some(Value::from("open")),
        ..FilterConfig::default()
    };
    CollectionConfig {
        name: "annotations".to_owned(),
        item: "annotation".to_owned(),
        file,
        pointer: String::new(),
        id: "id".to_owned(),
        title: None,
        views: vec![
            ViewConfig {
                name: "open".to_owned(),
                filter: Some(open),
                group_by: None,
            },
            ViewConfig {
                name: "page".to_owned(),
                filter: None,
                group_by: Some("pageUrl".to_owned()),
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    fn build(document: &Value) -> Result<Views, DocumentError> {
        CollectionSpec::for_test().build(document.to_string().as_bytes())
    }

    fn items(views: &Views, uri: &str) -> Option<Vec<Value>> {
        let view = views.views.get(uri)?;
        Some(serde_json::from_str(&view.text).unwrap())
    }

    #[test]
    fn views_of_a_document_have_titles() {
        let views = build(&json!([
            { "id": "a", "status": "open", "pageUrl": "/pricing" },
            { "id": 2, "status": "resolved", "pageUrl": "/a b" },
            { "id": "c", "status": "open" },
        ]))
        .unwrap();
        let titles: Vec<_> = views
            .views
            .iter()
            .map(|(uri, view)| (uri.as_str(), view.title.as_str()))
            .collect();
        assert_eq!(
            titles,
            [
                ("annotations://all", "All annotations"),
                ("annotations://open", "Open annotations"),
                ("annotations://page/%2Fa%20b", "Annotations for /a b"),
                ("annotations://page/%2Fpricing", "Annotations for /pricing"),
            ]
        );
        let open = &views.views["annotations://open"];
        assert_eq!(open.description, "The annotations whose status is \"open\"");
        assert_eq!(items(&views, "annotations://open").unwrap().len(), 2);
        assert_eq!((views.positions["a"], views.positions["2"]), (0, 1));
    }

    #[test]
    fn text_is_that_of_the_pretty_printer() {
        let document = json!([{ "id": 1, "b": [1, { "x": "a\nb" }], "a": {} }, { "id": 2, "e": [] }]);
        let views = build(&document).unwrap();
        assert_eq!(
            *views.views["annotations://all"].text,
            serde_json::to_string_pretty(&document).unwrap()
        );
    }

    #[test]
    fn empty_file_is_an_empty_list() {
        for text in ["", " \n", "[]", "\u{feff}[]"] {
            let views = CollectionSpec::for_test().build(text.as_bytes()).unwrap();
            assert_eq!(views.views.len(), 2, "{text:?}");
            assert_eq!(*views.views["annotations://all"].text, *"[]");
        }
    }

    fn refusal(text: &str) -> String {
        let refused = CollectionSpec::for_test().build(text.as_bytes());
        refused.unwrap_err().to_string()
    }

    #[test]
    fn invalid_document_gives_the_reason() {
        assert!(refusal("[{\"id\":1}").starts_with("not JSON: EOF"));
        assert!(refusal("{}").starts_with("no array at \"\""));
        assert_eq!(refusal("[{\"id\":1},2]"), "item 1 is no object");
        assert_eq!(
            refusal("[{\"id\":1},{\"id\":\"1\"}]"),
            "items 0 and 1 are both \"1\"; give each its own"
        );
        for id in ["null", "\"\"", "1.5", "{}", "true"] {
            assert!(
                refusal(&format!("[{{\"id\":{id}}}]")).starts_with("item 0 has no \"id\""),
                "{id}"
            );
        }
        let many: Vec<_> = (0..101).map(|id| json!({ "id": id })).collect();
        assert!(refusal(&json!(many).to_string()).starts_with("101 items and the limit is 100"));
        let long = json!([{ "id": 1, "text": "x".repeat(1 << 20) }]).to_string();
        assert!(refusal(&long).starts_with("annotations://all would have"));
    }

    #[test]
    fn pointer_leads_to_the_array() {
        let spec = CollectionSpec {
            pointer: "/data/items".to_owned(),
            ..CollectionSpec::for_test()
        };
        let views = spec.build(br#"{"data":{"items":[{"id":1}]}}"#).unwrap();
        assert_eq!(items(&views, "annotations://all").unwrap(), [json!({ "id": 1 })]);
        assert!(spec.build(b"[]").is_err());
        assert_eq!(spec.build(b"").unwrap().views.len(), 2);
    }

    #[test]
    fn value_too_long_for_a_uri_is_omitted() {
        let views =
            build(&json!([{ "id": 1, "pageUrl": "/".repeat(1000) }, { "id": 2, "pageUrl": "/" }])).unwrap();
        assert_eq!((views.omitted, views.views.len()), (1, 3));
        assert_eq!(items(&views, "annotations://all").unwrap().len(), 2);
    }

    fn any_scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3..3_i64).prop_map(Value::from),
            Just(json!(1.5)),
            Just(json!(["open"])),
            proptest::sample::select(vec!["open", "resolved", "/", "/a b", "1", ""]).prop_map(Value::from),
        ]
    }

    fn any_items() -> impl Strategy<Value = Vec<Value>> {
        let item = (
            any_scalar(),
            proptest::option::of(any_scalar()),
            "[a-c\\n\"é]{0,5}",
        );
        vec(item, 0..12).prop_map(|items| {
            let mut all = Vec::new();
            for (id, (status, page, body)) in items.into_iter().enumerate() {
                let mut item = json!({ "id": id, "status": status, "body": { "text": body, "n": id } });
                if let Some(page) = page {
                    item["pageUrl"] = page;
                }
                all.push(item);
            }
            all
        })
    }

    /// The same items with the keys of every object the other way round.
    fn backward(value: &Value) -> String {
        match value {
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields
                    .iter()
                    .map(|(key, value)| format!("{}:{}", json!(key), backward(value)))
                    .collect();
                fields.reverse();
                format!("{{{}}}", fields.join(","))
            }
            Value::Array(items) => {
                format!("[{}]", items.iter().map(backward).collect::<Vec<_>>().join(" , "))
            }
            other => other.to_string(),
        }
    }

    proptest! {
        #[test]
        fn groups_partition_the_items_with_the_field(all in any_items()) {
            let views = build(&json!(all)).unwrap();
            let pages = views.views.keys().filter(|uri| uri.as_str().starts_with("annotations://page/"));
            let mut grouped = Vec::new();
            for uri in pages {
                let members = items(&views, uri.as_str()).unwrap();
                prop_assert!(!members.is_empty());
                let values: std::collections::BTreeSet<_> =
                    members.iter().map(|item| FieldPath::parse("pageUrl").scalar(item).unwrap()).collect();
                prop_assert_eq!(values.len(), 1);
                grouped.extend(members);
            }
            grouped.sort_by_key(|item| item["id"].as_u64());
            // The scalars that the strategy makes; the rest are missing, `null` and lists.
            let mut expected = all;
            expected.retain(|item| !item["pageUrl"].is_null() && !item["pageUrl"].is_array());
            prop_assert_eq!(grouped, expected);
        }

        #[test]
        fn order_of_keys_makes_no_difference(all in any_items()) {
            let document = json!(all);
            let turned = CollectionSpec::for_test().build(backward(&document).as_bytes()).unwrap();
            prop_assert_eq!(turned, build(&document).unwrap());
        }

        #[test]
        fn view_shows_passing_items_in_file_order(all in any_items()) {
            let views = build(&json!(all)).unwrap();
            let open: Vec<_> = all.iter().filter(|item| item["status"] == "open").cloned().collect();
            prop_assert_eq!(items(&views, "annotations://open").unwrap(), open);
            prop_assert_eq!(items(&views, "annotations://all").unwrap(), &all[..]);
            for (id, place) in &views.positions {
                prop_assert_eq!(&all[*place]["id"].to_string(), id);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..40), text in "[\\[\\]{}:,\"id0-9 ]{0,30}") {
            for bytes in [bytes.as_slice(), text.as_bytes()] {
                if let Err(error) = CollectionSpec::for_test().build(bytes) {
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}
