//! The tools, prompts and resources that the folder and `register` add to the bus.
//!
//! Only these are replaced and removed, never items of others. All changes of a list at one time are one
//! change of the bus, so that clients are notified once.

use super::definitions::Definitions;
use super::problems::{OpenProblems, ProblemMap, ProblemOrigin};
use super::prompts::PromptSpec;
use super::register::RegisterOutcome;
use super::register_document::RegisterDocument;
use super::runner::Runner;
use super::tools::ToolSpec;
use crate::source::{SourceBurst, SourceTurn};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidings_actors::{Bus, Closed, ListOutcome, PublishError, ResourceUri};

/// The items of a list by name.
type ItemMap<T> = BTreeMap<String, Arc<T>>;

/// The registrations.
pub(super) struct Registrations {
    bus: Bus,
    runner: Arc<Runner>,
    /// The definitions in the folder.
    definitions: Definitions,
    /// The last document that `register` printed.
    printed: Arc<RegisterDocument>,
    /// True if `register` was missing at its last run.
    was_absent: bool,
    tools: ItemMap<ToolSpec>,
    prompts: ItemMap<PromptSpec>,
    resources: BTreeSet<ResourceUri>,
    problems: OpenProblems,
    /// True once `register` has run without failing.
    told_all: bool,
    turn: SourceTurn,
    /// The resources that were to be removed while it was another node's turn.
    withheld: BTreeSet<ResourceUri>,
}

impl Registrations {
    /// Returns empty registrations. `runner` runs the tools.
    pub(super) fn new(bus: Bus, runner: Runner, turn: SourceTurn) -> Registrations {
        Registrations {
            bus,
            runner: Arc::new(runner),
            definitions: Definitions::default(),
            printed: Arc::default(),
            was_absent: false,
            tools: BTreeMap::new(),
            prompts: BTreeMap::new(),
            resources: BTreeSet::new(),
            problems: OpenProblems::default(),
            told_all: false,
            turn,
            withheld: BTreeSet::new(),
        }
    }

    /// Replaces the definitions of the folder.
    pub(super) async fn replace_definitions(&mut self, mut definitions: Definitions) -> Result<(), Closed> {
        // They are kept by origin, so that they end with the next scan.
        let problems = std::mem::take(&mut definitions.problems);
        self.problems.replace(ProblemOrigin::Definitions, problems);
        self.definitions = definitions;
        self.change_lists().await
    }

    /// Applies the outcome of a run of `register`. `is_file` says which resources are files, which take
    /// precedence.
    pub(super) async fn apply_register(
        &mut self,
        outcome: RegisterOutcome,
        is_file: impl Fn(&ResourceUri) -> bool,
    ) -> Result<(), Closed> {
        let was_absent = self.was_absent;
        let told = !matches!(outcome, RegisterOutcome::Failed(_));
        self.was_absent = matches!(outcome, RegisterOutcome::Absent);
        let mut found = ProblemMap::new();
        match outcome {
            RegisterOutcome::Printed(document) => self.printed = document,
            // Missing once, it may just be being replaced by another version.
            RegisterOutcome::Absent if was_absent => self.printed = Arc::default(),
            RegisterOutcome::Absent => {}
            RegisterOutcome::Failed(problem) => {
                found.insert("register".to_owned(), problem);
            }
        }
        found.extend(self.printed.notes.clone());
        self.problems.replace(ProblemOrigin::Register, found);
        self.change_lists().await?;
        self.change_resources(is_file).await?;
        if told && !self.told_all {
            // What it registered in a former life and does not print any more.
            self.bus.remove_unclaimed().await?;
            self.told_all = true;
        }
        Ok(())
    }

    /// Publishes everything anew at the beginning of a turn.
    pub(super) async fn take_over(&mut self, is_file: impl Fn(&ResourceUri) -> bool) -> Result<(), Closed> {
        self.change_resources(is_file).await
    }

    async fn change_lists(&mut self) -> Result<(), Closed> {
        self.change_tools().await?;
        self.change_prompts().await
    }

    async fn change_tools(&mut self) -> Result<(), Closed> {
        let mut found = ProblemMap::new();
        let mut wanted = merge("tool", &self.printed.tools, &self.definitions.tools, &mut found);
        // Asked for new names only; the others are registered by this source.
        for name in new_names(&self.tools, &wanted) {
            if self.bus.tool(&name).await?.is_some() {
                wanted.remove(&name);
                found.insert(format!("tool {name}"), name_taken());
            }
        }
        let (changed, removed) = difference(&self.tools, &wanted);
        if !changed.is_empty() || !removed.is_empty() {
            let tools = changed.iter().map(|spec| self.runner.tool(spec)).collect();
            let outcome = self.bus.change_tools(tools, removed).await;
            if is_accepted(outcome, "tools", &mut found)? {
                self.tools = wanted;
            }
        }
        self.problems.replace(ProblemOrigin::Tools, found);
        Ok(())
    }

    async fn change_prompts(&mut self) -> Result<(), Closed> {
        let mut found = ProblemMap::new();
        let definitions = &self.definitions.prompts;
        let mut wanted = merge("prompt", &self.printed.prompts, definitions, &mut found);
        for name in new_names(&self.prompts, &wanted) {
            if self.bus.prompt(&name).await?.is_some() {
                wanted.remove(&name);
                found.insert(format!("prompt {name}"), name_taken());
            }
        }
        let (changed, removed) = difference(&self.prompts, &wanted);
        if !changed.is_empty() || !removed.is_empty() {
            let prompts = changed.iter().map(PromptSpec::prompt).collect();
            let outcome = self.bus.change_prompts(prompts, removed).await;
            if is_accepted(outcome, "prompts", &mut found)? {
                self.prompts = wanted;
            }
        }
        self.problems.replace(ProblemOrigin::Prompts, found);
        Ok(())
    }

    async fn change_resources(&mut self, is_file: impl Fn(&ResourceUri) -> bool) -> Result<(), Closed> {
        let mut found = ProblemMap::new();
        let mut wanted = Vec::new();
        // Shared, since the fields beside it change meanwhile.
        let printed = self.printed.clone();
        for (uri, resource) in &printed.resources {
            if is_file(uri) {
                let problem = "register prints what is a file: the file is served".to_owned();
                found.insert(format!("resource {uri}"), problem);
            } else {
                wanted.push((uri, resource));
            }
        }
        let mut removed = Vec::new();
        for uri in &self.resources {
            // One that has become a file belongs to the file from now on.
            if !printed.resources.contains_key(uri) && !is_file(uri) {
                removed.push(uri.clone());
            }
        }
        self.withhold(&mut removed);
        let before = std::mem::take(&mut self.resources);
        let burst = SourceBurst::new(&self.bus, &self.turn);
        burst.remove_all(&removed).await?;
        // All of them, since the bus knows which are unchanged, and others may have changed them.
        let resources = wanted.iter().map(|(_, resource)| (*resource).clone()).collect();
        let outcomes = burst.upsert_all(resources).await?;
        burst.finish().await?;
        for ((uri, _), outcome) in std::iter::zip(wanted, outcomes) {
            if let Err(error) = &outcome {
                found.insert(format!("resource {uri}"), error.to_string());
            }
            // The earlier version of one that is refused now is still on the bus.
            if outcome.is_ok() || before.contains(uri) {
                self.resources.insert(uri.clone());
            }
        }
        self.problems.replace(ProblemOrigin::Resources, found);
        Ok(())
    }

    /// Keeps removals for the next turn of this node, or adds those that were kept.
    fn withhold(&mut self, removed: &mut Vec<ResourceUri>) {
        if !self.turn.is_shared() {
            return;
        }
        // It is not known whether the other node has removed them before it ended.
        self.withheld.extend(removed.iter().cloned());
        let printed = &self.printed.resources;
        self.withheld.retain(|uri| !printed.contains_key(uri));
        if self.turn.is_held() {
            removed.clear();
            removed.extend(std::mem::take(&mut self.withheld));
        }
    }

    /// Returns the number of registered tools.
    pub(super) fn tools(&self) -> usize {
        self.tools.len()
    }

    /// Returns the number of registered prompts.
    pub(super) fn prompts(&self) -> usize {
        self.prompts.len()
    }

    /// Returns the number of registered resources.
    pub(super) fn resources(&self) -> usize {
        self.resources.len()
    }

    /// Returns the open problems.
    pub(super) fn problems(&self) -> &OpenProblems {
        &self.problems
    }
}

/// Merges the items of `register` and of the folder, which takes precedence.
fn merge<T>(
    kind: &str,
    printed: &ItemMap<T>,
    definitions: &ItemMap<T>,
    found: &mut ProblemMap,
) -> ItemMap<T> {
    let mut merged = printed.clone();
    for (name, item) in definitions {
        if merged.insert(name.clone(), item.clone()).is_some() {
            let problem = "both register and the folder have it: the folder's is served".to_owned();
            found.insert(format!("{kind} {name}"), problem);
        }
    }
    merged
}

fn new_names<T>(held: &ItemMap<T>, wanted: &ItemMap<T>) -> Vec<String> {
    let mut names: Vec<_> = wanted.keys().cloned().collect();
    names.retain(|name| !held.contains_key(name));
    names
}

fn name_taken() -> String {
    "the server has another one of this name: rename it".to_owned()
}

/// Returns the items to put and the names to remove, to come from `held` to `wanted`.
fn difference<T: PartialEq>(held: &ItemMap<T>, wanted: &ItemMap<T>) -> (Vec<Arc<T>>, Vec<String>) {
    let mut changed = Vec::new();
    for (name, item) in wanted {
        if held.get(name) != Some(item) {
            changed.push(item.clone());
        }
    }
    (changed, new_names(wanted, held))
}

/// Returns true if a list was changed. A refusal becomes a problem.
fn is_accepted(
    outcome: Result<ListOutcome, PublishError>,
    list: &str,
    found: &mut ProblemMap,
) -> Result<bool, Closed> {
    match outcome {
        Ok(_) => Ok(true),
        Err(PublishError::Closed(closed)) => Err(closed),
        Err(error) => {
            found.insert(list.to_owned(), error.to_string());
            Ok(false)
        }
    }
}
