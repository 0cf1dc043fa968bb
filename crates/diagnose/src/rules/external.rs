//! The service waits for something else: hardly any CPU is used anywhere, and no request is worked on.

use super::finding::{Class, Finding, confidence, percent};
use super::held::{Held, awaited_peer, rate_kept};
use super::want::{cpus_free, granted};
use crate::samples::{Load, Peer, Role, Samples, Thread, Watched};

/// Above this share of all CPUs the answer lies there.
const CPU_BELOW: f64 = 0.6;
/// Above this share of the service time, requests are worked on, not waited for.
const WORKED_BELOW: f64 = 0.3;
/// Disks that are busier than this may be what it waits for.
const DISK_BELOW: f64 = 0.5;
/// A thread that is busier than this has work, not a wait.
const THREAD_BELOW: f64 = 0.8;
/// A thread that waits for a CPU longer than this share of the time does not wait for others.
const WAITED_BELOW: f64 = 0.2;
/// From this share of the service's threads that do not just wait for each other on, those that wait for a peer are the most.
const WAITING: f64 = 0.5;
/// From this share on there is no doubt.
const WAITING_FULL: f64 = 0.9;
/// From this share on, threads are seen to wait for something that is no peer.
const OTHERWISE: f64 = 0.5;

/// How much it is known that the service waits for others.
#[derive(Clone, Copy)]
enum Known {
    /// Its threads were seen to wait for a peer, this share of them.
    Seen(f64),
    /// It holds connections to others and waits for events: a loop may wait for any of them.
    Peers,
    /// Nobody is in sight.
    Nobody,
}

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let busy = samples.busy().filter(|_| cpus_free(samples, CPU_BELOW))?;
    let load = samples.load.filter(|load| load.rate > 0.0 && !load.was_the_limit)?;
    let services: Vec<&Watched> = samples.with_role(Role::Service).collect();
    if services.is_empty() || rate_kept(samples) || services.iter().any(|process| held_up(process)) {
        return None;
    }
    let used: f64 = services.iter().map(|process| process.cores_used()).sum();
    let worked = used / granted(samples) / load.rate / load.service_time.as_secs_f64();
    if !worked.is_finite() || worked >= WORKED_BELOW {
        return None;
    }
    let held = Held::by(samples);
    let most = services.iter().flat_map(|process| &process.peers).max_by_key(|peer| peer.connections).copied();
    let known = known(samples, held.as_ref(), most)?;
    let awaited = awaited_peer(samples);
    let connections = |address| {
        let mut peers = services.iter().flat_map(|process| &process.peers);
        peers.find(|peer| peer.address == address).map_or(0, |peer| peer.connections)
    };
    let awaited = awaited.map(|address| Peer { address, connections: connections(address) });
    let peer = match known {
        Known::Seen(_) | Known::Peers => awaited.or(most),
        // That it holds connections to somebody says nothing when its threads sleep.
        Known::Nobody => None,
    };
    Some(Finding {
        class: Class::External,
        confidence: match known {
            Known::Seen(share) => confidence(share, WAITING, WAITING_FULL),
            Known::Peers => 0.8,
            // A lock or a sleep looks the same from outside.
            Known::Nobody => 0.55,
        },
        evidence: evidence(load, worked, busy, held.as_ref(), peer),
        counterfactual: counterfactual(peer),
    })
}

/// None when its threads wait for something of which other rules speak.
fn known(samples: &Samples, held: Option<&Held>, most: Option<Peer>) -> Option<Known> {
    let disk = samples.disks.iter().any(|disk| disk.utilisation >= DISK_BELOW);
    match held {
        Some(held) if held.peer >= WAITING && held.share(held.peer) >= WAITING => {
            Some(Known::Seen(held.share(held.peer)))
        }
        Some(held) if held.disk >= OTHERWISE && held.share(held.disk) >= OTHERWISE => None,
        _ if disk => None,
        // One that runs all the time waits for nobody, whoever waits for it.
        Some(held) if held.running / granted(samples) >= THREAD_BELOW && held.share(held.running) >= OTHERWISE => None,
        // Sleeping is waiting for nobody.
        Some(held) if held.time >= OTHERWISE && held.share(held.time) >= OTHERWISE => Some(Known::Nobody),
        _ if most.is_some() => Some(Known::Peers),
        _ => Some(Known::Nobody),
    }
}

fn evidence(load: Load, worked: f64, busy: f64, held: Option<&Held>, peer: Option<Peer>) -> Vec<String> {
    let mut evidence = vec![
        format!(
            "a request takes {:.2} ms, of which the service works for {}",
            load.service_time.as_secs_f64() * 1e3,
            percent(worked)
        ),
        format!("CPUs are {} busy, and no disk holds it up", percent(busy)),
    ];
    evidence.extend(held.map(Held::words));
    evidence.extend(peer.map(|peer| format!("it holds {} connections to {}", peer.connections, peer.address)));
    evidence
}

fn counterfactual(peer: Option<Peer>) -> String {
    match peer {
        Some(Peer { address, connections }) => {
            let twice = connections.saturating_mul(2).max(2);
            format!("if {address} answers in half the time, or takes {twice} requests at once, the rate up to doubles")
        }
        None => "look at what its threads wait for (/proc/PID/task/*/wchan, or a stack dump): a lock, a sleep, a peer"
            .to_owned(),
    }
}

/// A thread at its limit, or that waits for a CPU, or a group: then it does not wait for others.
fn held_up(process: &Watched) -> bool {
    let throttled = process.group.is_some_and(|group| group.throttled_periods > 0);
    let waited = |thread: &Thread| thread.waited.is_some_and(|share| share >= WAITED_BELOW);
    throttled || process.threads.iter().any(|thread| thread.busy >= THREAD_BELOW || waited(thread))
}
