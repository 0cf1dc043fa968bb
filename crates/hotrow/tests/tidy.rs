//! What a program can check about this repository. Each check is a function from a tree of files to complaints; each
//! has a test that feeds it a bad sample, so that it cannot fall silent.

#[path = "tidy/crates.rs"]
mod crates;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/sources.rs"]
mod sources;
#[path = "tidy/tree.rs"]
mod tree;

use tree::Tree;

/// A check: a tree in, complaints out.
type Check = fn(&Tree) -> Vec<String>;

const CHECKS: &[(&str, Check)] = &[
    ("arrows between crates", crates::arrows),
    ("lints from the workspace", crates::lints),
    ("who speaks HTTP, who knows databases", crates::protocols),
    ("nothing but decisions in `cache`", sources::pure_cache),
    ("the binary's own database code", sources::demo_database),
    ("length of files", sources::length),
    ("no unwrap outside tests", sources::unwraps),
    ("nothing left for later", sources::leftovers),
    ("blanks", sources::blanks),
    ("ARCHITECTURE.md names the crates", documents::architecture),
    ("links lead somewhere", documents::links),
    ("docs/configuration.md names the keys", documents::configuration),
];

#[test]
fn the_repository_is_tidy() {
    let tree = Tree::of_repository();
    assert!(tree.has("crates/hotrow/tests/tidy.rs"), "the tree was not found");
    let complaints: Vec<String> = CHECKS
        .iter()
        .flat_map(|(name, check)| check(&tree).into_iter().map(move |complaint| format!("{name}: {complaint}")))
        .collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// For the self-tests: what `check` says about a few files.
fn complaints(check: Check, files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::of(files))
}

/// For the self-tests: exactly one complaint, and it contains `fragment`.
fn assert_complains(check: Check, files: &[(&str, &str)], fragment: &str) {
    let got = complaints(check, files);
    assert!(got.len() == 1 && got[0].contains(fragment), "expected one complaint with {fragment:?}, got {got:#?}");
}

/// For the self-tests: no complaint.
fn assert_silent(check: Check, files: &[(&str, &str)]) {
    let got = complaints(check, files);
    assert!(got.is_empty(), "{got:#?}");
}
