//! State of the live display: the seconds of a load, and samples of the machine. Pure: time and
//! process names are passed in.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use hotrow_diagnose::rules::finding::{Finding, LimitClass};
use hotrow_diagnose::samples::{GeneratorLoad, Role, Samples, WatchedProcess};
use hotrow_load::outcome::{LatencySummary, Second};
use hotrow_load::plan::{LoadModel, StopCondition};
use hotrow_load::run::{Config, ExpectedStatus};
use hotrow_load::stats::{CensoredNs, Counts, LoadStats};
use hotrow_measure::clock::Nanos;
use hotrow_report::numbers::grouped;
use hotrow_trial::observe;

use super::view::{
    Connections, Core, Generator, Machine, Process, Progress, Rate, StepRow, SuspectedLimit, Time,
    View,
};
use super::view::{Search as SearchView, Tone};

/// Most seconds in the curve: more than the widest display shows.
const HISTORY_MAX: usize = 240;
/// Most steps: more than the highest display shows.
const STEPS_MAX: usize = 64;
/// Shorter rests of a second are no points of the curve.
const SECOND_LENGTH_MIN: Duration = Duration::from_millis(150);
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
/// Prefix of the generator's thread names.
const GENERATOR_THREAD: &str = "load-";
/// CPU share from which a generator thread has no capacity left, in a live second.
const GENERATOR_FULL: f64 = 0.95;

#[derive(Debug)]
pub(super) struct DisplayState {
    title: String,
    /// The target is on this machine.
    local: bool,
    run: Option<Run>,
    total: LoadStats,
    last: Option<Last>,
    history_rps: VecDeque<f64>,
    machine: Option<Machine>,
    suspicion: Option<SuspectedLimit>,
    generator_busiest: Option<f64>,
    /// Names of processes by id, looked up once.
    names: HashMap<u32, String>,
    search: Option<Search>,
}

#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) begun: Nanos,
    /// Start of its measurement; known from its first second on.
    pub(super) measured_from: Option<Nanos>,
    pub(super) warmup: Duration,
    pub(super) stop: StopCondition,
    pub(super) model: LoadModel,
    pub(super) connections: usize,
    pub(super) threads: usize,
    pub(super) expect: ExpectedStatus,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    rate_rps: f64,
    quantiles: [Option<CensoredNs>; 4],
    lag_p99_ns: Option<u64>,
    service_mean: Duration,
    /// It belongs to the previous load: shown until the current load has completed a second,
    /// because tests take little longer than that.
    before: bool,
}

/// A search, or tests, whose steps are loads.
#[derive(Clone, Debug)]
struct Search {
    name: &'static str,
    begun: Nanos,
    budget: Duration,
    step: String,
    so_far: String,
    steps: VecDeque<StepRow>,
}

impl DisplayState {
    pub(super) fn new(title: String, local: bool) -> Self {
        Self {
            title,
            local,
            run: None,
            total: LoadStats::default(),
            last: None,
            history_rps: VecDeque::new(),
            machine: None,
            suspicion: None,
            generator_busiest: None,
            names: HashMap::new(),
            search: None,
        }
    }

    /// Begins a search with a maximum time; the following loads are its steps.
    pub(super) fn search(&mut self, budget: Duration, now: Nanos) {
        let step = String::new();
        let so_far = String::new();
        self.search = Some(Search {
            name: "search",
            begun: now,
            budget,
            step,
            so_far,
            steps: VecDeque::new(),
        });
    }

    /// Begins tests with a maximum time; the earlier search stays visible.
    pub(super) fn tests(&mut self, budget: Duration, so_far: String, now: Nanos) {
        let steps = self.search.take().map(|search| search.steps).unwrap_or_default();
        self.search =
            Some(Search { name: "tests", begun: now, budget, step: String::new(), so_far, steps });
    }

    pub(super) fn trial(&mut self, step: String, run: Run) {
        if let Some(search) = &mut self.search {
            search.step = step;
        }
        let last = self.last.map(|last| Last { before: true, ..last });
        self.begins(run);
        self.last = last;
    }

    /// Begins a step of a search, with its purpose and the knowledge before it.
    pub(super) fn step(&mut self, step: String, so_far: String) {
        if let Some(search) = &mut self.search {
            (search.step, search.so_far) = (step, so_far);
        }
    }

    pub(super) fn step_done(&mut self, row: StepRow) {
        if let Some(search) = &mut self.search {
            push(&mut search.steps, row, STEPS_MAX);
        }
    }

    pub(super) fn begins(&mut self, run: Run) {
        self.run = Some(run);
        (self.total, self.last) = (LoadStats::default(), None);
    }

    /// Adds a completed second of it.
    pub(super) fn second(&mut self, second: &Second, record: &LoadStats) {
        if let Some(run) = &mut self.run {
            run.measured_from.get_or_insert(second.began.before(Duration::from_secs(second.index)));
        }
        self.total.merge(record);
        if second.length < SECOND_LENGTH_MIN {
            return;
        }
        let rate_rps = second.ok as f64 / second.length.as_secs_f64();
        push(&mut self.history_rps, rate_rps, HISTORY_MAX);
        let service_mean = Duration::from_nanos(record.service.mean().map_or(0, CensoredNs::ns));
        let LatencySummary { p50, p90, p99, max } = second.latency;
        self.last = Some(Last {
            rate_rps,
            quantiles: [p50, p90, p99, max],
            lag_p99_ns: second.schedule_lag_p99_ns,
            service_mean,
            before: false,
        });
    }

    /// Adds samples of the machine. `name_of` returns the name of a process.
    pub(super) fn sampled(
        &mut self,
        mut samples: Samples,
        now: Nanos,
        name_of: impl Fn(u32) -> Option<String>,
    ) {
        let threads = samples.with_role(Role::Generator).flat_map(|process| &process.threads);
        let own = threads
            .filter(|thread| thread.name.starts_with(GENERATOR_THREAD))
            .map(|thread| thread.busy);
        self.generator_busiest = own.reduce(f64::max);
        self.machine = Some(self.machine_of(&samples, name_of));
        samples.load = self.load(now);
        self.suspicion = observe::findings(&samples, self.local).into_iter().next().map(suspicion);
    }

    pub(super) fn view(&self, now: Nanos) -> View {
        let run = self.run.as_ref();
        let counts = &self.total.counts;
        View {
            title: self.title.clone(),
            setting: run.map_or_else(String::new, Run::setting),
            passed: run.map_or_else(Progress::default, |run| run.passed(counts.scheduled, now)),
            rate: Rate {
                last_rps: self.last.map(|last| last.rate_rps),
                target_rps: run.and_then(|run| run.target_rps(now)),
                history_rps: self.history_rps.iter().copied().collect(),
            },
            times: self.times(),
            failures: run.map_or_else(Vec::new, |run| failures(counts, &run.expect)),
            generator: Generator {
                busiest: self.generator_busiest,
                lag_p99_ns: self.last.and_then(|last| last.lag_p99_ns),
            },
            connections: Connections {
                count: run.map_or(0, |run| run.connections),
                busy: self.last.map(|last| last.rate_rps * last.service_mean.as_secs_f64()),
                reopened: counts.reconnects,
            },
            machine: self.machine.clone(),
            suspicion: self.suspicion.clone(),
            search: self.search.as_ref().map(|search| search.view(now)),
        }
    }

    fn times(&self) -> Vec<Time> {
        let row = |(i, (name, quantile)): (usize, (&'static str, f64))| Time {
            name,
            second: self.last.and_then(|last| last.quantiles[i]),
            overall: self.total.latency.quantile(quantile),
        };
        QUANTILES.into_iter().enumerate().map(row).collect()
    }

    /// Returns the inputs of the rules for the last second; the generator's own judgement exists
    /// only at the end of a run.
    fn load(&self, now: Nanos) -> Option<GeneratorLoad> {
        let run = self.run.as_ref()?;
        let last = self.last.filter(|last| !last.before)?;
        Some(GeneratorLoad {
            connections: run.connections as u64,
            rate: last.rate_rps,
            target_rate: run.target_rps(now),
            service_time: last.service_mean,
            was_the_limit: self.generator_busiest.is_some_and(|busy| busy >= GENERATOR_FULL),
            ..GeneratorLoad::default()
        })
    }

    fn machine_of(
        &mut self,
        samples: &Samples,
        name_of: impl Fn(u32) -> Option<String>,
    ) -> Machine {
        let mut sums: BTreeMap<(Order, String), (f64, usize, u32)> = BTreeMap::new();
        for process in &samples.processes {
            let name = match process.role {
                Role::Generator => "this generator".to_owned(),
                Role::Service | Role::Proxy | Role::Database => self.name(process, &name_of),
            };
            let (used, count, pid) = sums.entry((Order::of(process.role), name)).or_default();
            (*used, *count, *pid) = (*used + process.cores_used(), *count + 1, process.pid);
        }
        let shown = |((order, name), (cores, count, pid)): ((Order, String), (f64, usize, u32))| {
            let name = match (order, count) {
                (Order::Generator, _) => name,
                (_, 1) => format!("{name} ({pid})"),
                _ => format!("{name} ×{count}"),
            };
            Process { name, cores }
        };
        let processes: Vec<Process> = sums.into_iter().map(shown).collect();
        let busy: f64 = samples.cores.iter().map(|core| core.busy).sum();
        let known: f64 = processes.iter().map(|process| process.cores).sum();
        Machine {
            cores: samples
                .cores
                .iter()
                .map(|core| Core { busy: core.busy, steal: core.steal })
                .collect(),
            processes,
            // The kernel accounts for processes and CPUs differently; small differences mean
            // nothing.
            others_cores: (busy - known).max(0.0),
        }
    }

    fn name(
        &mut self,
        process: &WatchedProcess,
        name_of: &impl Fn(u32) -> Option<String>,
    ) -> String {
        let name = self.names.entry(process.pid);
        name.or_insert_with(|| name_of(process.pid).unwrap_or_else(|| "process".to_owned())).clone()
    }
}

/// Display order of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Service,
    Proxy,
    Database,
    Generator,
}

impl Order {
    fn of(role: Role) -> Self {
        match role {
            Role::Service => Self::Service,
            Role::Proxy => Self::Proxy,
            Role::Database => Self::Database,
            Role::Generator => Self::Generator,
        }
    }
}

impl Run {
    /// Returns a load that begins now.
    pub(super) fn of(config: &Config, now: Nanos) -> Self {
        Self {
            begun: now,
            measured_from: None,
            warmup: config.plan.warmup,
            stop: config.plan.stop,
            model: config.plan.model,
            connections: config.connections,
            threads: config.threads,
            expect: config.expect.clone(),
        }
    }

    fn setting(&self) -> String {
        use hotrow_load::format::counted;
        format!("{}, {}", counted(self.connections, "connection"), counted(self.threads, "thread"))
    }

    /// Returns the actual or expected start of the measurement.
    fn from(&self) -> Nanos {
        self.measured_from.unwrap_or_else(|| self.begun.after(self.warmup))
    }

    fn passed(&self, scheduled: u64, now: Nanos) -> Progress {
        let (from, StopCondition { duration, requests }) = (self.from(), self.stop);
        if now < from {
            return Progress {
                share: None,
                words: format!("warming up, {} left", left(from.since(now))),
            };
        }
        let passed = now.since(from);
        let by_time = duration.map(|all| {
            let left = all.saturating_sub(passed);
            let words = match left.is_zero() {
                true => "waiting for the last answers".to_owned(),
                false => format!("{} of {}, {} left", span(passed), span(all), self::left(left)),
            };
            (share(passed.as_secs_f64(), all.as_secs_f64()), words)
        });
        let by_number = requests.map(|all| {
            let words =
                format!("{} of {} requests", grouped(scheduled as f64), grouped(all as f64));
            (share(scheduled as f64, all as f64), words)
        });
        let nearer = [by_time, by_number]
            .into_iter()
            .flatten()
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let (share, words) =
            nearer.map_or((None, span(passed)), |(share, words)| (Some(share), words));
        Progress { share, words }
    }

    fn target_rps(&self, now: Nanos) -> Option<f64> {
        let LoadModel::Open { rate, .. } = self.model else { return None };
        let all = self.stop.duration.map_or(0.0, |all| all.as_secs_f64());
        let part = share(now.since(self.from()).as_secs_f64(), all);
        Some(rate.from() + (rate.to() - rate.from()) * part)
    }
}

impl Search {
    fn view(&self, now: Nanos) -> SearchView {
        let used = now.since(self.begun);
        let left = self.budget.saturating_sub(used);
        let words =
            format!("{} of {}, {} left at most", span(used), span(self.budget), self::left(left));
        SearchView {
            name: self.name,
            step: self.step.clone(),
            so_far: self.so_far.clone(),
            budget: Progress {
                share: Some(share(used.as_secs_f64(), self.budget.as_secs_f64())),
                words,
            },
            steps: self.steps.iter().cloned().collect(),
        }
    }
}

impl Tone {
    /// Returns the tone of a step's verdict.
    pub(crate) fn of_verdict(verdict: &str) -> Self {
        match verdict {
            "kept" | "fine" => Self::Good,
            "missed" | "harm" => Self::Bad,
            _ => Self::Neutral,
        }
    }
}

fn suspicion(finding: Finding) -> SuspectedLimit {
    let found = finding.class != LimitClass::NoneFound;
    SuspectedLimit {
        words: if found {
            finding.class.words().to_owned()
        } else {
            "none in the last second".to_owned()
        },
        confidence: found.then_some(finding.confidence),
        evidence: if found { finding.evidence } else { Vec::new() },
    }
}

/// Returns failures by kind, and unexpected responses by status.
fn failures(counts: &Counts, expect: &ExpectedStatus) -> Vec<(String, u64)> {
    let right = |status: u16| match expect {
        ExpectedStatus::Success => (200..400).contains(&status),
        ExpectedStatus::Status(right) => right.contains(&status),
    };
    let wrong = counts.status.iter().filter(|(status, _)| !right(**status));
    let wrong = wrong.map(|(status, n)| (format!("status {status}"), *n));
    let errors = &counts.errors;
    let kinds = [
        ("timed out", counts.timeouts),
        ("reset", errors.reset),
        ("closed by the server", errors.closed),
        ("malformed", errors.malformed),
        ("ended by GOAWAY", errors.goaway),
        ("stream refused", errors.refused_stream),
        ("stream reset", errors.stream_reset),
        ("never sent", counts.unsent),
        ("connections failed", counts.connect_errors),
    ];
    let kinds = kinds.into_iter().map(|(kind, n)| (kind.to_owned(), n));
    wrong.chain(kinds).filter(|(_, n)| *n > 0).collect()
}

/// Formats a duration for display.
fn span(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..100 => format!("{s} s"),
        s @ 100..3600 => format!("{}:{:02} min", s / 60, s % 60),
        s => format!("{}:{:02} h", s / 3600, s / 60 % 60),
    }
}

/// Formats a remaining duration, rounded up, so that it and the elapsed one add up to the total.
fn left(time: Duration) -> String {
    span(Duration::from_secs(time.as_secs_f64().ceil() as u64))
}

/// Returns a part of a whole, 0 to 1; 1 for a whole of zero.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 1.0 }
}

/// Appends a value and keeps the latest `most`.
fn push<T>(kept: &mut VecDeque<T>, value: T, most: usize) {
    while kept.len() >= most {
        kept.pop_front();
    }
    kept.push_back(value);
}
