//! What the folder and `register` offer beside files, on the bus.
//!
//! Owns: the tools, prompts and resources that this source registered, and nothing else of these lists: what others
//! registered is neither replaced nor removed. All that changes in a list at a time is one change of the bus.
//! Receives what was found from the task; sends to the bus.

use super::definitions::Definitions;
use super::problems::{Finder, Found, Problems};
use super::prompts::PromptSpec;
use super::register::{Document, Outcome};
use super::runner::Runner;
use super::tools::ToolSpec;
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidings_actors::{Bus, Closed, ListOutcome, PublishError, Resource, ResourceUri};

/// Changes sent to the bus at once.
const PORTION: usize = 64;

type Items<T> = BTreeMap<String, Arc<T>>;

/// What is offered.
pub(super) struct Registrations {
    bus: Bus,
    runner: Arc<Runner>,
    /// From the folder.
    found_definitions: Definitions,
    /// From `register`, when it last succeeded.
    printed: Arc<Document>,
    /// Whether `register` was missing at its last run.
    absent: bool,
    tools: Items<ToolSpec>,
    prompts: Items<PromptSpec>,
    resources: BTreeSet<ResourceUri>,
    problems: Problems,
}

impl Registrations {
    /// Nothing is offered yet.
    pub(super) fn new(bus: Bus, runner: Arc<Runner>) -> Registrations {
        Registrations {
            bus,
            runner,
            found_definitions: Definitions::default(),
            printed: Arc::default(),
            absent: false,
            tools: BTreeMap::new(),
            prompts: BTreeMap::new(),
            resources: BTreeSet::new(),
            problems: Problems::default(),
        }
    }

    /// The folder registrations this now.
    pub(super) async fn replace_definitions(
        &mut self,
        mut found_definitions: Definitions,
    ) -> Result<(), Closed> {
        self.problems.settle(
            Finder::DefinitionFolders,
            std::mem::take(&mut found_definitions.problems),
        );
        self.found_definitions = found_definitions;
        self.change_lists().await
    }

    /// `register` was run. `is_file` tells which resources are the files' own.
    pub(super) async fn registered(
        &mut self,
        outcome: Outcome,
        is_file: impl Fn(&ResourceUri) -> bool,
    ) -> Result<(), Closed> {
        let mut found = Found::new();
        let was_absent = std::mem::replace(&mut self.absent, matches!(outcome, Outcome::Absent));
        match outcome {
            Outcome::Printed(document) => self.printed = document,
            // Once may be somebody exchanging the file.
            Outcome::Absent if was_absent => self.printed = Arc::default(),
            Outcome::Absent => {}
            Outcome::Failed(problem) => drop(found.insert("register".to_owned(), problem)),
        }
        found.extend(self.printed.odd.clone());
        self.problems.settle(Finder::Register, found);
        self.change_lists().await?;
        self.change_resources(is_file).await
    }

    async fn change_lists(&mut self) -> Result<(), Closed> {
        self.change_tools().await?;
        self.change_prompts().await
    }

    async fn change_tools(&mut self) -> Result<(), Closed> {
        let mut found = Found::new();
        let mut wanted = merge(
            "tool",
            &self.printed.tools,
            &self.found_definitions.tools,
            &mut found,
        );
        for name in new_names(&self.tools, &wanted) {
            if self.bus.tool(&name).await?.is_some() {
                wanted.remove(&name);
                found.insert(format!("tool {name}"), taken());
            }
        }
        let (puts, removes) = difference(&self.tools, &wanted);
        if !puts.is_empty() || !removes.is_empty() {
            let puts = puts.iter().map(|spec| self.runner.tool(spec)).collect();
            let outcome = self.bus.change_tools(puts, removes).await;
            if accept(outcome, "tools", &mut found)? {
                self.tools = wanted;
            }
        }
        self.problems.settle(Finder::Tools, found);
        Ok(())
    }

    async fn change_prompts(&mut self) -> Result<(), Closed> {
        let mut found = Found::new();
        let mut wanted = merge(
            "prompt",
            &self.printed.prompts,
            &self.found_definitions.prompts,
            &mut found,
        );
        for name in new_names(&self.prompts, &wanted) {
            if self.bus.prompt(&name).await?.is_some() {
                wanted.remove(&name);
                found.insert(format!("prompt {name}"), taken());
            }
        }
        let (puts, removes) = difference(&self.prompts, &wanted);
        if !puts.is_empty() || !removes.is_empty() {
            let puts = puts.iter().map(PromptSpec::prompt).collect();
            let outcome = self.bus.change_prompts(puts, removes).await;
            if accept(outcome, "prompts", &mut found)? {
                self.prompts = wanted;
            }
        }
        self.problems.settle(Finder::Prompts, found);
        Ok(())
    }

    async fn change_resources(&mut self, is_file: impl Fn(&ResourceUri) -> bool) -> Result<(), Closed> {
        let mut found = Found::new();
        let printed = self.printed.clone();
        let (clashing, wanted): (Vec<_>, Vec<_>) =
            printed.resources.iter().partition(|(uri, _)| is_file(uri));
        for (uri, _) in clashing {
            found.insert(
                format!("resource {uri}"),
                "register prints what is a file: the file is served".to_owned(),
            );
        }
        let gone: Vec<_> = self
            .resources
            .iter()
            .filter(|uri| !printed.resources.contains_key(*uri) && !is_file(uri))
            .cloned()
            .collect();
        let held = std::mem::take(&mut self.resources);
        self.remove(&gone).await?;
        self.put(&wanted, &held, &mut found).await?;
        self.problems.settle(Finder::Resources, found);
        Ok(())
    }

    /// Hands all of them to the bus, which knows those that are the same.
    async fn put(
        &mut self,
        wanted: &[(&ResourceUri, &Resource)],
        held: &BTreeSet<ResourceUri>,
        found: &mut Found,
    ) -> Result<(), Closed> {
        for portion in wanted.chunks(PORTION) {
            let upserts = portion
                .iter()
                .map(|(_, resource)| self.bus.upsert((*resource).clone()));
            for ((uri, _), outcome) in portion.iter().zip(join_all(upserts).await) {
                match outcome {
                    Ok(_) => drop(self.resources.insert((*uri).clone())),
                    Err(PublishError::Closed(closed)) => return Err(closed),
                    Err(error) => {
                        found.insert(format!("resource {uri}"), error.to_string());
                        // What it was before is still there.
                        self.resources.extend(held.get(*uri).cloned());
                    }
                }
            }
        }
        Ok(())
    }

    async fn remove(&self, gone: &[ResourceUri]) -> Result<(), Closed> {
        for portion in gone.chunks(PORTION) {
            for outcome in join_all(portion.iter().map(|uri| self.bus.remove(uri))).await {
                match outcome {
                    Err(PublishError::Closed(closed)) => return Err(closed),
                    // Somebody else removed it: it is gone, which is what was wanted.
                    Err(error) => tracing::debug!(%error, "could not remove what register no longer prints"),
                    Ok(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Tools, prompts and resources registered now.
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.tools.len(), self.prompts.len(), self.resources.len()]
    }

    /// What is wrong.
    pub(super) fn problems(&self) -> &Problems {
        &self.problems
    }
}

/// What `register` printed, and over it what the folder has.
fn merge<T>(kind: &str, printed: &Items<T>, found_definitions: &Items<T>, found: &mut Found) -> Items<T> {
    for name in printed
        .keys()
        .filter(|name| found_definitions.contains_key(*name))
    {
        let problem = "both register and the folder have it: the folder's is served".to_owned();
        found.insert(format!("{kind} {name}"), problem);
    }
    let mut wanted = printed.clone();
    wanted.extend(
        found_definitions
            .iter()
            .map(|(name, item)| (name.clone(), item.clone())),
    );
    wanted
}

fn new_names<T>(held: &Items<T>, wanted: &Items<T>) -> Vec<String> {
    wanted
        .keys()
        .filter(|name| !held.contains_key(*name))
        .cloned()
        .collect()
}

fn taken() -> String {
    "the server has another one of this name: rename it".to_owned()
}

/// What to put and what to remove to come from `held` to `wanted`.
fn difference<T: PartialEq>(held: &Items<T>, wanted: &Items<T>) -> (Vec<Arc<T>>, Vec<String>) {
    let puts = wanted
        .iter()
        .filter(|(name, item)| held.get(*name) != Some(*item))
        .map(|(_, item)| item.clone());
    let removes = held.keys().filter(|name| !wanted.contains_key(*name)).cloned();
    (puts.collect(), removes.collect())
}

/// Whether a list was changed; a refusal is a problem.
fn accept(outcome: Result<ListOutcome, PublishError>, list: &str, found: &mut Found) -> Result<bool, Closed> {
    match outcome {
        Ok(_) => Ok(true),
        Err(PublishError::Closed(closed)) => Err(closed),
        Err(error) => {
            found.insert(list.to_owned(), error.to_string());
            Ok(false)
        }
    }
}
