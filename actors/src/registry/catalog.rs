//! The pure core of the Registry actor: what exists, and whether a change is one.
//!
//! Owns: resources with their bodies and digests, templates, tools, prompts, and the three list hashes, kept
//! incrementally. Never: knows versions, subscribers, actors or clocks; times are handed in.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::messages::{Decision, Effect, Found};
use crate::model::{
    Change, Condition, Content, Digest, Limits, ListChange, ListHash, ListKind, Prompt, PublishError,
    Resource, ResourceTemplate, ResourceUri, SubscribeError, Tool, UriMap, Variables,
};

struct ResourceEntry {
    /// The key itself: what is handed on compares equal to what was handed on before without a look at the text.
    uri: ResourceUri,
    resource: Arc<Resource>,
    content: Option<Digest>,
    /// Its share in the list hash; none when it is not listed.
    item: Option<Digest>,
    generation: u64,
}

struct Family {
    template: Arc<ResourceTemplate>,
    item: Digest,
    listed: Option<Digest>,
    since: u64,
}

/// What exists.
pub(crate) struct Catalog {
    resources: UriMap<ResourceEntry>,
    /// Those of them that are listed, in order.
    listed: BTreeSet<ResourceUri>,
    templates: BTreeMap<String, Family>,
    tools: BTreeMap<String, (Arc<Tool>, Digest)>,
    prompts: BTreeMap<String, (Arc<Prompt>, Digest)>,
    /// Per list kind, the digest of what somebody else lists.
    foreign: [Option<Digest>; 3],
    hashes: [ListHash; 3],
    generation: u64,
    limits: Arc<Limits>,
}

impl Catalog {
    pub(crate) fn new(limits: Arc<Limits>) -> Catalog {
        Catalog {
            resources: UriMap::default(),
            listed: BTreeSet::new(),
            templates: BTreeMap::new(),
            tools: BTreeMap::new(),
            prompts: BTreeMap::new(),
            foreign: [None; 3],
            hashes: [ListHash::EMPTY; 3],
            generation: 0,
            limits,
        }
    }

    /// Makes a change, or refuses it and changes nothing.
    pub(crate) fn apply(&mut self, change: Change, condition: Condition) -> Result<Decision, PublishError> {
        if let Condition::Generation(generation) = condition
            && self.resources.get(change.uri()).map(|entry| entry.generation) != Some(generation)
        {
            return Err(PublishError::Conflict(change.uri().clone()));
        }
        match change {
            Change::Register(resource) if self.resources.contains_key(resource.uri()) => {
                Err(PublishError::AlreadyExists(resource.uri().clone()))
            }
            Change::Register(resource) | Change::Upsert(resource) => self.store(resource, true),
            Change::Update(resource) => self.store(resource, false),
            Change::Touch(uri) => self.touch(uri),
            Change::Remove(uri) => self.remove(uri),
        }
    }

    /// Makes `resource` what its URI stands for; one that does not exist yet only when it may be `new`.
    fn store(&mut self, resource: Resource, new: bool) -> Result<Decision, PublishError> {
        let uri = resource.uri().clone();
        let held = self.resources.get_mut(&uri);
        if held.is_none() && !new {
            return Err(PublishError::NotFound(uri));
        }
        let (len, max) = (resource.held_len(), self.limits.body_bytes_max);
        if len > max {
            return Err(PublishError::BodyTooLarge { uri, len, max });
        }
        let content = content_digest(&resource);
        let Some(held) = held else {
            return self.create(uri, resource, content);
        };
        let item = if resource.descriptor() == held.resource.descriptor() {
            held.item
        } else {
            item_digest(&resource)
        };
        let before = std::mem::replace(&mut held.item, item);
        let effect = if same_content(held, &resource, content) {
            Effect::Unchanged
        } else {
            self.generation += 1;
            (held.content, held.generation) = (content, self.generation);
            Effect::Stored(content)
        };
        // Also when nothing changed: what clients do not see may differ, such as whether they may subscribe.
        held.resource = Arc::new(resource);
        let uri = held.uri.clone();
        let list = self.relist(&uri, before, item);
        Ok(Decision {
            uri,
            effect,
            created: false,
            list,
        })
    }

    fn create(
        &mut self,
        uri: ResourceUri,
        resource: Resource,
        content: Option<Digest>,
    ) -> Result<Decision, PublishError> {
        let max = self.limits.resources_max;
        if self.resources.len() >= max {
            let what = "resources";
            return Err(PublishError::TooMany { what, max });
        }
        self.generation += 1;
        let item = item_digest(&resource);
        let entry = ResourceEntry {
            uri: uri.clone(),
            resource: Arc::new(resource),
            content,
            item,
            generation: self.generation,
        };
        self.resources.insert(uri.clone(), entry);
        let list = self.relist(&uri, None, item);
        let effect = if self.family_of(&uri).is_some() {
            Effect::Joined(content)
        } else {
            Effect::Stored(content)
        };
        Ok(Decision {
            uri,
            effect,
            created: true,
            list,
        })
    }

    /// Takes the share `before` of `uri` out of the list of resources and puts `now` in. Answers the new hash when it is
    /// another one.
    fn relist(
        &mut self,
        uri: &ResourceUri,
        before: Option<Digest>,
        now: Option<Digest>,
    ) -> Option<(ListKind, ListHash)> {
        if before == now {
            return None;
        }
        match (before, now) {
            (None, Some(_)) => drop(self.listed.insert(uri.clone())),
            (Some(_), None) => drop(self.listed.remove(uri)),
            _ => {}
        }
        let hash = self.hashes[ListKind::Resources.index()];
        let hash = before.into_iter().fold(hash, ListHash::without);
        let hash = now.into_iter().fold(hash, ListHash::with);
        self.set_hash(ListKind::Resources, hash)
    }

    fn touch(&mut self, uri: ResourceUri) -> Result<Decision, PublishError> {
        let effect = if let Some(entry) = self.resources.get_mut(&uri) {
            self.generation += 1;
            entry.generation = self.generation;
            Effect::Stored(None)
        } else if let Some((family, _)) = self.family_of(&uri) {
            Effect::Member(family.since)
        } else {
            return Err(PublishError::NotFound(uri));
        };
        Ok(Decision {
            uri,
            effect,
            created: false,
            list: None,
        })
    }

    fn remove(&mut self, uri: ResourceUri) -> Result<Decision, PublishError> {
        let Some(entry) = self.resources.remove(&uri) else {
            return Err(PublishError::NotFound(uri));
        };
        let list = self.relist(&uri, entry.item, None);
        Ok(Decision {
            uri,
            effect: Effect::Removed,
            created: false,
            list,
        })
    }

    fn set_hash(&mut self, kind: ListKind, hash: ListHash) -> Option<(ListKind, ListHash)> {
        let held = &mut self.hashes[kind.index()];
        (*held != hash).then(|| {
            *held = hash;
            (kind, hash)
        })
    }

    /// Makes a change to a list; answers the new hash when it is another one.
    pub(crate) fn apply_list(
        &mut self,
        change: ListChange,
        now: u64,
    ) -> Result<Option<(ListKind, ListHash)>, PublishError> {
        if let ListChange::Foreign(kind, digest) = change {
            let old = std::mem::replace(&mut self.foreign[kind.index()], digest);
            let without = old.into_iter().fold(self.hashes[kind.index()], ListHash::without);
            return Ok(self.set_hash(kind, digest.into_iter().fold(without, ListHash::with)));
        }
        let max = self.limits.list_items_max;
        let [mut resources, mut tools, mut prompts] = self.hashes;
        match change {
            ListChange::PutTool(tool) => {
                let digest = tool.digest();
                put(
                    &mut self.tools,
                    tool.name().to_owned(),
                    (tool, digest),
                    &mut tools,
                    "tools",
                    max,
                )?;
            }
            ListChange::ReplaceTools(all) => {
                let all = all.into_iter().map(|tool| {
                    (tool.name().to_owned(), {
                        let d = tool.digest();
                        (tool, d)
                    })
                });
                replace(&mut self.tools, all.collect(), &mut tools, "tools", max)?;
            }
            ListChange::RemoveTool(name) => drop(take(&mut self.tools, &name, &mut tools)),
            ListChange::ChangeTools { puts, removes } => {
                let puts = puts.into_iter().map(|tool| {
                    let digest = tool.digest();
                    (tool.name().to_owned(), (tool, digest))
                });
                let puts = (puts.collect(), removes);
                change_items(&mut self.tools, puts, &mut tools, "tools", max)?;
            }
            ListChange::PutPrompt(prompt) => {
                let digest = prompt.digest();
                put(
                    &mut self.prompts,
                    prompt.name().to_owned(),
                    (prompt, digest),
                    &mut prompts,
                    "prompts",
                    max,
                )?;
            }
            ListChange::ReplacePrompts(all) => {
                let all = all.into_iter().map(|p| {
                    (p.name().to_owned(), {
                        let d = p.digest();
                        (p, d)
                    })
                });
                replace(&mut self.prompts, all.collect(), &mut prompts, "prompts", max)?;
            }
            ListChange::RemovePrompt(name) => drop(take(&mut self.prompts, &name, &mut prompts)),
            ListChange::ChangePrompts { puts, removes } => {
                let puts = puts.into_iter().map(|prompt| {
                    let digest = prompt.digest();
                    (prompt.name().to_owned(), (prompt, digest))
                });
                let puts = (puts.collect(), removes);
                change_items(&mut self.prompts, puts, &mut prompts, "prompts", max)?;
            }
            ListChange::PutTemplate(template, listed) => {
                let item = template.digest();
                let name = template.uri_template().as_str().to_owned();
                let since = self.templates.get(&name).map_or(now, |held| held.since);
                let family = Family {
                    template,
                    item,
                    listed,
                    since,
                };
                put(
                    &mut self.templates,
                    name,
                    family,
                    &mut resources,
                    "resource templates",
                    max,
                )?;
            }
            ListChange::RemoveTemplate(name) => drop(take(&mut self.templates, &name, &mut resources)),
            ListChange::Foreign(..) => {}
            ListChange::Listed(name, digest) => {
                if let Some(family) = self.templates.get_mut(&name) {
                    resources = family.weigh_out(resources);
                    family.listed = Some(digest);
                    resources = family.weigh_in(resources);
                }
            }
        }
        let new = [
            (ListKind::Resources, resources),
            (ListKind::Tools, tools),
            (ListKind::Prompts, prompts),
        ];
        let changed = new
            .into_iter()
            .filter_map(|(kind, hash)| self.set_hash(kind, hash))
            .next();
        Ok(changed)
    }

    /// What `uri` stands for.
    pub(crate) fn find(&self, uri: &ResourceUri) -> Option<Found> {
        if let Some(entry) = self.resources.get(uri) {
            return Some(Found::Resource(entry.resource.clone(), entry.generation));
        }
        let (family, variables) = self.family_of(uri)?;
        Some(Found::Member(family.template.clone(), variables, family.since))
    }

    fn family_of(&self, uri: &ResourceUri) -> Option<(&Family, Variables)> {
        self.templates.values().find_map(|family| {
            let variables = family.template.uri_template().matches(uri.as_str())?;
            Some((family, variables))
        })
    }

    /// Whether clients (or who is trusted) may subscribe to `uri`; answers when its template was registered, if it is a member of one.
    pub(crate) fn subscribable(
        &self,
        uri: &ResourceUri,
        trusted: bool,
    ) -> Result<Option<u64>, SubscribeError> {
        let (subscribable, since) = match self.find(uri) {
            None => return Err(SubscribeError::NotFound(uri.clone())),
            Some(Found::Resource(resource, _)) => (resource.descriptor().subscribable, None),
            Some(Found::Member(template, _, since)) => (template.subscribable, Some(since)),
        };
        if subscribable || trusted {
            Ok(since)
        } else {
            Err(SubscribeError::NotSubscribable(uri.clone()))
        }
    }

    /// At most `limit` resources whose URI comes after `after`, in the order of their URIs.
    pub(crate) fn resources_after(&self, after: Option<&str>, limit: usize) -> Vec<Arc<Resource>> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let listed = self.listed.range::<str, _>(from).take(limit);
        listed
            .filter_map(|uri| Some(self.resources.get(uri)?.resource.clone()))
            .collect()
    }

    /// Every template, in the order of their texts.
    pub(crate) fn templates(&self) -> Vec<Arc<ResourceTemplate>> {
        self.templates
            .values()
            .map(|family| family.template.clone())
            .collect()
    }

    /// At most `limit` tools whose name comes after `after`, in the order of their names.
    pub(crate) fn tools_after(&self, after: Option<&str>, limit: usize) -> Vec<Arc<Tool>> {
        values_after(&self.tools, after, limit)
    }

    /// At most `limit` prompts whose name comes after `after`, in the order of their names.
    pub(crate) fn prompts_after(&self, after: Option<&str>, limit: usize) -> Vec<Arc<Prompt>> {
        values_after(&self.prompts, after, limit)
    }

    pub(crate) fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        self.tools.get(name).map(|(tool, _)| tool.clone())
    }

    pub(crate) fn prompt(&self, name: &str) -> Option<Arc<Prompt>> {
        self.prompts.get(name).map(|(prompt, _)| prompt.clone())
    }

    pub(crate) fn hashes(&self) -> [ListHash; 3] {
        self.hashes
    }

    /// How many resources, templates, tools and prompts there are.
    pub(crate) fn counts(&self) -> [usize; 4] {
        [
            self.resources.len(),
            self.templates.len(),
            self.tools.len(),
            self.prompts.len(),
        ]
    }
}

fn content_digest(resource: &Resource) -> Option<Digest> {
    match resource.content() {
        Content::Held(body) => Some(body.digest(resource.descriptor().media_type.as_deref())),
        Content::Lazy(_) => None,
    }
}

/// The share of a resource in the hash of the list; none when it is not listed.
fn item_digest(resource: &Resource) -> Option<Digest> {
    let descriptor = resource.descriptor();
    descriptor.listed.then(|| descriptor.digest())
}

fn same_content(held: &ResourceEntry, resource: &Resource, content: Option<Digest>) -> bool {
    match (held.resource.content(), resource.content()) {
        (Content::Held(_), Content::Held(_)) => held.content == content,
        // Readers cannot be compared by what they would answer; the same reader is no change.
        (Content::Lazy(old), Content::Lazy(new)) => Arc::ptr_eq(old, new),
        _ => false,
    }
}

/// An item that has a share in its list's hash.
trait Weighed {
    fn weigh_in(&self, hash: ListHash) -> ListHash;
    fn weigh_out(&self, hash: ListHash) -> ListHash;
}

impl<T> Weighed for (Arc<T>, Digest) {
    fn weigh_in(&self, hash: ListHash) -> ListHash {
        hash.with(self.1)
    }

    fn weigh_out(&self, hash: ListHash) -> ListHash {
        hash.without(self.1)
    }
}

impl Weighed for Family {
    fn weigh_in(&self, hash: ListHash) -> ListHash {
        self.listed.into_iter().fold(hash.with(self.item), ListHash::with)
    }

    fn weigh_out(&self, hash: ListHash) -> ListHash {
        self.listed
            .into_iter()
            .fold(hash.without(self.item), ListHash::without)
    }
}

fn put<V: Weighed>(
    map: &mut BTreeMap<String, V>,
    name: String,
    item: V,
    hash: &mut ListHash,
    what: &'static str,
    max: usize,
) -> Result<(), PublishError> {
    if map.len() >= max && !map.contains_key(&name) {
        return Err(PublishError::TooMany { what, max });
    }
    *hash = item.weigh_in(*hash);
    if let Some(old) = map.insert(name, item) {
        *hash = old.weigh_out(*hash);
    }
    Ok(())
}

fn replace<V: Weighed>(
    map: &mut BTreeMap<String, V>,
    all: BTreeMap<String, V>,
    hash: &mut ListHash,
    what: &'static str,
    max: usize,
) -> Result<(), PublishError> {
    if all.len() > max {
        return Err(PublishError::TooMany { what, max });
    }
    *hash = all
        .values()
        .fold(ListHash::EMPTY, |hash, item| item.weigh_in(hash));
    *map = all;
    Ok(())
}

/// Removes and puts items, all of them or none.
fn change_items<V: Weighed>(
    map: &mut BTreeMap<String, V>,
    (puts, removes): (BTreeMap<String, V>, Vec<String>),
    hash: &mut ListHash,
    what: &'static str,
    max: usize,
) -> Result<(), PublishError> {
    let removes: BTreeSet<String> = removes.into_iter().collect();
    let gone = removes.iter().filter(|name| map.contains_key(*name)).count();
    let new = |name: &&String| !map.contains_key(*name) || removes.contains(*name);
    if map.len() - gone + puts.keys().filter(new).count() > max {
        return Err(PublishError::TooMany { what, max });
    }
    for name in &removes {
        drop(take(map, name, hash));
    }
    for (name, item) in puts {
        put(map, name, item, hash, what, max)?;
    }
    Ok(())
}

fn take<V: Weighed>(map: &mut BTreeMap<String, V>, name: &str, hash: &mut ListHash) -> Option<V> {
    let old = map.remove(name)?;
    *hash = old.weigh_out(*hash);
    Some(old)
}

fn values_after<T>(
    map: &BTreeMap<String, (Arc<T>, Digest)>,
    after: Option<&str>,
    limit: usize,
) -> Vec<Arc<T>> {
    let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    map.range::<str, _>(from)
        .take(limit)
        .map(|(_, (item, _))| item.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Body;

    fn catalog() -> Catalog {
        Catalog::new(Arc::new(Limits {
            resources_max: 3,
            body_bytes_max: 10,
            ..Limits::default()
        }))
    }

    fn text(uri: &str, text: &str) -> Resource {
        Resource::text(uri, text).unwrap()
    }

    fn apply(catalog: &mut Catalog, change: Change) -> Result<Decision, PublishError> {
        catalog.apply(change, Condition::Always)
    }

    #[test]
    fn register_creates_and_fails_on_an_existing_uri_and_update_the_reverse() {
        let mut catalog = catalog();
        let update = Change::Update(text("demo://a", "1"));
        assert!(matches!(
            apply(&mut catalog, update),
            Err(PublishError::NotFound(_))
        ));
        let decision = apply(&mut catalog, Change::Register(text("demo://a", "1"))).unwrap();
        assert!(decision.created && decision.list.is_some());
        let again = Change::Register(text("demo://a", "2"));
        assert!(matches!(
            apply(&mut catalog, again),
            Err(PublishError::AlreadyExists(_))
        ));
        let decision = apply(&mut catalog, Change::Upsert(text("demo://a", "2"))).unwrap();
        assert!(matches!(
            decision,
            Decision {
                effect: Effect::Stored(_),
                created: false,
                list: None,
                ..
            }
        ));
    }

    #[test]
    fn the_same_bytes_and_media_type_are_no_change() {
        let mut catalog = catalog();
        apply(&mut catalog, Change::Register(text("demo://a", "1"))).unwrap();
        let same = apply(&mut catalog, Change::Update(text("demo://a", "1"))).unwrap();
        assert_eq!((same.effect, same.list), (Effect::Unchanged, None));
        let titled = apply(&mut catalog, Change::Update(text("demo://a", "1").title("A"))).unwrap();
        assert_eq!(titled.effect, Effect::Unchanged);
        assert!(
            titled.list.is_some(),
            "a title is part of the list, not of the content"
        );
        let typed = apply(
            &mut catalog,
            Change::Update(text("demo://a", "1").title("A").media_type("text/x")),
        )
        .unwrap();
        assert!(matches!(typed.effect, Effect::Stored(_)));
    }

    #[test]
    fn removal_takes_exactly_its_own_share_out_of_the_hash() {
        let mut catalog = catalog();
        apply(&mut catalog, Change::Register(text("demo://a", "1"))).unwrap();
        let before = catalog.hashes();
        apply(&mut catalog, Change::Register(text("demo://b", "1"))).unwrap();
        assert_ne!(catalog.hashes(), before);
        let uri = ResourceUri::new("demo://b").unwrap();
        apply(&mut catalog, Change::Remove(uri.clone())).unwrap();
        assert_eq!(catalog.hashes(), before);
        assert!(matches!(
            apply(&mut catalog, Change::Remove(uri)),
            Err(PublishError::NotFound(_))
        ));
    }

    #[test]
    fn limits_refuse_and_change_nothing() {
        let mut catalog = catalog();
        for name in ["demo://a", "demo://b", "demo://c"] {
            apply(&mut catalog, Change::Register(text(name, ""))).unwrap();
        }
        let before = catalog.hashes();
        let fourth = Change::Upsert(text("demo://d", ""));
        assert!(matches!(
            apply(&mut catalog, fourth),
            Err(PublishError::TooMany { max: 3, .. })
        ));
        let long = Change::Upsert(text("demo://a", "12345678901"));
        assert!(matches!(
            apply(&mut catalog, long),
            Err(PublishError::BodyTooLarge { len: 11, max: 10, .. })
        ));
        assert_eq!(catalog.hashes(), before);
    }

    fn tool(name: &str, description: &str) -> Arc<Tool> {
        let answer =
            |_: serde_json::Map<String, serde_json::Value>| async { Ok(crate::model::ToolOutput::text("")) };
        Arc::new(Tool::new(name, answer).description(description))
    }

    fn change_tools(puts: &[&Arc<Tool>], removes: &[&str]) -> ListChange {
        ListChange::ChangeTools {
            puts: puts.iter().map(|tool| Arc::clone(tool)).collect(),
            removes: removes.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn many_tools_at_once_are_one_change_and_the_same_as_one_by_one() {
        let (mut batch, mut single) = (catalog(), catalog());
        for catalog in [&mut batch, &mut single] {
            let first = change_tools(&[&tool("a", "1"), &tool("b", "1")], &[]);
            assert!(catalog.apply_list(first, 0).unwrap().is_some());
        }
        let change = change_tools(&[&tool("b", "2"), &tool("c", "1")], &["a", "unknown"]);
        let notified = batch.apply_list(change.clone(), 0).unwrap();
        for change in [
            ListChange::RemoveTool("a".into()),
            ListChange::PutTool(tool("b", "2")),
            ListChange::PutTool(tool("c", "1")),
        ] {
            single.apply_list(change, 0).unwrap();
        }
        assert_eq!(batch.hashes(), single.hashes());
        assert_eq!(
            notified,
            Some((ListKind::Tools, batch.hashes()[ListKind::Tools.index()]))
        );
        assert_eq!(
            batch.apply_list(change, 0).unwrap(),
            None,
            "the same again is no change"
        );
    }

    #[test]
    fn a_tool_whose_item_is_the_same_is_exchanged_without_a_change() {
        let mut catalog = catalog();
        let (old, new) = (tool("a", "1"), tool("a", "1"));
        catalog.apply_list(change_tools(&[&old], &[]), 0).unwrap();
        assert_eq!(catalog.apply_list(change_tools(&[&new], &[]), 0).unwrap(), None);
        assert!(Arc::ptr_eq(&catalog.tool("a").unwrap(), &new));
    }

    #[test]
    fn a_batch_beyond_the_limit_changes_nothing_and_one_that_makes_room_passes() {
        let mut catalog = Catalog::new(Arc::new(Limits {
            list_items_max: 2,
            ..Limits::default()
        }));
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| tool(name, "1"));
        catalog.apply_list(change_tools(&[&a, &b], &[]), 0).unwrap();
        let before = catalog.hashes();
        for beyond in [change_tools(&[&c], &[]), change_tools(&[&a, &c, &d], &["b"])] {
            let refused = catalog.apply_list(beyond, 0);
            assert!(matches!(refused, Err(PublishError::TooMany { max: 2, .. })));
        }
        assert_eq!((catalog.hashes(), catalog.counts()[2]), (before, 2));
        catalog
            .apply_list(change_tools(&[&a, &c, &d], &["a", "b"]), 0)
            .unwrap_err();
        catalog
            .apply_list(change_tools(&[&c, &d], &["a", "b"]), 0)
            .unwrap();
        assert!(catalog.tool("a").is_none() && catalog.tool("d").is_some());
    }

    #[test]
    fn prompts_change_as_a_whole_too() {
        let mut catalog = catalog();
        let prompt = |name: &str| {
            let render = |_: serde_json::Map<String, serde_json::Value>| async { Ok(Vec::new()) };
            Arc::new(Prompt::new(name, render))
        };
        let change =
            |puts: Vec<Arc<Prompt>>, removes: Vec<String>| ListChange::ChangePrompts { puts, removes };
        let first = change(vec![prompt("a"), prompt("b")], Vec::new());
        assert!(catalog.apply_list(first.clone(), 0).unwrap().is_some());
        assert_eq!(catalog.apply_list(first, 0).unwrap(), None);
        let all = vec!["a".to_owned(), "b".to_owned()];
        catalog.apply_list(change(Vec::new(), all), 0).unwrap();
        assert_eq!(catalog.hashes(), [ListHash::EMPTY; 3]);
    }

    #[test]
    fn a_revision_that_has_passed_is_a_conflict() {
        let mut catalog = catalog();
        apply(&mut catalog, Change::Register(text("demo://a", "1"))).unwrap();
        let uri = ResourceUri::new("demo://a").unwrap();
        let Some(Found::Resource(_, generation)) = catalog.find(&uri) else {
            panic!("registered")
        };
        let change = || Change::Update(text("demo://a", "2"));
        assert!(catalog.apply(change(), Condition::Generation(generation)).is_ok());
        let late = catalog.apply(change(), Condition::Generation(generation));
        assert!(matches!(late, Err(PublishError::Conflict(_))));
    }

    #[test]
    fn a_template_answers_for_its_members_unless_one_is_registered() {
        let mut catalog = catalog();
        let read = |_: ResourceUri, _: Variables| async { Ok(Some(Body::text("m"))) };
        let template = ResourceTemplate::new("demo://m/{id}", read)
            .unwrap()
            .subscribable(false);
        let put = ListChange::PutTemplate(Arc::new(template), None);
        assert!(catalog.apply_list(put.clone(), 5).unwrap().is_some());
        assert_eq!(
            catalog.apply_list(put, 6).unwrap(),
            None,
            "the same again is no change"
        );
        let uri = ResourceUri::new("demo://m/7").unwrap();
        assert!(matches!(catalog.find(&uri), Some(Found::Member(_, _, 5))));
        assert!(matches!(
            catalog.subscribable(&uri, false),
            Err(SubscribeError::NotSubscribable(_))
        ));
        apply(&mut catalog, Change::Register(text("demo://m/7", ""))).unwrap();
        assert_eq!(catalog.subscribable(&uri, false), Ok(None));
    }
}
