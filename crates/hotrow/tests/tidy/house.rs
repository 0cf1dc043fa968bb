//! The size and the structure of the repository against `budgets.toml`, which only falls.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::assert_complains;
use crate::imports::{self, Module};
use crate::reference;
use crate::tree::{TOOLS, Tree, crate_of, without_comments};

const BUDGETS: &str = "budgets.toml";
/// Figure that `cargo metadata` shows: the others are in the files.
const PACKAGES: &str = "service_packages";
/// Share below its budget at which a figure lowers the budget.
const UNUSED_SHARE_MAX: f64 = 0.03;
/// Rust that is no part of a program, and is not counted.
const NOT_COUNTED: [&str; 3] = ["bench/", "examples/", "fuzz/"];
/// Markdown without a budget: results, decision records, history, and pages that are generated
/// from comments in the code, which count there, as lines of the product.
const UNBOUNDED_WORDS: [&str; 4] = ["bench/runs/", "docs/adr/", "CHANGELOG.md", reference::FOLDER];
/// Code of others.
const FOREIGN: &str = "assets/uplot/";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Budgets {
    budgets: BTreeMap<String, usize>,
    /// Growth that is granted while what is named is being built.
    #[serde(default)]
    growth: BTreeMap<String, Growth>,
    /// Bytes of programs, which `scripts/dist` compares.
    #[serde(default, rename = "dist")]
    _dist: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct Growth {
    /// `false`: it counts for nothing yet, so that nothing else uses it.
    is_begun: bool,
    #[serde(flatten)]
    figures: BTreeMap<String, usize>,
}

impl Budgets {
    fn of(tree: &Tree) -> Result<Self, String> {
        let text = tree.text(BUDGETS).ok_or_else(|| format!("{BUDGETS} is missing"))?;
        toml::from_str(text).map_err(|e| format!("{BUDGETS}: {e}"))
    }

    /// Returns what is wrong with a figure.
    fn complaint(&self, name: &str, figure: usize) -> Option<String> {
        let Some(&budget) = self.budgets.get(name) else {
            return Some(format!("{BUDGETS} lacks {name}; the figure is {figure}"));
        };
        let begun = self.growth.values().filter(|growth| growth.is_begun);
        let granted: usize = begun.filter_map(|growth| growth.figures.get(name)).sum();
        if figure > budget + granted {
            return Some(format!("{name} is {figure}, over its budget of {budget} + {granted}"));
        }
        let is_unused = (figure as f64) < budget as f64 * (1.0 - UNUSED_SHARE_MAX);
        is_unused.then(|| format!("{name} is {figure}: lower its budget of {budget}"))
    }
}

/// Compares the figures that files show.
pub(crate) fn budgets(tree: &Tree) -> Vec<String> {
    let budgets = match Budgets::of(tree) {
        Ok(budgets) => budgets,
        Err(complaint) => return vec![complaint],
    };
    let figures = figures(tree);
    let known = |name: &&String| figures.contains_key(name.as_str()) || **name == PACKAGES;
    let names = budgets
        .budgets
        .keys()
        .chain(budgets.growth.values().flat_map(|growth| growth.figures.keys()));
    let unknown = names.filter(|name| !known(name));
    let mut complaints: Vec<String> =
        unknown.map(|name| format!("{BUDGETS} has {name}, which is no figure")).collect();
    complaints
        .extend(figures.into_iter().filter_map(|(name, figure)| budgets.complaint(name, figure)));
    complaints
}

/// Compares the number of packages that the program is built from.
pub(crate) fn packages_complaint(tree: &Tree, packages: usize) -> Option<String> {
    Budgets::of(tree).map_or_else(Some, |budgets| budgets.complaint(PACKAGES, packages))
}

/// Returns the figures that have budgets, by name.
fn figures(tree: &Tree) -> BTreeMap<&'static str, usize> {
    let mut lines = Lines::default();
    for (path, text) in tree.texts().filter(|(path, _)| !path.starts_with(FOREIGN)) {
        lines.add(path, text);
    }
    let crates = crate_files(tree);
    let circles = crates.values().flat_map(|files| imports::circles(&imports::graph(files)));
    let circles: Vec<usize> = circles.map(|circle| circle.len()).collect();
    let words = tree
        .texts()
        .filter(|(path, _)| path.ends_with(".md"))
        .filter(|(path, _)| !UNBOUNDED_WORDS.iter().any(|unbounded| path.starts_with(unbounded)))
        .map(|(_, text)| text.split_whitespace().count());
    BTreeMap::from([
        ("configuration_keys", hotrow::config::known_keys().len()),
        ("files_in_circles", circles.iter().sum()),
        ("largest_circle_files", circles.iter().copied().max().unwrap_or(0)),
        ("largest_crate_lines", lines.of_crates.values().copied().max().unwrap_or(0)),
        ("markdown_words", words.sum()),
        ("service_lines", lines.service),
        ("test_lines", lines.tests),
        ("tools_lines", lines.tools),
    ])
}

#[derive(Default)]
struct Lines {
    service: usize,
    tools: usize,
    tests: usize,
    of_crates: BTreeMap<String, usize>,
}

impl Lines {
    /// Counts a file of Rust, or a script.
    fn add(&mut self, path: &str, text: &str) {
        let is_rust = path.ends_with(".rs");
        let is_script =
            [".sh", ".py", ".js"].iter().any(|end| path.ends_with(end)) || text.starts_with("#!");
        if is_rust && NOT_COUNTED.iter().any(|folder| path.starts_with(folder))
            || !is_rust && !is_script
        {
            return;
        }
        let (product, tests) = if is_rust { split_tests(text) } else { (text, "") };
        let product_lines = product.lines().count();
        self.tests += tests.lines().count();
        let Some((folder, name)) = crate_of(path).filter(|_| !is_test(path)) else {
            self.tests += product_lines;
            return;
        };
        let total = if folder == TOOLS { &mut self.tools } else { &mut self.service };
        *total += product_lines;
        *self.of_crates.entry(name.to_owned()).or_default() += product_lines;
    }
}

/// Returns whether a file holds tests, or serves them only.
fn is_test(path: &str) -> bool {
    let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
    let of_tests = |folder: &str| {
        matches!(folder, "benches" | "testkit" | "simulator") || folder.starts_with("tests")
    };
    folders.split('/').any(of_tests) || file.starts_with("tests") || path.contains("/testkit")
}

/// Splits a file before its module of tests.
fn split_tests(text: &str) -> (&str, &str) {
    for (at, _) in text.match_indices("#[cfg(") {
        let at_line_start = at == 0 || text[..at].ends_with('\n');
        let condition = &text[at + "#[cfg(".len()..];
        let condition = condition.strip_prefix("all(").unwrap_or(condition);
        let is_test = condition
            .strip_prefix("test")
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
        let mut lines = text[at..].lines().skip_while(|line| line.starts_with("#["));
        let is_module =
            lines.next().is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'));
        if at_line_start && is_test && is_module {
            return text.split_at(at);
        }
    }
    (text, "")
}

/// Returns the files of each crate without tests and comments, by module.
fn crate_files(tree: &Tree) -> BTreeMap<&str, BTreeMap<Module, String>> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, String>> = BTreeMap::new();
    for (path, text) in tree.rust() {
        let Some((crate_path, in_src)) = path.split_once("/src/") else { continue };
        if NOT_COUNTED.iter().any(|folder| path.starts_with(folder)) || is_test(path) {
            continue;
        }
        let code = without_block_comments(&without_comments(split_tests(text).0));
        crates.entry(crate_path).or_default().insert(imports::module_of(in_src), code);
    }
    crates
}

fn without_block_comments(code: &str) -> String {
    let mut rest = code;
    let mut kept = String::with_capacity(code.len());
    while let Some((before, comment)) = rest.split_once("/*") {
        kept.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    kept + rest
}

#[test]
fn lines_of_products_and_tests_are_told_apart() {
    let tree = Tree::of(&[
        ("crates/a/src/lib.rs", "one\ntwo\n#[cfg(test)]\n#[x]\nmod tests {\n}\n"),
        ("crates/a/src/page.js", "one\n"),
        ("tools/b/src/tests/x.rs", "one\ntwo\n"),
        ("tools/b/src/main.rs", "/*\n*/\n#[cfg(testing)]\nmod tests {\n}\n"),
        ("scripts/dist", "#!/bin/sh\n"),
        ("bench/x.rs", "not counted"),
        ("README.md", "three words here"),
        ("bench/runs/x.md", "without a budget"),
        ("docs/reference/x.md", "generated"),
    ]);
    let found = figures(&tree);
    let expected = [
        ("largest_crate_lines", 5),
        ("markdown_words", 3),
        ("service_lines", 3),
        ("test_lines", 4 + 2 + 1),
        ("tools_lines", 5),
    ];
    for (name, figure) in expected {
        assert_eq!(found[name], figure, "{name}");
    }
}

#[test]
fn figures_over_or_far_below_their_budget_are_found() {
    let text = "[budgets]\na = 100\n[growth.lists]\nis_begun = true\na = 10\n\
                [growth.later]\nis_begun = false\na = 10\n";
    let tree = Tree::of(&[(BUDGETS, text)]);
    let parsed = Budgets::of(&tree).expect("budgets");
    assert_eq!(parsed.complaint("a", 110), None);
    assert_eq!(parsed.complaint("a", 97), None);
    for (name, figure, expected) in
        [("a", 111, "over its budget"), ("a", 96, "lower its budget"), ("b", 1, "lacks b")]
    {
        let complaint = parsed.complaint(name, figure).unwrap_or_default();
        assert!(complaint.contains(expected), "{expected}: {complaint}");
    }
    let found = crate::complaints(budgets, &[(BUDGETS, text)]).join("\n");
    assert!(found.contains("has a, which is no figure"), "{found}");
    assert!(found.contains("lacks test_lines"), "{found}");
    assert_complains(budgets, &[], "is missing");
}
