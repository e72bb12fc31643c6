//! The layers of the modules, and the one home of each heavy crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use syn::visit::{self, Visit};

use super::{Finding, SourceFile, assert_none, is_for_tests, root, rust_files};

/// The modules of the root crate, from the top down, and the modules that each may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    (
        "cli",
        &[
            "auth",
            "bench",
            "check",
            "client",
            "config",
            "credentials",
            "gateway",
            "http_client",
            "mcp",
            "metrics",
            "printable",
            "service",
            "small_file",
            "store",
            "telemetry",
            "timestamp",
            "uri_encoding",
            "wire",
        ],
    ),
    (
        "service",
        &[
            "auth",
            "cluster",
            "config",
            "file_watch",
            "gateway",
            "http",
            "http_client",
            "mcp",
            "metrics",
            "open_files",
            "sink",
            "small_file",
            "source",
            "store",
        ],
    ),
    (
        "gateway",
        &[
            "backoff",
            "client",
            "config",
            "credentials",
            "http",
            "mcp",
            "metrics",
            "printable",
            "units",
        ],
    ),
    (
        "check",
        &["client", "credentials", "http_client", "printable", "wire"],
    ),
    (
        "bench",
        &[
            "credentials",
            "http_client",
            "open_files",
            "printable",
            "timestamp",
            "wire",
        ],
    ),
    (
        "mcp",
        &[
            "auth",
            "config",
            "http",
            "metrics",
            "tool_schema",
            "units",
            "wire",
        ],
    ),
    (
        "http",
        &[
            "auth",
            "config",
            "file_watch",
            "hosts",
            "metrics",
            "rate_limiter",
            "small_file",
            "uri_encoding",
        ],
    ),
    (
        "source",
        &["config", "metrics", "tool_schema", "units", "uri_encoding"],
    ),
    (
        "sink",
        &["backoff", "config", "http_client", "metrics", "timestamp"],
    ),
    (
        "auth",
        &[
            "config",
            "file_watch",
            "hosts",
            "http_client",
            "metrics",
            "rate_limiter",
            "small_file",
            "timestamp",
        ],
    ),
    (
        "client",
        &["backoff", "credentials", "http_client", "printable", "wire"],
    ),
    ("cluster", &["metrics", "store"]),
    ("metrics", &[]),
    ("store", &[]),
    ("telemetry", &["config", "printable"]),
    ("config", &["hosts", "printable", "units"]),
    ("wire", &[]),
    ("http_client", &["credentials", "small_file"]),
    ("credentials", &["file_watch", "small_file"]),
    ("small_file", &[]),
    ("timestamp", &[]),
    ("backoff", &[]),
    ("open_files", &[]),
    ("uri_encoding", &[]),
    ("hosts", &[]),
    ("units", &[]),
    ("rate_limiter", &[]),
    ("tool_schema", &[]),
    ("file_watch", &[]),
    ("printable", &[]),
];

/// The folders that may name a heavy crate, so that it can be exchanged.
const HOMES: &[(&str, &[&str])] = &[
    ("actix", &["actors/src/"]),
    ("rmcp", &["src/mcp", "src/client", "src/gateway"]),
    ("axum", &["src/http", "src/service"]),
    ("hyper", &["src/http", "src/service"]),
    ("clap", &["src/cli"]),
    ("redb", &["src/store"]),
    ("async_nats", &["src/cluster"]),
    ("notify", &["src/source/"]),
    ("jsonschema", &["src/tool_schema"]),
    ("mio", &["src/bench/", "src/wire/"]),
    ("hdrhistogram", &["src/bench/"]),
    ("indicatif", &["src/cli/bench"]),
    ("toml", &["src/config"]),
    ("metrics_exporter_prometheus", &["src/metrics/"]),
];

#[test]
fn modules_import_lower_layers_only() {
    let mut findings = Vec::new();
    for file in product_files("src/") {
        let module = top_module(&file.path, "src/");
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            if module != "lib" {
                findings.push(file.finding(1, format!("`{module}` is in no layer"), "add it to LAYERS"));
            }
            continue;
        };
        for (name, line) in imports(&file) {
            // A module and a name of the crate's face are told apart by the table.
            let is_module = LAYERS.iter().any(|(layer, _)| *layer == name);
            if is_module && name != module && !allowed.contains(&name.as_str()) {
                let problem = format!("`{module}` imports `{name}`");
                findings.push(file.finding(line, problem, "move the shared part below both"));
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn modules_of_the_bus_form_no_circle() {
    let mut imported: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in product_files("actors/src/") {
        let module = top_module(&file.path, "actors/src/");
        if module == "lib" {
            continue;
        }
        let names = imported.entry(module.clone()).or_default();
        names.extend(imports(&file).into_iter().map(|(name, _)| name));
        names.remove(&module);
    }
    // A module that imports none of those that are left stands below them.
    while let Some(lowest) = lowest(&imported) {
        imported.remove(&lowest);
    }
    assert!(
        imported.is_empty(),
        "these modules of the bus import each other in a circle; move the shared part below: {imported:#?}"
    );
}

#[test]
fn bus_imports_nothing_through_its_own_face() {
    let modules: BTreeSet<String> = product_files("actors/src/")
        .iter()
        .map(|file| top_module(&file.path, "actors/src/"))
        .collect();
    let mut findings = Vec::new();
    for file in product_files("actors/src/") {
        for (name, line) in imports(&file) {
            if !modules.contains(&name) {
                let problem = format!("`crate::{name}` is imported from the root");
                findings.push(file.finding(line, problem, "import it from the module that defines it"));
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn heavy_crates_have_one_home() {
    let mut findings = Vec::new();
    for file in product_files("src/").iter().chain(&product_files("actors/src/")) {
        let mut paths = Paths::default();
        paths.visit_file(&file.syntax);
        for (name, line) in paths.roots {
            let home = HOMES.iter().find(|(heavy, _)| *heavy == name);
            if let Some((_, homes)) = home
                && !homes.iter().any(|home| file.path.starts_with(home))
            {
                let problem = format!("`{name}` is named outside of {homes:?}");
                findings.push(file.finding(line, problem, "ask the module that is its home"));
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn architecture_names_existing_files() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        for code in line.split('`').skip(1).step_by(2) {
            let is_path =
                code.starts_with("src/") || code.starts_with("actors/") || code.starts_with("tests/");
            if is_path && !root().join(code).exists() {
                findings.push(Finding {
                    place: format!("docs/architecture.md:{number}"),
                    problem: format!("`{code}` does not exist"),
                    remedy: "name the file that has the job now",
                });
            }
        }
    }
    assert_none(&findings);
}

/// The files below `folder` that are compiled into the product.
fn product_files(folder: &str) -> Vec<SourceFile> {
    let mut files = rust_files(&[folder.trim_end_matches('/')]);
    files.retain(|file| !file.is_test);
    files
}

/// The first part of the module path of a file.
fn top_module(path: &str, folder: &str) -> String {
    let inner = path.strip_prefix(folder).unwrap();
    let first = inner.split('/').next().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// The first part of every `crate::…` path outside of tests, with its line.
fn imports(file: &SourceFile) -> Vec<(String, usize)> {
    let mut paths = Paths::default();
    paths.visit_file(&file.syntax);
    paths.of_crate
}

/// A module that imports no other module of the map.
fn lowest(imported: &BTreeMap<String, BTreeSet<String>>) -> Option<String> {
    let mut modules = imported.iter();
    let found = modules.find(|(_, names)| !names.iter().any(|name| imported.contains_key(name)))?;
    Some(found.0.clone())
}

/// Collects paths outside of tests: their first part, and for `crate::…` the second.
#[derive(Default)]
struct Paths {
    roots: Vec<(String, usize)>,
    of_crate: Vec<(String, usize)>,
}

impl Paths {
    fn add(&mut self, parts: &[&syn::Ident]) {
        let Some(first) = parts.first() else {
            return;
        };
        let line = first.span().start().line;
        self.roots.push((first.to_string(), line));
        if *first == "crate"
            && let Some(second) = parts.get(1)
        {
            self.of_crate.push((second.to_string(), line));
        }
    }

    fn add_use(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) if path.ident == "crate" => match &*path.tree {
                syn::UseTree::Group(group) => {
                    for inner in &group.items {
                        self.add_below(&path.ident, inner);
                    }
                }
                inner => self.add_below(&path.ident, inner),
            },
            syn::UseTree::Path(path) => self.add(&[&path.ident]),
            syn::UseTree::Name(name) => self.add(&[&name.ident]),
            syn::UseTree::Group(group) => group.items.iter().for_each(|inner| self.add_use(inner)),
            syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => {}
        }
    }

    fn add_below(&mut self, root: &syn::Ident, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => self.add(&[root, &path.ident]),
            syn::UseTree::Name(name) => self.add(&[root, &name.ident]),
            syn::UseTree::Rename(name) => self.add(&[root, &name.ident]),
            syn::UseTree::Glob(_) | syn::UseTree::Group(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.add_use(&item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<&syn::Ident> = path.segments.iter().map(|part| &part.ident).collect();
        if parts.len() > 1 {
            self.add(&parts);
        }
        visit::visit_path(self, path);
    }
}
