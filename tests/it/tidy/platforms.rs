//! Code for Unix alone stands behind `cfg(unix)`, or behind a feature that needs Unix.

use std::collections::BTreeSet;
use std::fs;

use quote::ToTokens;
use syn::parse::{Parse, ParseStream, Parser};
use syn::visit::{self, Visit};

use super::{Finding, SourceFile, assert_none, is_for_tests, root, rust_files};

/// The features that do not compile without Unix, as the library says itself.
const UNIX_FEATURES: [&str; 3] = ["service", "workspace", "bench"];
/// The beginnings of paths that other systems do not have.
const UNIX_PATHS: [&str; 7] = [
    "libc",
    "nix",
    "sd_notify",
    "std::os::fd",
    "std::os::unix",
    "mio::unix",
    "tokio::signal::unix",
];

#[test]
fn code_for_unix_says_so() {
    let mut files = rust_files(&["src", "actors/src"]);
    let unix = unix_modules(&files);
    files.retain(|file| {
        let is_unix = unix.iter().any(|module| {
            let rest = file.path.strip_prefix(module.as_str());
            matches!(rest, Some(rest) if rest == ".rs" || rest.starts_with('/'))
        });
        !file.is_test && !is_unix && file.path != "src/main.rs"
    });
    assert!(files.len() > 100, "the files of the library are missing");
    let mut findings = Vec::new();
    for file in &files {
        findings.append(&mut Uses::of(file, &file.syntax));
    }
    assert_none(&findings);
}

#[test]
fn check_of_platforms_finds_what_is_not_guarded() {
    for (text, findings) in [
        ("use std::os::unix::fs::PermissionsExt;", 1),
        ("use std::{fs, os::{fd::RawFd, unix::fs::MetadataExt}};", 2),
        ("fn f() { nix::unistd::getpid(); }", 1),
        ("#[cfg(unix)] use nix::unistd::Pid;", 0),
        ("#[cfg(not(unix))] use nix::unistd::Pid;", 1),
        ("#[cfg(any(unix, windows))] use nix::unistd::Pid;", 1),
        ("fn f() { #[cfg(unix)] nix::unistd::getpid(); }", 0),
        (
            "fn f() { #[cfg(target_os = \"linux\")] { nix::unistd::getpid(); } }",
            0,
        ),
        (
            "#[cfg(feature = \"service\")] fn f() { nix::unistd::getpid(); }",
            0,
        ),
        (
            "#[cfg(feature = \"client\")] fn f() { nix::unistd::getpid(); }",
            1,
        ),
    ] {
        let file = SourceFile {
            path: "src/a.rs".to_owned(),
            text: text.to_owned(),
            syntax: syn::parse_file(text).unwrap(),
            is_test: false,
        };
        assert_eq!(Uses::of(&file, &file.syntax).len(), findings, "{text}");
    }
}

#[test]
fn crates_for_unix_are_asked_for_on_unix() {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let mut section = "";
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ']).next().unwrap_or("");
        if section == "[dependencies]" && UNIX_PATHS.contains(&name.replace('-', "_").as_str()) {
            findings.push(Finding {
                place: format!("Cargo.toml:{number}"),
                problem: format!("`{name}` is asked for on every system"),
                remedy: "move it to [target.'cfg(unix)'.dependencies]",
            });
        }
    }
    assert_none(&findings);
}

/// The modules that are declared with a guard, as their paths without `.rs`.
fn unix_modules(files: &[SourceFile]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let folder = match file.path.strip_suffix("/lib.rs") {
            Some(folder) => folder,
            None => file.path.trim_end_matches(".rs"),
        };
        for item in &file.syntax.items {
            if let syn::Item::Mod(module) = item
                && module.content.is_none()
                && is_guarded(&module.attrs)
            {
                found.insert(format!("{folder}/{}", module.ident));
            }
        }
    }
    assert!(found.contains("src/service"), "{found:?}");
    found
}

/// True if one of the attributes leaves the item out where no Unix is.
fn is_guarded(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        if !list.path.is_ident("cfg") {
            return false;
        }
        let condition = list.tokens.to_string();
        let is_system = condition.contains("unix") || condition.contains("target_os");
        let names_unix = is_system && !condition.contains("not") && !condition.contains("any");
        let mut features = UNIX_FEATURES.iter();
        names_unix || features.any(|feature| condition == format!("feature = \"{feature}\""))
    })
}

/// Looks for paths of Unix outside of guarded items and statements.
struct Uses<'file> {
    file: &'file SourceFile,
    findings: Vec<Finding>,
}

impl Uses<'_> {
    fn of(file: &SourceFile, syntax: &syn::File) -> Vec<Finding> {
        let mut uses = Uses {
            file,
            findings: Vec::new(),
        };
        uses.visit_file(syntax);
        uses.findings
    }

    fn add(&mut self, path: &str, line: usize) {
        let is_unix = UNIX_PATHS.iter().any(|unix| {
            let rest = path.strip_prefix(unix);
            matches!(rest, Some(rest) if rest.is_empty() || rest.starts_with("::"))
        });
        if is_unix {
            let problem = format!("`{path}` does not exist without Unix");
            let remedy = "put it behind `#[cfg(unix)]`, with another way for other systems";
            self.findings.push(self.file.finding(line, problem, remedy));
        }
    }

    fn add_use(&mut self, before: &str, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => self.add_use(&format!("{before}{}::", path.ident), &path.tree),
            syn::UseTree::Name(name) => {
                self.add(&format!("{before}{}", name.ident), name.ident.span().start().line);
            }
            syn::UseTree::Rename(name) => {
                self.add(&format!("{before}{}", name.ident), name.ident.span().start().line);
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|inner| self.add_use(before, inner)),
            syn::UseTree::Glob(glob) => self.add(
                before.trim_end_matches("::"),
                glob.star_token.spans[0].start().line,
            ),
        }
    }
}

/// Returns the attributes in front of an item or a statement, which syn keeps in a field of each kind.
fn attributes(tokens: impl ToTokens) -> Vec<syn::Attribute> {
    let parsed = Outer::parse.parse2(tokens.to_token_stream());
    match parsed {
        Ok(outer) => outer.0,
        // A comment of documentation inside of a block, and the like.
        Err(_) => Vec::new(),
    }
}

/// The attributes at the beginning of some tokens.
struct Outer(Vec<syn::Attribute>);

impl Parse for Outer {
    fn parse(input: ParseStream<'_>) -> syn::Result<Outer> {
        let attributes = input.call(syn::Attribute::parse_outer)?;
        input.parse::<proc_macro2::TokenStream>()?;
        Ok(Outer(attributes))
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = attributes(item);
        if !is_guarded(&attributes) && !is_for_tests(&attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if !is_guarded(&attributes(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if !is_guarded(&attributes(statement)) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use("", &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let Some(first) = path.segments.first()
            && parts.len() > 1
        {
            self.add(&parts.join("::"), first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }
}
