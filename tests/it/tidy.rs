//! The house rules that a program can check: lengths, layers, and the language of comments and pages.
//!
//! Every finding names the file, the line and the remedy.

mod imports;
mod platforms;
mod prose;
mod tree;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The folders with code, from the root of the project.
const CODE: [&str; 5] = ["src", "actors/src", "tests", "benches", "docs/examples"];

/// One Rust file of the project.
struct SourceFile {
    /// The path from the root of the project, with `/` between its parts.
    path: String,
    text: String,
    syntax: syn::File,
    is_test: bool,
}

impl SourceFile {
    fn read(root: &Path, path: &Path) -> SourceFile {
        let text = fs::read_to_string(path).unwrap();
        let path = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let syntax = match syn::parse_file(&text) {
            Ok(syntax) => syntax,
            Err(error) => panic!("{path}: {error}"),
        };
        let is_test = !(path.starts_with("src/") || path.starts_with("actors/src/"))
            || path.ends_with("/tests.rs")
            || path.contains("/tests/");
        SourceFile {
            path,
            text,
            syntax,
            is_test,
        }
    }

    fn finding(&self, line: usize, problem: impl fmt::Display, remedy: &'static str) -> Finding {
        Finding {
            place: format!("{}:{line}", self.path),
            problem: problem.to_string(),
            remedy,
        }
    }

    /// The lines of the modules that are compiled for tests alone, first and last included.
    fn test_lines(&self) -> Vec<(usize, usize)> {
        let mut found = TestModules::default();
        found.visit_file(&self.syntax);
        found.lines
    }
}

/// A broken rule.
struct Finding {
    place: String,
    problem: String,
    remedy: &'static str,
}

/// Fails the test with every finding, one per line.
#[track_caller]
fn assert_none(findings: &[Finding]) {
    let lines: String = findings
        .iter()
        .map(|finding| format!("\n{}: {}; {}", finding.place, finding.problem, finding.remedy))
        .collect();
    assert!(findings.is_empty(), "{} broken rules:{lines}", findings.len());
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below these folders, in the order of their paths.
fn rust_files(folders: &[&str]) -> Vec<SourceFile> {
    let mut paths = Vec::new();
    for folder in folders {
        find(&root().join(folder), "rs", &mut paths);
    }
    paths.sort();
    paths.iter().map(|path| SourceFile::read(root(), path)).collect()
}

/// Adds the files with this extension, at any depth.
fn find(folder: &Path, extension: &str, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, extension, paths);
        } else if path.extension() == Some(extension.as_ref()) {
            paths.push(path);
        }
    }
}

/// True for an item that is compiled for tests alone.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        list.path.is_ident("cfg") && list.tokens.to_string().contains("test")
    })
}

#[derive(Default)]
struct TestModules {
    lines: Vec<(usize, usize)>,
}

impl<'ast> Visit<'ast> for TestModules {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            return visit::visit_item_mod(self, module);
        }
        if let Some((brace, _)) = &module.content {
            let first = module.mod_token.span.start().line;
            self.lines.push((first, brace.span.close().end().line));
        }
    }
}
