//! Confusion matrix of planted bottlenecks: the verdict must name the planted one.
//!
//! Reading order: `plants` (what is planted, and how), `matrix` (a run, and what is counted),
//! `plan` and `server` (the planted process), `stage` (processes, groups, namespaces), `proxy`
//! (nginx), `quiet` (use of the machine by others), `keep` (the saved run), this file (assertions).

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

use self::matrix::{Matrix, RunOptions};
use self::plants::{PLANTS, Plant};

/// Fewest plants that must run for root, who may create groups and namespaces.
const PLANTED_MIN: usize = 10;
/// Short form: plants that may stay wrong.
const SHORT_WRONG_MAX: usize = 2;
/// Short form: longest total wait for an otherwise idle machine.
const SHORT_WAIT_MAX: Duration = Duration::from_secs(30);
/// Long form: longest total wait for an otherwise idle machine.
const LONG_WAIT_MAX: Duration = Duration::from_secs(300);
/// Short form: further attempts of a plant whose verdict was wrong.
const SHORT_MORE_TRIES: usize = 2;
const SHORT: RunOptions = RunOptions { measured_ms: 1500, warmup_ms: 300, confirm: false };
/// Long form: runs of each plant.
const LONG_ROUNDS: u64 = 10;
/// Long form: share of the runs that must be right.
const LONG_RIGHT: f64 = 0.95;
/// Long form: repetitions of a disturbed run.
const LONG_REPEATS: u32 = 2;
const LONG: RunOptions = RunOptions { measured_ms: 2000, warmup_ms: 300, confirm: true };

/// Not a test: the body of a planted process, which runs this program again. Without a plan it does
/// nothing.
#[test]
#[ignore = "body of planted processes"]
fn planted_service() {
    if let Ok(text) = std::env::var(plan::PLAN) {
        server::run(&serde_json::from_str(&text).expect("a plan, as stage.rs writes it"));
    }
}

/// Returns the plants that the variable selects by a part of name or class; all without it.
fn chosen() -> Vec<&'static Plant> {
    let part = std::env::var("HOTROW_MATRIX_ONLY").unwrap_or_default();
    let parts: Vec<&str> = part.split(',').collect();
    let wanted = |plant: &&Plant| {
        parts.iter().any(|part| plant.name.contains(part) || plant.class.contains(part))
    };
    PLANTS.iter().filter(wanted).collect()
}

#[test]
#[ignore = "measures for a minute; needs an idle machine"]
fn planted_bottlenecks_are_named() {
    stage::clear_leftovers();
    let mut all = Matrix::default();
    let mut wrong = Vec::new();
    let mut wait_left = SHORT_WAIT_MAX;
    for plant in chosen() {
        let mut tries = Matrix::default();
        for _ in 0..=SHORT_MORE_TRIES {
            tries.add(plant, SHORT, &mut wait_left);
            if tries.right() > 0 || !tries.not_run.is_empty() {
                break;
            }
        }
        // On a disturbed machine other processes may be the limit, so the verdict may be right.
        if tries.right() == 0 && tries.runs.iter().any(|run| run.undisturbed) {
            wrong.push(plant.name);
        }
        all.runs.append(&mut tries.runs);
        all.not_run.append(&mut tries.not_run);
        all.failed.append(&mut tries.failed);
    }
    println!("\n{}\n{}", all.table(), all.sum());
    assert!(wrong.len() <= SHORT_WRONG_MAX, "these verdicts stayed wrong: {wrong:?}");
    let overconfident = all.confidently_wrong_about_the_generator();
    assert!(overconfident.is_empty(), "{overconfident:#?}");
    assert_all_reported(&all);
    assert_enough_planted(&all);
}

#[test]
#[ignore = "measures for some minutes; needs an idle machine"]
fn planted_bottlenecks_are_named_again_and_again() {
    stage::clear_leftovers();
    let mut all = Matrix::default();
    let mut plants = chosen();
    let begun = std::time::SystemTime::now();
    let mut wait_left = LONG_WAIT_MAX;
    let seed = keep::number("HOTROW_MATRIX_SEED", 1);
    for round in 0..keep::number("HOTROW_MATRIX_ROUNDS", LONG_ROUNDS) {
        keep::shuffle(&mut plants, seed.wrapping_add(round));
        for plant in &plants {
            if !all.not_run.contains_key(plant.name) {
                all.add_undisturbed(plant, LONG, &mut wait_left, LONG_REPEATS);
            }
        }
    }
    println!("\n{}\n{}", all.table(), all.sum());
    keep::save(&all, LONG, seed, begun);
    let overconfident = all.confidently_wrong_about_the_generator();
    assert!(overconfident.is_empty(), "{overconfident:#?}");
    assert!(all.right() as f64 >= LONG_RIGHT * all.runs.len() as f64, "{}", all.sum());
    assert_all_reported(&all);
    assert_enough_planted(&all);
}

fn assert_all_reported(all: &Matrix) {
    assert!(all.failed.is_empty(), "these runs had no report: {:#?}", all.failed);
}

/// Asserts the number of plants; without permission to create groups and namespaces, only prints
/// it.
fn assert_enough_planted(all: &Matrix) {
    let planted = chosen().len() - all.not_run.len();
    let wanted = PLANTED_MIN.min(chosen().len());
    if !rustix::process::geteuid().is_root() {
        println!("not root: {} of {} could be planted", planted, PLANTS.len());
        return;
    }
    assert!(planted >= wanted, "root could not plant these: {:#?}", all.not_run);
}
