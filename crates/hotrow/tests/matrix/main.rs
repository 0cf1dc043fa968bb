//! The confusion matrix of planted bottlenecks: does the verdict name what was planted?
//!
//! Reading order: `plants` (what is planted, and how), `matrix` (a run, and what is counted), `plan` and `server` (the
//! planted process), `stage` (processes, groups, namespaces), `proxy` (nginx), `quiet` (is somebody else here?), `keep` (the kept run), this
//! file (what must hold).

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod keep;
mod matrix;
mod plan;
mod plants;
mod proxy;
mod quiet;
mod server;
mod stage;

use std::time::Duration;

use self::matrix::{Manner, Matrix};
use self::plants::{PLANTS, Plant};

/// Plants that must have been planted where everything is allowed, which is where the user is root.
const PLANTED_MIN: usize = 10;
/// Of the short form: plants that may stay wrong.
const SHORT_WRONG_MAX: usize = 2;
/// Of the short form: longest wait, all in all, for others to leave the machine alone.
const SHORT_PATIENCE: Duration = Duration::from_secs(30);
/// The same of the long form.
const LONG_PATIENCE: Duration = Duration::from_secs(300);
/// Of the short form: times that a plant is tried again when the verdict was wrong.
const SHORT_MORE_TRIES: usize = 2;
const SHORT: Manner = Manner { measured_ms: 1500, warmup_ms: 300, prove: false };
/// Runs of each plant in the long form.
const LONG_ROUNDS: u64 = 10;
/// Share of the runs that must be right in the long form.
const LONG_RIGHT: f64 = 0.95;
/// Of the long form: times that a disturbed run is repeated.
const LONG_REPEATS: u32 = 2;
const LONG: Manner = Manner { measured_ms: 2000, warmup_ms: 300, prove: true };

/// Not a test: what a planted process runs, which is this program once more. Without a plan it does nothing.
#[test]
#[ignore = "what planted processes run"]
fn planted_service() {
    if let Ok(text) = std::env::var(plan::PLAN) {
        server::run(&serde_json::from_str(&text).expect("a plan, as stage.rs writes it"));
    }
}

/// Plants that the variable chooses, by a part of their names or classes; all without it.
fn chosen() -> Vec<&'static Plant> {
    let part = std::env::var("HOTROW_MATRIX_ONLY").unwrap_or_default();
    let parts: Vec<&str> = part.split(',').collect();
    let wanted = |plant: &&Plant| parts.iter().any(|part| plant.name.contains(part) || plant.class.contains(part));
    PLANTS.iter().filter(wanted).collect()
}

#[test]
fn planted_bottlenecks_are_named() {
    stage::clear_leftovers();
    let (mut all, mut wrong, mut patience) = (Matrix::default(), Vec::new(), SHORT_PATIENCE);
    for plant in chosen() {
        let mut tries = Matrix::default();
        for _ in 0..=SHORT_MORE_TRIES {
            tries.add(plant, SHORT, &mut patience);
            if tries.right() > 0 || !tries.not_run.is_empty() {
                break;
            }
        }
        // On a machine that others use, they limit too: that is no mistake of the verdict.
        if tries.right() == 0 && tries.runs.iter().any(|run| run.undisturbed) {
            wrong.push(plant.name);
        }
        all.runs.append(&mut tries.runs);
        all.not_run.append(&mut tries.not_run);
        all.failed.append(&mut tries.failed);
    }
    println!("\n{}\n{}", all.table(), all.sum());
    assert!(wrong.len() <= SHORT_WRONG_MAX, "these stayed wrong: {wrong:?}");
    let lies = all.confidently_wrong_about_the_generator();
    assert!(lies.is_empty(), "{lies:#?}");
    all_gave_a_report(&all);
    enough_were_planted(&all);
}

#[test]
#[ignore = "measures for some minutes: wants a quiet machine"]
fn planted_bottlenecks_are_named_again_and_again() {
    stage::clear_leftovers();
    let (mut all, mut plants, begun) = (Matrix::default(), chosen(), std::time::SystemTime::now());
    let mut patience = LONG_PATIENCE;
    let seed = keep::number("HOTROW_MATRIX_SEED", 1);
    for round in 0..keep::number("HOTROW_MATRIX_ROUNDS", LONG_ROUNDS) {
        keep::shuffle(&mut plants, seed.wrapping_add(round));
        for plant in &plants {
            if !all.not_run.contains_key(plant.name) {
                all.add_undisturbed(plant, LONG, &mut patience, LONG_REPEATS);
            }
        }
    }
    println!("\n{}\n{}", all.table(), all.sum());
    keep::keep(&all, LONG, seed, begun);
    let lies = all.confidently_wrong_about_the_generator();
    assert!(lies.is_empty(), "{lies:#?}");
    assert!(all.right() as f64 >= LONG_RIGHT * all.runs.len() as f64, "{}", all.sum());
    all_gave_a_report(&all);
    enough_were_planted(&all);
}

fn all_gave_a_report(all: &Matrix) {
    assert!(all.failed.is_empty(), "these gave no report: {:#?}", all.failed);
}

/// Where the user may not make groups and namespaces, fewer can be planted; that is told, not hidden.
fn enough_were_planted(all: &Matrix) {
    let planted = chosen().len() - all.not_run.len();
    let wanted = PLANTED_MIN.min(chosen().len());
    if !rustix::process::geteuid().is_root() {
        println!("not root: {} of {} could be planted", planted, PLANTS.len());
        return;
    }
    assert!(planted >= wanted, "root, and yet these could not be planted: {:#?}", all.not_run);
}
