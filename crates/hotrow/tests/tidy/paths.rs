//! The files that a hit and a miss pass, as ARCHITECTURE.md lists them.

use crate::tree::{Tree, has_word, without_comments};
use crate::{assert_complains, assert_silent};

const PAGE: &str = "ARCHITECTURE.md";
/// Beginnings of the items that list files, relative to the folder of the service's crates.
const LISTS: [&str; 2] = ["- **Files of a hit**", "- **Files that a miss adds**"];

/// Each file exists, and names, or is named by, one above it in its list.
pub(crate) fn paths(tree: &Tree) -> Vec<String> {
    let page = tree.text(PAGE).unwrap_or_default();
    LISTS.iter().flat_map(|list| complaints_of(tree, page, list)).collect()
}

fn complaints_of(tree: &Tree, page: &str, list: &str) -> Vec<String> {
    let Some((_, rest)) = page.split_once(list) else {
        return vec![format!("{PAGE} lacks the list {list:?}")];
    };
    let end = rest.find("\n\n").into_iter().chain(rest.find("\n- ")).min();
    let files = rest[..end.unwrap_or(rest.len())].split('`').skip(1).step_by(2);
    let mut complaints = Vec::new();
    let mut above: Vec<(&str, String)> = Vec::new();
    for file in files {
        let Some(text) = tree.text(&format!("crates/{file}")) else {
            complaints.push(format!("{PAGE}: crates/{file} does not exist"));
            continue;
        };
        let code = without_comments(text);
        let links = |(other, its): &(&str, String)| {
            has_word(its, &module(file)) || has_word(&code, &module(other))
        };
        let is_linked = above.iter().any(links);
        if !above.is_empty() && !is_linked {
            complaints.push(format!("{PAGE}: no file above crates/{file} names it, or is named"));
        }
        above.push((file, code));
    }
    complaints
}

/// Returns the name by which a file is imported.
fn module(file: &str) -> String {
    let (folders, name) = file.rsplit_once('/').unwrap_or(("", file));
    match name.trim_end_matches(".rs") {
        "lib" => folders.split('/').next().unwrap_or_default().replace('-', "_"),
        name => name.to_owned(),
    }
}

#[test]
fn files_apart_from_the_path_are_found() {
    let page = "- **Files of a hit** (2): `a/src/lib.rs`, `a/src/b.rs`.\n\
                - **Files that a miss adds** (1): `a/src/b.rs`.\n\nOther: `x`.\n";
    const LIB: &str = "crates/a/src/lib.rs";
    let with = |text, lib, b| [(PAGE, text), (LIB, lib), ("crates/a/src/b.rs", b)];
    assert_silent(paths, &with(page, "use b;", ""));
    assert_silent(paths, &with(page, "", "use a::X;"));
    assert_complains(paths, &with(page, "// b", ""), "no file above crates/a/src/b.rs");
    let gone = page.replace("adds** (1): `a/src/b.rs`", "adds** (1): `a/src/b.rs`, `a/src/c.rs`");
    assert_complains(paths, &with(&gone, "use b;", ""), "crates/a/src/c.rs does not exist");
    assert_complains(paths, &with(&page[..60], "use b;", ""), "lacks the list");
}
