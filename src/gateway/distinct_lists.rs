//! Tools and prompts that are not those of the watcher: those of one client's connection, or of one set of
//! capabilities.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{Prompt, Tool};
use serde::Serialize;
use serde_json::json;
use tidings_actors::Digest;

use super::known_lists::KnownLists;

/// The lists as their clients were shown them last, or could have been.
pub(super) struct DistinctLists {
    pub(super) known: KnownLists,
    shared_then: Mutex<SharedLists>,
}

/// The lists of the watcher at the time when the others were read.
#[derive(Default)]
struct SharedLists {
    tools: Option<Arc<[Tool]>>,
    prompts: Option<Arc<[Prompt]>>,
}

/// Makes the methods that set a list in relation to that of the watcher.
macro_rules! related_list {
    ($($list:ident, $note_read:ident, $is_told_of:ident: $item:ty;)+) => {
        $(
            /// Takes note that the list was read while that of the watcher was the one in `shared`.
            pub(super) fn $note_read(&self, shared: &KnownLists) {
                self.shared_then().$list = shared.$list();
            }

            /// Returns true if the list has changed since `before`, and not in a way in which that of the
            /// watcher has, too, of which all clients are told.
            pub(super) fn $is_told_of(&self, before: &[$item], shared: &KnownLists) -> bool {
                let now = self.known.$list().unwrap_or_default();
                let shared_now = shared.$list();
                let shared_then = std::mem::replace(&mut self.shared_then().$list, shared_now.clone());
                let shared_change = difference(
                    &shared_then.unwrap_or_default(),
                    &shared_now.unwrap_or_default(),
                );
                !difference(before, &now).is_subset(&shared_change)
            }
        )+
    };
}

impl DistinctLists {
    /// Makes lists of which nothing is known yet.
    pub(super) fn new(known: KnownLists) -> Arc<DistinctLists> {
        Arc::new(DistinctLists {
            known,
            shared_then: Mutex::default(),
        })
    }

    fn shared_then(&self) -> MutexGuard<'_, SharedLists> {
        self.shared_then.lock().unwrap_or_else(PoisonError::into_inner)
    }

    related_list! {
        tools, note_read_tools, has_other_tools: Tool;
        prompts, note_read_prompts, has_other_prompts: Prompt;
    }

    /// Takes the lists that the clients were shown before they had these, unless there are any.
    pub(super) fn begin_with(&self, shown: &KnownLists, shared: &KnownLists) {
        if let (None, Some(tools)) = (self.known.tools(), shown.tools()) {
            self.known.note_tools(&mut tools.to_vec());
            self.note_read_tools(shared);
        }
        if let (None, Some(prompts)) = (self.known.prompts(), shown.prompts()) {
            self.known.note_prompts(&prompts);
            self.note_read_prompts(shared);
        }
    }
}

/// Returns the digests of the items that only one of two lists has.
fn difference<T: Serialize>(before: &[T], now: &[T]) -> HashSet<Digest> {
    digests(before)
        .symmetric_difference(&digests(now))
        .copied()
        .collect()
}

fn digests<T: Serialize>(items: &[T]) -> HashSet<Digest> {
    items.iter().map(|item| Digest::of_json(&json!(item))).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rmcp::model::JsonObject;

    use super::super::prefix::Prefix;
    use super::*;
    use crate::config::ToolPinning;

    fn known(tools: &[&'static str]) -> KnownLists {
        let known = KnownLists::new(Prefix::new(None), Duration::MAX, ToolPinning::Off);
        note(&known, tools);
        known
    }

    fn note(known: &KnownLists, tools: &[&'static str]) {
        let tools = tools.iter().map(|name| Tool::new(*name, "", JsonObject::new()));
        known.note_tools(&mut tools.collect());
    }

    #[test]
    fn change_of_all_lists_is_left_to_the_watcher() {
        // The list of the watcher, the new one, the new one of its own, and whether that is told.
        for (shared, own, is_told) in [
            (["a", "b"].as_slice(), ["b"].as_slice(), false),
            (&["b", "a", "c"], &["b", "c"], false),
            (&["a"], &[], false),
            (&["a", "b"], &["b", "c"], true),
            (&["a", "b"], &[], true),
            (&["a", "b", "c"], &["b", "d"], true),
        ] {
            let all = known(&["a", "b"]);
            let lists = DistinctLists::new(known(&["b"]));
            lists.note_read_tools(&all);
            let before = lists.known.tools().unwrap();
            note(&all, shared);
            note(&lists.known, own);
            assert_eq!(
                lists.has_other_tools(&before, &all),
                is_told,
                "{shared:?} {own:?}"
            );
        }
    }
}
