//! Checks of the language of comments and documents.

use crate::tree::{Tree, has_word};
use crate::{assert_complains, assert_silent};

/// Most columns of a comment and of prose, as of code (`rustfmt.toml`).
const COLUMNS_MAX: usize = 100;
/// Words with a plainer one: name the client, caller or operator instead of a person, and make two
/// sentences of what happens at once. In lower case.
const REPLACED_WORDS: [&str; 3] = ["whoever", "somebody", "meanwhile"];

/// Comments and prose have at most [`COLUMNS_MAX`] columns.
pub(crate) fn columns(tree: &Tree) -> Vec<String> {
    let long = prose(tree).filter_map(|(path, number, line)| {
        let columns = line.chars().count();
        let is_fine = columns <= COLUMNS_MAX || is_table_or_image(line) || is_address(line);
        (!is_fine).then(|| format!("{path}:{number}: {columns} columns, at most {COLUMNS_MAX}"))
    });
    long.collect()
}

/// Comments and prose have none of [`REPLACED_WORDS`].
pub(crate) fn words(tree: &Tree) -> Vec<String> {
    let found = prose(tree).filter_map(|(path, number, line)| {
        let line = line.to_lowercase();
        let word = REPLACED_WORDS.iter().find(|word| has_word(&line, word))?;
        Some(format!("{path}:{number}: {word:?}: name the actor, or make two sentences"))
    });
    found.collect()
}

/// Returns the lines of comments in Rust files, and of prose in documents, with their numbers.
fn prose(tree: &Tree) -> impl Iterator<Item = (&str, usize, &str)> {
    tree.texts().flat_map(|(path, text)| {
        let lines: Vec<(usize, &str)> = match path.rsplit_once('.') {
            Some((_, "rs")) => numbered(text).filter(|(_, line)| is_comment(line)).collect(),
            Some((_, "md")) => outside_code(text),
            _ => Vec::new(),
        };
        lines.into_iter().map(move |(number, line)| (path, number, line))
    })
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Returns the lines of a document that are in no block of code, fenced or indented.
fn outside_code(text: &str) -> Vec<(usize, &str)> {
    let mut fence = None;
    let mut lines = Vec::new();
    for (number, line) in numbered(text) {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) if !line.starts_with("    ") => lines.push((number, line)),
            (None, None) | (Some(_), _) => {}
        }
    }
    lines
}

fn is_table_or_image(line: &str) -> bool {
    line.trim_start().starts_with('|') || line.contains("![") || line.contains("<img ")
}

/// Returns whether the line is a URL alone, or the definition of a link: it cannot be broken.
fn is_address(line: &str) -> bool {
    let text = line.trim_start_matches(['/', '!', ' ', '-', '*']);
    let text = text.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map_or(text, |l| l.1);
    text.contains("://") && !text.trim().contains(' ')
}

#[test]
fn columns_complains() {
    let long = "word ".repeat(21);
    let address = format!("https://a.example/{}", "x".repeat(100));
    for (path, text) in [
        ("a.rs", format!("let a = \"{long}\";\n/// {}", "ü".repeat(COLUMNS_MAX - 4))),
        ("a.rs", format!("//! <{address}>")),
        ("a.md", "x".repeat(COLUMNS_MAX)),
        ("a.md", format!("| {long} |\n![{long}](a.png)\n    {long}\n```\n~~~\n{long}\n```\n")),
        ("a.md", format!("- <{address}>\n[name]: {address}\n")),
        ("a.toml", long.clone()),
        ("bench/x.py", format!("# {long}")),
    ] {
        assert_silent(columns, &[(path, text.as_str())]);
    }
    for (path, text) in [
        ("crates/a/src/a.rs", format!("fn a() {{\n    // {long}\n}}\n")),
        ("a.md", format!("one\n{long}\n")),
        ("a.md", format!("```\ncode\n```\n- {long}\n")),
        ("a.md", format!("{long} {address}\n")),
        ("b.rs", format!("//! see {address} and {long}")),
    ] {
        assert_complains(columns, &[(path, text.as_str())], "columns, at most 100");
    }
    assert_complains(columns, &[("a.md", &format!("one\n{long}\n"))], "a.md:2: 105 columns");
}

#[test]
fn words_complains() {
    for word in REPLACED_WORDS {
        let code = format!("let {word} = \"{word}\"; // and\n");
        assert_silent(words, &[("a.rs", &code), ("a.md", &format!("```\n{word}\n```\n"))]);
        assert_silent(words, &[("a.md", &format!("{word}s and un{word}"))]);
        assert_complains(words, &[("a.rs", &format!("/// As {word} says.\n"))], "name the actor");
        let capital = word[..1].to_uppercase() + &word[1..];
        assert_complains(words, &[("docs/a.md", &format!("\n{capital}, it ends."))], "docs/a.md:2");
    }
}
