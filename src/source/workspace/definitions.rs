//! The folders `prompts` and `tools`: reads the definitions there, and finds the executable of each tool.
//!
//! Both folders are flat. The last good reading of each file is kept, so that a half-written file takes
//! nothing away. It runs on blocking threads.

use super::executable::{self, NotRunnable};
use super::fields::{invalid_name, is_name};
use super::file_index::{FileIndex, KnownFile, ScanMode, ScanScope, SeenFile};
use super::file_path::FilePath;
use super::folder::{Folder, Location};
use super::problems::ProblemMap;
use super::prompts::{self, PromptSpec};
use super::read::FileRead;
use super::skip::SkipReason;
use super::tools::{Sidecar, ToolSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The definitions found by a scan.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    pub(super) prompts: BTreeMap<String, Arc<PromptSpec>>,
    pub(super) tools: BTreeMap<String, Arc<ToolSpec>>,
    pub(super) problems: ProblemMap,
    /// True if a file was missing or being written, so that another scan is due.
    pub(super) incomplete: bool,
}

/// The two folders.
pub(super) struct DefinitionFolders {
    prompts: DefinitionFolder<Arc<PromptSpec>>,
    tools: DefinitionFolder<Arc<Sidecar>>,
}

/// A file in `tools` that is not a sidecar, and whether it may be run.
type Candidate<'a> = (&'a FilePath, Result<(), NotRunnable>);

/// A definition, and a note about it that is no reason to refuse it.
type Parsed<T> = Result<(T, Option<String>), String>;

/// The last good reading of a file, and the problem with it now.
struct DefinitionFile<T> {
    good: Option<T>,
    problem: Option<String>,
}

impl<T> Default for DefinitionFile<T> {
    fn default() -> DefinitionFile<T> {
        DefinitionFile {
            good: None,
            problem: None,
        }
    }
}

impl<T> DefinitionFile<T> {
    /// Applies the result of a read. A file that is gone or changing stays as it was.
    fn update(&mut self, read: FileRead, parse: impl Fn(&str) -> Parsed<T>) {
        let parsed = match read {
            FileRead::Contents(contents) => match contents.body.as_text() {
                Some(text) => parse(text),
                None => Err("it is not text in UTF-8".to_owned()),
            },
            FileRead::Skipped(reason) => {
                self.good = None;
                Err(reason.to_string())
            }
            FileRead::Failed(error) => Err(format!("{}: {error}", SkipReason::Unreadable)),
            FileRead::Gone | FileRead::Changing => return,
        };
        match parsed {
            Ok((good, note)) => {
                self.good = Some(good);
                self.problem = note;
            }
            // It may be half of a write, so the last good reading stays.
            Err(problem) => self.problem = Some(problem),
        }
    }
}

/// A folder of definitions, with other files beside them.
struct DefinitionFolder<T> {
    /// The folder, without a limit on the size of files.
    folder: Folder,
    /// Largest definition in bytes.
    bytes_max: u64,
    /// The end of the names of definitions.
    extension: &'static str,
    file_index: FileIndex,
    files: BTreeMap<FilePath, DefinitionFile<T>>,
}

impl DefinitionFolders {
    /// Returns the folders beside `resources`.
    pub(super) fn new(resources: &Folder) -> DefinitionFolders {
        DefinitionFolders {
            prompts: DefinitionFolder::new(resources, "prompts", ".md"),
            tools: DefinitionFolder::new(resources, "tools", ".json"),
        }
    }

    /// Returns the folders on disk.
    pub(super) fn folders(&self) -> [&Folder; 2] {
        [&self.prompts.folder, &self.tools.folder]
    }

    /// Scans both folders and reads the files that changed.
    pub(super) fn scan(&mut self, mode: ScanMode) -> Definitions {
        let mut found = Definitions::default();
        self.prompts.scan(mode, &mut found, |name, text| {
            let (prompt, note) = prompts::parse(name, text)?;
            Ok((Arc::new(prompt), note))
        });
        self.tools.scan(mode, &mut found, |_, text| {
            Ok((Arc::new(Sidecar::parse(text)?), None))
        });
        for (path, file) in &self.prompts.files {
            if let Some(prompt) = &file.good {
                let name = self.prompts.stem(path).to_owned();
                found.prompts.insert(name, prompt.clone());
            }
        }
        self.find_executables(&mut found);
        found
    }

    /// Adds the tools: each sidecar with the one executable of its name.
    fn find_executables(&self, found: &mut Definitions) {
        let home = &self.tools.folder.root;
        let candidates = self.candidates();
        let mut used = BTreeSet::new();
        for (path, file) in &self.tools.files {
            let name = self.tools.stem(path);
            let named = match candidates.get(name) {
                Some(named) => named.as_slice(),
                None => &[],
            };
            used.extend(named.iter().map(|(path, _)| *path));
            let Some(sidecar) = &file.good else { continue };
            match choose(named) {
                Ok(program) => {
                    let spec = ToolSpec {
                        name: name.to_owned(),
                        sidecar: Sidecar::clone(sidecar),
                        program: program.at(home),
                        arguments: Vec::new(),
                        home: Some(home.clone()),
                        origin: self.tools.label(path),
                    };
                    found.tools.insert(name.to_owned(), Arc::new(spec));
                }
                Err(problem) => {
                    found.problems.insert(self.tools.label(path), problem);
                }
            }
        }
        for (path, runnable) in candidates.into_values().flatten() {
            // A file that cannot be run may be one that the tools use.
            if runnable.is_ok() && !used.contains(path) {
                let problem = "an executable without a sidecar: add NAME.json beside it".to_owned();
                found.problems.insert(self.tools.label(path), problem);
            }
        }
    }

    /// Returns the files in `tools` other than sidecars, by the names of the tools that each one fits: its
    /// own name, and its name without the extension.
    fn candidates(&self) -> BTreeMap<&str, Vec<Candidate<'_>>> {
        let home = &self.tools.folder.root;
        let mut candidates: BTreeMap<&str, Vec<Candidate<'_>>> = BTreeMap::new();
        for path in self.tools.file_index.paths() {
            if self.tools.is_definition(path) {
                continue;
            }
            let runnable = executable::check(home, &path.at(home));
            // A set, since a file without an extension has one name only.
            let mut names = BTreeSet::from([path.name()]);
            if let Some(stem) = Path::new(path.name()).file_stem() {
                names.extend(stem.to_str());
            }
            for name in names {
                candidates.entry(name).or_default().push((path, runnable));
            }
        }
        candidates
    }
}

/// Returns the one candidate that may be run.
fn choose<'a>(candidates: &[Candidate<'a>]) -> Result<&'a FilePath, String> {
    let runnable: Vec<_> = candidates.iter().filter(|(_, check)| check.is_ok()).collect();
    match (runnable.as_slice(), candidates) {
        ([(program, _)], _) => Ok(program),
        ([(first, _), (second, _), ..], _) => Err(format!(
            "both {} and {} could be its executable: rename one",
            first.name(),
            second.name()
        )),
        ([], [(path, Err(reason)), ..]) => Err(format!("its executable {} {reason}", path.name())),
        ([], _) => Err("no executable of its name is beside it".to_owned()),
    }
}

impl<T> DefinitionFolder<T> {
    fn new(resources: &Folder, name: &str, extension: &'static str) -> DefinitionFolder<T> {
        DefinitionFolder {
            folder: Folder {
                root: resources.base.join(name),
                hidden: false,
                flat: true,
                // Executables may be of any size.
                file_bytes_max: u64::MAX,
                ..resources.clone()
            },
            bytes_max: resources.file_bytes_max,
            extension,
            file_index: FileIndex::default(),
            files: BTreeMap::new(),
        }
    }

    fn is_definition(&self, path: &FilePath) -> bool {
        path.as_str().ends_with(self.extension)
    }

    fn stem<'a>(&self, path: &'a FilePath) -> &'a str {
        path.as_str()
            .strip_suffix(self.extension)
            .unwrap_or(path.as_str())
    }

    /// Returns the path below `DIR`, for messages.
    fn label(&self, path: &FilePath) -> String {
        let name = self.folder.root.file_name().unwrap_or_default().to_string_lossy();
        if path.is_root() {
            name.into_owned()
        } else {
            format!("{name}/{}", path.as_str())
        }
    }

    /// Scans the folder, and reads the definitions that changed with `parse`.
    fn scan(&mut self, mode: ScanMode, found: &mut Definitions, parse: impl Fn(&str, &str) -> Parsed<T>) {
        let scan = self.folder.scan(ScanScope::All, &self.file_index);
        let plan = self.file_index.plan(&scan, mode);
        for path in &plan.remove {
            self.file_index.forget(path);
            self.files.remove(path);
        }
        found.incomplete |= !plan.recheck.is_empty();
        for (path, seen) in plan.read {
            if self.is_definition(&path) {
                found.incomplete |= !self.update(path, seen, &parse);
            } else {
                // Any other file is needed by name alone; its executable bit is checked at every scan.
                self.keep(path, seen, true);
            }
        }
        for (path, reason) in &scan.skipped {
            found.problems.insert(self.label(path), reason.to_string());
        }
        let name = self.folder.root.file_name().unwrap_or_default();
        for path in &scan.not_utf8 {
            let label = Path::new(name).join(path).display().to_string();
            found.problems.insert(label, SkipReason::NotUtf8.to_string());
        }
        if let Some((_, first)) = &scan.over_limit {
            let problem = "more files than workspace.files_max".to_owned();
            found.problems.insert(self.label(first), problem);
        }
        for (path, file) in &self.files {
            if let Some(problem) = &file.problem {
                found.problems.insert(self.label(path), problem.clone());
            }
        }
    }

    /// Reads a definition. Returns false if it must be read again soon.
    fn update(
        &mut self,
        path: FilePath,
        mut seen: SeenFile,
        parse: &impl Fn(&str, &str) -> Parsed<T>,
    ) -> bool {
        let name = self.stem(&path).to_owned();
        let mut file = self.files.remove(&path).unwrap_or_default();
        let mut complete = true;
        // Only another name makes a file with an invalid one valid, and that is another file.
        let mut settled = true;
        if is_name(&name) {
            let read = self.read(&path);
            settled = false;
            if let FileRead::Contents(contents) = &read {
                settled = contents.settled;
                seen.identity = contents.identity;
            }
            complete = !matches!(read, FileRead::Gone | FileRead::Changing);
            file.update(read, |text| parse(&name, text));
        } else {
            file.problem = Some(invalid_name(&name));
        }
        self.keep(path.clone(), seen, settled);
        self.files.insert(path, file);
        complete
    }

    fn read(&self, path: &FilePath) -> FileRead {
        let folder = Folder {
            file_bytes_max: self.bytes_max,
            ..self.folder.clone()
        };
        match folder.locate() {
            Location::Found(real_root) => folder.read(&real_root, path),
            _ => FileRead::Gone,
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
