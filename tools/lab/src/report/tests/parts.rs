//! Single parts: bottlenecks, answers at a fixed rate, comparison of runs.

use super::super::summary::{RowState, Summary};
use super::super::{bottleneck, compare};
use super::{fixture, markdown, wellformed};
use hotrow_report::{html, text};
use hotrow_results::{Finding, Results, Tier, TierKind};

/// Returns the bottleneck of the first measurement of `direct/date/6` after a change of the
/// results.
fn limited(change: impl Fn(&mut Results)) -> String {
    let mut results = fixture::results(1);
    results.measurements.retain(|m| m.row == "direct/date/6");
    for tier in &mut results.measurements[0].tiers {
        (tier.limit_cores, tier.throttled, tier.cpu_s) = (None, None, 0.5);
    }
    change(&mut results);
    let summary = Summary::of(&results);
    let row = summary.row("direct/date/6").unwrap();
    bottleneck::bottleneck_of(&row.runs()[0], row.row, 2).words()
}

fn service(results: &mut Results) -> &mut Tier {
    &mut results.measurements[0].tiers[0]
}

#[test]
fn the_limit_of_a_row_is_named() {
    // Five seconds, two CPUs; service and generator used half a second each.
    assert_eq!(limited(|_| {}), "not the CPU (10 % in use)");
    let row = |r: &mut Results| r.rows.iter().position(|row| row.id == "direct/date/6").unwrap();
    assert!(
        limited(|r| {
            let at = row(r);
            r.rows[at].connections = 1
        })
        .starts_with("its one connection")
    );
    assert!(
        limited(|r| {
            let at = row(r);
            r.rows[at].rate = Some(200.0)
        })
        .starts_with("nothing: it reached the requested 200 requests/s")
    );
    assert!(
        limited(|r| {
            let at = row(r);
            r.rows[at].rate = Some(400.0)
        })
        .starts_with("not the CPU")
    );
    assert!(
        limited(|r| service(r).cpu_s = 9.0)
            .starts_with("the CPUs of this machine (1.90 of 2 cores")
    );
    assert!(
        limited(|r| service(r).cpu_s = 5.0).starts_with("probably one core: the service date-1")
    );
    assert!(
        limited(|r| (service(r).cpu_s, service(r).limit_cores) = (0.98, Some(0.2)))
            .starts_with("the CPU limit of the service")
    );
    assert!(
        limited(|r| service(r).throttled = Some(0.9)).starts_with("the CPU limit of the service")
    );
    assert!(
        limited(|r| r.measurements[0].load.as_mut().unwrap().generator_limited = true)
            .starts_with("the generator")
    );
    assert!(limited(|r| r.measurements[0].tiers.clear()).starts_with("unknown"));
    let two = |r: &mut Results| {
        let other = Tier { name: "date-2".to_owned(), cpu_s: 0.1, ..service(r).clone() };
        (service(r).cpu_s, service(r).limit_cores) = (1.0, Some(0.2));
        r.measurements[0].tiers.insert(1, other);
    };
    assert_eq!(
        limited(two),
        "the CPU limit of date-1 (0.20 of 0.20 cores), while others of its tier had room"
    );
}

#[test]
fn rows_at_the_same_rate_are_compared_by_cpu_time() {
    let mut results = fixture::results(7);
    for row in &mut results.rows {
        row.rate = Some(100.0);
    }
    let text = markdown(&results);
    assert!(
        text.contains("**Caching for one second makes the date cost ")
            && text.contains("less CPU per request"),
        "{text}"
    );
    results
        .measurements
        .iter_mut()
        .for_each(|m| m.tiers.retain(|tier| tier.kind == TierKind::Generator));
    assert!(markdown(&results).contains(
        "**Caching for one second makes the date …: not known, because no round has both.**"
    ));
}

/// Returns a report of five rounds in which the generator was the limit of these rows.
fn generator_limited(rows: &[&str]) -> String {
    let mut results = fixture::results(5);
    for measurement in &mut results.measurements {
        measurement.load.as_mut().unwrap().generator_limited =
            rows.contains(&measurement.row.as_str());
    }
    markdown(&results)
}

#[test]
fn a_ratio_of_a_bound_is_a_bound_in_the_answer_and_in_the_table() {
    let (cached, three) = ("three backends, cache/date/6", "three backends/date/6");
    let first = generator_limited(&[cached]);
    assert!(first.contains("**Caching for one second makes the date at least 1"), "{first}");
    assert!(first.contains("the true ratio may be larger."), "{first}");
    let second = generator_limited(&[three]);
    assert!(second.contains("**Caching for one second makes the date at most 1"), "{second}");
    let row = |text: &str, start: &str| {
        text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned()
    };
    // The first row of the group, to which ratios are, is not limited.
    let cells = row(&first, "| three backends, cache | nginx, published profile | 1 s in nginx");
    assert!(!cells.contains('≥'), "one connection: {cells}");
    let cells: Vec<&str> = first
        .lines()
        .filter(|line| line.starts_with("| three backends, cache |") && line.contains("| 6 |"))
        .collect();
    let cells: Vec<&str> = cells[0].split('|').map(str::trim).collect();
    assert!(cells[6].starts_with("**≥ ") && cells[7].starts_with("≥ "), "{cells:?}");
    let base = generator_limited(&["direct/date/6"]);
    let line = base
        .lines()
        .find(|line| line.starts_with("| three backends, cache |") && line.contains("| 6 |"));
    let cells: Vec<&str> = line.unwrap().split('|').map(str::trim).collect();
    assert!(cells[6].starts_with("**7") && cells[7].starts_with("≤ "), "{cells:?}");
}

#[test]
fn two_bounds_have_no_ratio_and_no_direction() {
    let text = generator_limited(&["three backends, cache/date/6", "three backends/date/6"]);
    let answer = text.lines().find(|line| line.starts_with("**Caching")).unwrap();
    assert!(
        answer.starts_with(
            "**Caching for one second makes the date …: not known, because the generator was the \
             limit of both: at least 7,"
        ),
        "{answer}"
    );
    assert!(!answer.contains("faster") && !answer.contains("times as fast"), "{answer}");
    let text = generator_limited(&["three backends, cache/date/6", "direct/date/6"]);
    let line = text
        .lines()
        .find(|line| line.starts_with("| three backends, cache |") && line.contains("| 6 |"));
    let cells: Vec<&str> = line.unwrap().split('|').map(str::trim).collect();
    assert_eq!(cells[7], "not known", "{cells:?}");
}

#[test]
fn a_slower_bound_is_slower_by_at_most_that() {
    let mut results = fixture::results(5);
    results.experiment.compare.truncate(1);
    let compare = &mut results.experiment.compare[0];
    (compare.row, compare.with) = ("weights/date/6".to_owned(), "three backends/date/6".to_owned());
    compare.claim = "Weights make it".to_owned();
    for (limited, expected) in [
        ("", "**Weights make it 48 % slower (0.52 times"),
        ("weights/date/6", "**Weights make it at most 48 % slower (at least 0.52 times"),
        ("three backends/date/6", "**Weights make it at least 48 % slower (at most 0.52 times"),
    ] {
        for measurement in &mut results.measurements {
            let load = measurement.load.as_mut().unwrap();
            load.generator_limited = measurement.row == limited;
            match measurement.row.as_str() {
                "weights/date/6" => load.rps = 390.0,
                "three backends/date/6" => load.rps = 750.0,
                _ => {}
            }
        }
        let text = markdown(&results);
        assert!(text.contains(expected), "{expected}: {text}");
    }
    results.experiment.compare.clear();
    for measurement in &mut results.measurements {
        measurement.load.as_mut().unwrap().generator_limited = true;
    }
    let text = markdown(&results);
    assert!(text.contains("**From at least 2") && text.contains(" to at least 7,"), "{text}");
}

#[test]
fn lower_bounds_of_latencies_are_marked_and_end_a_curve() {
    let mut results = fixture::results(5);
    let of_row = |m: &&mut hotrow_results::Measurement| m.row == "direct/date/6";
    let exact = markdown(&results);
    assert!(!exact.contains("Curves end before these"), "{exact}");
    for measurement in results.measurements.iter_mut().filter(of_row) {
        let load = measurement.load.as_mut().unwrap();
        // The slowest twentieth had no expected response.
        (load.lower_bounds, load.unbounded) =
            (["p99", "p99.9", "max"].map(str::to_owned).to_vec(), load.ok / 20);
    }
    let text = markdown(&results);
    let row = text
        .lines()
        .filter(|line| line.starts_with("| direct, 6 connections |"))
        .find(|line| line.contains(" ms "))
        .unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let marked: Vec<bool> = cells[2..8].iter().map(|cell| cell.starts_with("≥ ")).collect();
    assert_eq!(marked, [false, false, false, true, true, true], "{row}");
    assert!(text.contains("Curves end before these"), "{text}");
}

#[test]
fn cores_in_use_are_those_of_the_machine_at_most() {
    // Responses awaited after a window of 5 s: CPU time was counted for 20 s.
    let words = limited(|r| {
        service(r).cpu_s = 35.0;
        r.measurements[0].machine.as_mut().unwrap().interval_s = 20.0;
    });
    assert!(words.starts_with("the CPUs of this machine (1.85 of 2 cores"), "{words}");
    // Ticks round, and older results have no interval.
    let words = limited(|r| (service(r).cpu_s, r.measurements[0].machine) = (18.0, None));
    assert!(words.starts_with("the CPUs of this machine (2.00 of 2 cores"), "{words}");
}

#[test]
fn a_repeated_round_counts_with_its_last_measurement() {
    let mut results = fixture::results(2);
    let mut again = results.measurements[0].clone();
    results.measurements[0].failed = Some("it died".to_owned());
    assert!(matches!(Summary::of(&results).rows[0].state, RowState::Failed(_)));
    again.load.as_mut().unwrap().rps = 12_345.0;
    results.measurements.push(again);
    let summary = Summary::of(&results);
    assert_eq!(summary.rows[0].runs().iter().map(|run| run.of.round).collect::<Vec<_>>(), [0, 1]);
    assert!(summary.rows[0].runs().iter().any(|run| run.load.rps == 12_345.0));
}

#[test]
fn two_runs_are_compared_row_by_row() {
    let first = fixture::results(7);
    let same = compare::document(&first, &first).unwrap();
    assert!(
        text::render(&same).contains("\nNo difference is shown in 20 rows.\n"),
        "{}",
        text::render(&same)
    );
    let mut second = first.clone();
    second.host.kernel = "6.19".to_owned();
    for measurement in &mut second.measurements {
        let load = measurement.load.as_mut().unwrap();
        match measurement.row.as_str() {
            "direct/date/6" => load.rps *= 1.5,
            "weights/name/1" => load.rps *= 0.8,
            "direct/name/1" => measurement.failed = Some("it died".to_owned()),
            "three backends, cache/date/6" => {
                let class = "Proxy".to_owned();
                measurement.findings =
                    vec![Finding { class, confidence: 0.9, ..Finding::default() }];
            }
            _ => {}
        }
    }
    let document = compare::document(&first, &second).unwrap();
    let shown = text::render(&document);
    for words in [
        "B is faster than A in 1 and slower in 1 of 19 rows. 1 row cannot be compared",
        "50 % faster",
        "20 % slower",
        "FAILED",
        "A: not the CPU; B: the proxy",
        "Note: the runs were made on different machines",
    ] {
        assert!(shown.contains(words), "{words} is not in {shown}");
    }
    assert_eq!(wellformed::complaints(&html::render(&document)), Vec::<String>::new());
    let few = compare::document(&first, &fixture::results(2)).unwrap();
    assert!(text::render(&few).contains("For 20 rows there are too few rounds."));
}

#[test]
fn runs_of_different_experiments_are_refused() {
    let first = fixture::results(1);
    let refused = |change: fn(&mut Results)| {
        let mut second = first.clone();
        change(&mut second);
        compare::document(&first, &second).unwrap_err().to_string()
    };
    let error = refused(|r| r.experiment.name = "w13".to_owned());
    assert!(error.contains("\"w12\" and B one of \"w13\""), "{error}");
    let error = refused(|r| r.rows[0].connections = 5);
    assert!(
        error.contains("\"direct/date/1\" is")
            && error.contains("connections 5, keep-alive off in B"),
        "{error}"
    );
    let error = refused(|r| r.rows.clear());
    assert!(error.contains("no row is in both runs"), "{error}");
}
