//! A grid of settings: which reproduce the published figures, and which improve on them without
//! loss elsewhere.

use std::num::NonZeroUsize;

use hotrow_replay::trace::Trace;

use crate::policy::{Policy, Quick, QuickSettings, S3Fifo, S3Settings};
use crate::published;
use crate::{PERCENTS, TUNED};

/// Prints each setting's hit ratios, and the largest shortfall from the published "tuned" column.
pub fn print(traces: &[Trace]) {
    let cells: Vec<(&Trace, f64)> =
        traces.iter().flat_map(|trace| PERCENTS.map(|p| (trace, p))).collect();
    let heads: Vec<String> =
        cells.iter().map(|(trace, p)| format!("{} {p} %", trace.name)).collect();
    println!(
        "| settings | {} | mean | worst against tuned |\n|---|{}",
        heads.join(" | "),
        "---|".repeat(heads.len() + 2)
    );
    for (hot, ghost, shards, estimate) in quick_grid() {
        let settings = QuickSettings { hot, ghost, shards: NonZeroUsize::new(shards), estimate };
        let name =
            format!("quick_cache hot {hot} ghost {ghost} shards {shards} estimate {estimate}");
        row(&name, &cells, |capacity| Box::new(Quick::new(capacity, settings)));
    }
    for settings in s3_grid() {
        let S3Settings { small, promote_at, adapt, ghost } = settings;
        let name = match adapt {
            None => format!("S3-FIFO small {small} promote at {promote_at} ghost {ghost}"),
            Some((least, most)) => {
                format!(
                    "S3-FIFO small {least}–{most} from {small} promote at {promote_at} ghost \
                     {ghost}"
                )
            }
        };
        row(&name, &cells, |capacity| Box::new(S3Fifo::new(capacity, settings)));
    }
}

fn quick_grid() -> Vec<(f64, f64, usize, f64)> {
    let base = (TUNED.hot, TUNED.ghost, 1, 1.0);
    let mut grid = vec![(0.97, 0.5, 1, 1.0), (0.97, 0.5, 8, 1.0), base];
    grid.extend([2, 4, 8, 16].map(|shards| (base.0, base.1, shards, 1.0)));
    grid.extend([0.5, 1.5, 2.0, 4.0].map(|estimate| (base.0, base.1, 1, estimate)));
    for hot in [0.8, 0.85, 0.88, 0.9, 0.92, 0.95, 0.97] {
        grid.extend([0.5, 0.75, 1.0].map(|ghost| (hot, ghost, 1, 1.0)));
    }
    grid.extend([0.85, 0.95].map(|hot| (hot, 1.0, 1, 2.0)));
    grid
}

fn s3_grid() -> Vec<S3Settings> {
    let mut grid = Vec::new();
    for small in [0.05, 0.1, 0.2] {
        for promote_at in [1, 2] {
            grid.extend([0.9, 2.0].map(|ghost| S3Settings {
                small,
                promote_at,
                adapt: None,
                ghost,
            }));
        }
    }
    for adapt in [(0.01, 0.9), (0.05, 0.9), (0.01, 0.5)] {
        for promote_at in [1, 2] {
            grid.extend([1.0, 2.0].map(|ghost| S3Settings {
                small: 0.1,
                promote_at,
                adapt: Some(adapt),
                ghost,
            }));
        }
    }
    grid
}

fn row(name: &str, cells: &[(&Trace, f64)], build: impl Fn(usize) -> Box<dyn Policy>) {
    let figures: Vec<f64> = cells
        .iter()
        .map(|(trace, p)| trace.percent(build(trace.capacity_entries(*p)).replay(&trace.keys)))
        .collect();
    let worst = cells
        .iter()
        .zip(&figures)
        .filter_map(|((trace, p), figure)| Some(figure - published::find(&trace.name, *p)?.tuned))
        .fold(f64::INFINITY, f64::min);
    let mean = figures.iter().sum::<f64>() / figures.len() as f64;
    let figures: Vec<String> = figures.iter().map(|figure| format!("{figure:.2}")).collect();
    println!("| {name} | {} | {mean:.2} | {worst:+.2} |", figures.join(" | "));
}
