//! Runs of earlier versions.

use std::path::PathBuf;

use super::super::{compare, compose, read};
use crate::results;
use hotrow_report::markdown;

fn kept() -> Vec<PathBuf> {
    let runs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs");
    let folders = std::fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join(results::FILE).exists()).collect()
}

/// They can still be read, reported and compared.
#[test]
fn kept_runs_can_still_be_read_and_compared() {
    let mut old = 0;
    for folder in kept() {
        let results = read(&folder).unwrap();
        old += usize::from(
            results.measurements.iter().all(|measurement| measurement.findings.is_empty()),
        );
        let report = markdown::render(&compose::document(&results));
        assert!(report.contains("bottleneck of each row"), "{folder:?}: {report}");
        let compared = markdown::render(&compare::document(&results, &results).unwrap());
        assert!(compared.contains("Limited by"), "{folder:?}: {compared}");
    }
    assert!(old >= 5, "{old} runs without findings are kept: the test shows too little");
}
