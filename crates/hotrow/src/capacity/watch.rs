//! Looking at the machine while it is loaded: whose processes, two samples and a survey for each step.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_diagnose::root::Root;
use hotrow_diagnose::rules::finding::{Class, Finding};
use hotrow_diagnose::rules::judge;
use hotrow_diagnose::sampler::{Sampler, WATCHED_MAX};
use hotrow_diagnose::samples::{Load, Role, Samples};
use hotrow_diagnose::survey::survey;
use hotrow_diagnose::{cgroup, listeners, process};
use hotrow_load::outcome::Outcome;
use hotrow_load::record::Known;
use hotrow_load::target::Address;
use hotrow_measure::clock::Nanos;

use super::args::CapacityArgs;

/// Longest sleep without looking whether the load has ended.
const NAP: Duration = Duration::from_millis(10);
/// The second sample is taken when this part of a step has passed, so that the survey sees it loaded still.
const LOOKED_AT: f64 = 0.8;
const PROC: &str = "/proc";
/// Where cgroups lie, for a path that is not absolute.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Who is looked at.
pub(super) struct Watch {
    sampler: Sampler,
    /// Whether the target runs on this machine.
    pub(super) local: bool,
    /// Processes of the service, none when they cannot be seen.
    services: Vec<u32>,
    /// Who, in words.
    pub(super) words: String,
}

impl Watch {
    /// Finds the processes that the arguments name, or that listen where the requests go.
    pub(super) fn new(args: &CapacityArgs, address: &Address) -> Result<Self, String> {
        let here = match address {
            Address::Unix(_) => true,
            Address::Tcp(address) => address.ip().is_loopback(),
        };
        let (pids, words) = chosen(args, address, here)?;
        let services = with_descendants(&pids);
        let more = services.len() - pids.len();
        let words = if more > 0 { format!("{words}, and {more} that descend from it") } else { words };
        let mut watched = services.clone();
        // The generator comes first: what is beyond the bound is left out.
        watched.insert(0, std::process::id());
        watched.truncate(WATCHED_MAX);
        Ok(Self {
            sampler: Sampler::new(Root::machine(), &watched),
            local: here || !services.is_empty(),
            services,
            words,
        })
    }

    /// Whether a process of the service is looked at.
    pub(super) fn sees_service(&self) -> bool {
        !self.services.is_empty()
    }

    /// Loads, and looks at the machine meanwhile; nothing was seen of a load that ended before its measurement began.
    pub(super) fn during<T>(
        &mut self,
        warmup: Duration,
        length: Duration,
        load: impl FnOnce() -> T,
    ) -> (T, Option<Samples>) {
        let over = AtomicBool::new(false);
        let sampler = &mut self.sampler;
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| look(sampler, warmup, length.mul_f64(LOOKED_AT), &over));
            let done = load();
            over.store(true, Ordering::Relaxed);
            (done, looking.join().ok().flatten())
        })
    }

    /// What the machine and the generator say together, the most certain first.
    pub(super) fn judge(&self, mut samples: Samples, outcome: &Outcome) -> Vec<Finding> {
        samples.load = Some(Load {
            connections: outcome.places as u64,
            rate: outcome.throughput_rps(),
            target_rate: outcome.target_rate,
            service_time: Duration::from_nanos(outcome.total.service.mean().map_or(0, Known::ns)),
            was_the_limit: outcome.limit().is_generator(),
        });
        let mut findings = judge(&samples);
        if !self.local {
            // They would speak of the generator's machine.
            findings.retain(|finding| says_something_of_remote(finding.class));
        }
        findings
    }
}

/// What can be seen of a target elsewhere: TCP, its timing, and the generator's own machine.
fn says_something_of_remote(class: Class) -> bool {
    matches!(
        class,
        Class::Generator
            | Class::AllCpus
            | Class::Steal
            | Class::Bandwidth
            | Class::PacketLoss
            | Class::Ports
            | Class::KernelTable
            | Class::NoneFound
    )
}

fn look(sampler: &mut Sampler, warmup: Duration, length: Duration, over: &AtomicBool) -> Option<Samples> {
    if !sleep(warmup, over) {
        return None;
    }
    let first = sampler.sample(Nanos::now());
    sleep(length, over);
    let second = sampler.sample(Nanos::now());
    let own = std::process::id();
    let role = |pid| if pid == own { Role::Generator } else { Role::Service };
    let mut samples = Samples::between(&first, &second, role);
    survey(&Root::machine(), &mut samples);
    Some(samples)
}

/// Whether the whole time passed before it was over.
pub(super) fn sleep(time: Duration, over: &AtomicBool) -> bool {
    let until = Nanos::now().after(time);
    loop {
        let now = Nanos::now();
        if over.load(Ordering::Relaxed) {
            return false;
        }
        if now >= until {
            return true;
        }
        std::thread::sleep(until.since(now).min(NAP));
    }
}

fn chosen(args: &CapacityArgs, address: &Address, here: bool) -> Result<(Vec<u32>, String), String> {
    let proc = Path::new(PROC);
    let listener = |port| listeners::on_port(proc, port);
    let named = |found: listeners::Listener| (vec![found.pid], format!("process {} ({})", found.pid, found.name));
    if !args.pid.is_empty() {
        return match args.pid.iter().find(|pid| process::stat(proc, **pid).is_err()) {
            Some(pid) => Err(format!("--pid {pid}: there is no such process, or it may not be seen")),
            None => {
                let pids: Vec<String> = args.pid.iter().map(u32::to_string).collect();
                Ok((args.pid.clone(), format!("process {}", pids.join(", "))))
            }
        };
    }
    if let Some(port) = args.port {
        let nobody = || format!("--port {port}: nobody listens there, or whoever does may not be seen; try as root");
        return listener(port).map(named).ok_or_else(nobody);
    }
    if let Some(group) = &args.cgroup {
        let folder = if group.is_absolute() { group.clone() } else { PathBuf::from(CGROUPS).join(group) };
        let pids = cgroup::processes(&folder).map_err(|e| format!("--cgroup {}: {e}", folder.display()))?;
        return match pids.as_slice() {
            [] => Err(format!("--cgroup {}: no process is in it", folder.display())),
            _ => Ok((pids.clone(), format!("{} processes of the group {}", pids.len(), folder.display()))),
        };
    }
    Ok(match address {
        Address::Tcp(address) if here => match listener(address.port()) {
            Some(found) => named(found),
            None => (Vec::new(), format!("the machine; who listens on port {} may not be seen", address.port())),
        },
        Address::Unix(_) => (Vec::new(), "the machine; --pid names the process behind the socket".to_owned()),
        Address::Tcp(_) => (Vec::new(), "only what TCP and timing show: the target is not on this machine".to_owned()),
    })
}

/// With those that descend from them: workers of a server that forks.
fn with_descendants(pids: &[u32]) -> Vec<u32> {
    let all = process::all(Path::new(PROC)).unwrap_or_default();
    let mut found = pids.to_vec();
    for pid in pids {
        let more = process::descendants(&all, *pid).into_iter().map(|stat| stat.pid);
        for pid in more.filter(|pid| *pid != std::process::id()).collect::<Vec<_>>() {
            if !found.contains(&pid) {
                found.push(pid);
            }
        }
    }
    found
}
