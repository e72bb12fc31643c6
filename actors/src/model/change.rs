//! Changes that publishers request, the conditions under which they apply, and their outcomes.

use std::sync::Arc;

use super::digest::Digest;
use super::etag::Etag;
use super::list::ListKind;
use super::prompt::Prompt;
use super::resource::Resource;
use super::template::ResourceTemplate;
use super::tool::Tool;
use super::uri::ResourceUri;

/// A change to one resource.
#[derive(Debug, Clone)]
pub enum Change {
    /// Creates the resource; fails if it exists.
    Register(Resource),
    /// Replaces the resource; fails if it does not exist.
    Update(Resource),
    /// Creates or replaces the resource.
    Upsert(Resource),
    /// Moves the resource to a new version although the bus sees no difference, because its reader would
    /// return something else. This is the only change that is not checked against a digest.
    Touch(ResourceUri),
    /// Removes the resource.
    Remove(ResourceUri),
}

impl Change {
    /// The URI of the resource to change.
    pub fn uri(&self) -> &ResourceUri {
        match self {
            Change::Register(resource) | Change::Update(resource) | Change::Upsert(resource) => {
                resource.uri()
            }
            Change::Touch(uri) | Change::Remove(uri) => uri,
        }
    }
}

/// The condition under which a change is applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Condition {
    /// Applies in any case.
    #[default]
    Always,
    /// Applies if the etag of the resource satisfies this at the moment of the change. Boxed, since most
    /// changes have no condition.
    Etag(Box<EtagCondition>),
}

/// A condition on the etag of a resource, like `If-Match` and `If-None-Match` of HTTP (RFC 9110 section
/// 13).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EtagCondition {
    /// The set that must contain the etag.
    pub if_match: Option<EtagSet>,
    /// The set that must not contain the etag.
    pub if_none_match: Option<EtagSet>,
    /// The etag of the member of a template that the URI names, if the resource is not registered. Only the
    /// template's reader knows whether such a member exists, and the bus does not call it to make a change.
    pub member: Option<Etag>,
}

/// A set of etags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtagSet {
    /// Every etag of a resource that exists.
    Any,
    /// These etags.
    Listed(Vec<Etag>),
}

impl From<EtagCondition> for Condition {
    fn from(condition: EtagCondition) -> Condition {
        Condition::Etag(Box::new(condition))
    }
}

impl EtagCondition {
    /// The condition that the resource is at this etag.
    pub fn is_at(etag: Etag) -> EtagCondition {
        EtagCondition {
            if_match: Some(EtagSet::Listed(vec![etag])),
            ..EtagCondition::default()
        }
    }

    /// Returns true if a resource satisfies the condition. The etag is none if the resource does not exist,
    /// and also if no caller can know it yet.
    pub(crate) fn holds(&self, exists: bool, etag: Option<Etag>) -> bool {
        let matches = |set: &EtagSet| match (set, etag) {
            (EtagSet::Any, _) => exists,
            (EtagSet::Listed(etags), Some(etag)) => etags.contains(&etag),
            // An etag that no caller can know was not received from here, so it cannot match.
            (EtagSet::Listed(_), None) => false,
        };
        // RFC 9110, section 13.2.2: both conditions hold, or the change is not made.
        let if_match = match &self.if_match {
            Some(set) => matches(set),
            None => true,
        };
        let if_none_match = match &self.if_none_match {
            Some(set) => !matches(set),
            None => true,
        };
        if_match && if_none_match
    }
}

/// The result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The etag of the resource after the change.
    pub etag: Etag,
    /// True if the content, the description or the existence of the resource changed.
    pub changed: bool,
    /// True if the resource did not exist before.
    pub created: bool,
    /// The number of subscribers notified, including those that had an older notice of this URI pending.
    pub notified: usize,
}

/// A change to the tools, the prompts or the templates.
#[derive(Debug, Clone)]
pub(crate) enum ListChange {
    /// Adds a tool, or replaces the one with its name.
    PutTool(Arc<Tool>),
    /// Replaces all tools.
    ReplaceTools(Vec<Arc<Tool>>),
    /// Removes the tool with this name.
    RemoveTool(String),
    /// Removes some tools, then adds others, as one change that is applied completely or not at all.
    ChangeTools {
        puts: Vec<Arc<Tool>>,
        removes: Vec<String>,
    },
    /// Adds a prompt, or replaces the one with its name.
    PutPrompt(Arc<Prompt>),
    /// Replaces all prompts.
    ReplacePrompts(Vec<Arc<Prompt>>),
    /// Removes the prompt with this name.
    RemovePrompt(String),
    /// Removes some prompts, then adds others, as one change that is applied completely or not at all.
    ChangePrompts {
        puts: Vec<Arc<Prompt>>,
        removes: Vec<String>,
    },
    /// Adds a template, or replaces the one with its text, with the members that it lists now; none without
    /// a lister.
    PutTemplate(Arc<ResourceTemplate>, Option<MemberList>),
    /// Removes the template with this text.
    RemoveTemplate(String),
    /// Sets the digest of the items of this kind that another server of the process lists; `None` if it
    /// lists none.
    Foreign(ListKind, Option<Digest>),
    /// Sets the members that the template with this text lists.
    Listed(String, MemberList),
}

/// The result of one run of a lister, as far as it counts in a list hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberList {
    pub(crate) digest: Digest,
    /// The members with the digests of their list items, for audiences that see some of them.
    pub(crate) members: Arc<[(ResourceUri, Digest)]>,
    /// The number of the run, in the order in which the runs began.
    pub(crate) run: u64,
}

impl ListChange {
    /// The list to change.
    pub(crate) fn kind(&self) -> ListKind {
        match self {
            ListChange::PutTool(_)
            | ListChange::ReplaceTools(_)
            | ListChange::RemoveTool(_)
            | ListChange::ChangeTools { .. } => ListKind::Tools,
            ListChange::PutPrompt(_)
            | ListChange::ReplacePrompts(_)
            | ListChange::RemovePrompt(_)
            | ListChange::ChangePrompts { .. } => ListKind::Prompts,
            ListChange::PutTemplate(..) | ListChange::RemoveTemplate(_) | ListChange::Listed(..) => {
                ListKind::Resources
            }
            ListChange::Foreign(kind, _) => *kind,
        }
    }

    /// Returns true if this change may replace a tool.
    pub(crate) fn is_of_tools(&self) -> bool {
        self.kind() == ListKind::Tools && !matches!(self, ListChange::Foreign(..))
    }
}

/// The result of a change to a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOutcome {
    /// True if the list has another hash than before.
    pub changed: bool,
    /// The number of subscribers notified, now or as soon as their outbox is read.
    pub notified: usize,
}
