//! Files that the checks read, and the part of a Rust file that is not a test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Folders that are not part of the repository: results of builds and runs.
const SKIPPED: [&str; 5] = [".git", "target", ".test", "node_modules", "__pycache__"];
/// Stored results: links may point there, but they are not written by hand.
const RESULTS: &str = "bench/runs/";

/// Folder of the crates of the workshop.
pub(crate) const TOOLS: &str = "tools";

/// Files of the repository: paths from its root, with `/`, and the content of text files.
pub(crate) struct Tree {
    paths: BTreeSet<String>,
    texts: BTreeMap<String, String>,
}

impl Tree {
    pub(crate) fn of_repository() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut tree = Self { paths: BTreeSet::new(), texts: BTreeMap::new() };
        tree.add_folder(&root, "");
        tree
    }

    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let texts: BTreeMap<String, String> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self { paths: texts.keys().cloned().collect(), texts }
    }

    fn add_folder(&mut self, folder: &Path, prefix: &str) {
        for entry in std::fs::read_dir(folder).expect("readable folder") {
            let entry = entry.expect("readable entry");
            let name = entry.file_name().into_string().expect("a name in UTF-8");
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().expect("has a type");
            if kind.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.add_folder(&entry.path(), &format!("{path}/"));
                }
            } else {
                let written = !path.starts_with(RESULTS);
                if let Some(text) =
                    written.then(|| std::fs::read_to_string(entry.path()).ok()).flatten()
                {
                    self.texts.insert(path.clone(), text);
                }
                self.paths.insert(path);
            }
        }
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        path.is_empty()
            || self
                .paths
                .iter()
                .any(|p| p.strip_prefix(path).is_some_and(|r| r.is_empty() || r.starts_with('/')))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns the Rust files, unchanged.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// Returns the Rust code of the crates without tests and comments; line numbers are unchanged.
    pub(crate) fn production(&self) -> Vec<(&str, String)> {
        let mut test_modules = Vec::new();
        let mut code = Vec::new();
        for (path, text) in
            self.rust().filter(|(path, _)| crate_of(path).is_some() && path.contains("/src/"))
        {
            let (kept, modules) = without_tests(text);
            let folder = match path.rsplit_once('/') {
                Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder.to_owned(),
                _ => path.trim_end_matches(".rs").to_owned(),
            };
            test_modules.extend(modules.into_iter().map(|module| format!("{folder}/{module}")));
            code.push((path, without_comments(&kept)));
        }
        code.retain(|(path, _)| {
            let of = |module: &String| {
                path.strip_prefix(module.as_str()).is_some_and(|r| r == ".rs" || r.starts_with('/'))
            };
            !test_modules.iter().any(of)
        });
        code
    }

    /// Returns the crates with their folders: the service's are in `crates`, those of the workshop
    /// in `tools`.
    pub(crate) fn crates(&self) -> BTreeMap<&str, &str> {
        self.paths.iter().filter_map(|path| crate_of(path)).map(|(at, name)| (name, at)).collect()
    }
}

/// Returns folder and name of the crate that a file belongs to.
pub(crate) fn crate_of(path: &str) -> Option<(&str, &str)> {
    let (folder, rest) = path.split_once('/')?;
    let (name, _) = rest.split_once('/')?;
    matches!(folder, "crates" | TOOLS).then_some((folder, name))
}

/// Blanks out modules under a `cfg` with `test`. Also returns their names, by which their files are
/// found.
fn without_tests(text: &str) -> (String, Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let mut kept = String::with_capacity(text.len());
    let mut modules = Vec::new();
    let mut i = 0;
    while i < lines.len() {
        let line = lines[i];
        let end = if is_test_cfg(line) { module_end(&lines, i + 1, &mut modules) } else { None };
        match end {
            Some(end) => {
                kept.push_str(&"\n".repeat(end + 1 - i));
                i = end + 1;
            }
            None => {
                kept.push_str(line);
                kept.push('\n');
                i += 1;
            }
        }
    }
    (kept, modules)
}

pub(crate) fn is_test_cfg(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("#[cfg(") && has_word(line, "test") && !line.contains("not(test)")
}

/// Returns the last line of the module that begins at `at`, after further attributes; assumes
/// formatted code.
fn module_end(lines: &[&str], mut at: usize, modules: &mut Vec<String>) -> Option<usize> {
    while lines.get(at)?.trim_start().starts_with("#[") {
        at += 1;
    }
    let line = lines[at];
    let (_, name) = line.split_once("mod ")?;
    if let Some(name) = name.strip_suffix(';') {
        modules.push(name.to_owned());
        return Some(at);
    }
    // Its own modules are in files of a folder with its name.
    modules.push(name.strip_suffix(" {")?.to_owned());
    let indent = line.len() - line.trim_start().len();
    let closing = format!("{}}}", " ".repeat(indent));
    lines.iter().skip(at).position(|l| *l == closing).map(|n| at + n)
}

/// Removes line comments; `//` inside a string stays (an odd number of quotes precedes it).
pub(crate) fn without_comments(code: &str) -> String {
    let cut = |line: &str| {
        let comment = line
            .match_indices("//")
            .find(|(at, _)| line[..*at].matches('"').count().is_multiple_of(2));
        comment.map_or(line.len(), |(at, _)| at)
    };
    code.lines().map(|line| format!("{}\n", &line[..cut(line)])).collect()
}

/// Returns whether `text` contains `word` as a whole name.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(part_of_name) && !text[at + word.len()..].starts_with(part_of_name)
    })
}

#[test]
fn tests_and_comments_are_removed() {
    let lib = "use a; // std::fs\nlet url = \"http://x\";\n#[cfg(test)]\nmod tests \
        {\n    inner\n}\n\
        after\n#[cfg(all(test, feature = \"x\"))]\n\
        #[allow(y)]\nmod model;\n#[cfg(not(test))]\nmod real;\n";
    let tree = Tree::of(&[
        ("crates/a/src/lib.rs", lib),
        ("crates/a/src/model.rs", "model"),
        ("crates/a/src/model/deep.rs", "deep"),
        ("crates/a/src/models.rs", "kept"),
        ("crates/a/src/tests/inner.rs", "inner"),
        ("crates/a/tests/x.rs", "not in src"),
    ]);
    let code = tree.production();
    let paths: Vec<&str> = code.iter().map(|(path, _)| *path).collect();
    assert_eq!(paths, ["crates/a/src/lib.rs", "crates/a/src/models.rs"]);
    assert_eq!(
        code[0].1,
        "use a; \nlet url = \"http://x\";\n\n\n\n\nafter\n\n\n\n#[cfg(not(test))]\nmod real;\n"
    );
}

#[test]
fn words_are_whole() {
    assert!(has_word("x.spawn()", "spawn") && has_word("tokio", "tokio"));
    assert!(!has_word("respawn", "spawn") && !has_word("spawned", "spawn"));
    let tree = Tree::of(&[("docs/a.md", "")]);
    assert!(tree.has("docs/") && tree.has("docs/a.md") && !tree.has("doc") && !tree.has("docs/a"));
}
