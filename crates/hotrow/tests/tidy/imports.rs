//! Imports between the files of a crate, and the circles that they form.
//!
//! A file imports another if it names an item of it, by `use` or by a path that begins with
//! `crate`, `self` or `super`. `mod` declarations, and a parent's re-exports of its children, are
//! no imports.

use std::collections::{BTreeMap, BTreeSet};

/// Path of a module below the root of its crate.
pub(crate) type Module = Vec<String>;

/// Files that each file imports.
pub(crate) type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Returns the module that a file defines: `src/a/b.rs` and `src/a/b/mod.rs` define `a::b`.
pub(crate) fn module_of(path_in_src: &str) -> Module {
    let mut parts: Module =
        path_in_src.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Returns the imports between the files of one crate; the texts have no comments.
pub(crate) fn graph(files: &BTreeMap<Module, String>) -> Graph {
    let imported = |module: &Module, text: &str| {
        let mut paths = Vec::new();
        let rest = split_uses(text, &mut paths);
        paths.extend(qualified_paths(&rest).map(|path| Path { text: path, is_public: false }));
        paths.iter().filter_map(|path| target(files, module, path)).collect()
    };
    files.iter().map(|(module, text)| (module.clone(), imported(module, text))).collect()
}

struct Path {
    text: String,
    is_public: bool,
}

/// Returns the file that defines what `path` names, if it is another one of the crate.
fn target(files: &BTreeMap<Module, String>, module: &Module, path: &Path) -> Option<Module> {
    let mut segments = path.text.split("::").map(str::trim).peekable();
    let mut found = module.clone();
    match *segments.peek()? {
        "crate" => {
            found.clear();
            segments.next();
        }
        "self" | "super" => {
            while let Some(segment) = segments.next_if(|s| matches!(*s, "self" | "super")) {
                if segment == "super" {
                    found.pop();
                }
            }
        }
        first => {
            found.push(first.to_owned());
            files.contains_key(&found).then_some(())?;
            found.pop();
        }
    }
    for segment in segments {
        found.push(segment.to_owned());
        if !files.contains_key(&found) {
            found.pop();
            break;
        }
    }
    let is_reexport_of_child = path.is_public && found.starts_with(module);
    (found != *module && files.contains_key(&found) && !is_reexport_of_child).then_some(found)
}

/// Adds the paths of the `use` statements of `text`; returns the text without them.
fn split_uses(text: &str, paths: &mut Vec<Path>) -> String {
    let mut rest = String::with_capacity(text.len());
    let mut after = 0;
    for (at, _) in text.match_indices("use ") {
        if at < after || is_in_name(text, at) {
            continue;
        }
        let Some(length) = text[at..].find(';') else { break };
        let before = &text[after..at];
        let is_public = before.ends_with("pub ")
            || before.ends_with(") ")
                && before.rfind("pub(").is_some_and(|open| before[open..].find(')').is_some());
        rest.push_str(before);
        expand(&text[at + "use ".len()..at + length], "", &mut |text| {
            paths.push(Path { text, is_public });
        });
        after = at + length + 1;
    }
    rest.push_str(&text[after..]);
    rest
}

/// Flattens `a::{b, c::{d}}` into paths.
fn expand(tree: &str, prefix: &str, add: &mut impl FnMut(String)) {
    let tree = tree.trim();
    let group = tree.split_once('{').and_then(|(head, rest)| Some((head, rest.strip_suffix('}')?)));
    let Some((head, items)) = group else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        add(format!("{prefix}{path}"));
        return;
    };
    let prefix = format!("{prefix}{head}");
    let mut depth = 0_u32;
    let mut begin = 0;
    for (at, c) in items.char_indices().chain([(items.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                if !items[begin..at].trim().is_empty() {
                    expand(&items[begin..at], &prefix, add);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns the paths that begin with `crate`, `self` or `super`.
fn qualified_paths(text: &str) -> impl Iterator<Item = String> {
    let begins = ["crate::", "self::", "super::"];
    let found = begins.into_iter().flat_map(move |begin| {
        text.match_indices(begin).filter(move |(at, _)| !is_in_name(text, *at))
    });
    found.filter_map(move |(at, begin)| {
        // `super::super::x` is one path, found where it begins.
        if text[..at].ends_with("::") {
            return None;
        }
        let in_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let path = &text[at..at + text[at..].find(|c| !in_path(c)).unwrap_or(text.len() - at)];
        (path.len() > begin.len()).then(|| path.trim_end_matches(':').to_owned())
    })
}

/// Returns whether the character before `at` continues a name.
fn is_in_name(text: &str, at: usize) -> bool {
    text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Returns the circles of more than one file, largest first: strongly connected files.
pub(crate) fn circles(graph: &Graph) -> Vec<BTreeSet<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let mut circles = BTreeSet::new();
    for (module, others) in &reach {
        let mutual = others.iter().filter(|other| reach[**other].contains(module));
        let circle: BTreeSet<Module> = mutual.map(|other| (*other).clone()).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    let mut circles: Vec<_> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Returns the files that a file reaches by imports, itself among them if it is in a circle.
fn reachable<'a>(graph: &'a Graph, from: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Module> = graph[from].iter().collect();
    while let Some(module) = open.pop() {
        if found.insert(module) {
            open.extend(&graph[module]);
        }
    }
    found
}

#[test]
fn imports_and_circles_are_found() {
    let files = [
        ("", "pub use a::A; mod a; mod b; mod c;"),
        ("a", "use crate::{b::{self, B as X}, c}; fn f() { super::c::g() }"),
        ("b", "pub(crate) use self::deep::D; fn f() -> crate::a::A { because_use(1) }"),
        ("b::deep", "use super::super::c::C;\nuse std::fmt;"),
        ("c", "fn g() { myself::x(); deep::y() }"),
    ];
    let module = |name: &str| -> Module {
        name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let files = files.into_iter().map(|(name, text)| (module(name), text.to_owned())).collect();
    let graph = graph(&files);
    let imports = |name: &str| -> Vec<String> {
        graph[&module(name)].iter().map(|module| module.join("::")).collect()
    };
    assert_eq!(imports(""), [""; 0]);
    assert_eq!(imports("a"), ["b", "c"]);
    assert_eq!(imports("b"), ["a"]);
    assert_eq!(imports("b::deep"), ["c"]);
    assert_eq!(imports("c"), [""; 0]);
    assert_eq!(circles(&graph), [[module("a"), module("b")].into()]);
    assert_eq!(module_of("a/b/mod.rs"), module("a::b"));
    assert_eq!(module_of("lib.rs"), module(""));
}
