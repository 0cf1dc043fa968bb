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

#[test]
fn problems_name_the_key_the_rule_and_the_value() {
    let table = [
        ("ready = ", "redy = ", "x.toml:7: services.app.redy: unknown key; did you mean `ready`?"),
        (
            "connections = [2]",
            "connections = \"2\"",
            "loads[1].connections: invalid type: string \"2\", expected a sequence",
        ),
        (
            "rate = 50.0",
            "rate = 0.0",
            "loads[1].rate: must be between 0.00001 and 10000000 requests per second, not 0",
        ),
        ("requests = 5000", "requests = 0", "loads[1].requests: must be above zero"),
        (
            "connections = [2]",
            "connections = []",
            "loads[1].connections: must list at least one number",
        ),
        ("connections = [2]", "connections = [2, 2]", "loads[1].connections: 2 is listed twice"),
        (
            "service = \"app\"",
            "service = \"ap\"",
            "deployments[0].service: there is no service \"ap\"; there are app",
        ),
        (
            "name = \"three\"",
            "name = \"direct\"",
            "deployments[1].name: \"direct\" is defined twice; names must differ",
        ),
        ("name = \"three\"", "name = \"a/b\"", "deployments[1].name: must be 1 to 64 bytes"),
        (
            "weights = [4, 1, 1]",
            "weights = [4, 1, 0]",
            "deployments[1].weights: must be between 1 and 1000, not 0",
        ),
        (
            "weights = [4, 1, 1]",
            "instances = 3",
            "deployments[1].weights: weights and proxy.balance = \"weights\" must be set together",
        ),
        (
            "weights = [4, 1, 1]",
            "instances = 2\nweights = [1]",
            "deployments[1].weights: must have one weight per instance: 2, not 1",
        ),
        (
            "cores = 0.25",
            "cores = 0.0",
            "deployments[1].cores: must be between 0.1 and 1024 cores, not 0",
        ),
        (
            "delay = \"10ms\"",
            "delay = \"10\"",
            "deployments[1].delay: must be a number with a unit",
        ),
        (
            "profile = \"published\"",
            "profile = \"best\"",
            "deployments[1].proxy.profile: unknown variant `best`, expected `published` or `tuned`",
        ),
        ("profile = \"published\", ", "", "deployments[1].proxy.profile: is missing"),
        (
            "kind = \"nginx\"",
            "kind = \"apache\"",
            "deployments[1].proxy.kind: unknown variant `apache`, expected `nginx` or `haproxy`",
        ),
        (
            "cache = \"1s\"",
            "cache = \"1500ms\"",
            "deployments[1].proxy.cache: must be whole seconds",
        ),
        ("{port}", "{prot}", "services.app.command: {prot} is not known; the lab fills {port}"),
        (
            "vars = { level = \"2\" }",
            "vars = { lvl = \"2\" }",
            "deployments[1].vars.lvl: is not a variable of the service \"app\"",
        ),
        (
            "ready = \"/healthz\"",
            "ready = \"healthz\"",
            "services.app.ready: must be a path that begins with a slash",
        ),
        (
            "deployments = [\"direct\"]",
            "deployments = [\"dirct\"]",
            "loads[1].deployments: there is no deployment \"dirct\"",
        ),
        ("ids = \"1..9\"", "ids = \"9..1\"", "loads[0].ids: must be two whole numbers"),
        (
            "ids = \"1..9\"",
            "ids_file = \"none\"",
            "loads[0].ids_file: /nowhere/none cannot be read",
        ),
        (
            "ids = \"1..9\"",
            "ids = \"1..9\"\nids_env = \"IDS\"",
            "loads[0].ids: only one of ids, ids_file and ids_env",
        ),
        ("ids = \"1..9\"", "ids_env = \"PWD\"", "loads[0].ids_env: "),
        ("ids = \"1..9\"\n", "", "loads[0].path: the URL has {id} in it"),
        (
            "path = \"/name\"",
            "path = \"name\"",
            "loads[1].path: must begin with a slash, as in \"/hello\", not \"name\"",
        ),
        ("path = \"/name\"", "path = \"/a b\"", "loads[1].path: the path \"/a b\" has a blank"),
        (
            "connections = 6\n",
            "connections = 7\n",
            "published[0]: there is no row \"three/date/7\"",
        ),
        (
            "with = \"direct/date/6\"",
            "with = \"direct/date/9\"",
            "compare[0].with: there is no row \"direct/date/9\"",
        ),
        (
            "with = \"direct/date/6\"",
            "with = \"direct/date/6\"\nfigure = \"hits\"",
            "compare[0].figure: \"hits\" is not the name of any [[services.NAME.figures]]",
        ),
        (
            "keepalive = false",
            "keepalive = false\nevents = [{ at = 0.6, kill = 1 }, { at = 0.3, start = 1 }]",
            "loads[0].events[1]: at must be a share of the measurement, above 0.6 and below 1",
        ),
        (
            "keepalive = false",
            "keepalive = false\nevents = [{ at = 0.3, kill = 2 }]",
            "loads[0].events: direct has no instance 2; it has 1, counted from 1",
        ),
        (
            "requests = 5000",
            "requests = 5000\nevents = [{ at = 0.3, kill = 1 }]",
            "loads[1].events: need a measurement that time ends",
        ),
        (
            "cache = \"1s\"",
            "backups = 3",
            "deployments[1].proxy.backups: must leave at least one of 3 instances, not 3",
        ),
        (
            "cache = \"1s\"",
            "fail_timeout = \"1500ms\"",
            "deployments[1].proxy.fail_timeout: must be whole seconds",
        ),
        (
            "cache = \"1s\"",
            "gzip = 10",
            "deployments[1].proxy.gzip: must be between 1 and 9, not 10",
        ),
        ("title = \"A title\"", "title = \" \"", "title: must not be empty"),
        ("title = \"A title\"", "title = ", "x.toml:2: this is not TOML"),
        ("title = \"A title\"", "", "missing field `title`"),
        ("command = [\"app\"", "command = [\"\"", "services.app.command: must name a program"),
        (
            "name = \"name\"",
            "name = \"name\"\nbackground_load = \"scan\"",
            "loads[1].background_load: there is no load \"scan\" with background = true",
        ),
    ];
    assert_eq!(refused(GOOD), "");
    for (right, wrong, expected) in table {
        assert!(GOOD.contains(right), "{right}");
        let message = refused(&GOOD.replacen(right, wrong, 1));
        assert!(
            message.contains(expected),
            "{wrong}\nis reported as: {message}\nnot as:         {expected}"
        );
    }
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
    let table = [
        ("spares = 1", "spares = 4", "deployments[0].spares: must leave at least one of 4"),
        (
            "load_bound = 150",
            "load_bound = 100",
            "deployments[0].proxy.load_bound: must be between 101 and 10000 percent of the average",
        ),
        (
            "balance = \"hash_on_id\"",
            "balance = \"modulo_on_id\"",
            "deployments[0].proxy.load_bound: needs kind = \"haproxy\" and balance",
        ),
        (
            "retry = false",
            "profile = \"tuned\"",
            "deployments[1].proxy.profile: is a setting of nginx; of HAProxy: balance, load_bound",
        ),
        ("retry = false", "backups = 1", "deployments[1].proxy.backups: is a setting of nginx"),
        ("[3, 1, 1, 1]", "[300, 1, 1, 1]", "deployments[1].weights: must be between 1 and 256"),
        ("kill = 2", "kill = 4", "loads[0].events: kill instance 4 of ring, which does not run"),
        ("start = 4", "start = 1", "loads[0].events: start instance 1 of ring, which runs then"),
        ("kill = 2", "kill = 0", "loads[0].events: ring has no instance 0; it has 4, counted from"),
        ("kill = 2", "kill = 2, start = 4", "loads[0].events[0]: must have either kill or start"),
        ("at = 0.5", "at = 1.5", "loads[0].events[1]: at must be a share of the measurement"),
        (
            "count_metric = \"requests\"\n",
            "",
            "services.app.reads_metric: needs metrics, and count_metric or count",
        ),
        ("ring/all/2", "ring/all/3", "goals[0].row: there is no row \"ring/all/3\""),
        (
            "read again, instance 2 killed",
            "read again, instance 3 killed",
            "goals[0].figure: \"read again, instance 3 killed\" is not the name of any",
        ),
        ("at_most = 1.2\n", "", "goals[0]: must have either at_most or at_least, a number"),
        ("at_most = 1.2", "at_most = nan", "goals[0]: must have either at_most or at_least"),
    ];
    assert_eq!(refused(EVENTS), "");
    for (right, wrong, expected) in table {
        assert!(EVENTS.contains(right), "{right}");
        let message = refused(&EVENTS.replacen(right, wrong, 1));
        assert!(message.contains(expected), "{wrong}\nis reported as: {message}");
    }
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
