//! Checks of the documents against the code.

use std::collections::BTreeSet;

use crate::tree::Tree;
use crate::{assert_complains, assert_silent};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const CONTENTS: &str = "docs/SUMMARY.md";
const CONFIGURATION: &str = "docs/configuration.md";

pub(crate) fn architecture(tree: &Tree) -> Vec<String> {
    let Some(text) = tree.text(ARCHITECTURE) else {
        return vec![format!("{ARCHITECTURE} is missing")];
    };
    let exist: BTreeSet<&str> = tree.crates().into_keys().collect();
    let named = crates_named(text);
    let mut complaints: Vec<String> = exist
        .difference(&named)
        .map(|name| format!("{ARCHITECTURE} does not name the crate {name}"))
        .collect();
    complaints.extend(
        named
            .difference(&exist)
            .map(|name| format!("{ARCHITECTURE} names the crate {name}, which does not exist")),
    );
    complaints
}

/// Returns the crates named as `crates/NAME` or `tools/NAME`.
fn crates_named(text: &str) -> BTreeSet<&str> {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-';
    let found = text.split("crates/").skip(1).chain(text.split("tools/").skip(1));
    found.filter_map(|rest| rest.split(is_end).next()).filter(|name| !name.is_empty()).collect()
}

pub(crate) fn links(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, target) in link_targets(text) {
            let file = target.split(['#', ' ']).next().unwrap_or_default();
            let outside = target.contains("://") || target.starts_with("mailto:");
            if !outside && !file.is_empty() && !tree.has(&joined(folder, file)) {
                complaints.push(format!("{path}:{line}: {file} does not exist"));
            }
        }
    }
    complaints
}

/// The contents name each page of the documentation once; `docs/adr` has contents of its own.
pub(crate) fn contents(tree: &Tree) -> Vec<String> {
    let listed: Vec<String> = tree.text(CONTENTS).map_or_else(Vec::new, |text| {
        link_targets(text).into_iter().map(|(_, target)| joined("docs", target)).collect()
    });
    let paths = tree.texts().map(|(path, _)| path);
    let pages = paths.filter(|path| path.starts_with("docs/") && path.ends_with(".md"));
    pages
        .filter(|path| !path.starts_with("docs/adr/0") && *path != CONTENTS)
        .filter(|path| listed.iter().filter(|target| target == path).count() != 1)
        .map(|path| format!("{CONTENTS} must name {path} once"))
        .collect()
}

/// Returns the targets of `[text](target)` with their lines, outside code blocks.
fn link_targets(text: &str) -> Vec<(usize, &str)> {
    let mut targets = Vec::new();
    let mut in_code = false;
    for (i, line) in text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if !in_code {
            let found = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            targets.extend(found.map(|(target, _)| (i + 1, target)));
        }
    }
    targets
}

/// Resolves `file` relative to `folder`, with `.` and `..`.
fn joined(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> =
        if file.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join("/")
}

/// The first example of the page is a valid configuration.
#[test]
fn the_documented_configuration_is_valid() {
    let tree = Tree::of_repository();
    let text = tree.text(CONFIGURATION).expect("the page");
    let (_, rest) = text.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let env = |name: &str| {
        (name == "SHOP_DB").then(|| "shop.db".to_owned()).ok_or(std::env::VarError::NotPresent)
    };
    let outcome =
        hotrow::config::parse(example, CONFIGURATION, &env, &hotrow::config::Overrides::default());
    assert!(outcome.is_ok(), "{}", outcome.err().map(|e| e.to_string()).unwrap_or_default());
}

#[test]
fn architecture_complains() {
    let with = |text: &'static str| {
        [(ARCHITECTURE, text), ("crates/cache/Cargo.toml", ""), ("tools/lab/Cargo.toml", "")]
    };
    assert_silent(architecture, &with("see crates/cache/src and [lab](tools/lab)."));
    assert_complains(architecture, &with("crates/cache, `lab`"), "does not name the crate lab");
    assert_complains(
        architecture,
        &with("crates/cache, tools/lab, crates/ghost"),
        "ghost, which does not exist",
    );
    assert_complains(architecture, &[("crates/a/Cargo.toml", "")], "is missing");
}

#[test]
fn contents_complains() {
    let with = |text: &'static str| [(CONTENTS, text), ("docs/b/a.md", ""), ("docs/adr/01.md", "")];
    assert_silent(contents, &with("[a](b/a.md)\n[b](../README.md)"));
    assert_complains(contents, &with("[a](a.md)"), "must name docs/b/a.md once");
    assert_complains(contents, &with("[a](b/a.md)\n[a](b/a.md)"), "once");
}

#[test]
fn links_complains() {
    let with = |text: &'static str| [("README.md", ""), ("docs/a.md", text), ("docs/b.md", "")];
    assert_silent(
        links,
        &with(
            "[a](b.md) [a](../README.md#x) [a](#here) [a](https://x.y/z) [a](.) [a](../docs)\n\
             ```\n[a](none)\n```\n",
        ),
    );
    assert_complains(links, &with("\n[a](c.md)"), "docs/a.md:2: c.md does not exist");
    assert_complains(links, &with("[a](b.md) and [b](../b.md#part)"), "../b.md does not exist");
}
