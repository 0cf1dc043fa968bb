//! Checks of the manifests: dependencies between crates, lints, and the crates that may use HTTP
//! and databases.

use crate::assert_samples;
use crate::tree::{TOOLS, Tree};

/// Dependencies that each crate may have on others. `source` may depend on `measure` for the
/// clock's type in the interface of `cache`, and on `admission` for the byte budget of the rows
/// that it reads.
const ARROWS: &[(&str, &str)] = &[
    ("measure", ""),
    ("types", ""),
    ("supervisor", "measure"),
    ("admission", "measure"),
    ("access", "measure types"),
    ("otel", "measure"),
    ("cache", "admission measure types"),
    ("push", "measure types"),
    ("source", "admission measure supervisor types"),
    ("source-mongodb", ENGINE),
    ("source-mysql", ENGINE),
    ("source-postgres", ENGINE),
    ("source-sqlite", ENGINE),
    ("hub", "measure types"),
    ("hub-nats", "hub measure source supervisor types"),
    ("http1", ""),
    ("http2", ""),
    ("resp", ""),
    ("config", "access admission cache types"),
    ("net", "config measure supervisor"),
    ("telemetry", "access cache config http1 measure net otel source supervisor types"),
    ("representation", "cache config http1 measure source supervisor types"),
    (
        "answer",
        "access admission cache config http1 http2 measure representation resp source \
         telemetry types",
    ),
    ("front", "access admission answer config http1 http2 measure net resp supervisor telemetry"),
    (
        "gate",
        "access admission answer cache config http1 measure net source supervisor telemetry \
         types",
    ),
    (
        "changes",
        "access answer cache config gate measure net push representation resp source \
         supervisor telemetry types",
    ),
    ("openapi", "answer config gate source types"),
    (
        "service",
        "access admission answer cache changes config front gate http1 http2 measure net \
         openapi otel push representation resp source supervisor telemetry types",
    ),
    (
        "server",
        "admission answer cache changes config front gate http1 measure net openapi push \
         representation service source supervisor telemetry types",
    ),
    ("transport", ""),
    ("load", "measure transport"),
    ("diagnose", "measure"),
    ("report", "measure"),
    ("trial", "diagnose load measure"),
    ("verify", "measure transport"),
    ("activity", "diagnose trial verify"),
    ("cli", "supervisor transport types"),
    ("reference", ""),
    ("results", "diagnose report"),
    ("proxies", "measure"),
    ("models", "diagnose measure report results"),
    (
        "lab",
        "admission cli commands diagnose load measure models proxies reference replay report \
         results supervisor transport trial",
    ),
    ("commands", "activity cli diagnose load measure report transport trial verify"),
    (
        "hotrow",
        "access admission answer cache changes cli config front hub-nats measure net server \
         service source source-mongodb source-mysql source-postgres source-sqlite supervisor \
         telemetry transport types",
    ),
    ("replay", "cache measure types"),
    ("simulator", "admission cache hub measure push source types"),
    ("testkit", ""),
];
/// Dependencies of an engine.
const ENGINE: &str = "measure source supervisor types";
/// Dependencies that tests alone may have: crate, package.
const TEST_ARROWS: &[(&str, &str)] = &[
    ("source-postgres", "admission"),
    ("source-postgres", "cache"),
    ("source-mysql", "admission"),
    ("source-sqlite", "admission"),
    ("hotrow", "verify"),
    ("server", "access"),
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
const HTTP_SPEAKERS: &[&str] = &[
    "answer",
    "changes",
    "config",
    "front",
    "gate",
    "http1",
    "http2",
    "load",
    "net",
    "openapi",
    "reference",
    "representation",
    "server",
    "service",
    "telemetry",
    "transport",
    "verify",
];
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
const DATABASE_KNOWERS: &[&str] = &[
    "activity",
    "reference",
    "source-mongodb",
    "source-mysql",
    "source-postgres",
    "source-sqlite",
    "testkit",
    "verify",
];
/// Exceptions: `hotrow` creates the demonstration's database and writes to it, in the role of its
/// user, and its tests play the writer of a server; its manifest states that. Crate, kind of
/// dependency, package.
const DATABASE_EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("hotrow", "dependencies", "rusqlite"),
    ("lab", "dev-dependencies", "rusqlite"),
    ("lab", "dev-dependencies", "tokio-postgres"),
    ("hotrow", "dev-dependencies", "mongodb"),
    ("hotrow", "dev-dependencies", "mysql_async"),
    ("hotrow", "dev-dependencies", "tokio-postgres"),
];

struct Manifest<'a> {
    name: &'a str,
    is_tool: bool,
    text: &'a str,
    table: toml::Table,
}

/// Returns all manifests, and a complaint for each that cannot be read.
fn manifests(tree: &Tree) -> (Vec<Manifest<'_>>, Vec<String>) {
    let mut manifests = Vec::new();
    let mut complaints = Vec::new();
    for (name, folder) in tree.crates() {
        let path = format!("{folder}/{name}/Cargo.toml");
        let Some(text) = tree.text(&path) else {
            complaints.push(format!("{path} is missing"));
            continue;
        };
        match text.parse() {
            Ok(table) => {
                manifests.push(Manifest { name, is_tool: folder == TOOLS, text, table });
            }
            Err(e) => complaints.push(format!("{path}: {e}")),
        }
    }
    (manifests, complaints)
}

impl Manifest<'_> {
    /// Returns its dependencies, each with the name of its table.
    fn kinds_and_dependencies(&self) -> Vec<(&str, &str)> {
        let mut tables = vec![&self.table];
        let targets = self.table.get("target").and_then(toml::Value::as_table);
        tables
            .extend(targets.into_iter().flat_map(|t| t.values()).filter_map(toml::Value::as_table));
        let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
        let lists = tables
            .iter()
            .flat_map(|t| kinds.iter().filter_map(|kind| Some((*kind, t.get(*kind)?.as_table()?))));
        let named = |(kind, list)| list_of(list).map(move |name| (kind, name));
        lists.flat_map(named).collect()
    }
}

/// Returns the packages named in a table of dependencies.
fn list_of(table: &toml::Table) -> impl Iterator<Item = &str> {
    table
        .iter()
        .map(|(key, value)| value.get("package").and_then(toml::Value::as_str).unwrap_or(key))
}

pub(crate) fn arrows(tree: &Tree) -> Vec<String> {
    let (manifests, mut complaints) = manifests(tree);
    let tools: Vec<&str> = manifests.iter().filter(|m| m.is_tool).map(|m| m.name).collect();
    for m in &manifests {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == m.name) else {
            complaints.push(format!("{} is not in the table of crates and arrows", m.name));
            continue;
        };
        for (kind, package) in m.kinds_and_dependencies() {
            let Some(dependency) = package.strip_prefix("hotrow-") else { continue };
            let is_for_tests = kind == "dev-dependencies"
                && (dependency == "testkit" || TEST_ARROWS.contains(&(m.name, dependency)));
            if !m.is_tool && tools.contains(&dependency) && !is_for_tests {
                complaints.push(format!(
                    "{} must not depend on {dependency}: the service depends on no tool",
                    m.name
                ));
            }
            if !allowed.split(' ').any(|name| name == dependency) && !is_for_tests {
                complaints.push(format!(
                    "{} must not depend on {dependency}; it may depend on {allowed}",
                    m.name
                ));
            }
        }
    }
    complaints
}

pub(crate) fn lints(tree: &Tree) -> Vec<String> {
    let (manifests, _) = manifests(tree);
    let opted_in = |m: &Manifest<'_>| {
        m.table.get("lints").and_then(|l| l.get("workspace")?.as_bool()) == Some(true)
    };
    let without = manifests.iter().filter(|m| !opted_in(m));
    without
        .map(|m| format!("the manifest of {} must say [lints] workspace = true", m.name))
        .collect()
}

pub(crate) fn protocols(tree: &Tree) -> Vec<String> {
    let (manifests, _) = manifests(tree);
    let mut complaints = Vec::new();
    for m in &manifests {
        for (kind, dependency) in m.kinds_and_dependencies() {
            if HTTP.contains(&dependency) && !HTTP_SPEAKERS.contains(&m.name) {
                complaints.push(format!(
                    "{} must not use HTTP ({dependency}); only {HTTP_SPEAKERS:?} do",
                    m.name
                ));
            }
            if DATABASES.contains(&dependency) && !DATABASE_KNOWERS.contains(&m.name) {
                if !DATABASE_EXCEPTIONS.contains(&(m.name, kind, dependency)) {
                    complaints.push(format!(
                        "{} must not use databases ({dependency}); only \
                         {DATABASE_KNOWERS:?} do",
                        m.name
                    ));
                } else if !has_reason(m.text, dependency) {
                    complaints.push(format!(
                        "the manifest of {} must give the reason in a comment above {dependency}",
                        m.name
                    ));
                }
            }
        }
    }
    complaints
}

/// Returns whether the line above the dependency is a comment.
fn has_reason(manifest: &str, dependency: &str) -> bool {
    let lines: Vec<&str> = manifest.lines().collect();
    lines.windows(2).any(|pair| {
        pair[1].starts_with(dependency) && pair[0].starts_with("# ") && pair[0].len() > 20
    })
}

#[test]
fn manifests_are_checked() {
    const CACHE: &str = "crates/cache/Cargo.toml";
    const SERVER: &str = "crates/server/Cargo.toml";
    const HOTROW: &str = "crates/hotrow/Cargo.toml";
    let of_target = "[target.'cfg(unix)'.dependencies]\nx = {package = 'hotrow-lab'}\n";
    let fine = "[dependencies]\nhotrow-measure.workspace = true\nserde = '1'\n";
    let on_server = "[dependencies]\nhotrow-server.workspace = true\n";
    assert_samples(
        arrows,
        &[
            (CACHE, fine, ""),
            (CACHE, on_server, "cache must not depend on server"),
            (CACHE, "[dev-dependencies]\nhotrow-source = {}\n", "must not depend on source"),
            (CACHE, of_target, "depend on lab"),
            (CACHE, "not toml", CACHE),
            ("crates/cache/src/lib.rs", "", "crates/cache/Cargo.toml is missing"),
            ("crates/novel/Cargo.toml", "", "novel is not in the table"),
        ],
    );
    // Its second complaint is that the table does not allow it.
    let tool = [(CACHE, "[dependencies]\nhotrow-lab = {}\n"), ("tools/lab/Cargo.toml", "")];
    let found = crate::complaints(arrows, &tool);
    assert!(found.len() == 2 && found[0].ends_with("depends on no tool"), "{found:?}");
    assert_samples(
        lints,
        &[
            (CACHE, "[lints]\nworkspace = true\n", ""),
            (CACHE, "[lints]\nworkspace = false\n", "[lints] workspace = true"),
            (CACHE, "", "[lints] workspace = true"),
        ],
    );
    let demo =
        "[dependencies]\n# For the demonstration's own database.\nrusqlite.workspace = true\n";
    let writer =
        "[dev-dependencies]\n# The tests play the writer of a server.\ntokio-postgres = '1'\n";
    let serving = "[dependencies]\n# Because it would be convenient here.\ntokio-postgres = '1'\n";
    const HYPER: &str = "[dependencies]\nhyper = '1'\n";
    assert_samples(
        protocols,
        &[
            (HOTROW, demo, ""),
            (HOTROW, writer, ""),
            (SERVER, HYPER, ""),
            ("crates/source/Cargo.toml", HYPER, "source must not use HTTP"),
            (SERVER, "[dev-dependencies]\nrusqlite = '1'\n", "must not use databases"),
            (HOTROW, "[dependencies]\nmongodb = '1'\n", "must not use databases"),
            (HOTROW, serving, "must not use databases"),
            (HOTROW, "[dependencies]\nrusqlite = '1'\n", "in a comment above"),
        ],
    );
}
