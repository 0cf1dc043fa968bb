use super::*;

const GOOD: &str = r#"
title = "A title"
question = "A question?"
[services.app]
command = ["app", "--port", "{port}", "--level", "{level}"]
vars = { level = "1" }
ready = "/healthz"
[[deployments]]
name = "direct"
service = "app"
[[deployments]]
name = "three"
service = "app"
weights = [4, 1, 1]
vars = { level = "2" }
cores = 0.25
delay = "10ms"
proxy = { kind = "nginx", profile = "published", balance = "weights", cache = "1s" }
[[loads]]
name = "date"
path = "/date/{id}"
ids = "1..9"
connections = [1, 6]
keepalive = false
[[loads]]
name = "name"
path = "/name"
form = { name = "A B" }
connections = [2]
rate = 50.0
deployments = ["direct"]
requests = 5000
[[published]]
deployment = "three"
load = "date"
connections = 6
rps = 357
more = { p95 = "26 ms" }
[[compare]]
row = "three/date/6"
with = "direct/date/6"
claim = "Three make it"
"#;

fn parse(text: &str, overrides: &Overrides) -> Result<Experiment, ConfigError> {
    Experiment::parse("x", "x.toml", text, std::path::Path::new("/nowhere"), overrides)
}

fn refused(text: &str) -> String {
    parse(text, &Overrides::default()).map(|_| String::new()).unwrap_or_else(|e| e.to_string())
}

#[test]
fn a_file_becomes_a_matrix() {
    let experiment = parse(GOOD, &Overrides::default()).unwrap();
    let ids: Vec<&str> = experiment.rows.iter().map(|planned| planned.row.id.as_str()).collect();
    assert_eq!(
        ids,
        ["direct/date/1", "direct/date/6", "direct/name/2", "three/date/1", "three/date/6"]
    );
    assert_eq!((experiment.rounds, experiment.info.compare.len()), (5, 1));
    let row = &experiment.rows[4].row;
    assert_eq!(
        (row.published_rps, row.published_more.len(), row.keepalive),
        (Some(357.0), 1, false)
    );
    assert_eq!(
        (row.proxy.as_str(), row.caching.as_str(), row.balancing.as_str()),
        ("nginx, published profile", "1 s in nginx", "weights 4:1:1")
    );
    let conditions = [("CPU per instance", "0.25 cores"), ("round trip", "10 ms")];
    assert_eq!(row.conditions, conditions.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let name = &experiment.loads[1];
    assert_eq!(
        (name.method.as_str(), name.body.as_deref()),
        ("POST", Some(b"name=A+B".as_slice()))
    );
    assert_eq!((name.stop_condition.requests, name.stop_condition.duration), (Some(5000), None));
    assert_eq!(experiment.loads[0].stop_condition.duration, Some(Duration::from_secs(5)));
}

#[test]
fn the_command_line_overrides_the_file() {
    let overrides = Overrides {
        rounds: Some(2),
        duration_s: Some(0.5),
        only: vec!["direct".to_owned()],
        quick: false,
    };
    let experiment = parse(GOOD, &overrides).unwrap();
    assert_eq!(
        (experiment.rounds, experiment.rows.len(), experiment.info.compare.len()),
        (2, 3, 0)
    );
    let extents: Vec<_> = experiment
        .loads
        .iter()
        .map(|load| (load.stop_condition.duration, load.stop_condition.requests))
        .collect();
    assert_eq!(extents, [(Some(Duration::from_millis(500)), None); 2]);
    let quick = parse(GOOD, &Overrides { quick: true, ..Overrides::default() }).unwrap();
    assert_eq!((quick.rounds, quick.loads[1].stop_condition.requests), (1, Some(200)));
    assert!(quick.loads[0].stop_condition.duration < Some(Duration::from_secs(1)));
    let unknown = parse(GOOD, &Overrides { only: vec!["four".to_owned()], ..Overrides::default() })
        .unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "x.toml: --only: there is no deployment \"four\"; there are direct, three"
    );
}

/// Fails unless each edit of a good file is refused with its words. An edit is the lines that go,
/// the lines that come, and a part of the refusal.
fn assert_refused(good: &str, edits: &str) {
    assert_eq!(refused(good), "");
    for edit in edits.trim_end().split("\n\n") {
        let lines = |mark| {
            let lines: Vec<&str> = edit.lines().filter_map(|l| l.strip_prefix(mark)).collect();
            lines.join("\n")
        };
        let (right, expected) = (lines("- "), lines("=> "));
        assert!(good.contains(&right), "{right}");
        let message = refused(&good.replacen(&right, &lines("+ "), 1));
        assert!(message.contains(&expected), "{edit}\nis reported as: {message}");
    }
}

#[test]
fn problems_name_the_key_the_rule_and_the_value() {
    assert_refused(GOOD, include_str!("tests/problems.txt"));
}

/// Proxies of both kinds, a spare, events and a goal.
const EVENTS: &str = r#"
title = "A title"
question = "A question?"
[services.app]
command = ["app", "{port}"]
metrics = "/metrics"
count_metric = "requests"
reads_metric = "reads"
[[deployments]]
name = "ring"
service = "app"
instances = 4
spares = 1
proxy = { kind = "haproxy", balance = "hash_on_id", load_bound = 150 }
[[deployments]]
name = "weighed"
service = "app"
weights = [3, 1, 1, 1]
spares = 1
proxy = { kind = "haproxy", balance = "weights", retry = false }
[[loads]]
name = "all"
path = "/a/{id}"
ids = "1..9"
distribution = "sequential"
connections = [2]
warmup = "3s"
events = [{ at = 0.2, kill = 2 }, { at = 0.5, start = 4 }, { at = 0.6, start = 2 }]
[[goals]]
row = "ring/all/2"
figure = "read again, instance 2 killed"
at_most = 1.2
claim = "Read again"
"#;

#[test]
fn events_and_goals_are_read() {
    let experiment = parse(EVENTS, &Overrides::default()).unwrap();
    let row = &experiment.rows[0].row;
    assert_eq!(
        (row.proxy.as_str(), row.balancing.as_str(), row.fault),
        ("HAProxy", "hash of the id over 3, bounded load 150 %", true)
    );
    assert_eq!(experiment.rows[1].row.proxy, "HAProxy, one attempt");
    let events = "instance 2 killed after 20 %, instance 4 started after 50 %, instance 2 started \
                  after 60 %";
    assert_eq!(row.conditions, [("events".to_owned(), events.to_owned())]);
    assert_eq!(experiment.info.goals[0].at_most, Some(1.2));
    // A load that asks for all ids keeps its time.
    let quick = parse(EVENTS, &Overrides { quick: true, ..Overrides::default() }).unwrap();
    let (load, second) = (&quick.loads[0], Duration::from_secs(1));
    assert_eq!((load.stop_condition.duration, load.warmup), (Some(5 * second), 3 * second));
    let only = Overrides { only: vec!["weighed".to_owned()], ..Overrides::default() };
    assert!(parse(EVENTS, &only).unwrap().info.goals.is_empty(), "its row is not measured");
}

#[test]
fn problems_of_events_goals_and_haproxy_name_the_rule() {
    assert_refused(EVENTS, include_str!("tests/problems_of_events.txt"));
}

#[test]
fn a_name_given_twice_is_the_only_problem() {
    for (right, wrong) in
        [("name = \"three\"", "name = \"direct\""), ("name = \"name\"", "name = \"date\"")]
    {
        let message = refused(&GOOD.replacen(right, wrong, 1));
        assert!(message.contains("is defined twice") && !message.contains("listed"), "{message}");
    }
    let message = refused(&GOOD.replace("connections = [2]", "connections = [0, 0]"));
    assert_eq!(message.matches("loads[1].connections").count(), 2, "{message}");
    assert!(message.contains("must be between 1 and") && message.contains("0 is listed twice"));
    let message = refused(&GOOD.replace("path = \"/name\"", "path = \"name\""));
    assert!(!message.contains("blank"), "{message}");
}

#[test]
fn an_explicit_duration_overrides_that_of_a_quick_run() {
    let overrides = Overrides { quick: true, duration_s: Some(2.0), ..Overrides::default() };
    let experiment = parse(GOOD, &overrides).unwrap();
    assert_eq!(experiment.loads[0].stop_condition.duration, Some(Duration::from_secs(2)));
}

#[test]
fn all_problems_are_reported_at_once() {
    let text =
        GOOD.replace("ids = \"1..9\"", "ids = \"x\"").replace("cores = 0.25", "cores = 5000.0");
    let message = refused(&text);
    assert!(
        message.contains("loads[0].ids") && message.contains("deployments[1].cores"),
        "{message}"
    );
    let message = refused(&text.replace("weights = ", "wieghts = ").replace("delay", "dely"));
    for expected in
        ["did you mean `weights`?", "did you mean `delay`?", "loads[0].ids", "deployments[1].cores"]
    {
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[test]
fn every_shipped_experiment_is_valid() {
    for shipped in SHIPPED {
        let experiment = parse(shipped.text, &Overrides::default())
            .unwrap_or_else(|e| panic!("{}: {e}", shipped.name));
        assert!(
            !experiment.info.note.is_empty() && !experiment.info.compare.is_empty()
                || shipped.name == "small-responses"
        );
        assert_eq!(find_shipped(shipped.name).map(|found| found.name), Some(shipped.name));
    }
    assert_eq!(find_shipped("W12").map(|found| found.name), Some("backends-shared-cpu"));
    assert!(find_shipped("w99").is_none());
}
