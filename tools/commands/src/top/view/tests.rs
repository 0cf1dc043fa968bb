use super::*;

pub(in super::super) fn row(name: &str, requests: f64, memory: f64, p99_us: f64) -> Row {
    let numbers = Numbers {
        version: "0.1.0".to_owned(),
        requests: Some(requests),
        lookups_memory: Some(memory),
        lookups_database: Some(requests - memory),
        p99_us: Some(p99_us),
        staleness_ms: Some(1.5),
        queries: Some(4.0),
        refused: Some(0.0),
        errors: Some(0.0),
        connections: Some(50.0),
        cpu_cores: Some(0.5),
        memory_bytes: Some(1e8),
        cache_bytes: 50,
        capacity_bytes: 100,
        curve: vec![Some(1.0), None, Some(requests)],
        ..Numbers::default()
    };
    Row { name: name.to_owned(), report: Report::Numbers(Box::new(numbers)) }
}

pub(in super::super) fn down(name: &str) -> Row {
    let report = Report::Unreachable { for_s: 12, why: "connection refused".to_owned() };
    Row { name: name.to_owned(), report }
}

fn names(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.name.as_str()).collect()
}

#[test]
fn totals_weigh_the_hit_ratio_by_lookups_and_take_the_worst_percentile() {
    let rows = [row("a", 900.0, 900.0, 10.0), row("b", 100.0, 0.0, 400.0), down("c")];
    let totals = Totals::of(&rows);
    assert_eq!((totals.instances, totals.reporting, totals.ready), (3, 2, 2));
    let numbers = totals.numbers;
    assert_eq!((numbers.requests, numbers.hit_ratio()), (Some(1_000.0), Some(0.9)));
    assert_eq!((numbers.p99_us, numbers.cpu_cores), (Some(400.0), Some(1.0)));
    assert_eq!(Totals::of(&[down("c")]).numbers.requests, None);
}

#[test]
fn rows_are_ordered_by_what_needs_attention() {
    let mut rows = [row("a", 900.0, 900.0, 10.0), row("b", 100.0, 0.0, 400.0), down("c")];
    sort(&mut rows, SortKey::Given, false);
    assert_eq!(names(&rows), ["a", "b", "c"]);
    sort(&mut rows, SortKey::Requests, false);
    assert_eq!(names(&rows), ["c", "a", "b"]);
    sort(&mut rows, SortKey::Hits, false);
    assert_eq!(names(&rows), ["c", "b", "a"], "the lowest hit ratio first");
    sort(&mut rows, SortKey::P99, true);
    assert_eq!(names(&rows), ["a", "b", "c"]);
    let mut key = SortKey::Given;
    (0..SortKey::ALL.len()).for_each(|_| key = key.next());
    assert_eq!(key, SortKey::Given);
}
