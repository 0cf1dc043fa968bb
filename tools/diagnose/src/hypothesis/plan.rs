//! The trials of a hypothesis, and its predictions.
//!
//! A trial that holds for every limit (more connections do not raise the rate) shows only that *a*
//! limit is reached. Each class therefore adds a trial that distinguishes it, or is confirmed
//! together with evidence specific to it (a thread at 100 %, throttled periods). Slowing a
//! component and watching the rate is causal profiling (Curtsinger and Berger, "Coz", SOSP 2015) in
//! reverse: a component that can be slowed without cost is not the limit.

use super::effect::{Prediction, PredictionResult};
use super::trial::{Change, Conclusion, Context, TrialLoad};
use crate::rules::finding::LimitClass;

/// Rate ratio of more connections from which they were too few.
pub const CONNECTIONS_RISE: f64 = 1.25;
/// Rate ratio up to which the rate did not rise.
const CONNECTIONS_STAY: f64 = 1.1;
/// Rate ratio of one more generator thread when the generator was the limit.
const THREAD_RISE: f64 = 1.1;
/// Additional CPU time per request in the generator, as a share; less when it has less capacity
/// left, because it would then become the limit.
const BURN_GENERATOR: f64 = 0.3;
/// See [`BURN_GENERATOR`].
const BURN_GENERATOR_LEAST: f64 = 0.1;
/// A thread with this CPU share has no capacity left.
const GENERATOR_FULL: f64 = 0.95;
/// Share of all CPUs taken away when they are suspected.
const BURN_ALL: f64 = 0.2;
/// Share of the idle CPU time taken away when they are not: a service without CPU demand is not
/// affected.
const BURN_IDLE: f64 = 0.5;
/// Smaller shares of all CPUs have effects below the noise.
const BURN_LEAST: f64 = 0.1;
/// Maximum rate ratio left when CPUs are the limit.
const BURN_LEFT: f64 = 0.92;
/// A service without CPU demand loses at most the first part of what is taken away; more than the
/// second refutes. In between, the slices may have hit a single thread or a lock.
const BURN_FELT: (f64, f64) = (0.4, 0.75);
/// With less idle CPU than this, the CPUs may be the limit after all.
const IDLE_FEW: f64 = 0.25;
/// Factor on the quota, which costs about as much rate.
const QUOTA: f64 = 0.8;
/// Maximum rate ratio left then.
const QUOTA_LEFT: f64 = 0.9;
/// Minimum rate ratio of a full link without bodies; less than the second value refutes.
const HEAD_RISE: (f64, f64) = (1.5, 1.2);
/// Factor on the target rate that must be kept without a limit.
const RATE_UP: f64 = 1.3;
/// Share of connections with an unread request below which none waits for a worker.
const UNREAD_NONE: f64 = 0.3;
/// Expected number of unread requests with one connection more than workers; the threshold is one
/// and a half.
const UNREAD_EXTRA: f64 = 1.5;
/// Rate ratio that must be answered with [`RATE_UP`]; less than the second value refutes.
const RATE_KEPT: (f64, f64) = (1.25, 1.2);
/// Rate at which failures by rate must end, over that of the expected responses.
const RATE_CAP: f64 = 0.7;
/// Lower rates are not tried, in requests per second: a trial would see too few of them.
const RATE_CAP_RPS_MIN: f64 = 10.0;
/// Busy share of the CPUs from which slowing the generator and slowing the CPUs cannot be
/// distinguished.
const MACHINE_FULL: f64 = 0.9;

/// The trials of one hypothesis.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Empty: nothing can be changed from here; `when_true` states what would test it.
    pub(super) expectations: Vec<Expectation>,
    pub(super) combine: Combine,
    pub(super) pace: TrialLoad,
    /// The conclusion when all predictions hold.
    pub(super) when_true: (Conclusion, String),
    /// True if trials count although the generator was at its limit in them.
    pub(super) generator_may_be_full: bool,
}

/// A change and its predicted effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expectation {
    pub(super) change: Change,
    pub(super) prediction: Prediction,
}

/// The combination of several trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combine {
    /// One failed prediction refutes.
    All,
    /// One successful prediction confirms.
    Any,
}

/// Returns the most specific trials for a class.
pub(super) fn plan(class: LimitClass, context: &Context) -> Plan {
    match class {
        LimitClass::TooFewConnections
        | LimitClass::OneThread
        | LimitClass::Lock
        | LimitClass::Proxy
        | LimitClass::External
        | LimitClass::Disk
        | LimitClass::Throttled
        | LimitClass::TooFewWorkers
        | LimitClass::Bandwidth
            if context.kept =>
        {
            // A closed loop could send far more than was requested.
            untestable(
                "the rate that was asked for was kept, so no limit was reached; ask for more to \
                 test it"
                    .to_owned(),
            )
        }
        LimitClass::TooFewConnections => too_few_connections(context),
        LimitClass::AllCpus | LimitClass::Competitor => cpus(class, context),
        LimitClass::OneThread
        | LimitClass::Lock
        | LimitClass::Proxy
        | LimitClass::External
        | LimitClass::Disk => saturated(context),
        LimitClass::Throttled if context.quota => quota(context),
        LimitClass::Throttled => saturated(context),
        LimitClass::TooFewWorkers => too_few_workers(context),
        LimitClass::Bandwidth => bandwidth(context),
        LimitClass::AcceptQueue => crowded(context, !context.keepalive),
        LimitClass::Ports => slower(context, crowded(context, !context.keepalive)),
        LimitClass::Failures => slower(context, crowded(context, false)),
        LimitClass::OpenFiles => crowded(context, false),
        LimitClass::Generator => generator(context),
        LimitClass::NoneFound => none_found(context),
        LimitClass::Steal
        | LimitClass::Memory
        | LimitClass::PacketLoss
        | LimitClass::KernelTable => untestable(instead(class)),
    }
}

/// Returns the hypothesis that a trial raises, independent of the one it tested.
pub(super) fn leads_to(
    expectation: &Expectation,
    result: &PredictionResult,
    context: &Context,
) -> Option<LimitClass> {
    match (expectation.change, expectation.prediction, result) {
        (Change::Connections(n), Prediction::Stays(..), PredictionResult::False)
            if n > context.connections =>
        {
            Some(LimitClass::TooFewConnections)
        }
        // With many idle CPUs, the slices hit a thread or a lock.
        (Change::BurnCpus(_), Prediction::Holds(..), PredictionResult::False)
            if context.idle_cores.is_some_and(|idle| idle < IDLE_FEW * context.cpus as f64) =>
        {
            Some(LimitClass::AllCpus)
        }
        _ => None,
    }
}

fn more_connections(context: &Context) -> Change {
    Change::Connections(context.connections.saturating_mul(2))
}

/// A reached limit does not move with more connections.
fn stays(context: &Context) -> Expectation {
    let prediction = Prediction::Stays(CONNECTIONS_STAY, CONNECTIONS_RISE);
    Expectation { change: more_connections(context), prediction }
}

/// Returns an error when twice the connections cannot be opened.
fn room(context: &Context) -> Result<(), String> {
    let twice = context.connections.saturating_mul(2);
    (twice <= context.connections_max).then_some(()).ok_or_else(|| {
        format!(
            "{twice} connections, which would test it, are more than can be opened here ({})",
            context.connections_max
        )
    })
}

fn untestable(why: String) -> Plan {
    Plan {
        expectations: Vec::new(),
        combine: Combine::All,
        pace: TrialLoad::Closed,
        when_true: (Conclusion::Inconclusive, why),
        generator_may_be_full: false,
    }
}

fn confirmed_by(expectations: Vec<Expectation>, words: &str) -> Plan {
    Plan {
        expectations,
        when_true: (Conclusion::Confirmed, words.to_owned()),
        ..untestable(String::new())
    }
}

/// Specific: no reached limit behaves so. Exception: a shared pool, of which more connections get a
/// larger part.
fn too_few_connections(context: &Context) -> Plan {
    if let Err(why) = room(context) {
        return untestable(why);
    }
    let prediction = Prediction::Rises(CONNECTIONS_RISE, CONNECTIONS_STAY);
    confirmed_by(
        vec![Expectation { change: more_connections(context), prediction }],
        "the target does more when more is asked at once",
    )
}

/// Takes a share of every CPU: only a service that needs all CPUs loses that share. Exception: a
/// service limited by work on one CPU that the slices hit; with few CPUs that is likely, so the
/// hypothesis needs its own evidence.
fn cpus(class: LimitClass, context: &Context) -> Plan {
    if !context.local {
        return untestable(
            "these are the generator's CPUs, and the target is elsewhere; load from another \
             machine, or with more CPUs"
                .to_owned(),
        );
    }
    if let Err(why) = all_usable(context) {
        return untestable(why);
    }
    if full(context) {
        return full_cpus(context);
    }
    let burn = Expectation {
        change: Change::BurnCpus(BURN_ALL * context.cpus as f64),
        prediction: Prediction::Falls(BURN_LEFT),
    };
    let words = match class {
        LimitClass::Competitor => {
            "the rate follows the CPUs, so what others take of them is missing; their CPU time \
             shows which process it is"
        }
        _ => "the rate follows the CPUs",
    };
    let mut expectations = vec![burn];
    if context.kept {
        return Plan {
            pace: TrialLoad::AsLoaded,
            generator_may_be_full: true,
            ..confirmed_by(expectations, words)
        };
    }
    if room(context).is_ok() {
        expectations.insert(0, stays(context));
    }
    Plan { generator_may_be_full: true, ..confirmed_by(expectations, words) }
}

/// Without idle CPU time slices slow down whatever runs, the generator too, and the rate falls with
/// any limit. More connections may still refute.
fn full_cpus(context: &Context) -> Plan {
    let stays = (room(context).is_ok() && !context.kept).then(|| stays(context));
    let why = "not testable here: all CPUs are in use, so less CPU time slows down everything that \
               runs on them, the generator too; the counters show that they are full, and a load \
               from another machine would test it";
    Plan { expectations: stays.into_iter().collect(), ..untestable(why.to_owned()) }
}

/// Returns whether hardly any CPU time is idle.
fn full(context: &Context) -> bool {
    context.idle_cores.is_some_and(|idle| idle < (1.0 - MACHINE_FULL) * context.cpus as f64)
}

/// A reached limit other than the CPUs: more connections bring nothing, and idle CPU time can be
/// taken without loss. The evidence distinguishes these limits. Exception: another exhausted
/// resource that looks the same.
fn saturated(context: &Context) -> Plan {
    let mut expectations = Vec::new();
    if room(context).is_ok() {
        expectations.push(stays(context));
    }
    let why = match (room(context), idle(context)) {
        (Ok(()), Ok(burn)) => {
            expectations.push(burn);
            return confirmed_by(
                expectations,
                "a limit is reached, and it is not idle CPUs that are missing; the evidence shows \
                 which",
            );
        }
        (Err(why), _) | (Ok(()), Err(why)) => why,
    };
    let why = format!(
        "that fits, but fits every limit that is reached: what distinguishes them cannot be \
         changed from here ({why})"
    );
    Plan { expectations, when_true: (Conclusion::Inconclusive, why), ..untestable(String::new()) }
}

/// Takes half of the idle CPU time in a closed loop; an error when that would show nothing.
fn idle(context: &Context) -> Result<Expectation, String> {
    let cores = match context.idle_cores {
        _ if !context.local => return Err("the target's CPUs are elsewhere".to_owned()),
        None => return Err("how idle the CPUs are was not seen".to_owned()),
        // A throttled generator may share its quota with the target, which the slices would then
        // affect.
        Some(_) if context.generator_throttled => {
            return Err("a cgroup holds the generator up".to_owned());
        }
        // In a closed loop more CPUs may be busy.
        Some(_) if context.target_rps.is_some() => {
            return Err("how idle the CPUs are is known at the asked rate only".to_owned());
        }
        Some(idle) => (idle * BURN_IDLE).min(BURN_ALL * context.cpus as f64),
    };
    all_usable(context)?;
    // The loss of a service that needs all of them.
    let share = cores / context.cpus as f64;
    let prediction = Prediction::Holds(1.0 - BURN_FELT.0 * share, 1.0 - BURN_FELT.1 * share);
    let burn = Expectation { change: Change::BurnCpus(cores), prediction };
    (share >= BURN_LEAST).then_some(burn).ok_or_else(|| "hardly any CPU time is idle".to_owned())
}

/// Returns an error when CPU time cannot be taken from all CPUs: with fewer usable CPUs it would
/// come from those, and from a quota possibly shared with the target.
fn all_usable(context: &Context) -> Result<(), String> {
    (context.threads_max >= context.cpus).then_some(()).ok_or_else(|| {
        format!(
            "hotrow may use {} of the {} CPUs, so it cannot take time from all of them; without \
             `taskset` and the cgroup's quota it can",
            context.threads_max, context.cpus
        )
    })
}

/// Specific: only a service limited by the quota is affected.
fn quota(context: &Context) -> Plan {
    let quota =
        Expectation { change: Change::Quota(QUOTA), prediction: Prediction::Falls(QUOTA_LEFT) };
    let mut plan = confirmed_by(vec![quota], "the rate follows the cgroup's quota");
    if room(context).is_ok() {
        plan.expectations.insert(0, stays(context));
    }
    plan
}

/// As many connections as workers, plus one for the sampling error of unread requests, keep the
/// workers as busy, and hardly any request waits. Exception: a queue that the service does not read
/// for another reason.
fn too_few_workers(context: &Context) -> Plan {
    let mut expectations = Vec::new();
    if room(context).is_ok() {
        expectations.push(stays(context));
    }
    let read = context
        .unread_share
        .map(|share| ((1.0 - share) * context.connections as f64).round().max(1.0) as usize);
    if let Some(fewer) = read.map(|read| read + 1).filter(|fewer| *fewer < context.connections) {
        let prediction = Prediction::FewUnread(UNREAD_NONE.max(UNREAD_EXTRA / fewer as f64));
        expectations.push(Expectation { change: Change::Connections(fewer), prediction });
        return confirmed_by(
            expectations,
            "so many requests at once are worked on, and all others wait unread",
        );
    }
    saturated(context)
}

/// Specific: HEAD costs the same except for the bytes. Exception: a service whose bodies cost much
/// CPU time; therefore idle CPU time is taken too where possible.
fn bandwidth(context: &Context) -> Plan {
    if !context.get {
        return saturated(context);
    }
    let (from, below) = HEAD_RISE;
    let head = Expectation { change: Change::Head, prediction: Prediction::Rises(from, below) };
    confirmed_by(
        [Some(head), idle(context).ok()].into_iter().flatten().collect(),
        "the bytes of the answers are the limit",
    )
}

/// Fewer or kept connections need less of the exhausted resource.
fn crowded(context: &Context, keep: bool) -> Plan {
    let less = |part: usize| Change::Connections((context.connections / part).max(1));
    let mut changes = if keep { vec![Change::Keepalive, less(4)] } else { vec![less(2), less(4)] };
    // Half and a quarter of two or three are both one.
    changes.dedup();
    let fewer =
        changes.into_iter().filter(|change| *change != Change::Connections(context.connections));
    let expectations: Vec<Expectation> =
        fewer.map(|change| Expectation { change, prediction: Prediction::FailuresEnd }).collect();
    if expectations.is_empty() {
        return untestable("one connection cannot be made fewer".to_owned());
    }
    let plan = confirmed_by(
        expectations,
        "fewer at once, or kept ones, do not fail; the evidence shows which resource",
    );
    Plan { combine: Combine::Any, pace: TrialLoad::AsLoaded, generator_may_be_full: true, ..plan }
}

/// Adds a lower rate, which failures by rate need: ports in TIME_WAIT and the tokens of a bucket
/// follow it, not the connections.
fn slower(context: &Context, plan: Plan) -> Plan {
    let rate = RATE_CAP * context.answered_rps;
    if rate < RATE_CAP_RPS_MIN {
        return plan;
    }
    let cap = Expectation { change: Change::RateCap(rate), prediction: Prediction::FailuresEnd };
    let expectations = [cap].into_iter().chain(plan.expectations).collect();
    let plan = confirmed_by(expectations, "a lower rate, or fewer at once, does not fail");
    Plan { combine: Combine::Any, pace: TrialLoad::AsLoaded, generator_may_be_full: true, ..plan }
}

/// Adds a thread where a CPU is free, and work in the generator where it does not share full CPUs
/// with the target, because the rate would then follow in any case. Exception: a generator that
/// becomes the limit only by that work, so the work is limited to its spare capacity.
fn generator(context: &Context) -> Plan {
    let mut expectations = Vec::new();
    let more = context.threads + 1;
    if more <= context.threads_max && more <= context.connections && !context.generator_throttled {
        let prediction = match context.target_rps {
            Some(_) => Prediction::Relieves(THREAD_RISE),
            None => Prediction::Rises(THREAD_RISE, THREAD_RISE),
        };
        expectations.push(Expectation { change: Change::GeneratorThreads(more), prediction });
    }
    let fits = if context.generator_busy < GENERATOR_FULL && context.generator_busy > 0.0 {
        GENERATOR_FULL / context.generator_busy - 1.0
    } else {
        BURN_GENERATOR
    };
    if !full(context) {
        let more = fits.clamp(BURN_GENERATOR_LEAST, BURN_GENERATOR);
        // Half of the cost for a generator without spare capacity.
        let left = f64::midpoint(1.0, 1.0 / (1.0 + more));
        expectations.push(Expectation {
            change: Change::BurnGenerator(more),
            prediction: Prediction::Falls(left),
        });
    }
    if expectations.is_empty() {
        return untestable(
            "the generator shares full CPUs with the target; load from another machine".to_owned(),
        );
    }
    let pace = if context.target_rps.is_some() { TrialLoad::AsLoaded } else { TrialLoad::Closed };
    let plan = confirmed_by(expectations, "the rate follows the generator");
    Plan { combine: Combine::Any, pace, generator_may_be_full: true, ..plan }
}

/// A kept rate without a limit can be raised. A closed loop always has a limit: its connections, or
/// a hidden one.
fn none_found(context: &Context) -> Plan {
    match context.target_rps {
        Some(asked) if context.kept => {
            let more = asked * RATE_UP;
            if let Some(most) = context.target_max_rps.filter(|most| more > *most) {
                return untestable(format!(
                    "{more:.0} requests/s, which would test it, are more than may be asked for \
                     ({most:.0})"
                ));
            }
            let (from, below) = RATE_KEPT;
            let prediction = Prediction::Rises(from, below);
            let expectations = vec![Expectation { change: Change::Rate(RATE_UP), prediction }];
            Plan {
                pace: TrialLoad::AsLoaded,
                ..confirmed_by(expectations, "there was no limit at the rate that was asked for")
            }
        }
        _ => match room(context) {
            Ok(()) => Plan {
                when_true: (
                    Conclusion::Refuted,
                    "there is a limit, but nothing that was seen names it".to_owned(),
                ),
                ..confirmed_by(vec![stays(context)], "")
            },
            Err(why) => untestable(why),
        },
    }
}

/// Returns a test for a class that cannot be tested from here.
fn instead(class: LimitClass) -> String {
    match class {
        LimitClass::Steal => "nothing here moves other virtual machines; repeat the run where \
                              steal in `vmstat 1` (st) is 0"
            .to_owned(),
        LimitClass::Memory => {
            "memory cannot be added from here; `systemctl set-property UNIT MemoryMax=…` (more of \
             it) and the same run test it"
                .to_owned()
        }
        LimitClass::PacketLoss => {
            "the way between cannot be changed from here; `hotrow load --rate` at half the rate, \
             and `nstat TcpRetransSegs` beside it, test it"
                .to_owned()
        }
        _ => "the kernel's tables are not changed from here; the command above, and the same run, \
              test it"
            .to_owned(),
    }
}
