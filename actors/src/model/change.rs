//! What publishers say, and what they are answered.
//!
//! Owns: [`Change`], [`Condition`], [`Outcome`] and their twins for lists. Never: decides whether a change is one
//! (the catalog does).

use std::sync::Arc;

use super::etag::Etag;
use super::prompt::Prompt;
use super::resource::Resource;
use super::template::ResourceTemplate;
use super::tool::Tool;
use super::uri::ResourceUri;

/// Something a publisher says about a resource.
#[derive(Debug, Clone)]
pub enum Change {
    /// It exists from now on; fails when it does already.
    Register(Resource),
    /// It is now this; fails when it does not exist.
    Update(Resource),
    /// It is now this, whether or not it existed.
    Upsert(Resource),
    /// It changed, though the bus cannot see how: its reader would answer something else, or the publisher says so.
    /// The one change that is believed rather than decided by digest.
    Touch(ResourceUri),
    /// It is gone.
    Remove(ResourceUri),
}

impl Change {
    /// The resource it speaks of.
    pub fn uri(&self) -> &ResourceUri {
        match self {
            Change::Register(resource) | Change::Update(resource) | Change::Upsert(resource) => {
                resource.uri()
            }
            Change::Touch(uri) | Change::Remove(uri) => uri,
        }
    }
}

/// What must hold for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// The resource is at this revision, as a [`Snapshot`](crate::Snapshot) told it.
    Generation(u64),
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The etag the resource has now.
    pub etag: Etag,
    /// Whether anything changed: the content, the description, or that it exists at all.
    pub changed: bool,
    /// Whether it did not exist before.
    pub created: bool,
    /// How many subscribers to this URI were told; those who had an older notice pending included.
    pub notified: usize,
}

/// Something a publisher says about a list other than that of resources.
#[derive(Debug, Clone)]
pub(crate) enum ListChange {
    /// This tool exists from now on, in place of one of the same name.
    PutTool(Arc<Tool>),
    /// These are all the tools.
    ReplaceTools(Vec<Arc<Tool>>),
    /// There is no such tool any more.
    RemoveTool(String),
    /// These tools are gone, and then those exist: one change, made as a whole or not at all.
    ChangeTools {
        puts: Vec<Arc<Tool>>,
        removes: Vec<String>,
    },
    /// This prompt exists from now on, in place of one of the same name.
    PutPrompt(Arc<Prompt>),
    /// These are all the prompts.
    ReplacePrompts(Vec<Arc<Prompt>>),
    /// There is no such prompt any more.
    RemovePrompt(String),
    /// These prompts are gone, and then those exist: one change, made as a whole or not at all.
    ChangePrompts {
        puts: Vec<Arc<Prompt>>,
        removes: Vec<String>,
    },
    /// This template exists from now on, in place of the same one; its members listed now have this digest.
    PutTemplate(Arc<ResourceTemplate>, Option<crate::model::digest::Digest>),
    /// There is no such template any more.
    RemoveTemplate(String),
    /// What somebody else lists of this kind has this digest now; none: nothing.
    Foreign(crate::model::list::ListKind, Option<crate::model::digest::Digest>),
    /// The members that this template lists now have this digest.
    Listed(String, crate::model::digest::Digest),
}

impl ListChange {
    /// Whether it is about what tools there are.
    pub(crate) fn is_of_tools(&self) -> bool {
        matches!(
            self,
            ListChange::PutTool(_)
                | ListChange::ReplaceTools(_)
                | ListChange::RemoveTool(_)
                | ListChange::ChangeTools { .. }
        )
    }
}

/// What became of a change to a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOutcome {
    /// Whether the list is another one now.
    pub changed: bool,
    /// How many subscribers were told, or will be when they next can be.
    pub notified: usize,
}
