//! The lists of a server as it answered them last, without its etags.
//!
//! They find the tool or prompt that a client names, they are compared by the watcher, and they stand in for
//! the lists of a server that is down.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use serde_json::json;
use tidings_actors::Digest;

use super::prefix::Prefix;
use crate::config::ToolPinning;
use crate::printable;

/// Tools whose first description and schema are remembered. Later ones are not compared.
const PINNED_MAX: usize = 10_000;

/// The lists of one server.
pub(super) struct KnownLists {
    prefix: Prefix,
    /// The time for which lists outlive their connection.
    stale_after: Duration,
    pinning: ToolPinning,
    held: Mutex<HeldLists>,
    changes: AtomicU64,
}

#[derive(Default)]
struct HeldLists {
    resources: Option<Arc<[Resource]>>,
    templates: Option<Arc<[ResourceTemplate]>>,
    tools: Option<Arc<[Tool]>>,
    prompts: Option<Arc<[Prompt]>>,
    /// The places of the tools, by the names that clients see.
    tool_places: HashMap<String, usize>,
    /// The server's names of the prompts, by the names that clients see.
    prompt_names: HashMap<String, String>,
    /// The digests of the tools as they were seen first, by the server's names.
    pinned: HashMap<String, Digest>,
    /// The tools that are neither listed nor called, by the server's names.
    blocked: HashSet<String>,
    /// The end of the last connection; none while there is one.
    lost: Option<Instant>,
}

/// Makes the methods that keep a list, and that return it.
macro_rules! kept_list {
    ($($items:ident: $item:ty;)+) => {
        $(
            /// Returns the list as it was answered last: empty once the server has been down for long, and
            /// none if it never answered it.
            pub(super) fn $items(&self) -> Option<Arc<[$item]>> {
                let held = self.held();
                let items = held.$items.as_ref()?;
                match held.lost {
                    Some(lost) if lost.elapsed() >= self.stale_after => Some(Arc::default()),
                    _ => Some(items.clone()),
                }
            }
        )+
    };
}

impl KnownLists {
    pub(super) fn new(prefix: Prefix, stale_after: Duration, pinning: ToolPinning) -> KnownLists {
        KnownLists {
            prefix,
            stale_after,
            pinning,
            held: Mutex::default(),
            changes: AtomicU64::new(0),
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldLists> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    kept_list! {
        resources: Resource;
        templates: ResourceTemplate;
        tools: Tool;
        prompts: Prompt;
    }

    pub(super) fn note_resources(&self, resources: &[Resource]) {
        let before = self.held().resources.replace(resources.into());
        self.compare(before.as_deref(), resources);
    }

    pub(super) fn note_templates(&self, templates: &[ResourceTemplate]) {
        let before = self.held().templates.replace(templates.into());
        self.compare(before.as_deref(), templates);
    }

    pub(super) fn note_prompts(&self, prompts: &[Prompt]) {
        // Made without the lock: calls of clients look names up meanwhile.
        let names = prompts.iter().map(|prompt| {
            let own = prompt.name.clone();
            (self.prefix.item(&own).into_owned(), own)
        });
        let names = names.collect();
        let mut held = self.held();
        held.prompt_names = names;
        let before = held.prompts.replace(prompts.into());
        drop(held);
        self.compare(before.as_deref(), prompts);
    }

    /// Takes note of the tools, of which the blocked ones leave the list.
    pub(super) fn note_tools(&self, tools: &mut Vec<Tool>) {
        // Under one lock, so that no call finds a tool that is about to be blocked.
        let mut held = self.held();
        // The usual case: everything that follows from the list is known.
        if matches!(&held.tools, Some(known) if **known == **tools) {
            return;
        }
        if self.pinning != ToolPinning::Off {
            held.pin(tools, self.pinning);
            tools.retain(|tool| !held.blocked.contains(&*tool.name));
        }
        let places = tools.iter().enumerate();
        let places = places.map(|(place, tool)| (self.prefix.item(&tool.name).into_owned(), place));
        held.tool_places = places.collect();
        let before = held.tools.replace(tools.as_slice().into());
        drop(held);
        self.compare(before.as_deref(), tools);
    }

    /// Counts a list that is not what it was before. The first one is no change.
    fn compare<T: PartialEq>(&self, before: Option<&[T]>, now: &[T]) {
        if matches!(before, Some(before) if before != now) {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of times that a list was not what it was before.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the tool that clients see under a name, as the server has it.
    pub(super) fn tool(&self, shown: &str) -> Option<Tool> {
        let held = self.held();
        let place = *held.tool_places.get(shown)?;
        held.tools.as_ref()?.get(place).cloned()
    }

    /// Returns the server's name of the tool that clients see under a name.
    pub(super) fn tool_name(&self, shown: &str) -> Option<String> {
        let held = self.held();
        let place = *held.tool_places.get(shown)?;
        let tool = held.tools.as_ref()?.get(place)?;
        Some(tool.name.to_string())
    }

    /// Returns true if a tool is neither listed nor called.
    pub(super) fn is_blocked(&self, own: &str) -> bool {
        self.held().blocked.contains(own)
    }

    /// Returns the server's name of the prompt that clients see under a name.
    pub(super) fn prompt_name(&self, shown: &str) -> Option<String> {
        self.held().prompt_names.get(shown).cloned()
    }

    /// Returns the names that clients see: those of the tools, and those of the prompts.
    pub(super) fn shown_names(&self) -> [Vec<String>; 2] {
        let held = self.held();
        [
            held.tool_places.keys().cloned().collect(),
            held.prompt_names.keys().cloned().collect(),
        ]
    }

    /// Takes note of the end of the connection.
    pub(super) fn lost(&self) {
        // The first time counts: attempts that fail later make no list younger.
        self.held().lost.get_or_insert_with(Instant::now);
    }

    /// Takes note of a connection.
    pub(super) fn connected(&self) {
        self.held().lost = None;
    }
}

impl HeldLists {
    /// Compares tools with what they were when they were seen first.
    fn pin(&mut self, tools: &[Tool], pinning: ToolPinning) {
        for tool in tools {
            let digest = Digest::of_json(&json!([tool.description, tool.input_schema, tool.output_schema]));
            let is_full = self.pinned.len() >= PINNED_MAX;
            let Some(first) = self.pinned.get_mut(&*tool.name) else {
                if !is_full {
                    self.pinned.insert(tool.name.to_string(), digest);
                }
                continue;
            };
            if *first == digest {
                continue;
            }
            let name = printable::line(&tool.name);
            match pinning {
                ToolPinning::Block if self.blocked.insert(tool.name.to_string()) => {
                    tracing::warn!(tool = %name, "a tool of the server changed after it was first seen, and is blocked");
                }
                ToolPinning::Block => {}
                _ => {
                    tracing::warn!(tool = %name, "the description or schema of a tool of the server has changed");
                    // Said once for each change.
                    *first = digest;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::JsonObject;

    use super::*;

    fn lists(pinning: ToolPinning, stale_after: Duration) -> KnownLists {
        KnownLists::new(Prefix::new(Some("a".to_owned())), stale_after, pinning)
    }

    fn tool(name: &'static str, about: &'static str) -> Tool {
        Tool::new(name, about, JsonObject::new())
    }

    #[test]
    fn items_are_found_by_the_names_of_clients() {
        let lists = lists(ToolPinning::Off, Duration::MAX);
        assert!(lists.tools().is_none());
        lists.note_tools(&mut vec![tool("b", ""), tool("c", "")]);
        assert_eq!(lists.tool("a__c").unwrap().name, "c");
        assert!(lists.tool("c").is_none());
        lists.note_prompts(&[Prompt::new("d", None::<String>, None)]);
        assert_eq!(lists.prompt_name("a__d").as_deref(), Some("d"));
    }

    #[test]
    fn lists_outlive_their_connection_for_a_while() {
        for (stale_after, expected) in [(Duration::MAX, 1), (Duration::ZERO, 0)] {
            let lists = lists(ToolPinning::Off, stale_after);
            lists.note_tools(&mut vec![tool("b", "")]);
            lists.lost();
            assert_eq!(lists.tools().unwrap().len(), expected);
            lists.connected();
            assert_eq!(lists.tools().unwrap().len(), 1);
        }
    }

    #[test]
    fn changed_tool_is_blocked_if_pinned() {
        for (pinning, expected) in [(ToolPinning::Block, 1), (ToolPinning::Warn, 2)] {
            let lists = lists(pinning, Duration::MAX);
            lists.note_tools(&mut vec![tool("b", "one"), tool("c", "one")]);
            let mut tools = vec![tool("b", "two"), tool("c", "one")];
            lists.note_tools(&mut tools);
            assert_eq!(tools.len(), expected);
            assert_eq!(lists.is_blocked("b"), pinning == ToolPinning::Block);
        }
    }
}
