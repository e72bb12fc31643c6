//! The pure core: the bytes of a file become the resources of its views, and where each item is.
//!
//! Owns: what a document must be, which view shows what, and the one form in which items are written (keys sorted,
//! items in the order of the file), so that equal items have equal text. Knows no file, no bus and no clock.

use super::fault::Fault;
use super::filter::Filter;
use super::name;
use super::path::FieldPath;
use crate::config::CollectionConfig;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidings_actors::ResourceUri;

/// A collection as configured, ready for use.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    /// Its name.
    pub(super) name: String,
    /// The name of one item.
    pub(super) item: String,
    /// Its name for people.
    pub(super) title: String,
    pub(super) pointer: String,
    /// The field that names an item.
    pub(super) id: FieldPath,
    /// The views besides `all`.
    pub(super) views: Vec<View>,
    /// Items at most.
    pub(super) items_max: usize,
    /// Bytes of one view at most.
    pub(super) body_bytes_max: usize,
}

/// A view.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// Its name.
    pub(super) name: String,
    /// What it shows.
    pub(super) kind: Kind,
}

/// What a view shows.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// What passes.
    Filter(Filter),
    /// What has the same value.
    Group(FieldPath),
}

/// A view as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    /// Its name for programs.
    pub(super) name: String,
    /// Its name for people.
    pub(super) title: String,
    /// What it holds.
    pub(super) description: String,
    /// Its items, an array in JSON.
    pub(super) text: Arc<str>,
}

/// What a document comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Built {
    /// The views by URI.
    pub(super) views: BTreeMap<ResourceUri, Shown>,
    /// Where each item is in the list of all.
    pub(super) index: HashMap<String, usize>,
    /// Values of groups that are too long for a URI, and so have no resource.
    pub(super) omitted: usize,
}

impl Spec {
    /// Makes ready what is configured.
    pub(super) fn new(config: &CollectionConfig, items_max: usize, body_bytes_max: usize) -> Spec {
        let views = config.views.iter().map(|view| View {
            name: view.name.clone(),
            kind: match (&view.filter, &view.group_by) {
                (None, Some(field)) => Kind::Group(FieldPath::parse(field)),
                // Loading refuses a view without either; one that a program makes shows nothing.
                (filter, _) => Kind::Filter(Filter::new(filter.clone().unwrap_or_default())),
            },
        });
        Spec {
            name: config.name.clone(),
            item: config.item.clone(),
            title: config
                .title
                .clone()
                .unwrap_or_else(|| name::sentence(&config.name)),
            pointer: config.pointer.clone(),
            id: FieldPath::parse(&config.id),
            views: views.collect(),
            items_max,
            body_bytes_max,
        }
    }

    /// The URI of all items.
    pub(super) fn all(&self) -> ResourceUri {
        name::view_uri(&self.name, "all")
    }

    /// What the bytes of the file come to; nothing but white space is the empty list.
    pub(super) fn build(&self, bytes: &[u8]) -> Result<Built, Fault> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return self.build_items(&[]);
        }
        let document: Value = serde_json::from_slice(bytes)?;
        let items = document.pointer(&self.pointer).and_then(Value::as_array);
        self.build_items(items.ok_or_else(|| Fault::NoArray {
            pointer: self.pointer.clone(),
        })?)
    }

    fn build_items(&self, items: &[Value]) -> Result<Built, Fault> {
        let index = self.index(items)?;
        let texts: Vec<String> = items.iter().map(item_text).collect();
        let mut built = Built {
            index,
            ..Built::default()
        };
        let everything: Vec<usize> = (0..items.len()).collect();
        let label = name::within(&self.title);
        let all = self.shown(
            "all",
            "",
            format!("All {label}"),
            format!("All {label}, in the order of the file"),
        );
        built.put(self.all(), all, &texts, &everything);
        for view in &self.views {
            match &view.kind {
                Kind::Filter(filter) => {
                    let passing: Vec<_> = everything
                        .iter()
                        .copied()
                        .filter(|i| filter.passes(&items[*i]))
                        .collect();
                    let title = format!("{} {label}", name::sentence(&view.name));
                    let description = format!("The {label} whose {}", filter.words());
                    let shown = self.shown(&view.name, "", title, description);
                    built.put(name::view_uri(&self.name, &view.name), shown, &texts, &passing);
                }
                Kind::Group(field) => self.build_groups(&mut built, &view.name, field, items, &texts),
            }
        }
        self.check_sizes(&built)?;
        Ok(built)
    }

    fn build_groups(
        &self,
        built: &mut Built,
        view: &str,
        field: &FieldPath,
        items: &[Value],
        texts: &[String],
    ) {
        let label = name::within(&self.title);
        for (value, members) in groups(field, items) {
            let Ok(uri) = name::value_uri(&self.name, view, &value) else {
                built.omitted += 1;
                continue;
            };
            let value_shown = name::shown(&value);
            let title = format!("{} for {value_shown}", self.title);
            let description = format!("The {label} whose {} is {value_shown}", field.words());
            let shown = self.shown(view, &name::encode(&value), title, description);
            built.put(uri, shown, texts, &members);
        }
    }

    fn shown(&self, view: &str, value: &str, title: String, description: String) -> Shown {
        let slash = if value.is_empty() { "" } else { "/" };
        Shown {
            name: format!("{}_{view}{slash}{value}", self.name),
            title,
            description,
            text: Arc::from(""),
        }
    }

    /// Where each item is, by id.
    fn index(&self, items: &[Value]) -> Result<HashMap<String, usize>, Fault> {
        let (len, max) = (items.len(), self.items_max);
        if len > max {
            return Err(Fault::TooMany { len, max });
        }
        let mut index = HashMap::with_capacity(len);
        for (place, item) in items.iter().enumerate() {
            if !item.is_object() {
                return Err(Fault::NotAnObject { place });
            }
            let id = self.id_of(item).ok_or_else(|| Fault::NoId {
                place,
                field: self.id.words(),
            })?;
            if let Some(first) = index.insert(id.clone(), place) {
                let second = place;
                return Err(Fault::SameId { first, second, id });
            }
        }
        Ok(index)
    }

    /// The id of an item: a text that is not empty, or a whole number.
    pub(super) fn id_of(&self, item: &Value) -> Option<String> {
        match self.id.get(item)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) if !number.is_f64() => Some(number.to_string()),
            _ => None,
        }
    }

    fn check_sizes(&self, built: &Built) -> Result<(), Fault> {
        let max = self.body_bytes_max;
        match built.views.iter().find(|(_, shown)| shown.text.len() > max) {
            Some((uri, shown)) => Err(Fault::ViewTooLarge {
                uri: uri.to_string(),
                len: shown.text.len(),
                max,
            }),
            None => Ok(()),
        }
    }
}

impl Built {
    fn put(&mut self, uri: ResourceUri, shown: Shown, texts: &[String], members: &[usize]) {
        let text = Arc::from(list_text(texts, members));
        self.views.insert(uri, Shown { text, ..shown });
    }
}

/// The items that have the field, by the text of its value; items in the order of the file.
fn groups(field: &FieldPath, items: &[Value]) -> BTreeMap<String, Vec<usize>> {
    let mut groups = BTreeMap::<String, Vec<usize>>::new();
    for (place, item) in items.iter().enumerate() {
        if let Some(value) = field.scalar(item) {
            groups.entry(value).or_default().push(place);
        }
    }
    groups
}

/// An item, indented as it stands in a list.
fn item_text(item: &Value) -> String {
    let mut item = item.clone();
    // Maps keep the order of the file when any crate of the build asks serde_json for that.
    item.sort_all_objects();
    let text =
        serde_json::to_string_pretty(&item).expect("a JSON value has string keys, so it can be written");
    text.replace('\n', "\n  ")
}

fn list_text(texts: &[String], members: &[usize]) -> String {
    if members.is_empty() {
        return "[]".to_owned();
    }
    let len: usize = members.iter().map(|place| texts[*place].len() + 4).sum();
    let mut list = String::with_capacity(len + 3);
    for (n, place) in members.iter().enumerate() {
        list.push_str(if n == 0 { "[\n  " } else { ",\n  " });
        list.push_str(&texts[*place]);
    }
    list.push_str("\n]");
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FilterConfig, ViewConfig};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    fn spec() -> Spec {
        let open = FilterConfig {
            field: "status".to_owned(),
            equals: Some(json!("open")),
            ..FilterConfig::default()
        };
        let config = CollectionConfig {
            name: "annotations".to_owned(),
            item: "annotation".to_owned(),
            file: "annotations.json".into(),
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
        };
        Spec::new(&config, 100, 1 << 20)
    }

    fn build(document: &Value) -> Result<Built, Fault> {
        spec().build(document.to_string().as_bytes())
    }

    fn items(built: &Built, uri: &str) -> Option<Vec<Value>> {
        let shown = built.views.get(uri)?;
        Some(serde_json::from_str(&shown.text).unwrap())
    }

    #[test]
    fn the_views_of_a_document_and_their_titles() {
        let built = build(&json!([
            { "id": "a", "status": "open", "pageUrl": "/pricing" },
            { "id": 2, "status": "resolved", "pageUrl": "/a b" },
            { "id": "c", "status": "open" },
        ]))
        .unwrap();
        let titles: Vec<_> = built
            .views
            .iter()
            .map(|(uri, shown)| (uri.as_str(), shown.title.as_str()))
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
        let open = &built.views["annotations://open"];
        assert_eq!(open.description, "The annotations whose status is \"open\"");
        assert_eq!(items(&built, "annotations://open").unwrap().len(), 2);
        assert_eq!((built.index["a"], built.index["2"]), (0, 1));
    }

    #[test]
    fn the_text_is_what_the_library_writes() {
        let document = json!([{ "id": 1, "b": [1, { "x": "a\nb" }], "a": {} }, { "id": 2, "e": [] }]);
        let built = build(&document).unwrap();
        assert_eq!(
            *built.views["annotations://all"].text,
            serde_json::to_string_pretty(&document).unwrap()
        );
    }

    #[test]
    fn nothing_is_the_empty_list() {
        for text in ["", " \n", "[]", "\u{feff}[]"] {
            let built = spec().build(text.as_bytes()).unwrap();
            assert_eq!(built.views.len(), 2, "{text:?}");
            assert_eq!(*built.views["annotations://all"].text, *"[]");
        }
    }

    #[test]
    fn what_is_no_collection_is_refused_with_the_reason() {
        let refusal = |text: &str| spec().build(text.as_bytes()).unwrap_err().to_string();
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
    fn the_array_is_found_by_pointer() {
        let spec = Spec {
            pointer: "/data/items".to_owned(),
            ..spec()
        };
        let built = spec.build(br#"{"data":{"items":[{"id":1}]}}"#).unwrap();
        assert_eq!(items(&built, "annotations://all").unwrap(), [json!({ "id": 1 })]);
        assert!(spec.build(b"[]").is_err());
        assert_eq!(spec.build(b"").unwrap().views.len(), 2);
    }

    #[test]
    fn a_value_too_long_for_a_uri_is_left_out_alone() {
        let built =
            build(&json!([{ "id": 1, "pageUrl": "/".repeat(1000) }, { "id": 2, "pageUrl": "/" }])).unwrap();
        assert_eq!((built.omitted, built.views.len()), (1, 3));
        assert_eq!(items(&built, "annotations://all").unwrap().len(), 2);
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
            let item = |(id, (status, page, body)): (usize, (Value, Option<Value>, String))| {
                let mut item = json!({ "id": id, "status": status, "body": { "text": body, "n": id } });
                if let Some(page) = page {
                    item["pageUrl"] = page;
                }
                item
            };
            items.into_iter().enumerate().map(item).collect()
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
        fn groups_partition_the_items_that_have_the_field(all in any_items()) {
            let built = build(&json!(all)).unwrap();
            let pages = built.views.keys().filter(|uri| uri.as_str().starts_with("annotations://page/"));
            let mut grouped = Vec::new();
            for uri in pages {
                let members = items(&built, uri.as_str()).unwrap();
                prop_assert!(!members.is_empty());
                let values: std::collections::BTreeSet<_> =
                    members.iter().map(|item| FieldPath::parse("pageUrl").scalar(item).unwrap()).collect();
                prop_assert_eq!(values.len(), 1);
                grouped.extend(members);
            }
            let has = |item: &&Value| item.get("pageUrl").is_some_and(|value| !value.is_null() && !value.is_array());
            let mut expected: Vec<_> = all.iter().filter(has).cloned().collect();
            let id = |item: &Value| item["id"].as_u64();
            grouped.sort_by_key(id);
            expected.sort_by_key(id);
            prop_assert_eq!(grouped, expected);
        }

        #[test]
        fn the_order_of_keys_is_nothing(all in any_items()) {
            let document = json!(all);
            let turned = spec().build(backward(&document).as_bytes()).unwrap();
            prop_assert_eq!(turned, build(&document).unwrap());
        }

        #[test]
        fn each_view_shows_what_passes_in_the_order_of_the_file(all in any_items()) {
            let built = build(&json!(all)).unwrap();
            let open: Vec<_> = all.iter().filter(|item| item["status"] == "open").cloned().collect();
            prop_assert_eq!(items(&built, "annotations://open").unwrap(), open);
            prop_assert_eq!(items(&built, "annotations://all").unwrap(), &all[..]);
            for (id, place) in &built.index {
                prop_assert_eq!(&all[*place]["id"].to_string(), id);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..40), text in "[\\[\\]{}:,\"id0-9 ]{0,30}") {
            for bytes in [bytes.as_slice(), text.as_bytes()] {
                if let Err(fault) = spec().build(bytes) {
                    prop_assert!(!fault.to_string().is_empty());
                }
            }
        }
    }
}
