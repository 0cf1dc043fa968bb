//! Checks of the text of source files.

use crate::assert_samples;
use crate::reference;
use crate::tree::{Tree, has_word};

/// Most lines of a Rust file: one idea per file.
const RUST_LINES_MAX: usize = 500;
/// Most lines of another file written by hand: documents, scripts, other languages.
const OTHER_LINES_MAX: usize = 600;
const WRITTEN_BY_PEOPLE: &[&str] =
    &["md", "toml", "sh", "py", "go", "c", "h", "lua", "js", "html", "css", "sql", "conf"];

/// Folders of the crates that decide without I/O.
const PURE: [&str; 3] = ["crates/access/", "crates/cache/", "crates/hub/"];
/// Paths of clocks, I/O, threads, processes and random numbers.
const IMPURE_PATHS: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "std::io",
    "std::os",
    "std::time::Instant",
    "std::time::SystemTime",
    "Nanos::now",
];
const IMPURE_WORDS: &[&str] = &[
    "Instant",
    "SystemTime",
    "RandomState",
    "println",
    "eprintln",
    "print",
    "eprint",
    "dbg",
    "spawn",
    "tokio",
    "tracing",
    "libc",
    "rustix",
    "socket2",
    "rusqlite",
    "hyper",
    "getrandom",
];

pub(crate) fn pure_cache(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_pure = |path: &str| PURE.iter().any(|folder| path.starts_with(folder));
    for (path, code) in tree.production().iter().filter(|(path, _)| is_pure(path)) {
        let mut text = code.clone();
        let mut paths = Vec::new();
        text.retain(|c| !c.is_whitespace() || c == ' ');
        for statement in text.split(';').filter_map(|s| s.split_once("use ").map(|(_, tree)| tree))
        {
            expand_use(&statement.replace(' ', ""), &mut paths);
        }
        let under = |full: &str, path: &str| {
            full.strip_prefix(path).is_some_and(|r| r.is_empty() || r.starts_with("::"))
        };
        let named = |path: &str| has_word(code, path) || paths.iter().any(|full| under(full, path));
        let found = IMPURE_PATHS
            .iter()
            .filter(|p| named(p))
            .chain(IMPURE_WORDS.iter().filter(|w| has_word(code, w)));
        complaints.extend(found.map(|name| {
            format!("{path} names {name}; the caller must pass in time, I/O and randomness")
        }));
    }
    complaints
}

/// Expands `a::{b, c::{self, d}}` to full paths; the input has no blanks.
fn expand_use(tree: &str, paths: &mut Vec<String>) {
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.trim_end_matches("::self");
        paths.push(path.to_owned());
        return;
    };
    let mut depth = 0_i32;
    let mut begin = 0;
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                if begin < at {
                    expand_use(&format!("{prefix}{}", &rest[begin..at]), paths);
                }
                begin = at + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

pub(crate) fn demo_database(tree: &Tree) -> Vec<String> {
    let code = tree.production();
    let elsewhere = code.iter().filter(|(path, code)| {
        path.starts_with("crates/hotrow/")
            && !path.starts_with("crates/hotrow/src/demo/")
            && has_word(code, "rusqlite")
    });
    elsewhere
        .map(|(path, _)| format!("{path} names rusqlite; in the binary only src/demo/ may"))
        .collect()
}

/// Code that runs in the service: its threads are supervised, and its messages go to the log.
const SERVING: &[&str] = &[
    "crates/source/src/",
    "crates/net/src/",
    "crates/representation/src/",
    "crates/answer/src/",
    "crates/changes/src/",
    "crates/front/src/",
    "crates/gate/src/",
    "crates/server/src/",
    "crates/service/src/",
    "crates/telemetry/src/",
    "crates/hotrow/src/serve.rs",
    "crates/hotrow/src/signals.rs",
    "crates/hotrow/src/logging.rs",
    "crates/hotrow/src/log_writer.rs",
    "crates/hotrow/src/demo/",
];
pub(crate) fn threads(tree: &Tree) -> Vec<String> {
    let code = tree.production();
    let starts =
        |code: &str| ["thread::Builder", "thread::spawn"].iter().any(|name| has_word(code, name));
    let elsewhere = code.iter().filter(|(path, code)| {
        SERVING.iter().any(|serving| path.starts_with(serving)) && starts(code)
    });
    elsewhere.map(|(path, _)| format!("{path} starts a thread; use Supervisor::spawn")).collect()
}

pub(crate) fn prints(tree: &Tree) -> Vec<String> {
    const MACROS: [&str; 4] = ["print!", "println!", "eprint!", "eprintln!"];
    let code = tree.production();
    let serving =
        code.iter().filter(|(path, _)| SERVING.iter().any(|serving| path.starts_with(serving)));
    let found = serving.filter(|(_, code)| MACROS.iter().any(|name| has_word(code, name)));
    found
        .map(|(path, _)| {
            format!("{path} prints, which panics if standard error is closed; log it instead")
        })
        .collect()
}

pub(crate) fn length(tree: &Tree) -> Vec<String> {
    let limit = |path: &str| match path.rsplit_once('.') {
        Some((_, "rs")) => Some(RUST_LINES_MAX),
        // Generated.
        _ if path.starts_with(reference::FOLDER) => None,
        Some((_, extension)) if WRITTEN_BY_PEOPLE.contains(&extension) => Some(OTHER_LINES_MAX),
        _ => (path == "test").then_some(OTHER_LINES_MAX),
    };
    let long = tree.texts().filter_map(|(path, text)| {
        let limit = limit(path)?;
        let lines = text.lines().count();
        (lines > limit).then(|| {
            format!("{path} has {lines} lines, the limit is {limit}; split off a second idea")
        })
    });
    long.collect()
}

pub(crate) fn leftovers(tree: &Tree) -> Vec<String> {
    // Concatenated so that this file does not match itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
    let macros = [concat!("to", "do!"), concat!("unimple", "mented!")];
    on_lines(tree.texts(), |line| {
        let found = marks
            .iter()
            .find(|m| has_word(line, m))
            .or_else(|| macros.iter().find(|m| line.contains(**m)));
        found.map(|mark| format!("{mark}: finish it, or remove it and open an issue"))
    })
}

fn on_lines<'a>(
    texts: impl Iterator<Item = (&'a str, &'a str)>,
    complaint: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let of_file = |(path, text): (&str, &str)| {
        let lines = text.lines().enumerate();
        lines
            .filter_map(|(i, line)| Some(format!("{path}:{}: {}", i + 1, complaint(line)?)))
            .collect::<Vec<_>>()
    };
    texts.flat_map(of_file).collect()
}

#[test]
fn pure_cache_complains() {
    const OWN: &str = "crates/cache/src/a.rs";
    let fine = "use std::{cmp, time::Duration};\nuse crate::thread::print_it;\n\
                // std::fs is not used\n";
    assert_samples(
        pure_cache,
        &[
            (OWN, fine, ""),
            (OWN, "#[cfg(test)]\nmod tests {\n    use std::thread;\n}\n", ""),
            ("crates/server/src/a.rs", "use std::fs;", ""),
            (OWN, "use std::fs::File;", "names std::fs"),
            (OWN, "use std::{\n    sync::Arc,\n    io::{self, Read},\n};", "names std::io"),
            (OWN, "pub(crate) use std::{cmp, thread};", "names std::thread"),
            (OWN, "let t = std::process::id();", "names std::process"),
            (OWN, "let now = Nanos::now();", "names Nanos::now"),
            (OWN, "println!(\"x\");", "names println"),
            (OWN, "use tokio::sync::Notify;", "names tokio"),
        ],
    );
    let both = crate::complaints(pure_cache, &[(OWN, "use std::time::{Duration, Instant};")]);
    assert_eq!(both.len(), 2, "as a path and as a word: {both:?}");
}

#[test]
fn code_of_the_service_and_the_binary_is_checked() {
    const BUILDER: &str = "std::thread::Builder::new().spawn(f)";
    const SERVER: &str = "crates/server/src/a.rs";
    const DEMO: &str = "crates/hotrow/src/demo/a.rs";
    let elsewhere =
        [("crates/hotrow/src/serve.rs", "rusqlite::version()", "serve.rs names rusqlite")];
    assert_samples(demo_database, &[(DEMO, "use rusqlite::Connection;", "")]);
    assert_samples(demo_database, &elsewhere);
    assert_samples(
        threads,
        &[
            ("tools/load/src/a.rs", BUILDER, ""),
            (SERVER, "supervisor.spawn(f); std::thread::sleep(t)", ""),
            (SERVER, BUILDER, "a.rs starts a thread"),
            (DEMO, "thread::spawn(f)", "use Supervisor::spawn"),
        ],
    );
    assert_samples(
        prints,
        &[
            ("crates/hotrow/src/cli.rs", "println!(\"x\")", ""),
            (SERVER, "// println! is not for here\nlet print = 1;", ""),
            (SERVER, "eprintln!(\"x\")", "a.rs prints"),
        ],
    );
}

#[test]
fn texts_are_checked() {
    let fits = "x\n".repeat(RUST_LINES_MAX);
    let long = "x\n".repeat(RUST_LINES_MAX + 1);
    let longer = "x\n".repeat(OTHER_LINES_MAX + 1);
    assert_samples(
        length,
        &[
            ("a.rs", &fits, ""),
            ("a.md", &long, ""),
            ("Cargo.lock", &longer, ""),
            ("a.rs", &long, "a.rs has 501 lines, the limit is 500"),
            ("docs/a.md", &longer, "the limit is 600"),
            ("test", &longer, "the limit is 600"),
            ("bench/x.py", &longer, "the limit is 600"),
        ],
    );
    const OWN: &str = "crates/a/src/a.rs";
    assert_samples(
        leftovers,
        &[
            ("a.md", "a mastodon", ""),
            ("a.md", concat!("one\n// TO", "DO: more"), "a.md:2: TO"),
            (OWN, concat!("unimple", "mented!()"), "finish it"),
            ("test", concat!("# FIX", "ME"), "test:1"),
        ],
    );
}
