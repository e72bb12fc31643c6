//! Lengths, widths, parameters, names, and forms of code that hide the cases from a reader.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{CODE, Finding, SourceFile, assert_none, is_for_tests, rust_files};

const FILE_LINES_MAX: usize = 450;
const FUNCTION_LINES_MAX: usize = 60;
const HANDLER_LINES_MAX: usize = 15;
const PARAMETERS_MAX: usize = 5;
const COMMENT_WIDTH_MAX: usize = 110;
const TEST_NAME_MAX: usize = 50;
/// Names that several types of one crate may share, where their modules make them read apart.
const SHARED_NAMES_MAX: usize = 18;
/// Calls of combinators in 1,000 lines; linkerd2-proxy has 1.4.
const COMBINATORS_MAX: f64 = 1.4;
const COMBINATORS: [&str; 7] = [
    ".is_some_and(",
    ".is_none_or(",
    ".map_or(",
    ".map_or_else(",
    ".zip(",
    ".and_then(",
    ".filter_map(",
];

#[test]
fn files_are_short() {
    let mut findings = Vec::new();
    for file in product_files() {
        let tests: usize = file
            .test_lines()
            .iter()
            .map(|(first, last)| last - first + 1)
            .sum();
        let lines = file.text.lines().count() - tests;
        if lines > FILE_LINES_MAX {
            let problem = format!("{lines} lines without tests, more than {FILE_LINES_MAX}");
            findings.push(file.finding(1, problem, "move one noun to a file of its own"));
        }
    }
    assert_none(&findings);
}

#[test]
fn functions_are_short() {
    let mut findings = Vec::new();
    for file in product_files() {
        let mut functions = Functions::of(&file);
        functions.visit_file(&file.syntax);
        findings.append(&mut functions.findings);
    }
    assert_none(&findings);
}

#[test]
fn comments_fit_the_width() {
    let mut findings = Vec::new();
    for file in rust_files(&CODE) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let width = line.chars().count();
            if line.trim_start().starts_with("//") && width > COMMENT_WIDTH_MAX {
                let problem = format!("a comment of {width} columns, more than {COMMENT_WIDTH_MAX}");
                findings.push(file.finding(number, problem, "wrap it; rustfmt leaves comments alone"));
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn test_names_are_short() {
    let mut findings = Vec::new();
    for file in rust_files(&CODE) {
        let mut names = TestNames(Vec::new());
        names.visit_file(&file.syntax);
        for name in names.0 {
            let length = name.to_string().len();
            if length > TEST_NAME_MAX {
                let problem = format!("the name {name} has {length} characters, more than {TEST_NAME_MAX}");
                let line = name.span().start().line;
                findings.push(file.finding(line, problem, "name it subject_condition_outcome"));
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn code_shows_its_cases() {
    let mut findings = Vec::new();
    for file in rust_files(&CODE) {
        let mut forms = Forms {
            file: &file,
            findings: Vec::new(),
        };
        forms.visit_file(&file.syntax);
        findings.append(&mut forms.findings);
    }
    assert_none(&findings);
}

#[test]
fn combinators_are_rare() {
    let mut lines = 0;
    let mut findings = Vec::new();
    for file in product_files() {
        for (number, line) in (1..).zip(file.text.lines()) {
            lines += 1;
            if COMBINATORS.iter().any(|call| line.contains(call)) {
                findings.push(file.finding(number, line.trim(), "write `match`, `let else` or `if let`"));
            }
        }
    }
    let density = 1000.0 * findings.len() as f64 / lines as f64;
    if density > COMBINATORS_MAX {
        assert_none(&findings);
    }
}

#[test]
fn types_of_one_crate_have_names_of_their_own() {
    for folder in ["src", "actors/src"] {
        let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for file in rust_files(&[folder]) {
            // The stand-in for a part that a build leaves out has the names of that part.
            if file.is_test || file.path.ends_with("_absent.rs") {
                continue;
            }
            let mut types = Types(Vec::new());
            types.visit_file(&file.syntax);
            for name in types.0 {
                places.entry(name).or_default().insert(file.path.clone());
            }
        }
        places.retain(|_, files| files.len() > 1);
        assert!(
            places.len() <= SHARED_NAMES_MAX,
            "{folder}: {} names are shared by several types, more than {SHARED_NAMES_MAX}; \
             rename all but one of each: {places:#?}",
            places.len()
        );
    }
}

fn product_files() -> impl Iterator<Item = SourceFile> {
    let files = rust_files(&["src", "actors/src"]);
    files.into_iter().filter(|file| !file.is_test)
}

/// Looks for functions that are too long or take too much.
struct Functions<'file> {
    file: &'file SourceFile,
    /// True inside of `impl Handler<…>`: the body of an actor's handler unpacks, asks the core and forwards.
    in_handler: bool,
    findings: Vec<Finding>,
}

impl<'file> Functions<'file> {
    fn of(file: &'file SourceFile) -> Functions<'file> {
        Functions {
            file,
            in_handler: false,
            findings: Vec::new(),
        }
    }

    fn check(&mut self, signature: &syn::Signature, end: Span) {
        let first = signature.fn_token.span.start().line;
        let lines = end.end().line - first + 1;
        let name = &signature.ident;
        if lines > FUNCTION_LINES_MAX {
            let problem = format!("{name} has {lines} lines, more than {FUNCTION_LINES_MAX}");
            self.add(first, problem, "give a step of it a name");
        }
        // The signature and the closing brace are no part of the body.
        if self.in_handler && lines > HANDLER_LINES_MAX + 2 {
            let problem = format!("a handler of {lines} lines, more than {HANDLER_LINES_MAX}");
            self.add(
                first,
                problem,
                "leave the decision to the plain struct that the actor holds",
            );
        }
        let parameters = signature.inputs.len();
        if parameters > PARAMETERS_MAX {
            let problem = format!("{name} takes {parameters} parameters, more than {PARAMETERS_MAX}");
            self.add(first, problem, "pass a struct, or make it a method");
        }
    }

    fn add(&mut self, line: usize, problem: String, remedy: &'static str) {
        self.findings.push(self.file.finding(line, problem, remedy));
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.in_handler = match &item.trait_ {
            Some((path, _)) => path.segments.iter().any(|part| part.ident == "Handler"),
            None => false,
        };
        // A foreign trait dictates the parameters of its methods.
        if item.trait_.is_none() || self.in_handler {
            visit::visit_item_impl(self, item);
        }
        self.in_handler = false;
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check(&function.sig, function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.check(&function.sig, function.block.span());
        visit::visit_impl_item_fn(self, function);
    }
}

/// Collects the names of test functions.
struct TestNames(Vec<syn::Ident>);

impl<'ast> Visit<'ast> for TestNames {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let is_test = function.attrs.iter().any(|attribute| {
            let last = attribute.path().segments.last();
            matches!(last, Some(part) if part.ident == "test")
        });
        if is_test {
            self.0.push(function.sig.ident.clone());
        }
    }
}

/// Collects the names of structs, enums and traits outside of tests.
struct Types(Vec<String>);

impl<'ast> Visit<'ast> for Types {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.0.push(item.ident.to_string());
    }
}

/// Looks for results that are ignored as default values, pairs that are taken apart at once, and closures
/// with a name and a single use.
struct Forms<'file> {
    file: &'file SourceFile,
    findings: Vec<Finding>,
}

impl Forms<'_> {
    fn add(&mut self, span: Span, problem: &str, remedy: &'static str) {
        let line = span.start().line;
        self.findings.push(self.file.finding(line, problem, remedy));
    }

    fn check_closure(&mut self, block: &syn::Block, local: &syn::Local) {
        let syn::Pat::Ident(name) = &local.pat else {
            return;
        };
        let Some(init) = &local.init else {
            return;
        };
        if matches!(*init.expr, syn::Expr::Closure(_)) && uses(block, &name.ident) == 1 {
            let problem = format!("the closure `{}` has a name and one use", name.ident);
            self.add(
                local.span(),
                &problem,
                "write it where it is used, or make it a function",
            );
        }
    }
}

impl<'ast> Visit<'ast> for Forms<'_> {
    fn visit_block(&mut self, block: &'ast syn::Block) {
        for statement in &block.stmts {
            match statement {
                syn::Stmt::Expr(syn::Expr::MethodCall(call), Some(_))
                    if call.method == "unwrap_or_default" =>
                {
                    let remedy = "write `if let Err(error) = …`, and say why it may be ignored";
                    self.add(call.span(), "a result is ignored as a default value", remedy);
                }
                syn::Stmt::Local(local) => {
                    let is_pair = match &local.init {
                        // A `let … else` of several conditions is one guard.
                        Some(init) if init.diverge.is_none() => matches!(*init.expr, syn::Expr::Tuple(_)),
                        _ => false,
                    };
                    if is_pair && matches!(local.pat, syn::Pat::Tuple(_)) {
                        self.add(
                            local.span(),
                            "a tuple is built to be taken apart",
                            "write one `let` per value",
                        );
                    }
                    self.check_closure(block, local);
                }
                _ => {}
            }
        }
        visit::visit_block(self, block);
    }
}

/// Counts how often `name` stands in the block, without the place where it is bound.
fn uses(block: &syn::Block, name: &syn::Ident) -> usize {
    let tokens = quote::ToTokens::to_token_stream(block);
    count(tokens, name) - 1
}

fn count(tokens: TokenStream, name: &syn::Ident) -> usize {
    let mut found = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => found += usize::from(ident == *name),
            TokenTree::Group(group) => found += count(group.stream(), name),
            // Format strings name variables too.
            TokenTree::Literal(literal) => {
                found += usize::from(literal.to_string().contains(&format!("{{{name}")));
            }
            TokenTree::Punct(_) => {}
        }
    }
    found
}
