//! Which trials a suspicion asks for, and what it predicts of them.
//!
//! A trial that every limit passes (more connections bring nothing) shows that *a* limit is reached, and no more. So each class
//! also asks for one that tells it from others, or is confirmed together with what was seen of it alone (a thread at 100 %, held-up
//! periods): that is its finding's evidence. Slowing something down and seeing whether the rate follows is causal profiling
//! (Curtsinger and Berger, "Coz", SOSP 2015), turned around: what can be slowed without cost to the rate is not the limit.

use super::effect::{Came, Prediction};
use super::{Change, Pace, Proof, Scene};
use crate::rules::finding::Class;

/// More connections that bring this many times the rate show that they were too few.
pub const CONNECTIONS_RISE: f64 = 1.25;
/// Up to this many times the rate is no rise.
const CONNECTIONS_STAY: f64 = 1.1;
/// One more thread of the generator brings at least so many times the rate where it was the limit.
const THREAD_RISE: f64 = 1.1;
/// More CPU time per request in the generator, as a share; less where it has less than that left, for it would be the limit then.
const BURN_GENERATOR: f64 = 0.3;
/// See [`BURN_GENERATOR`].
const BURN_GENERATOR_LEAST: f64 = 0.1;
/// A thread with this share of a CPU has nothing left.
const GENERATOR_FULL: f64 = 0.95;
/// The part of all CPUs that is taken away when they are suspected.
const BURN_ALL: f64 = 0.2;
/// The part of what is idle that is taken away when they are not: whoever needs no CPU does not feel it.
const BURN_IDLE: f64 = 0.5;
/// Less than this part of all CPUs has an effect that noise hides.
const BURN_LEAST: f64 = 0.1;
/// The rate that is left when CPUs are the limit, at most.
const BURN_LEFT: f64 = 0.92;
/// Whoever needs no CPU loses at most this part of what is taken away; more than the second part refutes. In between it may be a single
/// thread, or one lock, that the slices met.
const BURN_FELT: (f64, f64) = (0.4, 0.75);
/// With less than this part of the CPUs idle, they may be the limit after all.
const IDLE_FEW: f64 = 0.25;
/// A quota that is smaller by this costs about as much.
const QUOTA: f64 = 0.8;
/// At most this is left of the rate then.
const QUOTA_LEFT: f64 = 0.9;
/// Without bodies a link carries so many times the answers at least; less than the second refutes.
const HEAD_RISE: (f64, f64) = (1.5, 1.2);
/// A higher rate that must be kept where nothing limits, and how much of it must be answered.
const RATE_UP: f64 = 1.3;
/// Fewer connections on which a request lies unread, as a share: none waits for a worker.
const UNREAD_NONE: f64 = 0.3;
/// One connection more than workers lets a request lie unread on it; less than one and a half do in the middle.
const UNREAD_EXTRA: f64 = 1.5;
/// See [`RATE_UP`].
const RATE_KEPT: (f64, f64) = (1.25, 1.2);
/// With so many CPUs busy, as a share, the generator's slowness and the CPUs' cannot be told apart by slowing it.
const MACHINE_FULL: f64 = 0.9;

/// The trials of one suspicion.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// None: nothing can be changed from here; `when_true` says what would test it.
    pub(super) expectations: Vec<Expectation>,
    pub(super) combine: Combine,
    pub(super) pace: Pace,
    /// What it means when all comes as predicted.
    pub(super) when_true: (Proof, String),
    /// Whether trials count though the generator had no time left in them.
    pub(super) generator_may_be_full: bool,
}

/// A change, and what it must bring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expectation {
    pub(super) change: Change,
    pub(super) prediction: Prediction,
}

/// How several trials count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combine {
    /// One that fails refutes.
    All,
    /// One that succeeds confirms.
    Any,
}

/// The trials that are most specific for a class.
pub(super) fn plan(class: Class, scene: &Scene) -> Plan {
    match class {
        Class::TooFewConnections
        | Class::OneThread
        | Class::Lock
        | Class::Proxy
        | Class::External
        | Class::Disk
        | Class::Throttled
        | Class::TooFewWorkers
        | Class::Bandwidth
            if scene.kept =>
        {
            // As fast as answers come would be more than was asked for, perhaps by far.
            untestable(
                "the rate that was asked for was kept, so no limit was reached; ask for more to test it".to_owned(),
            )
        }
        Class::TooFewConnections => too_few_connections(scene),
        Class::AllCpus | Class::Competitor => cpus(class, scene),
        Class::OneThread | Class::Lock | Class::Proxy | Class::External | Class::Disk => saturated(scene),
        Class::Throttled if scene.quota => quota(scene),
        Class::Throttled => saturated(scene),
        Class::TooFewWorkers => too_few_workers(scene),
        Class::Bandwidth => bandwidth(scene),
        Class::AcceptQueue | Class::Ports => crowded(scene, !scene.keepalive),
        Class::OpenFiles => crowded(scene, false),
        Class::Generator => generator(scene),
        Class::NoneFound => none_found(scene),
        Class::Steal | Class::Memory | Class::PacketLoss | Class::KernelTable => untestable(instead(class)),
    }
}

/// The suspicion that a trial raises, whatever it was made for.
pub(super) fn leads_to(expectation: &Expectation, came: &Came, scene: &Scene) -> Option<Class> {
    match (expectation.change, expectation.prediction, came) {
        (Change::Connections(n), Prediction::Stays(..), Came::False) if n > scene.connections => {
            Some(Class::TooFewConnections)
        }
        // Where many are idle, it is a thread or a lock that the slices met.
        (Change::BurnCpus(_), Prediction::Holds(..), Came::False)
            if scene.idle_cores.is_some_and(|idle| idle < IDLE_FEW * scene.cpus as f64) =>
        {
            Some(Class::AllCpus)
        }
        _ => None,
    }
}

fn more_connections(scene: &Scene) -> Change {
    Change::Connections(scene.connections.saturating_mul(2))
}

/// A limit that is reached does not move with more connections.
fn stays(scene: &Scene) -> Expectation {
    let prediction = Prediction::Stays(CONNECTIONS_STAY, CONNECTIONS_RISE);
    Expectation { change: more_connections(scene), prediction }
}

/// Room for twice the connections, or why there is none.
fn room(scene: &Scene) -> Result<(), String> {
    let twice = scene.connections.saturating_mul(2);
    (twice <= scene.connections_max).then_some(()).ok_or_else(|| {
        format!(
            "{twice} connections, which would test it, are more than can be opened here ({})",
            scene.connections_max
        )
    })
}

fn untestable(why: String) -> Plan {
    Plan {
        expectations: Vec::new(),
        combine: Combine::All,
        pace: Pace::Closed,
        when_true: (Proof::NotTestable, why),
        generator_may_be_full: false,
    }
}

fn confirms(expectations: Vec<Expectation>, words: &str) -> Plan {
    Plan { expectations, when_true: (Proof::Confirmed, words.to_owned()), ..untestable(String::new()) }
}

/// Specific: no limit that is reached passes. Fooled by a pool that is shared by turns: more connections get a larger part of it.
fn too_few_connections(scene: &Scene) -> Plan {
    if let Err(why) = room(scene) {
        return untestable(why);
    }
    let prediction = Prediction::Rises(CONNECTIONS_RISE, CONNECTIONS_STAY);
    confirms(
        vec![Expectation { change: more_connections(scene), prediction }],
        "the target does more when more is asked at once",
    )
}

/// Takes a part of every CPU away: only what needs them all feels all of it. Fooled by a service that is held up by anything which is
/// worked on by a CPU of its own that the burner meets; with few CPUs that is likely, so the suspicion needs its own evidence.
fn cpus(class: Class, scene: &Scene) -> Plan {
    if !scene.local {
        return untestable(
            "these are the generator's CPUs, and the target is elsewhere; load from another machine, or with more CPUs"
                .to_owned(),
        );
    }
    if let Err(why) = all_usable(scene) {
        return untestable(why);
    }
    let burn = Expectation {
        change: Change::BurnCpus(BURN_ALL * scene.cpus as f64),
        prediction: Prediction::Falls(BURN_LEFT),
    };
    let words = match class {
        Class::Competitor => {
            "the rate follows the CPUs, so what others take of them is missing; who that is, their CPU time says"
        }
        _ => "the rate follows the CPUs",
    };
    let mut expectations = vec![burn];
    if scene.kept {
        return Plan { pace: Pace::AsLoaded, generator_may_be_full: true, ..confirms(expectations, words) };
    }
    if room(scene).is_ok() {
        expectations.insert(0, stays(scene));
    }
    Plan { generator_may_be_full: true, ..confirms(expectations, words) }
}

/// A limit that is reached and is not the CPUs: more connections bring nothing, and idle CPU time can be taken away without loss. Which of
/// those limits it is, its own evidence says. Fooled by anything else that is full beside CPUs that are not, and looks the same.
fn saturated(scene: &Scene) -> Plan {
    let mut expectations = Vec::new();
    if room(scene).is_ok() {
        expectations.push(stays(scene));
    }
    let why = match (room(scene), idle(scene)) {
        (Ok(()), Ok(burn)) => {
            expectations.push(burn);
            return confirms(
                expectations,
                "a limit is reached, and it is not idle CPUs that are missing; which one, the evidence says",
            );
        }
        (Err(why), _) | (Ok(()), Err(why)) => why,
    };
    let why = format!(
        "that fits, but fits every limit that is reached: what tells them apart cannot be changed from here ({why})"
    );
    Plan { expectations, when_true: (Proof::NotTestable, why), ..untestable(String::new()) }
}

/// Half of what is idle, taken away in a closed loop, or why that would tell nothing.
fn idle(scene: &Scene) -> Result<Expectation, String> {
    let cores = match scene.idle_cores {
        _ if !scene.local => return Err("the target's CPUs are elsewhere".to_owned()),
        None => return Err("how idle the CPUs are was not seen".to_owned()),
        // A generator that is held up by a quota may share it with the target, which would feel the slices then.
        Some(_) if scene.generator_throttled => return Err("a cgroup holds the generator up".to_owned()),
        // As fast as answers come, more of them may be busy.
        Some(_) if scene.asked_rps.is_some() => {
            return Err("how idle the CPUs are is known at the asked rate only".to_owned());
        }
        Some(idle) => (idle * BURN_IDLE).min(BURN_ALL * scene.cpus as f64),
    };
    all_usable(scene)?;
    // What a service that needs them all would lose.
    let share = cores / scene.cpus as f64;
    let prediction = Prediction::Holds(1.0 - BURN_FELT.0 * share, 1.0 - BURN_FELT.1 * share);
    let burn = Expectation { change: Change::BurnCpus(cores), prediction };
    (share >= BURN_LEAST).then_some(burn).ok_or_else(|| "hardly any CPU time is idle".to_owned())
}

/// Whether CPU time can be taken from all CPUs, or why not: where this process may use fewer, it would take more of those, and of a
/// cgroup's share that it may have in common with the target.
fn all_usable(scene: &Scene) -> Result<(), String> {
    (scene.threads_max >= scene.cpus).then_some(()).ok_or_else(|| {
        format!(
            "hotrow may use {} of the {} CPUs, so it cannot take time from all of them; without `taskset` and the cgroup's quota it can",
            scene.threads_max, scene.cpus
        )
    })
}

/// Specific: nothing else feels the quota but what it limits.
fn quota(scene: &Scene) -> Plan {
    let quota = Expectation { change: Change::Quota(QUOTA), prediction: Prediction::Falls(QUOTA_LEFT) };
    let mut plan = confirms(vec![quota], "the rate follows the cgroup's share");
    if room(scene).is_ok() {
        plan.expectations.insert(0, stays(scene));
    }
    plan
}

/// As many connections as workers, and one for an error of the look at what lies unread, keep them as busy, and hardly one waits. Fooled by a
/// queue that the service does not read from for another reason.
fn too_few_workers(scene: &Scene) -> Plan {
    let mut expectations = Vec::new();
    if room(scene).is_ok() {
        expectations.push(stays(scene));
    }
    let read = scene.unread_share.map(|share| ((1.0 - share) * scene.connections as f64).round().max(1.0) as usize);
    if let Some(fewer) = read.map(|read| read + 1).filter(|fewer| *fewer < scene.connections) {
        let prediction = Prediction::FewUnread(UNREAD_NONE.max(UNREAD_EXTRA / fewer as f64));
        expectations.push(Expectation { change: Change::Connections(fewer), prediction });
        return confirms(expectations, "so many requests at once are worked on, and all others wait unread");
    }
    saturated(scene)
}

/// Specific: HEAD costs all the same but for the bytes. Fooled by a service whose bodies cost much CPU time, which is why idle CPU
/// time is taken away too where that can be done.
fn bandwidth(scene: &Scene) -> Plan {
    if !scene.get {
        return saturated(scene);
    }
    let (from, below) = HEAD_RISE;
    let head = Expectation { change: Change::Head, prediction: Prediction::Rises(from, below) };
    confirms([Some(head), idle(scene).ok()].into_iter().flatten().collect(), "the bytes of the answers are the limit")
}

/// Fewer connections, or connections that are kept, need less of what is used up.
fn crowded(scene: &Scene, keep: bool) -> Plan {
    let less = |part: usize| Change::Connections((scene.connections / part).max(1));
    let mut changes = if keep { vec![Change::Keepalive, less(4)] } else { vec![less(2), less(4)] };
    // Half and a quarter of two or three are one.
    changes.dedup();
    let fewer = changes.into_iter().filter(|change| *change != Change::Connections(scene.connections));
    let expectations: Vec<Expectation> =
        fewer.map(|change| Expectation { change, prediction: Prediction::FailuresEnd }).collect();
    if expectations.is_empty() {
        return untestable("one connection cannot be made fewer".to_owned());
    }
    let plan = confirms(expectations, "fewer at once, or kept ones, do not fail; what is used up, the evidence says");
    Plan { combine: Combine::Any, pace: Pace::AsLoaded, generator_may_be_full: true, ..plan }
}

/// A thread more, where there is a CPU for it; and work taken onto the generator, where it does not share full CPUs with the target: then
/// the rate would follow in any case. Fooled by a generator that becomes the limit only by that work, so it gets no more than fits.
fn generator(scene: &Scene) -> Plan {
    let mut expectations = Vec::new();
    let more = scene.threads + 1;
    if more <= scene.threads_max && more <= scene.connections && !scene.generator_throttled {
        let prediction = match scene.asked_rps {
            Some(_) => Prediction::Relieves(THREAD_RISE),
            None => Prediction::Rises(THREAD_RISE, THREAD_RISE),
        };
        expectations.push(Expectation { change: Change::GeneratorThreads(more), prediction });
    }
    let full = scene.idle_cores.is_some_and(|idle| idle < (1.0 - MACHINE_FULL) * scene.cpus as f64);
    let fits = if scene.generator_busy < GENERATOR_FULL && scene.generator_busy > 0.0 {
        GENERATOR_FULL / scene.generator_busy - 1.0
    } else {
        BURN_GENERATOR
    };
    if !full {
        let more = fits.clamp(BURN_GENERATOR_LEAST, BURN_GENERATOR);
        // Half of what it costs a generator that has no time left.
        let left = f64::midpoint(1.0, 1.0 / (1.0 + more));
        expectations.push(Expectation { change: Change::BurnGenerator(more), prediction: Prediction::Falls(left) });
    }
    if expectations.is_empty() {
        return untestable("the generator shares full CPUs with the target; load from another machine".to_owned());
    }
    let pace = if scene.asked_rps.is_some() { Pace::AsLoaded } else { Pace::Closed };
    let plan = confirms(expectations, "the rate follows the generator");
    Plan { combine: Combine::Any, pace, generator_may_be_full: true, ..plan }
}

/// Where a rate was kept, more of it is kept too. In a closed loop there is always a limit: it is the connections, or hidden.
fn none_found(scene: &Scene) -> Plan {
    match scene.asked_rps {
        Some(asked) if scene.kept => {
            let more = asked * RATE_UP;
            if let Some(most) = scene.asked_most_rps.filter(|most| more > *most) {
                return untestable(format!(
                    "{more:.0} requests/s, which would test it, are more than may be asked for ({most:.0})"
                ));
            }
            let (from, below) = RATE_KEPT;
            let prediction = Prediction::Rises(from, below);
            let expectations = vec![Expectation { change: Change::Rate(RATE_UP), prediction }];
            Plan { pace: Pace::AsLoaded, ..confirms(expectations, "there was no limit at the rate that was asked for") }
        }
        _ => match room(scene) {
            Ok(()) => Plan {
                when_true: (Proof::Refuted, "there is a limit, but nothing that was seen names it".to_owned()),
                ..confirms(vec![stays(scene)], "")
            },
            Err(why) => untestable(why),
        },
    }
}

/// What would test a class that cannot be tested from here.
fn instead(class: Class) -> String {
    match class {
        Class::Steal => "nothing here moves other virtual machines; repeat the run where steal in `vmstat 1` (st) is 0".to_owned(),
        Class::Memory => {
            "memory cannot be added from here; `systemctl set-property UNIT MemoryMax=…` (more of it) and the same run test it"
                .to_owned()
        }
        Class::PacketLoss => {
            "the way between cannot be changed from here; `hotrow load --rate` at half the rate, and `nstat TcpRetransSegs` beside it, test it"
                .to_owned()
        }
        _ => "the kernel's tables are not changed from here; the command above, and the same run, test it".to_owned(),
    }
}
