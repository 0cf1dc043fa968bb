//! Reports of finished, failed and missing runs.

use super::super::floor::Floor;
use super::super::limits::{Evidence, Limit};
use super::super::results::{Calls, Check, Figures, Latency, SCHEMA};
use super::*;
use hotrow_report::plot::{Lane, LaneSpan, LaneState};
use hotrow_report::text;
use hotrow_results::Host;

#[allow(clippy::duplicate_mod, reason = "the checker of pages is the other report's too")]
#[path = "../../../lab/src/report/tests/wellformed.rs"]
mod wellformed;

fn figures(wall_s: f64) -> Figures {
    let latency =
        Latency { mean: 3.0, p50: 2.0, p90: 3.0, p99: 5.0, p999: 10_000.0, max: 1_000_000.0 };
    let spans = vec![
        LaneSpan { state: LaneState::Running, from_us: 0, to_us: 40_000 },
        LaneSpan { state: LaneState::Sleeping, from_us: 40_000, to_us: 120_000 },
        LaneSpan { state: LaneState::Waiting, from_us: 120_000, to_us: 200_000 },
    ];
    Figures {
        wall_s,
        user_s: 0.3,
        system_s: 0.1,
        utilisation: 0.2,
        idle_s: 1.0,
        switches_voluntary: 1_234,
        switches_involuntary: 56,
        rss_peak_bytes: 12 << 20,
        rss_before_bytes: 10 << 20,
        queue_us: latency,
        processing_us: latency,
        checks: vec![Check::exact("requests", 100_000.0, 100_000.0)],
        timeline: vec![Lane { label: "thread 1".to_owned(), spans }],
    }
}

fn finished(name: &str, threads: u64, wall_s: f64) -> Measured {
    let calls = Calls::Counted {
        by: "perf".to_owned(),
        scale: 0.1,
        futex: 9_876,
        clone: 5,
        mmap: 6,
        mprotect: 7,
    };
    Measured {
        name: name.to_owned(),
        workload: "W14".to_owned(),
        threads,
        outcome: Outcome::Finished,
        done: 100_000,
        floor: Floor { seconds: wall_s / 1.25, by: "all sleep".to_owned() },
        distance: Some(1.25),
        throughput_tps: Some(100_000.0 / wall_s),
        threads_peak: Some(threads),
        figures: Some(figures(wall_s)),
        calls,
    }
}

fn results() -> Results {
    let evidence = Evidence { maps: 65_529, maps_max: 65_530, ..Evidence::default() };
    let died = Measured {
        outcome: Outcome::Died {
            started: 32_730,
            limit: Limit::Maps,
            why: evidence.sentence(Limit::Maps),
            remedy: evidence.remedy(Limit::Maps, 100_000),
            evidence: Box::new(evidence),
        },
        done: 32_730,
        distance: None,
        throughput_tps: None,
        calls: Calls::NotCounted { why: "it did not finish".to_owned() },
        ..finished("thread-per-request", 100_000, 2.0)
    };
    Results {
        schema: SCHEMA.to_owned(),
        command: "hotrow-lab models".to_owned(),
        version: "0".to_owned(),
        began_unix_s: 0,
        host: Host { cpu: "<b>CPU</b> & co".to_owned(), cpus: 2, ..Host::default() },
        cores: 2,
        requests: 100_000,
        scale: 1.0,
        request_cpu_us: 2.5,
        models: vec![
            finished("sequential", 1, 20.0),
            died,
            finished("batches-100", 100, 25.0),
            finished("pool-100", 100, 1.6),
            finished("pool-4x", 8, 3.0),
            finished("pool-1x", 2, 10.0),
            finished("async", 2, 1.25),
        ],
        warnings: Vec::new(),
    }
}

#[test]
fn the_answer_is_first_and_a_died_run_has_no_throughput() {
    let text = text::render(&document(&results()));
    let answer = "The fastest, async, served 100,000 requests in 1.25 s, 16.0 times as many a \
                  second as one after the other; batches of 100 threads reached 0.80 times. A \
                  thread per request died at 32,730 threads.";
    assert!(text.contains(answer), "{text}");
    assert!(
        text.contains("The process had 65529 memory maps, and vm.max_map_count is 65530."),
        "{text}"
    );
    assert!(text.contains("sysctl vm.max_map_count=201000"), "{text}");
    let row = text.lines().find(|line| line.trim().starts_with("thread-per-request")).unwrap();
    // No requests/s, no ratio, no distance to the floor.
    assert!(row.contains("died at 32,730 threads") && row.matches('–').count() == 3, "{row}");
    // The published ratio beside the one measured here.
    let row = text.lines().find(|line| line.trim().starts_with("pool of 8 threads")).unwrap();
    // 8 threads beside 8 threads, which is four for each core here.
    assert!(
        row.contains("29,575/s")
            && row.contains("7.1")
            && row.contains("33,333/s (pool-4x)")
            && row.trim().ends_with("6.7"),
        "{row}"
    );
    assert!(!text.contains("Note:"), "{text}");
}

#[test]
fn the_page_is_well_formed_and_shows_sleeping_threads() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(&folder.path().join("a/b"), &results()).unwrap();
    let page = std::fs::read_to_string(&written.html).unwrap();
    assert_eq!(wellformed::complaints(&page), Vec::<String>::new());
    for want in [
        "class=\"s-sleep\"",
        "class=\"s-wait\"",
        "The first 200 ms, 24 of 100 threads",
        "&lt;b&gt;CPU",
    ] {
        assert!(page.contains(want), "{want}");
    }
    let kept: Results = serde_json::from_str(
        &std::fs::read_to_string(folder.path().join("a/b").join(FILE)).unwrap(),
    )
    .unwrap();
    assert_eq!(kept, results());
}

#[test]
fn problems_precede_the_figures() {
    let mut results = results();
    results.scale = 0.1;
    results.models[0].outcome = Outcome::Wrong;
    results.models[0].throughput_tps = None;
    results.models[0].figures.as_mut().unwrap().checks =
        vec![Check::exact("requests", 99_999.0, 100_000.0)];
    results.models[1].outcome = Outcome::Refused {
        limit: Limit::Maps,
        why: "60 + 2 × 100000 = 200060".to_owned(),
        remedy: "fewer requests".to_owned(),
    };
    results.models[2].outcome =
        Outcome::Lost { why: "its process ended with signal: 9".to_owned() };
    (results.models[2].figures, results.models[2].throughput_tps) = (None, None);
    let text = text::render(&document(&results));
    for want in [
        "Note: The sleeps were 10 % of the published ones",
        "Note: sequential did not do its work: 99999 requests instead of 100000.",
        "Note: batches-100 has no result: its process ended with signal: 9.",
        "It was not started: 60 + 2 × 100000 = 200060. Remedy: fewer requests.",
        "A thread per request was not started",
        "FAILED",
    ] {
        assert!(text.contains(want), "{want}: {text}");
    }
    let nothing = Results { models: Vec::new(), ..results };
    assert!(text::render(&document(&nothing)).contains("No model finished."));
}
