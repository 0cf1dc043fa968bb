//! Rules of this repository that a program can check. Each check maps a tree of files to
//! complaints, and each has a test with a bad sample, so that it cannot stop working unnoticed.

#[path = "tidy/calibration.rs"]
mod calibration;
#[path = "tidy/crates.rs"]
mod crates;
#[path = "tidy/dependencies.rs"]
mod dependencies;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/house.rs"]
mod house;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/language.rs"]
mod language;
#[path = "tidy/monitoring.rs"]
mod monitoring;
#[path = "tidy/paths.rs"]
mod paths;
#[path = "tidy/reference.rs"]
mod reference;
#[path = "tidy/sources.rs"]
mod sources;
#[path = "tidy/tree.rs"]
mod tree;

use tree::Tree;

/// Check of a tree of files; returns complaints.
type Check = fn(&Tree) -> Vec<String>;

const CHECKS: &[(&str, Check)] = &[
    ("dependencies between crates", crates::arrows),
    ("budgets", house::budgets),
    ("lints from the workspace", crates::lints),
    ("crates with HTTP, crates with databases", crates::protocols),
    ("no side effects in `cache`", sources::pure_cache),
    ("the binary's own database code", sources::demo_database),
    ("threads are supervised", sources::threads),
    ("no prints beside the log", sources::prints),
    ("length of files", sources::length),
    ("no leftovers", sources::leftovers),
    ("columns of comments and prose", language::columns),
    ("words of comments and prose", language::words),
    ("no test is calibrated by the clock", calibration::calibration),
    ("lines of the log are awaited", calibration::log_lines),
    ("ARCHITECTURE.md names the crates", documents::architecture),
    ("ARCHITECTURE.md lists the files of a hit and a miss", paths::paths),
    ("targets of links exist", documents::links),
    ("docs/SUMMARY.md names each page", documents::contents),
    ("docs/reference is what the code says", reference::reference),
    ("the runbook has a section for each alert", monitoring::alerts),
    ("rules, dashboard and runbook use documented metrics", monitoring::metrics),
];

#[test]
fn the_repository_is_tidy() {
    let tree = Tree::of_repository();
    assert!(tree.has("crates/hotrow/tests/tidy.rs"), "the tree was not found");
    let complaints: Vec<String> = CHECKS
        .iter()
        .flat_map(|(name, check)| {
            check(&tree).into_iter().map(move |complaint| format!("{name}: {complaint}"))
        })
        .collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// Returns the complaints of `check` about a few files, for the self-tests.
fn complaints(check: Check, files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::of(files))
}

/// Fails unless there is exactly one complaint, which contains `fragment`.
fn assert_complains(check: Check, files: &[(&str, &str)], fragment: &str) {
    let got = complaints(check, files);
    assert!(
        got.len() == 1 && got[0].contains(fragment),
        "expected one complaint with {fragment:?}, got {got:#?}"
    );
}

fn assert_silent(check: Check, files: &[(&str, &str)]) {
    let got = complaints(check, files);
    assert!(got.is_empty(), "{got:#?}");
}

/// Checks files one by one: path, text, and a fragment of the only complaint; `""`: there is none.
fn assert_samples(check: Check, samples: &[(&str, &str, &str)]) {
    for (path, text, fragment) in samples {
        match *fragment {
            "" => assert_silent(check, &[(path, text)]),
            fragment => assert_complains(check, &[(path, text)], fragment),
        }
    }
}
