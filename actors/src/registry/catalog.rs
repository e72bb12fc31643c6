//! Everything that is registered, and the hashes of the three lists.
//!
//! The catalog decides whether a change alters anything. It has no versions, actors or clocks, so its tests
//! need none.

mod shared;

use std::sync::Arc;

use super::audiences::Relisted;
use super::lists::{ItemList, ListItem};
use super::resources::Resources;
use super::unclaimed::Unclaimed;
use crate::messages::{Decision, Effect, FamilyChange, FamilyId, Found, IndexedResource};
use crate::model::{
    Audience, Change, Digest, Limits, ListChange, ListHash, ListKind, MemberList, Owner, Prompt,
    PublishError, ResourceTemplate, ResourceUri, SubscribeError, Tool, Variables,
};
use crate::versions::{EtagIndex, KeptLine};

/// A registered template with the digest of the members it lists.
struct Family {
    template: Arc<ResourceTemplate>,
    item: Digest,
    /// The listed members; none without a lister.
    listed: Option<MemberList>,
    id: FamilyId,
}

impl ListItem for Family {
    const PLURAL: &'static str = "resource templates";

    fn name(&self) -> &str {
        self.template.uri_template().as_str()
    }

    fn share(&self) -> ListHash {
        let share = ListHash::EMPTY.with(self.item);
        match &self.listed {
            Some(listed) => share.with(listed.digest),
            None => share,
        }
    }
}

impl ListItem for Arc<Tool> {
    const PLURAL: &'static str = "tools";

    fn name(&self) -> &str {
        Tool::name(self)
    }

    fn share(&self) -> ListHash {
        ListHash::EMPTY.with(self.digest())
    }
}

impl ListItem for Arc<Prompt> {
    const PLURAL: &'static str = "prompts";

    fn name(&self) -> &str {
        Prompt::name(self)
    }

    fn share(&self) -> ListHash {
        ListHash::EMPTY.with(self.digest())
    }
}

/// Everything that is registered.
pub(crate) struct Catalog {
    resources: Resources,
    templates: ItemList<Family>,
    tools: ItemList<Arc<Tool>>,
    prompts: ItemList<Arc<Prompt>>,
    /// Per list kind, the digest of the items that another server of the process lists.
    foreign: [Option<Digest>; 3],
    next_family: FamilyId,
    /// The families that began and ended in this request.
    family_changes: Vec<FamilyChange>,
    /// True if templates, tools or prompts changed since the audiences took them over.
    others_changed: bool,
}

impl Catalog {
    /// Creates an empty catalog.
    pub(crate) fn new(limits: Arc<Limits>) -> Catalog {
        let max = limits.list_items_max;
        Catalog {
            resources: Resources::new(limits),
            templates: ItemList::new(max),
            tools: ItemList::new(max),
            prompts: ItemList::new(max),
            foreign: [None; 3],
            next_family: 1,
            family_changes: Vec::new(),
            others_changed: false,
        }
    }

    /// Makes a change to a resource, or refuses it and changes nothing.
    pub(crate) fn apply(&mut self, change: Change, owner: &Owner) -> Result<Decision, PublishError> {
        let before = self.resources.hash();
        let mut decision = match change {
            Change::Register(resource) => self.resources.register(resource, owner)?,
            Change::Upsert(resource) => self.resources.upsert(resource, owner)?,
            Change::Update(resource) => self.resources.update(resource, owner)?,
            Change::Touch(uri) => self.touch(uri, owner)?,
            Change::Remove(uri) => self.resources.remove(uri, owner)?,
        };
        // Subscribers of the member know its untouched version, so the first version of the resource must
        // be newer.
        if let (true, Effect::Stored(digest)) = (decision.created, decision.effect)
            && let Some((family, _)) = self.family_of(&decision.uri)
        {
            decision.effect = Effect::Joined(digest, family.id);
        }
        if self.resources.hash() != before {
            decision.list = Some((ListKind::Resources, self.hash(ListKind::Resources)));
        }
        Ok(decision)
    }

    /// Checks that `owner` may change the resource of this URI, if there is one.
    ///
    /// # Errors
    /// [`PublishError::NotOwner`].
    pub(crate) fn check_owner(&self, uri: &ResourceUri, owner: &Owner) -> Result<(), PublishError> {
        self.resources.check_owner(uri, owner)
    }

    fn touch(&mut self, uri: ResourceUri, owner: &Owner) -> Result<Decision, PublishError> {
        if let Some(decision) = self.resources.touch(&uri, owner)? {
            return Ok(decision);
        }
        match self.family_of(&uri) {
            Some((family, _)) => Ok(Decision {
                effect: Effect::Member(family.id),
                uri,
                created: false,
                owner: owner.clone(),
                list: None,
                subscribable: family.template.subscribable,
                entry: None,
            }),
            None => Err(PublishError::NotFound(uri)),
        }
    }

    /// Adds the resources that a store kept to the catalog and to the index, and remembers the other live
    /// URIs until their owners register them.
    pub(crate) fn restore(&mut self, lines: &mut [KeptLine], index: &EtagIndex) {
        for kept in lines {
            if !kept.line.is_live() {
                continue;
            }
            let uri = kept.uri.clone();
            match (kept.resource.take(), &kept.line.owner) {
                (Some(resource), Some(owner)) => {
                    let (resource, generation) = self.resources.restore(resource, owner.clone());
                    let etag = kept.line.etag;
                    let entry = IndexedResource {
                        resource,
                        etag,
                        generation,
                    };
                    index.set(uri, Some(entry));
                }
                (_, owner) => {
                    let since = kept.line.unclaimed_since;
                    self.resources.unclaimed.add(uri, owner.clone(), since);
                }
            }
        }
    }

    /// Lets changes of resources be taken back until they are durable. From here on, resources are found as
    /// they are without the changes that are not.
    pub(crate) fn record_changes(&mut self) {
        self.resources.record_changes();
    }

    /// Takes over the changes of resources since the last call: they are durable.
    pub(crate) fn keep(&mut self) {
        self.resources.keep();
    }

    /// Takes back the changes of resources since the last call of [`keep`](Self::keep).
    pub(crate) fn undo(&mut self) {
        self.resources.undo();
    }

    /// The URIs of former lives that wait for their owners.
    pub(crate) fn unclaimed(&mut self) -> &mut Unclaimed {
        &mut self.resources.unclaimed
    }

    /// Takes the unclaimed URIs that made room for new resources.
    pub(crate) fn take_evicted(&mut self) -> Vec<ResourceUri> {
        std::mem::take(&mut self.resources.evicted)
    }

    /// Makes a change to a list. Returns the new hash if it is another one.
    pub(crate) fn apply_list(
        &mut self,
        change: ListChange,
        now: u64,
    ) -> Result<Option<(ListKind, ListHash)>, PublishError> {
        // Compared as a whole rather than change by change: removing an item and adding it again is no
        // change.
        let kind = change.kind();
        let before = self.hash(kind);
        match change {
            ListChange::PutTool(tool) => self.tools.put(tool)?,
            ListChange::ReplaceTools(tools) => self.tools.replace(tools)?,
            ListChange::RemoveTool(name) => self.tools.remove(&name),
            ListChange::ChangeTools { puts, removes } => self.tools.change(puts, &removes)?,
            ListChange::PutPrompt(prompt) => self.prompts.put(prompt)?,
            ListChange::ReplacePrompts(prompts) => self.prompts.replace(prompts)?,
            ListChange::RemovePrompt(name) => self.prompts.remove(&name),
            ListChange::ChangePrompts { puts, removes } => self.prompts.change(puts, &removes)?,
            ListChange::PutTemplate(template, listed) => self.put_template(template, listed, now)?,
            ListChange::RemoveTemplate(name) => self.remove_template(&name),
            ListChange::Foreign(kind, digest) => self.foreign[kind.index()] = digest,
            ListChange::Listed(name, listed) => {
                self.templates.edit(&name, |family| {
                    // Runs may overlap. The one that began last has seen the newest members, so the result
                    // of an earlier one that ends later would look like a change back.
                    match &family.listed {
                        Some(newer) if newer.run > listed.run => {}
                        _ => family.listed = Some(listed),
                    }
                });
            }
        }
        let hash = self.hash(kind);
        self.others_changed |= hash != before;
        Ok((hash != before).then_some((kind, hash)))
    }

    fn put_template(
        &mut self,
        template: Arc<ResourceTemplate>,
        listed: Option<MemberList>,
        now: u64,
    ) -> Result<(), PublishError> {
        let before = match self.templates.get(template.uri_template().as_str()) {
            // With the same reader the members have the same content, so their etags must not change.
            Some(before) if Arc::ptr_eq(before.template.reader(), template.reader()) => Some(before.id),
            _ => None,
        };
        let id = before.unwrap_or(self.next_family);
        let ended = match self.templates.get(template.uri_template().as_str()) {
            Some(ended) if ended.id != id => Some(ended.id),
            _ => None,
        };
        self.templates.put(Family {
            item: template.digest(),
            template: template.clone(),
            listed,
            id,
        })?;
        self.family_changes.extend(ended.map(FamilyChange::End));
        if before.is_none() {
            self.next_family += 1;
            self.family_changes.push(FamilyChange::Begin {
                family: id,
                template,
                since: now,
            });
        }
        Ok(())
    }

    fn remove_template(&mut self, name: &str) {
        let ended = self.templates.get(name).map(|family| family.id);
        self.family_changes.extend(ended.map(FamilyChange::End));
        self.templates.remove(name);
    }

    /// Returns the change of a URI whose template was added, removed or given another reader; none if the URI
    /// is not a member because of this template.
    pub(crate) fn changed_member(&self, uri: ResourceUri, template: &str) -> Option<Decision> {
        if self.resources.get(&uri).is_some() || self.resources.unclaimed.contains(&uri) {
            return None;
        }
        let (effect, subscribable) = match self.family_of(&uri) {
            // The first template that matches has the member, so one before this one had it all along.
            Some((family, _)) if family.name() < template => return None,
            Some((family, _)) => (Effect::Member(family.id), family.template.subscribable),
            None => (Effect::Removed, true),
        };
        Some(Decision {
            effect,
            uri,
            created: false,
            owner: Owner::default(),
            list: None,
            subscribable,
            entry: None,
        })
    }

    /// Takes the families that began and ended since the last call.
    pub(crate) fn take_family_changes(&mut self) -> Vec<FamilyChange> {
        std::mem::take(&mut self.family_changes)
    }

    /// Finds the resource or the template member with this URI, as far as it is visible.
    pub(crate) fn find(&self, uri: &ResourceUri) -> Option<Found> {
        if let Some(resource) = self.resources.get(uri) {
            return Some(Found::Resource(resource.clone()));
        }
        let (family, variables) = self.family_of(uri)?;
        Some(Found::Member(family.template.clone(), variables, family.id))
    }

    fn family_of(&self, uri: &ResourceUri) -> Option<(&Family, Variables)> {
        for family in self.templates.iter() {
            if let Some(variables) = family.template.uri_template().matches(uri.as_str()) {
                return Some((family, variables));
            }
        }
        None
    }

    /// Checks that `uri` may be subscribed to; `trusted` subscribers may also name URIs that are closed to
    /// clients. Returns the family if `uri` is a member of one.
    pub(crate) fn subscribable(
        &self,
        uri: &ResourceUri,
        trusted: bool,
    ) -> Result<Option<FamilyId>, SubscribeError> {
        let (subscribable, family) = match self.find(uri) {
            // It existed before the restart, and its owner has not said yet that it does not any more.
            None if self.resources.unclaimed.contains(uri) => (true, None),
            None => return Err(SubscribeError::NotFound(uri.clone())),
            Some(Found::Resource(resource)) => (resource.descriptor().subscribable, None),
            Some(Found::Member(template, _, family)) => (template.subscribable, Some(family)),
        };
        if subscribable || trusted {
            Ok(family)
        } else {
            Err(SubscribeError::NotSubscribable(uri.clone()))
        }
    }

    /// The generation of a registered resource: it grows with each change of the content.
    pub(crate) fn generation(&self, uri: &ResourceUri) -> Option<u64> {
        self.resources.generation(uri)
    }

    /// The URIs of the listed resources after this one, in order, and those whose removal is not durable.
    pub(crate) fn listed_after(&self, after: Option<&str>) -> impl Iterator<Item = &ResourceUri> {
        self.resources.after(after)
    }

    /// All templates, in the order of their texts.
    pub(crate) fn templates(&self) -> Vec<Arc<ResourceTemplate>> {
        self.templates
            .iter()
            .map(|family| family.template.clone())
            .collect()
    }

    /// The tools after this name, in the order of their names.
    pub(crate) fn tools_after(&self, after: Option<&str>) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.after(after)
    }

    /// The prompts after this name, in the order of their names.
    pub(crate) fn prompts_after(&self, after: Option<&str>) -> impl Iterator<Item = &Arc<Prompt>> {
        self.prompts.after(after)
    }

    /// The tool with this name.
    pub(crate) fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        self.tools.get(name).cloned()
    }

    /// The prompt with this name.
    pub(crate) fn prompt(&self, name: &str) -> Option<Arc<Prompt>> {
        self.prompts.get(name).cloned()
    }

    /// The hash of a list, with the items of other servers.
    pub(crate) fn hash(&self, kind: ListKind) -> ListHash {
        let own = match kind {
            ListKind::Resources => self.resources.hash().plus(self.templates.hash()),
            ListKind::Tools => self.tools.hash(),
            ListKind::Prompts => self.prompts.hash(),
        };
        self.with_foreign(kind, own)
    }

    /// The hash of a list with the items of other servers, which every audience sees.
    pub(super) fn with_foreign(&self, kind: ListKind, own: ListHash) -> ListHash {
        match self.foreign[kind.index()] {
            Some(foreign) => own.with(foreign),
            None => own,
        }
    }

    /// Takes the resources whose shares changed since the last call, and true if another list changed. The
    /// first call begins to note them.
    pub(super) fn take_list_changes(&mut self) -> (Vec<Relisted>, bool) {
        let others = std::mem::take(&mut self.others_changed);
        (self.resources.take_relisted(), others)
    }

    /// The registered resources.
    pub(super) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// The sums of the templates with their listed members, the tools and the prompts that an audience sees.
    pub(super) fn shown_others(&self, audience: &dyn Audience) -> [ListHash; 3] {
        let mut sums = [ListHash::EMPTY; 3];
        for family in self.templates.iter() {
            if audience.shows_template(family.name()) {
                sums[0] = sums[0].with(family.item);
            }
            let members = family.listed.iter().flat_map(|listed| listed.members.iter());
            for (uri, share) in members {
                if audience.shows_resource(uri) {
                    sums[0] = sums[0].with(*share);
                }
            }
        }
        sums[1] = self.tools.hash_of(|name| audience.shows_tool(name));
        sums[2] = self.prompts.hash_of(|name| audience.shows_prompt(name));
        sums
    }

    /// The numbers of resources, templates, tools and prompts.
    pub(crate) fn counts(&self) -> [usize; 4] {
        [
            self.resources.len(),
            self.templates.len(),
            self.tools.len(),
            self.prompts.len(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Body, Resource};
    use proptest::prelude::*;

    fn catalog() -> Catalog {
        Catalog::new(Arc::new(Limits {
            resources_max: 3,
            body_bytes_max: 10,
            ..Limits::default()
        }))
    }

    fn hashes(catalog: &Catalog) -> [ListHash; 3] {
        ListKind::ALL.map(|kind| catalog.hash(kind))
    }

    fn text(uri: &str, text: &str) -> Resource {
        Resource::text(uri, text).unwrap()
    }

    fn apply(catalog: &mut Catalog, change: Change) -> Result<Decision, PublishError> {
        catalog.apply(change, &Owner::Embedder)
    }

    #[test]
    fn register_and_update_check_existence() {
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
    fn same_bytes_and_description_are_no_change() {
        let mut catalog = catalog();
        apply(&mut catalog, Change::Register(text("demo://a", "1"))).unwrap();
        let same = apply(&mut catalog, Change::Update(text("demo://a", "1"))).unwrap();
        assert_eq!((same.effect, same.list), (Effect::Unchanged, None));
        let titled = apply(&mut catalog, Change::Update(text("demo://a", "1").title("A"))).unwrap();
        assert!(matches!(titled.effect, Effect::Stored(_)));
        assert!(titled.list.is_some());
        let closed = text("demo://a", "1").title("A").subscribable(false);
        let closed = apply(&mut catalog, Change::Update(closed)).unwrap();
        assert!(matches!(closed.effect, Effect::Stored(_)));
        assert_eq!(closed.list, None, "a list does not show it");
        let typed = apply(
            &mut catalog,
            Change::Update(text("demo://a", "1").title("A").media_type("text/x")),
        )
        .unwrap();
        assert!(matches!(typed.effect, Effect::Stored(_)));
    }

    #[test]
    fn removal_takes_its_share_out_of_the_hash() {
        let mut catalog = catalog();
        apply(&mut catalog, Change::Register(text("demo://a", "1"))).unwrap();
        let before = hashes(&catalog);
        apply(&mut catalog, Change::Register(text("demo://b", "1"))).unwrap();
        assert_ne!(hashes(&catalog), before);
        let uri = ResourceUri::new("demo://b").unwrap();
        apply(&mut catalog, Change::Remove(uri.clone())).unwrap();
        assert_eq!(hashes(&catalog), before);
        assert!(matches!(
            apply(&mut catalog, Change::Remove(uri)),
            Err(PublishError::NotFound(_))
        ));
    }

    #[test]
    fn exceeded_limit_changes_nothing() {
        let mut catalog = catalog();
        for name in ["demo://a", "demo://b", "demo://c"] {
            apply(&mut catalog, Change::Register(text(name, ""))).unwrap();
        }
        let before = hashes(&catalog);
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
        assert_eq!(hashes(&catalog), before);
    }

    fn tool(name: &str, description: &str) -> Arc<Tool> {
        let tool = Tool::new(name, |_: serde_json::Map<String, serde_json::Value>| async {
            Ok(crate::model::ToolOutput::text(""))
        });
        Arc::new(tool.description(description))
    }

    fn change_tools(puts: &[&Arc<Tool>], removes: &[&str]) -> ListChange {
        ListChange::ChangeTools {
            puts: puts.iter().map(|tool| Arc::clone(tool)).collect(),
            removes: removes.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn batch_of_tools_equals_single_changes() {
        let mut batch = catalog();
        let mut single = catalog();
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
        assert_eq!(hashes(&batch), hashes(&single));
        assert_eq!(
            notified,
            Some((ListKind::Tools, hashes(&batch)[ListKind::Tools.index()]))
        );
        assert_eq!(
            batch.apply_list(change, 0).unwrap(),
            None,
            "the same again is no change"
        );
    }

    #[test]
    fn tool_with_same_item_is_exchanged_silently() {
        let mut catalog = catalog();
        let old = tool("a", "1");
        let new = tool("a", "1");
        catalog.apply_list(change_tools(&[&old], &[]), 0).unwrap();
        assert_eq!(catalog.apply_list(change_tools(&[&new], &[]), 0).unwrap(), None);
        assert!(Arc::ptr_eq(&catalog.tool("a").unwrap(), &new));
    }

    #[test]
    fn batch_counts_removals_against_the_limit() {
        let mut catalog = Catalog::new(Arc::new(Limits {
            list_items_max: 2,
            ..Limits::default()
        }));
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| tool(name, "1"));
        catalog.apply_list(change_tools(&[&a, &b], &[]), 0).unwrap();
        let before = hashes(&catalog);
        for beyond in [change_tools(&[&c], &[]), change_tools(&[&a, &c, &d], &["b"])] {
            let refused = catalog.apply_list(beyond, 0);
            assert!(matches!(refused, Err(PublishError::TooMany { max: 2, .. })));
        }
        assert_eq!((hashes(&catalog), catalog.counts()[2]), (before, 2));
        catalog
            .apply_list(change_tools(&[&a, &c, &d], &["a", "b"]), 0)
            .unwrap_err();
        catalog
            .apply_list(change_tools(&[&c, &d], &["a", "b"]), 0)
            .unwrap();
        assert!(catalog.tool("a").is_none() && catalog.tool("d").is_some());
    }

    #[test]
    fn batch_of_prompts_is_one_change() {
        let mut catalog = catalog();
        let prompt = |name: &str| {
            Arc::new(Prompt::new(
                name,
                |_: serde_json::Map<String, serde_json::Value>| async { Ok(Vec::new()) },
            ))
        };
        let change =
            |puts: Vec<Arc<Prompt>>, removes: Vec<String>| ListChange::ChangePrompts { puts, removes };
        let first = change(vec![prompt("a"), prompt("b")], Vec::new());
        assert!(catalog.apply_list(first.clone(), 0).unwrap().is_some());
        assert_eq!(catalog.apply_list(first, 0).unwrap(), None);
        let all = vec!["a".to_owned(), "b".to_owned()];
        catalog.apply_list(change(Vec::new(), all), 0).unwrap();
        assert_eq!(hashes(&catalog), [ListHash::EMPTY; 3]);
    }

    #[test]
    fn registered_resource_hides_template_member() {
        let mut catalog = catalog();
        let template = ResourceTemplate::new("demo://m/{id}", |_: ResourceUri, _: Variables| async {
            Ok(Some(Body::text("m")))
        });
        let template = template.unwrap().subscribable(false);
        let put = ListChange::PutTemplate(Arc::new(template), None);
        assert!(catalog.apply_list(put.clone(), 5).unwrap().is_some());
        assert_eq!(
            catalog.apply_list(put, 6).unwrap(),
            None,
            "the same again is no change"
        );
        let uri = ResourceUri::new("demo://m/7").unwrap();
        assert!(matches!(catalog.find(&uri), Some(Found::Member(_, _, 1))));
        assert!(matches!(
            catalog.subscribable(&uri, false),
            Err(SubscribeError::NotSubscribable(_))
        ));
        apply(&mut catalog, Change::Register(text("demo://m/7", ""))).unwrap();
        assert_eq!(catalog.subscribable(&uri, false), Ok(None));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Upsert(u8, u8, bool),
        Touch(u8),
        Remove(u8),
        Keep,
        Undo,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..5u8, 0..4u8, any::<bool>()).prop_map(|(name, body, listed)| Step::Upsert(name, body, listed)),
            1 => (0..5u8).prop_map(Step::Touch),
            3 => (0..5u8).prop_map(Step::Remove),
            1 => Just(Step::Keep),
            1 => Just(Step::Undo),
        ];
        prop::collection::vec(step, 0..120)
    }

    type Model = std::collections::BTreeMap<u8, (u8, bool)>;

    fn name(name: u8) -> String {
        format!("demo://{name}")
    }

    fn resource_of(uri: u8, (body, listed): (u8, bool)) -> Resource {
        text(&name(uri), &body.to_string()).listed(listed)
    }

    /// A catalog that was never undone, with these resources.
    fn fresh(model: &Model) -> Catalog {
        let mut catalog = Catalog::new(Arc::new(Limits::default()));
        for (uri, state) in model {
            apply(&mut catalog, Change::Register(resource_of(*uri, *state))).unwrap();
        }
        catalog
    }

    proptest! {
        /// An undone change leaves no trace, and readers see no change before it is kept.
        #[test]
        fn undo_restores_what_was_kept(steps in steps()) {
            let mut catalog = Catalog::new(Arc::new(Limits::default()));
            catalog.record_changes();
            let mut kept = Model::new();
            let mut now = Model::new();
            for step in steps {
                match step {
                    Step::Upsert(uri, body, listed) => {
                        apply(&mut catalog, Change::Upsert(resource_of(uri, (body, listed)))).unwrap();
                        now.insert(uri, (body, listed));
                    }
                    Step::Touch(uri) => {
                        let uri_text = ResourceUri::new(&name(uri)).unwrap();
                        let touched = apply(&mut catalog, Change::Touch(uri_text)).is_ok();
                        prop_assert_eq!(touched, now.contains_key(&uri));
                    }
                    Step::Remove(uri) => {
                        let uri_text = ResourceUri::new(&name(uri)).unwrap();
                        let removed = apply(&mut catalog, Change::Remove(uri_text)).is_ok();
                        prop_assert_eq!(removed, now.remove(&uri).is_some());
                    }
                    Step::Keep => {
                        catalog.keep();
                        kept = now.clone();
                    }
                    Step::Undo => {
                        catalog.undo();
                        now = kept.clone();
                    }
                }
                let expected = fresh(&now);
                prop_assert_eq!(hashes(&catalog), hashes(&expected));
                prop_assert_eq!(catalog.counts(), expected.counts());
                prop_assert_eq!(catalog.resources.bytes(), expected.resources.bytes());
                let listed: Vec<&ResourceUri> = catalog.listed_after(None).collect();
                for uri in 0..5u8 {
                    let text = ResourceUri::new(&name(uri)).unwrap();
                    let found = match catalog.find(&text) {
                        Some(Found::Resource(resource)) => Some((*resource).clone()),
                        _ => None,
                    };
                    let visible = kept.get(&uri).map(|state| resource_of(uri, *state));
                    prop_assert_eq!(found, visible);
                    for listing in [kept.get(&uri), now.get(&uri)] {
                        if let Some((_, true)) = listing {
                            prop_assert!(listed.contains(&&text));
                        }
                    }
                }
            }
        }
    }
}
