//! The pages of `docs/reference`, generated from comments in the code.
//!
//! A comment at the head of a file describes a table of settings, metrics or results:
//!
//! ```text
//! //! Reference `metrics`: Traces
//! //!
//! //! - `hotrow_trace_queue_bytes`: Bytes of spans that wait.
//! ```
//!
//! It is a section of `docs/reference/metrics.md`. Its items are the rows of a table, or a list if
//! one of them has no colon behind its names. Sections are
//! sorted; one whose heading begins with `# ` is the title. Links are relative to `docs/`. Defaults
//! and ranges of settings, and whether a reload applies them, are the parser's.

use std::collections::{BTreeMap, BTreeSet};

use hotrow::config::{Known, known_keys};

use crate::tree::Tree;

/// Page that `tests/it/help.rs` generates from the programs.
const COMMANDS: &str = "commands.md";
/// Folder of the generated pages.
pub(crate) const FOLDER: &str = "docs/reference/";
/// Variable at which the pages are written.
const RENEW_VARIABLE: &str = "HOTROW_RENEW_REFERENCE";
const RENEW: &str = "HOTROW_RENEW_REFERENCE=1 cargo test -p hotrow --test tidy renew_the_reference";
const MARK: &str = " Reference `";
/// Files whose comments begin with `#`: alerts with their runbook, values of the chart.
const SETTINGS: [&str; 2] =
    ["packaging/monitoring/hotrow.rules.yml", "packaging/helm/hotrow/values.yaml"];
/// Comment before the entries of a macro, each of which is a section: its doc comment, and
/// `Name = "Heading"`.
const ENTRIES: &str = "    // Reference `";
/// Page whose sections are tables of the file.
const CONFIGURATION: &str = "configuration";

/// Text before the list, and the items of the list.
#[derive(Default)]
struct Section {
    text: String,
    items: Vec<String>,
}

/// Sections of a page by heading.
type Page<'a> = BTreeMap<&'a str, Section>;

/// Compares the committed pages with the code.
pub(crate) fn reference(tree: &Tree) -> Vec<String> {
    let pages = pages(tree);
    let mut complaints = settings_complaints(pages.get(CONFIGURATION));
    for (name, page) in &pages {
        let path = format!("{FOLDER}{name}.md");
        if tree.text(&path) != Some(&rendered(name, page)) {
            complaints.push(format!("{path} is not what the code says: {RENEW}"));
        }
    }
    let committed = tree.texts().filter_map(|(path, _)| path.strip_prefix(FOLDER));
    let of_comments = committed.filter(|file| *file != COMMANDS);
    let gone = of_comments.filter(|file| !pages.contains_key(file.trim_end_matches(".md")));
    complaints.extend(gone.map(|file| format!("{FOLDER}{file} has no source in the code")));
    complaints
}

fn pages(tree: &Tree) -> BTreeMap<&str, Page<'_>> {
    let mut pages: BTreeMap<&str, Page<'_>> = BTreeMap::new();
    let code = tree.rust().filter(|(path, _)| path.contains("/src/"));
    let settings = SETTINGS.iter().filter_map(|path| Some(("#", tree.text(path)?)));
    for (sign, text) in code.map(|(_, text)| ("//!", text)).chain(settings) {
        let mut lines = text.lines().peekable();
        let mark = format!("{sign}{MARK}");
        while let Some(line) = lines.next() {
            if let Some((page, _)) = line.strip_prefix(ENTRIES).and_then(|of| of.split_once('`')) {
                let entries = lines.by_ref().take_while(|line| *line != "}");
                add_entries(pages.entry(page).or_default(), entries);
                continue;
            }
            let Some((page, heading)) =
                line.strip_prefix(&*mark).and_then(|of| of.split_once("`: "))
            else {
                continue;
            };
            let section = pages.entry(page).or_default().entry(heading).or_default();
            let is_more = |line: &&str| line.starts_with(sign) && !line.starts_with(&*mark);
            while let Some(line) = lines.next_if(is_more) {
                section.add(line[sign.len()..].strip_prefix(' ').unwrap_or_default());
            }
        }
    }
    pages
}

/// Adds a section of each entry `Name = "Heading"` with its comment.
fn add_entries<'a>(page: &mut Page<'a>, lines: impl Iterator<Item = &'a str>) {
    let mut section = Section::default();
    for line in lines {
        if let Some(text) = line.trim_start().strip_prefix("/// ") {
            section.add(text);
        } else if let Some(heading) = line.split('"').nth(1) {
            page.insert(heading, std::mem::take(&mut section));
        }
    }
}

impl Section {
    fn add(&mut self, line: &str) {
        match (line.strip_prefix("- "), line.strip_prefix("  "), self.items.last_mut()) {
            (Some(item), ..) => self.items.push(item.to_owned()),
            (None, Some(more), Some(item)) => *item = format!("{item}\n  {more}"),
            _ if line.is_empty() && self.text.ends_with("\n\n") => {}
            _ => self.text.push_str(&format!("{line}\n")),
        }
    }

    /// Returns the names and the meaning of each item.
    fn rows(&self) -> impl Iterator<Item = (String, String)> {
        let ends = ['`', ')', '*'];
        self.items.iter().map(move |item| {
            let item = item.replace("\n  ", " ");
            let mut colons = item.match_indices(": ").map(|(at, _)| item.split_at(at));
            colons
                .find(|(names, _)| names.ends_with(ends))
                .or_else(|| item.find(": ").map(|at| item.split_at(at)))
                .map(|(names, rest)| (names.to_owned(), rest[2..].to_owned()))
                .unwrap_or_else(|| (String::new(), item.clone()))
        })
    }
}

fn rendered(name: &str, page: &Page<'_>) -> String {
    let mut text =
        format!("<!-- Generated from the code, comments \"Reference `{name}`\":\n{RENEW} -->\n");
    let mut sections: Vec<_> = page.iter().collect();
    sections.sort_by_key(|(heading, _)| heading.replace(['`', '[', ']'], ""));
    let known = known();
    for (heading, section) in sections {
        let level = if heading.starts_with('#') { "" } else { "## " };
        text.push_str(&format!("\n{level}{heading}\n"));
        if !section.text.trim().is_empty() {
            text.push_str(&format!("\n{}\n", section.text.trim()));
        }
        if section.rows().any(|(names, _)| names.is_empty()) || section.items.is_empty() {
            let items = section.items.iter().map(|item| format!("\n- {item}"));
            text.extend(items.chain((!section.items.is_empty()).then(|| "\n".to_owned())));
            continue;
        }
        let is_settings = name == CONFIGURATION;
        text.push_str(match is_settings {
            true => "\n| key | default | range | reload | meaning |\n|---|---|---|---|---|\n",
            false => "\n| name | meaning |\n|---|---|\n",
        });
        for (names, meaning) in section.rows() {
            let key = is_settings.then(|| known.get(&setting(heading, &names))).flatten();
            let columns = key.map(columns).unwrap_or_default();
            text.push_str(&format!("| {names} |{columns} {meaning} |\n"));
        }
    }
    with_links(&text)
}

/// Returns default, range and reload as cells.
fn columns(key: &Known) -> String {
    let is_value = key.default.starts_with(['"', '[', 't', 'f']) && !key.default.contains(' ')
        || key.default.starts_with(|c: char| c.is_ascii_digit());
    let default = match is_value {
        true => format!("`{}`", key.default),
        false => key.default.clone(),
    };
    let reload = if hotrow::reload::needs_restart(&key.path) { "restart" } else { "applied" };
    format!(" {default} | {} | {reload} |", key.range)
}

/// Makes links of `docs/` links of its folder.
fn with_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let target = match part.strip_prefix("reference/") {
            _ if part.starts_with('#') || part.starts_with("https:") => part.to_owned(),
            Some(page) => page.to_owned(),
            None => format!("../{part}"),
        };
        linked.push_str(&format!("]({target}"));
    }
    linked
}

fn known() -> BTreeMap<String, Known> {
    known_keys().into_iter().map(|key| (key.path.clone(), key)).collect()
}

/// Returns the path of a key from the heading of its section.
fn setting(heading: &str, name: &str) -> String {
    format!("{}.{}", heading.trim_matches(['`', '[', ']']), name.trim_matches('`'))
}

/// Each key of the file is described, and nothing else.
fn settings_complaints(page: Option<&Page<'_>>) -> Vec<String> {
    let sections = page.into_iter().flatten();
    let described: BTreeSet<String> = sections
        .flat_map(|(heading, section)| section.rows().map(|(name, _)| setting(heading, &name)))
        .collect();
    let known: BTreeSet<String> = known().into_keys().collect();
    let missing = known.difference(&described).map(|key| format!("no comment describes {key}"));
    let gone = described.difference(&known).map(|key| format!("a comment describes {key}"));
    missing.chain(gone).collect()
}

/// Writes the pages, on demand.
#[test]
fn renew_the_reference() {
    if std::env::var_os(RENEW_VARIABLE).is_none() {
        return;
    }
    let tree = Tree::of_repository();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::create_dir_all(root.join(FOLDER)).expect("the folder");
    for (name, page) in pages(&tree) {
        let path = root.join(format!("{FOLDER}{name}.md"));
        std::fs::write(path, rendered(name, &page)).expect("the page");
    }
}

#[test]
fn comments_become_tables() {
    let source = "//! A.\n//!\n//! Reference `m`: B\n//!\n//! See [a](b.md).\n//!\n//! - `x` (`y`): Two\n\
        //!   lines.\n//!\n//! Reference `m`: # M\n\nuse a;\n";
    let tree = Tree::of(&[("crates/a/src/b.rs", source), ("docs/reference/old.md", "")]);
    let page = rendered("m", &pages(&tree)["m"]);
    let (_, body) = page.split_once("-->\n").expect("its first line");
    assert_eq!(
        body,
        "\n# M\n\n## B\n\nSee [a](../b.md).\n\n| name | meaning |\n|---|---|\n| `x` (`y`) | Two lines. |\n"
    );
    let complaints = reference(&tree).join("\n");
    for expected in ["m.md is not what", "old.md has no source", "no comment describes cache.ttl"] {
        assert!(complaints.contains(expected), "{expected}: {complaints}");
    }
}
