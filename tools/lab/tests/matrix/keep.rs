//! Saves a matrix in `bench/runs/`: a human-readable table, and the complete machine-readable
//! reports.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::matrix::{Matrix, RunOptions};
use super::plants::Plant;

/// Command that produced the matrix.
const COMMAND: &str = "cargo test --release -p hotrow --test matrix -- --ignored --nocapture \
    planted_bottlenecks_are_named_again";

/// Returns the number in an environment variable, or `otherwise`.
pub(crate) fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Shuffles in an order that depends only on the seed (SplitMix64, Fisher–Yates).
pub(crate) fn shuffle(plants: &mut [&'static Plant], seed: u64) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    for last in (1..plants.len()).rev() {
        plants.swap(last, (next() % (last as u64 + 1)) as usize);
    }
}

/// Writes both files into a folder of their own, named by the start time.
pub(crate) fn save(all: &Matrix, options: RunOptions, seed: u64, begun: SystemTime) {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs");
    let seconds = begun.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let at = output_of("date", &["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%d-%H%M"]);
    let folder = runs.join(format!("{at}-matrix"));
    let cpu = read("/proc/cpuinfo").lines().find_map(|line| {
        line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned())
    });
    let host = json!({
        "cpu": cpu,
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    });
    let commit = output_of(
        "git",
        &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--abbrev=12"],
    );
    let saved = json!({
        "command": COMMAND,
        "commit": commit,
        "host": host,
        "seed": seed,
        "options": options,
        "sum": all.sum(),
        "matrix": all,
    });
    let not_run: String =
        all.not_run.iter().map(|(plant, why)| format!("- not run: {plant}: {why}\n")).collect();
    let wrong = all.runs.iter().filter(|run| !run.right());
    let wrong: String =
        wrong.map(|run| format!("- {}: {} was named\n", run.plant, run.named)).collect();
    let failed: String =
        all.failed.iter().map(|(plant, why)| format!("- no report: {plant}: {why}\n")).collect();
    let text = format!(
        "# Planted bottlenecks, {at}\n\n`{COMMAND}`, commit {commit}, {}, {} cores, Linux {}\n\n\
         Rows: what was planted. Columns: what the verdict named.\n\n\
         {}\n{}.\n\n{wrong}{not_run}{failed}",
        host["cpu"].as_str().unwrap_or("unknown CPU"),
        host["cores"],
        host["kernel"].as_str().unwrap_or("?"),
        all.table(),
        all.sum()
    );
    let pretty = serde_json::to_string_pretty(&saved).expect("plain data");
    std::fs::create_dir_all(&folder).expect("bench/runs can be written to");
    std::fs::write(folder.join("matrix.json"), pretty + "\n").expect("the folder is there");
    std::fs::write(folder.join("README.md"), text).expect("the folder is there");
}

fn output_of(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}
