//! The hashes of the lists as the audiences of subscribers see them.
//!
//! A change that an audience does not see leaves its hash as it is, so its subscribers are told nothing. The
//! sums over the resources follow each change; those over the other lists, which are short and change seldom,
//! are made again.
//!
//! The resources are walked for a new audience in steps, so that the requests behind it do not wait for a
//! long list. Between two steps the sum follows the changes of what was walked already.

use std::collections::VecDeque;
use std::sync::Arc;

use super::catalog::Catalog;
use crate::metrics::Metrics;
use crate::model::{Audience, Digest, ListHash, ListKind, ResourceUri, Viewer};
use crate::outbox::{AudienceHashes, JoinedAudience, ListAudience};

/// The most audiences whose hashes are kept. Those beyond are counted anew for each subscriber and change.
const AUDIENCES_MAX: usize = 64;

/// A resource whose share in the list changed.
pub(super) struct Relisted {
    pub(super) uri: ResourceUri,
    pub(super) before: Option<Digest>,
    pub(super) now: Option<Digest>,
}

impl Relisted {
    /// Takes the change over into the sum of an audience.
    fn apply(&self, sum: &mut ListHash, audience: &dyn Audience) {
        if !audience.shows_resource(&self.uri) {
            return;
        }
        if let Some(before) = self.before {
            *sum = sum.without(before);
        }
        if let Some(now) = self.now {
            *sum = sum.with(now);
        }
    }
}

/// The walk through the resources for a new audience.
struct Walk {
    audience: Arc<ListAudience>,
    /// The sum over the resources that were walked.
    resources: ListHash,
    /// The last one of them in the order of the list; none before the first step.
    last: Option<ResourceUri>,
}

impl Walk {
    /// Takes over the changes of what was walked; the rest is still to come.
    fn follow(&mut self, relisted: &[Relisted]) {
        let Some(last) = &self.last else {
            return;
        };
        for change in relisted {
            if change.uri <= *last {
                change.apply(&mut self.resources, self.audience.audience.as_ref());
            }
        }
    }
}

/// The hashes of the lists for an audience whose walk has ended.
pub(super) struct Walked {
    pub(super) id: u64,
    pub(super) hashes: [ListHash; 3],
}

/// An audience with subscribers that watch lists.
struct Registered {
    audience: Arc<ListAudience>,
    /// The sum over the listed resources.
    resources: ListHash,
    /// The sums over the templates with their listed members, the tools and the prompts.
    others: [ListHash; 3],
    /// The hashes of the lists without the changes that are not durable.
    visible: [ListHash; 3],
}

impl Registered {
    /// Adds the other lists to the sum of a walk that has ended.
    fn new(walk: Walk, catalog: &Catalog) -> Registered {
        let Walk {
            audience, resources, ..
        } = walk;
        let viewer = audience.audience.as_ref();
        let durable = catalog.resources().durable_sum(viewer, resources);
        let others = catalog.shown_others(viewer);
        Registered {
            resources,
            visible: [durable.plus(others[0]), others[1], others[2]],
            others,
            audience,
        }
    }

    fn hash(&self, kind: ListKind) -> ListHash {
        match kind {
            ListKind::Resources => self.resources.plus(self.others[0]),
            ListKind::Tools => self.others[1],
            ListKind::Prompts => self.others[2],
        }
    }

    fn hashes(&self, catalog: &Catalog, durable: bool) -> [ListHash; 3] {
        ListKind::ALL.map(|kind| {
            let own = match durable {
                true => self.visible[kind.index()],
                false => self.hash(kind),
            };
            catalog.with_foreign(kind, own)
        })
    }
}

/// The registered audiences.
pub(super) struct Audiences {
    registered: Vec<Registered>,
    /// The walks for new audiences, one after the other: the first one is under way.
    walks: VecDeque<Walk>,
    /// True once there was one: from then on every change of a list goes with the hashes of the audiences.
    used: bool,
    metrics: Arc<Metrics>,
}

impl Audiences {
    pub(super) fn new(metrics: Arc<Metrics>) -> Audiences {
        Audiences {
            registered: Vec::new(),
            walks: VecDeque::new(),
            used: false,
            metrics,
        }
    }

    /// Returns the audience of a subscriber, with the hashes of its lists or those from before the changes
    /// that are not durable. A new audience has no hashes yet: its walk begins, or goes on, with
    /// [`step`](Self::step).
    pub(super) fn join(
        &mut self,
        viewer: &dyn Viewer,
        catalog: &mut Catalog,
        durable: bool,
    ) -> (JoinedAudience, Option<[ListHash; 3]>) {
        self.used = true;
        self.follow(catalog);
        // Read before the audience: one that changes meanwhile has another generation.
        let generation = viewer.generation();
        let audience = viewer.audience();
        let id = audience.id();
        let known = self.registered.iter().find(|known| known.audience.id == id);
        if let Some(known) = known {
            let audience = known.audience.clone();
            let hashes = known.hashes(catalog, durable);
            return (JoinedAudience { audience, generation }, Some(hashes));
        }
        let walk = self.walks.iter().find(|walk| walk.audience.id == id);
        let audience = match walk {
            Some(walk) => walk.audience.clone(),
            None => self.begin_walk(Arc::new(ListAudience { id, audience })),
        };
        (JoinedAudience { audience, generation }, None)
    }

    fn begin_walk(&mut self, audience: Arc<ListAudience>) -> Arc<ListAudience> {
        self.walks.push_back(Walk {
            audience: audience.clone(),
            resources: ListHash::EMPTY,
            last: None,
        });
        audience
    }

    /// Returns true if a step is to be taken.
    pub(super) fn is_walking(&self) -> bool {
        !self.walks.is_empty()
    }

    /// Looks at the next `max` resources for the audience whose turn it is. Returns its hashes if its walk
    /// has ended.
    pub(super) fn step(&mut self, catalog: &mut Catalog, max: usize, durable: bool) -> Option<Walked> {
        self.follow(catalog);
        let walk = self.walks.front_mut()?;
        let audience = walk.audience.audience.as_ref();
        let part = catalog.resources().shown_part(audience, walk.last.as_ref(), max);
        walk.resources = walk.resources.plus(part.sum);
        if part.last.is_some() {
            walk.last = part.last;
            return None;
        }
        let walk = self.walks.pop_front()?;
        self.metrics.list_hashes_computed.add(1);
        let counted = Registered::new(walk, catalog);
        let hashes = counted.hashes(catalog, durable);
        let id = counted.audience.id;
        self.drop_unused();
        if self.registered.len() < AUDIENCES_MAX {
            self.registered.push(counted);
        } else {
            self.metrics.audiences_uncounted.add(1);
        }
        Some(Walked { id, hashes })
    }

    /// Forgets the audiences that no outbox has joined.
    fn drop_unused(&mut self) {
        self.registered
            .retain(|known| Arc::strong_count(&known.audience) > 1);
    }

    /// Returns true once there was an audience.
    pub(super) fn is_used(&self) -> bool {
        self.used
    }

    /// Takes over the changes of the catalog since the last call.
    pub(super) fn follow(&mut self, catalog: &mut Catalog) {
        let (relisted, others) = catalog.take_list_changes();
        if let Some(walk) = self.walks.front_mut() {
            walk.follow(&relisted);
        }
        for known in &mut self.registered {
            let audience = known.audience.audience.as_ref();
            for change in &relisted {
                change.apply(&mut known.resources, audience);
            }
            if others {
                known.others = catalog.shown_others(audience);
            }
        }
    }

    /// Notes the hashes from before the changes that are not durable.
    pub(super) fn note_visible(&mut self, catalog: &mut Catalog) {
        if !self.used {
            return;
        }
        self.follow(catalog);
        for known in &mut self.registered {
            known.visible = ListKind::ALL.map(|kind| known.hash(kind));
        }
    }

    /// The hash of a list for each audience; none as long as there was no audience.
    pub(super) fn hashes(&mut self, kind: ListKind, catalog: &mut Catalog) -> Option<AudienceHashes> {
        if !self.used {
            return None;
        }
        self.follow(catalog);
        self.drop_unused();
        let hashes = self.registered.iter();
        let hashes = hashes.map(|known| (known.audience.id, catalog.with_foreign(kind, known.hash(kind))));
        Some(hashes.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::model::viewer_testing::TestAudience;
    use crate::model::{
        Audience, Change, Limits, ListChange, MemberList, Owner, Prompt, Resource, ResourceTemplate,
        Standing, Tool, ToolOutput, Variables,
    };

    /// A viewer of the audience with this id, which does not see names with `secret` if the id is even.
    struct AudienceViewer(AtomicU64);

    impl Viewer for AudienceViewer {
        fn generation(&self) -> u64 {
            1
        }

        fn standing(&self) -> Standing {
            Standing::Valid
        }

        fn may_be_told(&self, _: &ResourceUri) -> bool {
            true
        }

        fn audience(&self) -> Arc<dyn Audience> {
            let id = self.0.load(Ordering::Relaxed);
            let hidden: &[_] = if id.is_multiple_of(2) { &["secret"] } else { &[] };
            Arc::new(TestAudience(id, hidden))
        }
    }

    /// The audience that does not see names with `secret`, and one that sees all.
    const GUEST: u64 = 2;
    const OPS: u64 = 3;

    struct Rig {
        catalog: Catalog,
        audiences: Audiences,
        metrics: Arc<Metrics>,
        members: Vec<JoinedAudience>,
    }

    impl Rig {
        fn new() -> Rig {
            let metrics = Metrics::register(1);
            Rig {
                catalog: Catalog::new(Arc::new(Limits::default())),
                audiences: Audiences::new(metrics.clone()),
                metrics,
                members: Vec::new(),
            }
        }

        fn join(&mut self, id: u64, durable: bool) -> [ListHash; 3] {
            let viewer = AudienceViewer(AtomicU64::new(id));
            let (joined, hashes) = self.audiences.join(&viewer, &mut self.catalog, durable);
            self.members.push(joined);
            if let Some(hashes) = hashes {
                return hashes;
            }
            loop {
                let walked = self.audiences.step(&mut self.catalog, 2, durable);
                if let Some(Walked { id: of, hashes }) = walked
                    && of == id
                {
                    return hashes;
                }
                assert!(self.audiences.is_walking());
            }
        }

        /// Begins the walk of an audience that is not known.
        fn begin(&mut self, id: u64) {
            let viewer = AudienceViewer(AtomicU64::new(id));
            let (joined, hashes) = self.audiences.join(&viewer, &mut self.catalog, false);
            assert!(hashes.is_none());
            self.members.push(joined);
        }

        /// The hashes of an audience as the shards get them.
        fn shown(&mut self, id: u64) -> [ListHash; 3] {
            ListKind::ALL.map(|kind| {
                let hashes = self.audiences.hashes(kind, &mut self.catalog).unwrap();
                hashes.iter().find(|(known, _)| *known == id).unwrap().1
            })
        }

        /// The hashes by a look at the whole catalog at once.
        fn walked(&self, id: u64) -> [ListHash; 3] {
            let audience = AudienceViewer(AtomicU64::new(id)).audience();
            let others = self.catalog.shown_others(audience.as_ref());
            let resources = self.catalog.resources().shown(audience.as_ref()).plus(others[0]);
            let own = [resources, others[1], others[2]];
            ListKind::ALL.map(|kind| self.catalog.with_foreign(kind, own[kind.index()]))
        }

        fn apply(&mut self, change: Change) {
            // A refused change is none.
            let _refused = self.catalog.apply(change, &Owner::Embedder);
        }

        fn apply_list(&mut self, change: ListChange) {
            self.catalog.apply_list(change, 0).unwrap();
        }
    }

    fn name(number: u8) -> String {
        match number % 2 {
            0 => format!("secret-{number}"),
            _ => format!("open-{number}"),
        }
    }

    fn uri(number: u8) -> ResourceUri {
        ResourceUri::new(&format!("demo://{}", name(number))).unwrap()
    }

    fn resource(number: u8, title: u8) -> Resource {
        let resource = Resource::text(uri(number).as_str(), "text").unwrap();
        resource.title(title.to_string()).listed(title > 0)
    }

    fn tool(number: u8, description: u8) -> ListChange {
        let tool = Tool::new(
            name(number),
            |_: serde_json::Map<String, serde_json::Value>| async { Ok(ToolOutput::text("")) },
        );
        ListChange::PutTool(Arc::new(tool.description(description.to_string())))
    }

    fn prompt(number: u8) -> ListChange {
        let prompt = Prompt::new(
            name(number),
            |_: serde_json::Map<String, serde_json::Value>| async { Ok(Vec::new()) },
        );
        ListChange::PutPrompt(Arc::new(prompt))
    }

    fn template(number: u8) -> String {
        format!("demo://{}/{{id}}", name(number))
    }

    fn put_template(number: u8) -> ListChange {
        let template = ResourceTemplate::new(&template(number), |_: ResourceUri, _: Variables| async {
            Ok(None)
        });
        ListChange::PutTemplate(Arc::new(template.unwrap()), None)
    }

    fn listed(number: u8, members: &[u8], run: u64) -> ListChange {
        let shares: Arc<[(ResourceUri, Digest)]> = members
            .iter()
            .map(|member| (uri(*member), Digest::of(&[b"member", &[*member]])))
            .collect();
        let listed = MemberList {
            digest: Digest::of(&[members]),
            members: shares,
            run,
        };
        ListChange::Listed(template(number), listed)
    }

    #[test]
    fn hidden_item_changes_the_hash_of_its_viewers() {
        let mut rig = Rig::new();
        let empty = rig.join(GUEST, false);
        assert_eq!(rig.join(OPS, false), empty);
        for (put, remove, kind) in [
            (tool(0, 1), ListChange::RemoveTool(name(0)), ListKind::Tools),
            (prompt(0), ListChange::RemovePrompt(name(0)), ListKind::Prompts),
            (
                put_template(0),
                ListChange::RemoveTemplate(template(0)),
                ListKind::Resources,
            ),
        ] {
            rig.apply_list(put);
            assert_eq!(rig.shown(GUEST), empty, "{kind:?}");
            let with = rig.shown(OPS);
            assert_ne!(with[kind.index()], empty[kind.index()], "{kind:?}");
            rig.apply_list(remove);
            assert_eq!(rig.shown(OPS), empty, "{kind:?}");
        }
        rig.apply(Change::Upsert(resource(0, 1)));
        let before = rig.shown(OPS);
        assert_eq!(rig.shown(GUEST), empty);
        rig.apply(Change::Upsert(resource(0, 2)));
        assert_ne!(rig.shown(OPS), before);
        assert_eq!(rig.shown(GUEST), empty);
        rig.apply(Change::Remove(uri(0)));
        assert_eq!(rig.shown(OPS), empty);
        rig.apply(Change::Upsert(resource(1, 1)));
        assert_eq!(rig.shown(GUEST), rig.shown(OPS));
        assert_ne!(rig.shown(GUEST), empty);
    }

    #[test]
    fn audience_is_counted_once_while_it_has_members() {
        let mut rig = Rig::new();
        for _ in 0..3 {
            rig.join(GUEST, false);
            rig.join(OPS, false);
        }
        assert_eq!(rig.metrics.list_hashes_computed.get(), 2);
        rig.members.clear();
        // The next change of a list finds them without members.
        rig.audiences.hashes(ListKind::Tools, &mut rig.catalog).unwrap();
        rig.join(GUEST, false);
        assert_eq!(rig.metrics.list_hashes_computed.get(), 3);
    }

    #[test]
    fn audience_beyond_the_limit_is_counted_each_time() {
        let mut rig = Rig::new();
        for id in 0..AUDIENCES_MAX as u64 {
            rig.join(id, false);
        }
        assert_eq!(rig.metrics.audiences_uncounted.get(), 0);
        for _ in 0..2 {
            rig.apply_list(tool(1, 1));
            assert_eq!(rig.join(1_000, false), rig.walked(1_000));
        }
        assert_eq!(rig.metrics.audiences_uncounted.get(), 2);
        assert_eq!(rig.audiences.registered.len(), AUDIENCES_MAX);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Upsert(u8, u8),
        Remove(u8),
        Tool(u8, u8),
        RemoveTool(u8),
        Template(u8),
        Members(u8, Vec<u8>),
        RemoveTemplate(u8),
        Join(u64),
        /// The walk of another audience begins.
        Begin(bool),
        /// The walk under way goes on.
        Walk,
        Keep,
        Undo,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..6u8, 0..3u8).prop_map(|(number, title)| Step::Upsert(number, title)),
            3 => (0..6u8).prop_map(Step::Remove),
            2 => (0..4u8, 0..3u8).prop_map(|(number, text)| Step::Tool(number, text)),
            1 => (0..4u8).prop_map(Step::RemoveTool),
            1 => (0..2u8).prop_map(Step::Template),
            2 => (0..2u8, prop::collection::vec(6..9u8, 0..3)).prop_map(|(number, of)| Step::Members(number, of)),
            1 => (0..2u8).prop_map(Step::RemoveTemplate),
            2 => (2..6u64).prop_map(Step::Join),
            2 => any::<bool>().prop_map(Step::Begin),
            6 => Just(Step::Walk),
            1 => Just(Step::Keep),
            1 => Just(Step::Undo),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        /// After any changes, kept or taken back, also between the steps of a walk, the hashes are those of a
        /// look at the whole catalog, and an audience that joins meanwhile gets those from before the changes
        /// that are not durable.
        #[test]
        fn hashes_equal_a_look_at_everything(steps in steps()) {
            let mut rig = Rig::new();
            rig.catalog.record_changes();
            rig.join(GUEST, false);
            rig.join(OPS, false);
            // The resources alone are taken back, so that the other lists are kept as they come.
            let mut durable = [rig.walked(GUEST), rig.walked(OPS)];
            for (run, step) in (0..).zip(steps) {
                let mut keeps = true;
                match step {
                    Step::Upsert(number, title) => {
                        rig.apply(Change::Upsert(resource(number, title)));
                        keeps = false;
                    }
                    Step::Remove(number) => {
                        rig.apply(Change::Remove(uri(number)));
                        keeps = false;
                    }
                    Step::Join(id) => {
                        let hashes = rig.join(id, true);
                        prop_assert_eq!(hashes, durable[usize::from(id % 2 == 1)]);
                        continue;
                    }
                    Step::Begin(sees_all) => {
                        rig.begin(1_000 + 2 * run + u64::from(sees_all));
                        continue;
                    }
                    Step::Walk => {
                        if let Some(Walked { id, hashes }) = rig.audiences.step(&mut rig.catalog, 1, false) {
                            prop_assert_eq!(hashes, rig.walked(id));
                            prop_assert_eq!(rig.shown(id), rig.walked(id));
                        }
                        continue;
                    }
                    Step::Undo => rig.catalog.undo(),
                    Step::Tool(number, text) => rig.apply_list(tool(number, text)),
                    Step::RemoveTool(number) => rig.apply_list(ListChange::RemoveTool(name(number))),
                    Step::Template(number) => rig.apply_list(put_template(number)),
                    Step::Members(number, of) => rig.apply_list(listed(number, &of, run)),
                    Step::RemoveTemplate(number) => rig.apply_list(ListChange::RemoveTemplate(template(number))),
                    Step::Keep => {}
                }
                if keeps {
                    rig.catalog.keep();
                    rig.audiences.note_visible(&mut rig.catalog);
                    durable = [rig.walked(GUEST), rig.walked(OPS)];
                }
                for id in [GUEST, OPS] {
                    prop_assert_eq!(rig.shown(id), rig.walked(id));
                }
            }
        }
    }
}
