//! The folders `prompts` and `tools`: what is written there, read and paired.
//!
//! Owns: what was last read of each file, the last good reading included, so that a half-written file takes nothing
//! away. Never publishes and never runs anything; works on blocking threads, called by the scanner. Both folders are
//! flat: what is below their folders is nobody's prompt or tool.

use super::file_index::{FileIndex, KnownFile, Scope, SeenFile, Trust};
use super::folder::Folder;
use super::path::FilePath;
use super::problems::Found;
use super::program::{self, Unfit};
use super::prompts::{self, PromptSpec};
use super::read::Reading;
use super::skip::SkipReason;
use super::tools::{Sidecar, ToolSpec, invalid_name, is_name};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// What the folders offer now.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    pub(super) prompts: BTreeMap<String, Arc<PromptSpec>>,
    pub(super) tools: BTreeMap<String, Arc<ToolSpec>>,
    pub(super) problems: Found,
    /// Whether something was missing or being written, so that another look is due.
    pub(super) doubt: bool,
}

/// The two folders.
pub(super) struct DefinitionFolders {
    pub(super) prompts: DefinitionFolder<Arc<PromptSpec>>,
    pub(super) tools: DefinitionFolder<Arc<Sidecar>>,
}

/// A file that is no sidecar, and whether it may be run.
type Candidate<'a> = (&'a FilePath, Result<(), Unfit>);

/// What was read of a file: the last good reading, and what is wrong or odd now.
struct DefinitionFile<T> {
    good: Option<T>,
    problem: Option<String>,
}

/// One folder of files: files of one extension that can be read, others beside them.
pub(super) struct DefinitionFolder<T> {
    /// Where to look, whatever the size of the files.
    pub(super) folder: Folder,
    /// Largest file in bytes.
    bytes_max: u64,
    /// What the names of files end with.
    ending: &'static str,
    file_index: FileIndex,
    files: BTreeMap<FilePath, DefinitionFile<T>>,
}

impl DefinitionFolders {
    /// The folders beside the resources in `folder`.
    pub(super) fn new(folder: &Folder) -> DefinitionFolders {
        DefinitionFolders {
            prompts: DefinitionFolder::new(folder, "prompts", ".md"),
            tools: DefinitionFolder::new(folder, "tools", ".json"),
        }
    }

    /// Looks at both folders.
    pub(super) fn look(&mut self, trust: Trust) -> Definitions {
        let mut found_definitions = Definitions::default();
        let read =
            |name: &str, text: &str| prompts::parse(name, text).map(|(prompt, odd)| (Arc::new(prompt), odd));
        self.prompts.look(trust, &mut found_definitions, read);
        let read = |_: &str, text: &str| Sidecar::parse(text).map(|sidecar| (Arc::new(sidecar), None));
        self.tools.look(trust, &mut found_definitions, read);
        for (path, file) in &self.prompts.files {
            if let Some(prompt) = &file.good {
                found_definitions
                    .prompts
                    .insert(self.prompts.stem(path).to_owned(), prompt.clone());
            }
        }
        self.pair(&mut found_definitions);
        found_definitions
    }

    /// Finds the executable of each sidecar.
    fn pair(&self, found_definitions: &mut Definitions) {
        let mut programs: BTreeMap<&str, Vec<Candidate<'_>>> = BTreeMap::new();
        let home = &self.tools.folder.root;
        for path in self
            .tools
            .file_index
            .paths()
            .filter(|path| !self.tools.is_paper(path))
        {
            let verdict = program::check(home, &path.at(home));
            let stem = Path::new(path.name()).file_stem().and_then(|stem| stem.to_str());
            let names = BTreeSet::from([path.name(), stem.unwrap_or(path.name())]);
            for name in names {
                programs.entry(name).or_default().push((path, verdict));
            }
        }
        for (path, file) in &self.tools.files {
            let Some(sidecar) = &file.good else { continue };
            let name = self.tools.stem(path);
            match choose(programs.get(name).map_or(&[], Vec::as_slice)) {
                Ok(program) => {
                    let spec = ToolSpec {
                        name: name.to_owned(),
                        sidecar: Sidecar::clone(sidecar),
                        program: program.at(home),
                        arguments: Vec::new(),
                        home: Some(home.clone()),
                        written: self.tools.label(path),
                    };
                    found_definitions.tools.insert(name.to_owned(), Arc::new(spec));
                }
                Err(problem) => drop(found_definitions.problems.insert(self.tools.label(path), problem)),
            }
        }
        let with_sidecar: BTreeSet<&str> = self
            .tools
            .files
            .keys()
            .map(|path| self.tools.stem(path))
            .collect();
        let awaited: BTreeSet<_> = with_sidecar
            .iter()
            .filter_map(|name| programs.get(name))
            .flatten()
            .map(|(path, _)| *path)
            .collect();
        for (path, verdict) in programs.into_values().flatten() {
            // What cannot be run is a file that the tools use.
            if verdict.is_ok() && !awaited.contains(path) {
                let problem = "an executable without a sidecar: add NAME.json beside it".to_owned();
                found_definitions.problems.insert(self.tools.label(path), problem);
            }
        }
    }
}

/// The one program to run among those whose name fits.
fn choose<'a>(candidates: &[Candidate<'a>]) -> Result<&'a FilePath, String> {
    let fit: Vec<_> = candidates.iter().filter(|(_, verdict)| verdict.is_ok()).collect();
    match (fit.as_slice(), candidates) {
        ([(program, _)], _) => Ok(program),
        ([(first, _), (second, _), ..], _) => Err(format!(
            "both {} and {} could be its executable: rename one",
            first.name(),
            second.name()
        )),
        ([], [(path, Err(unfit)), ..]) => Err(format!("its executable {} {unfit}", path.name())),
        ([], _) => Err("no executable of its name is beside it".to_owned()),
    }
}

impl<T> DefinitionFolder<T> {
    fn new(folder: &Folder, name: &str, ending: &'static str) -> DefinitionFolder<T> {
        let bytes_max = folder.file_bytes_max;
        let folder = Folder {
            root: folder.base.join(name),
            hidden: false,
            flat: true,
            file_bytes_max: u64::MAX,
            ..folder.clone()
        };
        DefinitionFolder {
            folder,
            bytes_max,
            ending,
            file_index: FileIndex::default(),
            files: BTreeMap::new(),
        }
    }

    fn is_paper(&self, path: &FilePath) -> bool {
        path.as_str().ends_with(self.ending)
    }

    fn stem<'a>(&self, path: &'a FilePath) -> &'a str {
        path.as_str().strip_suffix(self.ending).unwrap_or(path.as_str())
    }

    /// The path below the served folder, for messages.
    fn label(&self, path: &FilePath) -> String {
        let name = self.folder.root.file_name().unwrap_or_default().to_string_lossy();
        if path.is_root() {
            name.into_owned()
        } else {
            format!("{name}/{}", path.as_str())
        }
    }

    /// Looks at the folder and reads the files that may be others.
    fn look(
        &mut self,
        trust: Trust,
        found_definitions: &mut Definitions,
        read: impl Fn(&str, &str) -> Result<(T, Option<String>), String>,
    ) {
        let look = self.folder.look(Scope::All, &self.file_index);
        let plan = self.file_index.plan(&look.survey, trust);
        for path in &plan.remove {
            self.file_index.forget(path);
            self.files.remove(path);
        }
        found_definitions.doubt |= !plan.doubt.is_empty();
        for (path, seen) in plan.read {
            if self.is_paper(&path) {
                found_definitions.doubt |= self.take_in(path, seen, &read);
            } else {
                self.keep(path, seen, true);
            }
        }
        for (path, reason) in &look.survey.skipped {
            found_definitions
                .problems
                .insert(self.label(path), reason.to_string());
        }
        for path in &look.not_utf8 {
            let name = self
                .folder
                .root
                .file_name()
                .map(Path::new)
                .unwrap_or(Path::new(""));
            found_definitions.problems.insert(
                name.join(path).display().to_string(),
                SkipReason::NotUtf8.to_string(),
            );
        }
        if let Some((_, first)) = &look.beyond {
            let problem = "more files than workspace.files_max".to_owned();
            found_definitions.problems.insert(self.label(first), problem);
        }
        for (path, file) in &self.files {
            if let Some(problem) = &file.problem {
                found_definitions
                    .problems
                    .insert(self.label(path), problem.clone());
            }
        }
    }

    /// Reads a file; answers whether it must be looked at again soon.
    fn take_in(
        &mut self,
        path: FilePath,
        seen: SeenFile,
        read: &impl Fn(&str, &str) -> Result<(T, Option<String>), String>,
    ) -> bool {
        let name = self.stem(&path).to_owned();
        let mut file = self.files.remove(&path).unwrap_or(DefinitionFile {
            good: None,
            problem: None,
        });
        let mut again = false;
        let (mut settled, mut identity) = (false, seen.identity);
        match self.open(&path) {
            _ if !is_name(&name) => (file.problem, settled) = (Some(invalid_name(&name)), true),
            Reading::File(contents) => {
                (settled, identity) = (contents.settled, contents.identity);
                let text = contents
                    .body
                    .as_text()
                    .ok_or("it is not text in UTF-8".to_owned());
                match text.and_then(|text| read(&name, text)) {
                    Ok((good, odd)) => (file.good, file.problem) = (Some(good), odd),
                    // Half of a write, perhaps: what was good stays.
                    Err(problem) => file.problem = Some(problem),
                }
            }
            Reading::Skipped(reason) => (file.good, file.problem) = (None, Some(reason.to_string())),
            Reading::Failed(error) => file.problem = Some(format!("{}: {error}", SkipReason::Unreadable)),
            Reading::Gone | Reading::Unsettled => again = true,
        }
        self.keep(path.clone(), SeenFile { identity, ..seen }, settled);
        self.files.insert(path, file);
        again
    }

    fn open(&self, path: &FilePath) -> Reading {
        let folder = Folder {
            file_bytes_max: self.bytes_max,
            ..self.folder.clone()
        };
        match folder.place() {
            super::folder::Place::Here(real_root) => folder.read(&real_root, path),
            _ => Reading::Gone,
        }
    }

    fn keep(&mut self, path: FilePath, seen: SeenFile, settled: bool) {
        let known = KnownFile {
            identity: seen.identity,
            settled,
            served: true,
            target: seen.target,
        };
        self.file_index.keep(path, known);
    }
}
