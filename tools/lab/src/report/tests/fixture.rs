//! Results generated from a seed: a balancer experiment with published figures, and the same with
//! unusual names and failures.

use super::results::{
    Backend, Compare, ExperimentInfo, Finding, Host, Io, Load, MachineUse, Measurement, Results,
    Row, SCHEMA, Tier, TierKind,
};

/// Deterministic noise between −1 and 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    }
}

/// Name, caching, balancing, backend weights, and for each load and number of connections the
/// measured and the published rate.
type Deployment = (&'static str, &'static str, &'static str, &'static [u32], [(f64, f64); 4]);

const DEPLOYMENTS: [Deployment; 5] = [
    (
        "direct",
        "none",
        "none",
        &[1],
        [(262.0, 130.0), (268.0, 268.0), (401.0, 224.0), (410.0, 481.0)],
    ),
    (
        "one backend",
        "none",
        "none",
        &[1],
        [(240.0, 113.0), (251.0, 259.0), (380.0, 183.0), (402.0, 474.0)],
    ),
    (
        "three backends",
        "none",
        "round robin over 3",
        &[1, 1, 1],
        [(243.0, 117.0), (741.0, 514.0), (384.0, 186.0), (1180.0, 815.0)],
    ),
    (
        "three backends, cache",
        "1 s in nginx",
        "round robin over 3",
        &[1, 1, 1],
        [(2630.0, 2240.0), (7420.0, 3893.0), (383.0, 186.0), (1171.0, 815.0)],
    ),
    (
        "weights",
        "none",
        "weights 4:1:1",
        &[4, 1, 1],
        [(244.0, 115.0), (382.0, 357.0), (381.0, 183.0), (611.0, 617.0)],
    ),
];
const LOADS: [(&str, &str, u32); 4] = [
    ("date", "GET /what-date-is-it", 1),
    ("date", "GET /what-date-is-it", 6),
    ("name", "POST /what-is-my-name", 1),
    ("name", "POST /what-is-my-name", 6),
];

/// Returns a complete run of `rounds` rounds.
pub(crate) fn results(rounds: u32) -> Results {
    let mut results = Results {
        schema: SCHEMA.to_owned(),
        experiment: about(),
        command: "hotrow-lab run w12 --rounds 7".to_owned(),
        version: "0.1.0".to_owned(),
        began_unix_s: 1_795_301_130,
        host: host(),
        rounds,
        duration_s: Some(5.0),
        rows: DEPLOYMENTS
            .iter()
            .flat_map(|deployment| (0..LOADS.len()).map(|load| row(deployment, load)))
            .collect(),
        measurements: Vec::new(),
        complete: true,
        warnings: vec!["Generator and proxy shared a core in all rows with a proxy.".to_owned()],
    };
    let mut noise = Noise(1);
    for round in 0..rounds {
        for deployment in &DEPLOYMENTS {
            let measured =
                (0..LOADS.len()).map(|load| measurement(deployment, load, round, &mut noise));
            results.measurements.extend(measured.collect::<Vec<_>>());
        }
    }
    results
}

/// Returns a run with everything unusual: hostile names, a failed row, a missing one, empty tiers,
/// no published figures, invalid figures, an interruption, a limited generator.
pub(crate) fn odd_results() -> Results {
    let mut odd = results(2);
    odd.complete = false;
    odd.experiment.title =
        "<script>alert('t')</script> | *bold* ](http://evil.example/)".to_owned();
    odd.experiment.note =
        "# <b>Head</b>\n\n- one `<i>`\n- **two** &lt;\n\n<img src=x onerror=alert(1)>".to_owned();
    odd.experiment.published_source = String::new();
    odd.command = "hotrow-lab run '</code><script>' ```".to_owned();
    odd.warnings.push("\"quoted\" & <odd> \u{202e}turned\u{0}".to_owned());
    for (i, row) in odd.rows.iter_mut().enumerate() {
        row.published_rps = row.published_rps.filter(|_| i % 3 == 0);
        row.conditions
            .push(("TLS | <x>".to_owned(), if i % 2 == 0 { "on" } else { "off" }.to_owned()));
        if row.deployment == "weights" {
            row.deployment =
                "we<ights & \"co\" | a name that is a good deal longer than any column has room for"
                .to_owned();
        }
    }
    for measurement in &mut odd.measurements {
        match measurement.row.as_str() {
            "direct/name/6" if measurement.round == 1 => {
                measurement.failed = Some("status 502 <b>twice</b> | at 3 s".to_owned())
            }
            "direct/date/6" => {
                measurement.findings[0]
                    .evidence
                    .push("process <b>x</b> | \"held\" \u{202e}up\u{0}".to_owned());
                measurement.findings[0].confidence = f64::NAN;
            }
            "one backend/date/6" => measurement.load = None,
            "one backend/name/1" => measurement.tiers.clear(),
            "three backends/date/1" => measurement.load.as_mut().expect("it has one").errors = 3,
            "three backends/date/6" => {
                measurement.load.as_mut().expect("it has one").generator_limited = true
            }
            "three backends, cache/name/1" => {
                unmeasured(measurement.load.as_mut().expect("it has one"))
            }
            _ => {}
        }
    }
    odd.measurements.retain(|m| m.row != "weights/name/6");
    odd
}

/// Clears the figures, as after a very short run.
fn unmeasured(load: &mut Load) {
    *load = Load {
        window_s: 0.0,
        ok: 1,
        rps: f64::NAN,
        mean_us: Some(f64::INFINITY),
        p50_us: Some(f64::NAN),
        ..Load::default()
    };
    load.distribution = vec![(0.0, 0), (f64::NAN, 1)];
}

fn about() -> ExperimentInfo {
    let compare = |row: &str, with: &str, claim: &str| Compare {
        row: row.to_owned(),
        with: with.to_owned(),
        claim: claim.to_owned(),
        figure: None,
    };
    ExperimentInfo {
        name: "w12".to_owned(),
        title: "Balancing over three limited backends, with and without a cache".to_owned(),
        question: "What do three backends bring, each limited to a fifth of a core, and what does \
                   a cache of one second bring?"
            .to_owned(),
        note: "Each backend may use **0.2 cores**, so that all of them stay within one core:\n\n- \
               the date is the same for everybody and may be cached until midnight\n- the name is \
               answered to `POST` and is never cached"
            .to_owned(),
        compare: vec![
            compare(
                "three backends, cache/date/6",
                "three backends/date/6",
                "Caching for one second makes the date",
            ),
            compare(
                "three backends/date/6",
                "one backend/date/6",
                "Two more backends make the date",
            ),
            compare(
                "three backends, cache/name/6",
                "three backends/name/6",
                "The cache, which may not keep the name, makes it",
            ),
        ],
        goals: Vec::new(),
        published_source: "a 2-core laptop, Go's standard library behind nginx; three backends \
                           with 0.2 cores each."
            .to_owned(),
    }
}

fn host() -> Host {
    Host {
        cpu: "AMD EPYC 7B13".to_owned(),
        cpus: 2,
        memory_bytes: 25_200_000_000,
        kernel: "6.18.3".to_owned(),
        programs: vec![
            ("nginx".to_owned(), "1.22.1".to_owned()),
            ("date service".to_owned(), "0.1.0".to_owned()),
        ],
        cpu_limits: Some("cgroup v1, period 10 ms".to_owned()),
        cpu_weights: Some("deployment 262144, generator 65536".to_owned()),
    }
}

fn row(deployment: &Deployment, load: usize) -> Row {
    let (name, caching, balancing, _, figures) = deployment;
    let (of, request, connections) = LOADS[load];
    Row {
        id: format!("{name}/{of}/{connections}"),
        deployment: (*name).to_owned(),
        load: of.to_owned(),
        request: request.to_owned(),
        proxy: if *name == "direct" { "none" } else { "nginx, published profile" }.to_owned(),
        caching: (*caching).to_owned(),
        balancing: (*balancing).to_owned(),
        connections,
        keepalive: false,
        rate: None,
        fault: false,
        conditions: Vec::new(),
        published_rps: Some(figures[load].1),
        published_more: if connections == 6 {
            vec![("p95".to_owned(), "48 ms".to_owned())]
        } else {
            Vec::new()
        },
    }
}

fn measurement(deployment: &Deployment, load: usize, round: u32, noise: &mut Noise) -> Measurement {
    let (name, caching, _, weights, figures) = deployment;
    let (of, _, connections) = LOADS[load];
    let rps = figures[load].0 * (1.0 + 0.03 * noise.next());
    let cached = *caching != "none" && of == "date";
    let ok = (rps * 5.0) as u64;
    let served = if cached { 15 } else { ok };
    let all: u32 = weights.iter().sum();
    let backends = weights.iter().enumerate().map(|(i, weight)| Backend {
        name: format!("date-{}", i + 1),
        weight: *weight,
        requests: served * u64::from(*weight) / u64::from(all),
    });
    Measurement {
        row: format!("{name}/{of}/{connections}"),
        round,
        began_unix_s: 1_795_301_130 + u64::from(round) * 100,
        failed: None,
        load: Some(generated(rps, ok, connections, noise)),
        tiers: tiers(deployment, cached, connections, ok, noise),
        backends: if weights.len() > 1 { backends.collect() } else { Vec::new() },
        cache: if cached {
            vec![
                ("HIT".to_owned(), ok - 15),
                ("EXPIRED".to_owned(), 5),
                ("UPDATING".to_owned(), 10),
            ]
        } else {
            Vec::new()
        },
        io: Io { net_sent_bytes: ok * 325_000, ..Io::default() },
        figures: if cached {
            vec![("hit ratio".to_owned(), 1.0 - 15.0 / ok as f64, String::new())]
        } else {
            Vec::new()
        },
        phases: Vec::new(),
        findings: if *name == "direct" && connections > 1 { vec![throttled()] } else { Vec::new() },
        observer_cpu_s: Some(0.012),
        machine: Some(MachineUse { interval_s: 5.0, others_cores: 0.02, stolen_cores: 0.0 }),
    }
}

fn throttled() -> Finding {
    Finding {
        class: "Throttled".to_owned(),
        description: "CPU: the cgroup's quota is used up".to_owned(),
        confidence: 0.95,
        evidence: vec![
            "the group of date-1 was throttled in 388 of 400 periods".to_owned(),
            "it used 0.20 CPUs".to_owned(),
        ],
        counterfactual: "twice the quota doubles the rate".to_owned(),
    }
}

fn generated(rps: f64, ok: u64, connections: u32, noise: &mut Noise) -> Load {
    let mean = f64::from(connections) * 1e6 / rps;
    let at = |share: f64| Some(mean * (0.55 - 0.42 * (1.0 - share).ln()));
    let bound = |i: u32| 1.0 - 10_f64.powf(-f64::from(i) / 24.0);
    let shares = (0..80).map(bound).filter(|share| ok as f64 * (1.0 - share) >= 1.0);
    let wobble = 1.0 + 0.02 * noise.next();
    let mut distribution: Vec<(f64, u64)> = shares
        .filter_map(|share| Some((at(share)? * wobble, (share * ok as f64) as u64)))
        .collect();
    let max = at(1.0 - 0.5 / ok as f64);
    distribution.push((max.unwrap_or_default() * 1.1, ok));
    Load {
        window_s: 5.0,
        ok,
        rps,
        received_bytes: ok * 325_000,
        mean_us: Some(mean),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p95_us: at(0.95),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: max,
        distribution,
        verdict: "The generator was not the limit: its busiest thread used 12 % of a CPU."
            .to_owned(),
        ..Load::default()
    }
}

fn tiers(
    deployment: &Deployment,
    cached: bool,
    connections: u32,
    ok: u64,
    noise: &mut Noise,
) -> Vec<Tier> {
    let (name, _, _, weights, _) = deployment;
    let tier = |kind, name: &str, cpu_s: f64, limit: Option<f64>, throttled: Option<f64>| Tier {
        kind,
        name: name.to_owned(),
        cpu_s,
        limit_cores: limit,
        throttled,
        rss_bytes: 21_000_000,
    };
    let mut tiers = Vec::new();
    for (i, weight) in weights.iter().enumerate() {
        let full = connections > 1 && !cached && (*name != "weights" || *weight == 4);
        let used = if cached {
            0.01
        } else if full {
            0.99
        } else {
            0.61 + 0.02 * noise.next()
        };
        let throttled = Some(if full { 0.97 } else { 0.04 });
        tiers.push(tier(TierKind::Service, &format!("date-{}", i + 1), used, Some(0.2), throttled));
    }
    if *name != "direct" {
        tiers.push(tier(TierKind::Proxy, "nginx", ok as f64 * 105e-6, None, None));
    }
    tiers.push(tier(TierKind::Generator, "generator", ok as f64 * 61e-6, None, None));
    tiers
}
