//! Frames as text: three sizes against golden files, all others without a panic.

use std::path::Path;

use hotrow_load::stats::CensoredNs;
use ratatui::buffer::Buffer;

use crate::tui::view::{
    Connections, Core, Generator, Machine, Process, Progress, Rate, Search, StepRow,
    SuspectedLimit, Time, Tone, View,
};
use crate::tui::widgets::frame;

fn machine() -> Machine {
    let process = |name: &str, cores| Process { name: name.to_owned(), cores };
    Machine {
        cores: vec![Core { busy: 0.93, steal: 0.0 }, Core { busy: 0.55, steal: 0.2 }],
        processes: vec![process("shop (4711)", 0.91), process("this generator", 0.42)],
        others_cores: 0.15,
    }
}

fn load() -> View {
    let us = |us: u64| Some(CensoredNs::Exact(us * 1_000));
    let time = |name, second, overall| Time { name, second, overall };
    View {
        title: "hotrow load http://127.0.0.1:8080/products/7".to_owned(),
        setting: "50 connections, 2 threads".to_owned(),
        passed: Progress { share: Some(0.4), words: "12 s of 30 s, 18 s left".to_owned() },
        rate: Rate {
            last_rps: Some(18_211.0),
            target_rps: Some(20_000.0),
            history_rps: (0..60).map(|i| 10_000.0 + f64::from(i % 10) * 900.0).collect(),
        },
        times: vec![
            time("p50", us(540), us(520)),
            time("p90", us(1_210), us(1_100)),
            time("p99", us(9_800), us(4_200)),
            time("max", Some(CensoredNs::AtLeast(10_000_000_000)), us(31_000)),
        ],
        failures: vec![("status 503".to_owned(), 12), ("timed out".to_owned(), 3)],
        generator: Generator { busiest: Some(0.23), lag_p99_ns: Some(84_000) },
        connections: Connections { count: 50, busy: Some(9.8), reopened: 0 },
        machine: Some(machine()),
        suspicion: Some(SuspectedLimit {
            words: "CPU: one thread is busy, the others are not".to_owned(),
            confidence: Some(0.82),
            evidence: vec!["thread \"shop\" of process 4711 used 91 % of a CPU".to_owned()],
        }),
        search: None,
    }
}

fn search() -> View {
    let step =
        |target: &str, purpose, verdict, answered_rps, p99_us: u64, suspicion: &str| StepRow {
            target: target.to_owned(),
            purpose,
            verdict,
            tone: Tone::of_verdict(verdict),
            answered_rps,
            p99: Some(CensoredNs::Exact(p99_us * 1_000)),
            suspicion: suspicion.to_owned(),
        };
    View {
        title: "hotrow capacity http://127.0.0.1:8080/products/7".to_owned(),
        failures: Vec::new(),
        search: Some(Search {
            name: "search",
            step: "12,800/s, bisect: between a rate that was kept and one that was not".to_owned(),
            so_far: "kept 10,000/s, missed 16,000/s (neither confirmed yet)".to_owned(),
            budget: Progress {
                share: Some(0.1),
                words: "30 s of 5:00 min, 4:30 min left at most".to_owned(),
            },
            steps: vec![
                step("1,000/s", "climb", "kept", 1_001.0, 700, "no limit was found"),
                step("2,000/s", "climb", "kept", 2_003.0, 800, "no limit was found"),
                step("4,000/s", "climb", "kept", 3_990.0, 900, "no limit was found"),
                step("8,000/s", "climb", "kept", 8_011.0, 1_900, "no limit was found"),
                step("16,000/s", "climb", "missed", 14_100.0, 430_000, "CPU: all of them are busy"),
            ],
        }),
        ..load()
    }
}

fn text(frame: &Buffer) -> String {
    let width = usize::from(frame.area.width);
    let row = |cells: &[ratatui::buffer::Cell]| {
        let row: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", row.trim_end())
    };
    frame.content.chunks(width.max(1)).map(row).collect()
}

/// Compares with the golden file of that name; with `HOTROW_GOLDEN=write` in the environment the
/// file is written.
fn compare(view: &View, size: (u16, u16), name: &str) {
    let shown = text(&frame(view, size));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tui/tests/golden");
    let file = folder.join(format!("{name}-{}x{}.txt", size.0, size.1));
    if std::env::var_os("HOTROW_GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(&file, &shown).expect("it can be written");
    }
    let wanted = std::fs::read_to_string(&file).expect("it is there");
    assert!(shown == wanted, "{} is not what is shown:\n{shown}", file.display());
}

const SIZES: [(u16, u16); 3] = [(40, 8), (80, 24), (120, 30)];

#[test]
fn a_load_at_three_sizes() {
    SIZES.into_iter().for_each(|size| compare(&load(), size, "load"));
}

#[test]
fn a_search_at_three_sizes() {
    SIZES.into_iter().for_each(|size| compare(&search(), size, "capacity"));
}

#[test]
fn no_size_and_no_value_panics() {
    let odd = View {
        rate: Rate {
            last_rps: Some(f64::NAN),
            target_rps: Some(f64::INFINITY),
            history_rps: vec![f64::NAN, -1.0, 1e300],
        },
        machine: Some(Machine {
            cores: vec![Core { busy: 7.0, steal: -1.0 }; 200],
            ..Machine::default()
        }),
        passed: Progress { share: Some(f64::NAN), words: "日本".repeat(99) },
        title: "日本".repeat(99),
        ..search()
    };
    for view in [load(), search(), odd, View::default()] {
        for width in (0..130).step_by(6) {
            for height in (0..40).step_by(2) {
                let frame = frame(&view, (width, height));
                assert!(frame.area.width <= width && frame.area.height <= height);
            }
        }
    }
}

#[test]
fn errors_and_the_rate_stay_to_the_last() {
    for height in 3..8 {
        let shown = text(&frame(&load(), (40, height)));
        assert!(shown.contains("18,211"), "{height}:\n{shown}");
        assert!(height < 6 || shown.contains("12 status 503"), "{height}:\n{shown}");
    }
}
