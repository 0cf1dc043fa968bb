//! Checks of the manifests: arrows, lints, and which crate may name which protocol.

use crate::tree::Tree;
use crate::{assert_complains, assert_silent};

/// Which of our crates each may depend on. `source` may name `measure` for the clock's type that `cache` speaks in.
const ARROWS: &[(&str, &[&str])] = &[
    ("measure", &[]),
    ("admit", &["measure"]),
    ("cache", &["admit", "measure"]),
    ("source", &["cache", "measure"]),
    ("server", &["admit", "cache", "source", "measure"]),
    ("load", &["measure"]),
    ("diagnose", &["measure"]),
    ("lab", &["load", "diagnose", "measure"]),
    ("reference", &[]),
    ("verify", &["measure"]),
    ("hotrow", &["measure", "admit", "cache", "source", "server", "load", "diagnose", "lab", "reference", "verify"]),
];

const HTTP: &[&str] = &[
    "hyper",
    "hyper-util",
    "http",
    "http-body",
    "http-body-util",
    "httparse",
    "h2",
    "axum",
    "actix-web",
    "reqwest",
    "ureq",
];
const HTTP_SPEAKERS: &[&str] = &["server", "load", "reference", "verify"];
const DATABASES: &[&str] = &[
    "rusqlite",
    "libsqlite3-sys",
    "sqlx",
    "tokio-postgres",
    "deadpool-postgres",
    "sea-orm",
    "sea-query",
    "postgres",
    "pgwire-replication",
    "mysql_async",
    "mysql",
    "mongodb",
];
const DATABASE_KNOWERS: &[&str] = &["source", "reference", "verify"];
/// `hotrow` makes the demonstration's database and writes to it, as its user would, and its tests play the writer of a server;
/// its manifest says so. Crate, kind of dependency, package.
const DATABASE_EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("hotrow", "dependencies", "rusqlite"),
    ("hotrow", "dev-dependencies", "mongodb"),
    ("hotrow", "dev-dependencies", "mysql_async"),
    ("hotrow", "dev-dependencies", "tokio-postgres"),
];

/// A crate's manifest, parsed, with the line of text it came from.
struct Manifest<'a> {
    name: &'a str,
    text: &'a str,
    table: toml::Table,
}

/// All manifests; a complaint for each that cannot be read.
fn manifests(tree: &Tree) -> (Vec<Manifest<'_>>, Vec<String>) {
    let (mut manifests, mut complaints) = (Vec::new(), Vec::new());
    for name in tree.crate_names() {
        let path = format!("crates/{name}/Cargo.toml");
        let Some(text) = tree.text(&path) else {
            complaints.push(format!("{path} is missing"));
            continue;
        };
        match text.parse() {
            Ok(table) => manifests.push(Manifest { name, text, table }),
            Err(e) => complaints.push(format!("{path}: {e}")),
        }
    }
    (manifests, complaints)
}

impl Manifest<'_> {
    /// Every package it depends on, for tests and builds and single platforms too.
    fn dependencies(&self) -> Vec<&str> {
        self.kinds_and_dependencies().into_iter().map(|(_, dependency)| dependency).collect()
    }

    /// The same, each with the name of its table.
    fn kinds_and_dependencies(&self) -> Vec<(&str, &str)> {
        let mut tables = vec![&self.table];
        let targets = self.table.get("target").and_then(toml::Value::as_table);
        tables.extend(targets.into_iter().flat_map(|t| t.values()).filter_map(toml::Value::as_table));
        let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
        let lists =
            tables.iter().flat_map(|t| kinds.iter().filter_map(|kind| Some((*kind, t.get(*kind)?.as_table()?))));
        let named = |(kind, list)| list_of(list).map(move |name| (kind, name));
        lists.flat_map(named).collect()
    }
}

/// The packages that a table of dependencies names.
fn list_of(table: &toml::Table) -> impl Iterator<Item = &str> {
    table.iter().map(|(key, value)| value.get("package").and_then(toml::Value::as_str).unwrap_or(key))
}

pub(crate) fn arrows(tree: &Tree) -> Vec<String> {
    let (manifests, mut complaints) = manifests(tree);
    for m in &manifests {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == m.name) else {
            complaints.push(format!("crates/{} is not in the table of crates and arrows", m.name));
            continue;
        };
        for dependency in m.dependencies().iter().filter_map(|d| d.strip_prefix("hotrow-")) {
            if !allowed.contains(&dependency) {
                complaints.push(format!("crates/{} must not depend on {dependency}; it may on {allowed:?}", m.name));
            }
        }
    }
    complaints
}

pub(crate) fn lints(tree: &Tree) -> Vec<String> {
    let (manifests, _) = manifests(tree);
    let opted_in = |m: &Manifest<'_>| m.table.get("lints").and_then(|l| l.get("workspace")?.as_bool()) == Some(true);
    let without = manifests.iter().filter(|m| !opted_in(m));
    without.map(|m| format!("crates/{}/Cargo.toml must say [lints] workspace = true", m.name)).collect()
}

pub(crate) fn protocols(tree: &Tree) -> Vec<String> {
    let (manifests, _) = manifests(tree);
    let mut complaints = Vec::new();
    for m in &manifests {
        for (kind, dependency) in m.kinds_and_dependencies() {
            if HTTP.contains(&dependency) && !HTTP_SPEAKERS.contains(&m.name) {
                complaints.push(format!("crates/{} must not speak HTTP ({dependency}); {HTTP_SPEAKERS:?} do", m.name));
            }
            if DATABASES.contains(&dependency) && !DATABASE_KNOWERS.contains(&m.name) {
                if !DATABASE_EXCEPTIONS.contains(&(m.name, kind, dependency)) {
                    complaints.push(format!(
                        "crates/{} must not know databases ({dependency}); {DATABASE_KNOWERS:?} do",
                        m.name
                    ));
                } else if !has_reason(m.text, dependency) {
                    complaints
                        .push(format!("crates/{}/Cargo.toml must say in a comment above {dependency} why", m.name));
                }
            }
        }
    }
    complaints
}

/// Whether a comment stands in the line above the dependency's.
fn has_reason(manifest: &str, dependency: &str) -> bool {
    let lines: Vec<&str> = manifest.lines().collect();
    lines.windows(2).any(|pair| pair[1].starts_with(dependency) && pair[0].starts_with("# ") && pair[0].len() > 20)
}

#[test]
fn arrows_complains() {
    let manifest = |text: &'static str| [("crates/cache/Cargo.toml", text)];
    assert_silent(arrows, &manifest("[dependencies]\nhotrow-measure.workspace = true\nserde = '1'\n"));
    assert_complains(
        arrows,
        &manifest("[dependencies]\nhotrow-server.workspace = true\n"),
        "cache must not depend on server",
    );
    assert_complains(arrows, &manifest("[dev-dependencies]\nhotrow-source = {}\n"), "must not depend on source");
    assert_complains(
        arrows,
        &manifest("[target.'cfg(unix)'.dependencies]\nx = {package = 'hotrow-lab'}\n"),
        "depend on lab",
    );
    assert_complains(arrows, &manifest("not toml"), "crates/cache/Cargo.toml");
    assert_complains(arrows, &[("crates/cache/src/lib.rs", "")], "crates/cache/Cargo.toml is missing");
    assert_complains(arrows, &[("crates/novel/Cargo.toml", "")], "crates/novel is not in the table");
}

#[test]
fn lints_complains() {
    assert_silent(lints, &[("crates/cache/Cargo.toml", "[lints]\nworkspace = true\n")]);
    assert_complains(lints, &[("crates/cache/Cargo.toml", "[lints]\nworkspace = false\n")], "[lints] workspace = true");
    assert_complains(lints, &[("crates/cache/Cargo.toml", "")], "[lints] workspace = true");
}

#[test]
fn protocols_complains() {
    let reason = "[dependencies]\n# For the demonstration's own database.\nrusqlite.workspace = true\n";
    assert_silent(protocols, &[("crates/hotrow/Cargo.toml", reason)]);
    assert_silent(protocols, &[("crates/server/Cargo.toml", "[dependencies]\nhyper = '1'\n")]);
    assert_complains(
        protocols,
        &[("crates/source/Cargo.toml", "[dependencies]\nhyper = '1'\n")],
        "source must not speak HTTP",
    );
    assert_complains(
        protocols,
        &[("crates/server/Cargo.toml", "[dev-dependencies]\nrusqlite = '1'\n")],
        "must not know databases",
    );
    assert_complains(
        protocols,
        &[("crates/hotrow/Cargo.toml", "[dependencies]\nmongodb = '1'\n")],
        "must not know databases",
    );
    assert_complains(
        protocols,
        &[("crates/hotrow/Cargo.toml", "[dependencies]\nrusqlite = '1'\n")],
        "in a comment above",
    );
    let reason = "[dev-dependencies]\n# The tests play the writer of a server.\ntokio-postgres = '1'\n";
    assert_silent(protocols, &[("crates/hotrow/Cargo.toml", reason)]);
    let serving = "[dependencies]\n# Because it would be convenient here.\ntokio-postgres = '1'\n";
    assert_complains(protocols, &[("crates/hotrow/Cargo.toml", serving)], "must not know databases");
}
