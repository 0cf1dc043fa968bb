//! `hotrow lab run` reports a proxy that works harder than all services behind it.

use std::path::Path;

use super::limits::lab_run_until;

/// One of its deployments: two services whose texts nginx compresses for each response, with one
/// worker.
const EXPERIMENT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/diagnosis/proxy.toml");
const SHORT: [&str; 6] = ["--only", "level-9", "--rounds", "1", "--duration", "1500ms"];

#[test]
fn a_proxy_that_is_busier_than_its_services_is_named() {
    let folder = tempfile::tempdir().unwrap();
    lab_run_until(Path::new(EXPERIMENT), &folder.path().join("out"), &SHORT, |results, report| {
        // The worker is named by its role.
        results["measurements"][0]["findings"][0]["class"] == "Proxy"
            && report.contains("the proxy in front")
            && report.contains("of a process of nginx uses")
    });
}
