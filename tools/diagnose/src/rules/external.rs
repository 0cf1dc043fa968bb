//! The service waits for another system: hardly any CPU is used, and no request is being worked on.

use super::cpu_demand::{cpus_free, granted};
use super::database_waits;
use super::finding::{Finding, LimitClass, confidence, percent};
use super::thread_states::{ThreadStates, awaited_peer, rate_kept};
use crate::samples::{GeneratorLoad, Peer, Role, Samples, Thread, WatchedProcess};

/// CPU share above which the cause lies with the CPUs.
const CPU_BELOW: f64 = 0.6;
/// Share of the service time above which requests are worked on.
const WORKED_BELOW: f64 = 0.3;
/// Use of a disk above which the service may wait for it.
const DISK_BELOW: f64 = 0.5;
/// CPU share above which a thread is working, not waiting.
const THREAD_BELOW: f64 = 0.8;
/// Share of the time on the run queue above which a thread does not wait for another system.
const WAITED_BELOW: f64 = 0.2;
/// Share of the service's decisive threads from which those waiting for a peer dominate.
const WAITING: f64 = 0.5;
/// Share from which they certainly do.
const WAITING_FULL: f64 = 0.9;
/// CPUs used by another program from which it is named.
const BESIDE: f64 = 0.2;
/// Share from which threads visibly wait for something other than a peer.
const OTHERWISE: f64 = 0.5;

/// Evidence that the service waits for other systems.
#[derive(Clone, Copy)]
enum WaitEvidence {
    /// This share of its threads was seen waiting for a peer.
    ProbeResult(f64),
    /// It holds connections to others and waits for events: an event loop may wait for any of them.
    Peers,
    /// No peer is visible.
    NoHolder,
}

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    samples.load.filter(|load| !load.was_the_limit && !rate_kept(samples))?;
    let found = from_machine(samples);
    let seen_waiting = matches!(found, Some((_, WaitEvidence::ProbeResult(_))));
    database_waits::complete(samples, found.map(|(finding, _)| finding), seen_waiting)
}

/// Returns the finding from the machine's counters alone.
fn from_machine(samples: &Samples) -> Option<(Finding, WaitEvidence)> {
    let busy = samples.busy().filter(|_| cpus_free(samples, CPU_BELOW))?;
    let load = samples.load.filter(|load| load.rate > 0.0)?;
    let services: Vec<&WatchedProcess> = samples.with_role(Role::Service).collect();
    if services.is_empty() || services.iter().any(|process| held_up(process)) {
        return None;
    }
    let used: f64 = services.iter().map(|process| process.cores_used()).sum();
    let worked = used / granted(samples) / load.rate / load.service_time.as_secs_f64();
    if !worked.is_finite() || worked >= WORKED_BELOW {
        return None;
    }
    let held = ThreadStates::by(samples);
    let most = services
        .iter()
        .flat_map(|process| &process.peers)
        .max_by_key(|peer| peer.connections)
        .copied();
    let known = known(samples, held.as_ref(), most)?;
    let awaited = awaited_peer(samples);
    let connections = |address| {
        let mut peers = services.iter().flat_map(|process| &process.peers);
        peers.find(|peer| peer.address == address).map_or(0, |peer| peer.connections)
    };
    let awaited = awaited.map(|address| Peer { address, connections: connections(address) });
    let peer = match known {
        WaitEvidence::ProbeResult(_) | WaitEvidence::Peers => awaited.or(most),
        // Connections to a peer mean nothing when its threads sleep.
        WaitEvidence::NoHolder => None,
    };
    let finding = Finding {
        class: LimitClass::External,
        confidence: match known {
            WaitEvidence::ProbeResult(share) => confidence(share, WAITING, WAITING_FULL),
            WaitEvidence::Peers => 0.8,
            // From outside, a lock or a sleep looks the same.
            WaitEvidence::NoHolder => 0.55,
        },
        evidence: evidence(load, worked, busy, held.as_ref(), peer)
            .into_iter()
            .chain(beside(samples))
            .collect(),
        counterfactual: counterfactual(peer),
    };
    Some((finding, known))
}

/// Returns `None` when its threads wait for something that other rules report.
fn known(
    samples: &Samples,
    held: Option<&ThreadStates>,
    most: Option<Peer>,
) -> Option<WaitEvidence> {
    let disk = samples.disks.iter().any(|disk| disk.utilisation >= DISK_BELOW);
    match held {
        Some(held) if held.peer >= WAITING && held.share(held.peer) >= WAITING => {
            Some(WaitEvidence::ProbeResult(held.share(held.peer)))
        }
        Some(held) if held.disk >= OTHERWISE && held.share(held.disk) >= OTHERWISE => None,
        _ if disk => None,
        // A service that runs all the time waits for no other system.
        Some(held)
            if held.running / granted(samples) >= THREAD_BELOW
                && held.share(held.running) >= OTHERWISE =>
        {
            None
        }
        // A sleep waits for no other system.
        Some(held) if held.time >= OTHERWISE && held.share(held.time) >= OTHERWISE => {
            Some(WaitEvidence::NoHolder)
        }
        _ if most.is_some() => Some(WaitEvidence::Peers),
        _ => Some(WaitEvidence::NoHolder),
    }
}

fn evidence(
    load: GeneratorLoad,
    worked: f64,
    busy: f64,
    held: Option<&ThreadStates>,
    peer: Option<Peer>,
) -> Vec<String> {
    let mut evidence = vec![
        format!(
            "a request takes {:.2} ms, of which the service works for {}",
            load.service_time.as_secs_f64() * 1e3,
            percent(worked)
        ),
        format!("CPUs are {} busy, and no disk holds it up", percent(busy)),
    ];
    evidence.extend(held.map(ThreadStates::words));
    evidence.extend(
        peer.map(|peer| format!("it holds {} connections to {}", peer.connections, peer.address)),
    );
    evidence
}

/// Names the program that uses the most CPU time beside the service: often what it waits for.
fn beside(samples: &Samples) -> Option<String> {
    let mut programs = samples.others.iter().filter(|other| !other.name.starts_with('['));
    let busiest = programs.next().filter(|other| other.cores >= BESIDE)?;
    Some(format!(
        "beside it, {} process{} named {} use{} {:.2} of {} CPUs",
        busiest.processes,
        if busiest.processes == 1 { "" } else { "es" },
        busiest.name,
        if busiest.processes == 1 { "s" } else { "" },
        busiest.cores,
        samples.cores.len()
    ))
}

fn counterfactual(peer: Option<Peer>) -> String {
    match peer {
        Some(Peer { address, connections }) => {
            let twice = connections.saturating_mul(2).max(2);
            format!(
                "if {address} answers in half the time, or takes {twice} requests at once, the \
                 rate up to doubles"
            )
        }
        None => "look at what its threads wait for (/proc/PID/task/*/wchan, or a stack dump): a \
                 lock, a sleep, a peer"
            .to_owned(),
    }
}

/// Returns whether a thread is at its limit or waits for a CPU, or its group is throttled: then it
/// does not wait for other systems.
fn held_up(process: &WatchedProcess) -> bool {
    let throttled = process.group.is_some_and(|group| group.throttled_periods > 0);
    let waited = |thread: &Thread| thread.waited.is_some_and(|share| share >= WAITED_BELOW);
    throttled || process.threads.iter().any(|thread| thread.busy >= THREAD_BELOW || waited(thread))
}
