//! Checks of the dependencies that `cargo metadata` lists: sources, and packages that must not be
//! in the server's program. `deny.toml` states the licences too, for cargo-deny.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::house;
use super::tree::Tree;

/// The only source of packages that are not ours.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Packages that nothing may use: a second TLS provider, and OpenSSL.
const BANNED: &[&str] = &["aws-lc-rs", "aws-lc-sys", "native-tls", "openssl", "openssl-sys"];
/// Packages of the laboratory: no part of a server that faces a network.
const LABORATORY: &[&str] = &[
    "axum",
    "hotrow-commands",
    "hotrow-load",
    "hotrow-lab",
    "hotrow-reference",
    "rcgen",
    "sea-orm",
];

/// Complaints about the packages of `metadata`, as `cargo metadata` writes it.
fn complaints(metadata: &Value) -> Vec<String> {
    let mut complaints = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(source) = package["source"].as_str() else { continue };
        if source != REGISTRY {
            complaints.push(format!("{name} comes from {source}, not from {REGISTRY}"));
        }
        if BANNED.contains(&name) {
            complaints.push(format!("{name} is banned"));
        }
    }
    let shipped = of_program(metadata, "hotrow");
    for name in LABORATORY.iter().filter(|name| shipped.contains(**name)) {
        complaints.push(format!("{name} belongs to the laboratory, and `hotrow` depends on it"));
    }
    complaints
}

/// Names of all packages that the program of this name is built from.
fn of_program<'a>(metadata: &'a Value, program: &str) -> BTreeSet<&'a str> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let names: BTreeMap<&str, &str> =
        packages.filter_map(|p| Some((p["id"].as_str()?, p["name"].as_str()?))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    let nodes: BTreeMap<&str, &Value> =
        nodes.filter_map(|n| Some((n["id"].as_str()?, n))).collect();
    let mut waiting: Vec<&str> =
        names.iter().filter(|(_, name)| **name == program).map(|(id, _)| *id).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !found.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array());
        for dependency in dependencies.into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            // `null` is a normal dependency, others are for tests and builds.
            if kinds.into_iter().any(|kind| kind["kind"].is_null()) {
                waiting.extend(dependency["pkg"].as_str());
            }
        }
    }
    found.iter().filter_map(|id| names.get(id).copied()).collect()
}

#[test]
fn dependencies_are_allowed() {
    // For this platform alone: the build has fetched these packages and no others.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let shipped = of_program(&metadata, "hotrow");
    assert!(shipped.contains("hotrow-server"), "the graph was not found");
    let mut complaints = complaints(&metadata);
    complaints.extend(house::packages_complaint(&Tree::of_repository(), shipped.len()));
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Lists of dependencies of our packages in a lock file, by the package's name.
fn locked(lock: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    lock.split("[[package]]")
        .skip(1)
        .filter(|package| !package.contains("\nsource = "))
        .filter_map(|package| {
            let mut texts = package.lines().filter_map(|line| line.split('"').nth(1));
            let name = texts.next()?;
            // The version comes second. Where packages have several versions, one follows the name.
            Some((name, texts.skip(1).filter_map(|text| text.split(' ').next()).collect()))
        })
        .collect()
}

/// Packages of `lock` whose list of dependencies is not the one of their manifest in `metadata`.
fn outdated<'a>(lock: &'a str, metadata: &Value) -> Vec<&'a str> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifests: BTreeMap<&str, &Value> = packages
        .filter_map(|package| Some((package["name"].as_str()?, &package["dependencies"])))
        .collect();
    let is_outdated = |name: &&str, list: &BTreeSet<&str>| {
        let dependencies = manifests.get(name).and_then(|list| list.as_array());
        // What only the tests of a package need is not locked where others use it.
        let used = || dependencies.into_iter().flatten().filter(|used| used["kind"] != "dev");
        let is_locked =
            |used: &Value| used["name"].as_str().is_some_and(|name| list.contains(name));
        // An optional one is locked where its feature is on.
        let lacks = used().any(|used| used["optional"] != true && !is_locked(used));
        let has_more = list.iter().any(|name| used().all(|used| used["name"] != *name));
        dependencies.is_some() && (lacks || has_more)
    };
    let locked = locked(lock);
    locked.iter().filter(|(name, list)| is_outdated(name, list)).map(|(name, _)| *name).collect()
}

#[test]
fn other_workspaces_have_current_lock_files() {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    let tree = Tree::of_repository();
    for workspace in ["bench", "fuzz"] {
        let lock = tree.text(&format!("{workspace}/Cargo.lock")).expect("a lock file");
        assert!(locked(lock).contains_key("hotrow-types"), "{workspace} uses our packages");
        let outdated = outdated(lock, &metadata);
        assert!(
            outdated.is_empty(),
            "{workspace}/Cargo.lock is behind the manifests of {outdated:?}; run cargo metadata \
             --manifest-path {workspace}/Cargo.toml"
        );
    }
}

#[test]
fn outdated_lock_files_are_found() {
    let metadata = serde_json::json!({"packages": [{"name": "a", "dependencies": [
        {"name": "b", "kind": null}, {"name": "c", "kind": "build"}, {"name": "d", "kind": "dev"},
        {"name": "e", "kind": null, "optional": true},
    ]}]});
    let lock = |list: &str| {
        format!("[[package]]\nname = \"a\"\nversion = \"0.1.0\"\ndependencies = [\n{list}]\n")
    };
    assert!(outdated(&lock(" \"b 1.0.0\",\n \"c\",\n"), &metadata).is_empty());
    assert!(outdated(&lock(" \"b\",\n \"c\",\n \"e\",\n"), &metadata).is_empty());
    assert_eq!(outdated(&lock(" \"b\",\n"), &metadata), ["a"]);
    assert_eq!(outdated(&lock(" \"b\",\n \"c\",\n \"d\",\n"), &metadata), ["a"]);
}

#[test]
fn forbidden_dependencies_are_found() {
    let metadata = |name: &str, source: &str| {
        serde_json::json!({
            "packages": [
                {"id": "0", "name": "hotrow", "source": null},
                {"id": "1", "name": name, "source": source},
            ],
            "resolve": {"nodes": [
                {"id": "0", "deps": [{"pkg": "1", "dep_kinds": [{"kind": null}]}]},
                {"id": "1", "deps": []},
            ]},
        })
    };
    assert!(complaints(&metadata("a", REGISTRY)).is_empty());
    for (bad, expected) in [
        (metadata("a", "git+https://example.org/a"), "comes from git"),
        (metadata("openssl", REGISTRY), "is banned"),
        (metadata("axum", REGISTRY), "belongs to the laboratory"),
    ] {
        let found = complaints(&bad);
        assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
    }
}
