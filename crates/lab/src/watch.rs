//! Looking at the machine while it is loaded, and what the machine and the generator say together.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, Thread};
use std::time::Duration;

use hotrow_diagnose::process;
use hotrow_diagnose::root::{Root, Unseen, Why};
use hotrow_diagnose::rules::finding::{Class, Finding};
use hotrow_diagnose::rules::judge_some;
use hotrow_diagnose::sampler::{Sample, Sampler, WATCHED_MAX};
use hotrow_diagnose::samples::{Load, Role, Samples};
use hotrow_load::outcome::Outcome;
use hotrow_load::record::Known;
use hotrow_measure::clock::{Nanos, thread_cpu};

/// Longest sleep without looking whether the load has ended; who ends it may wake the sleeper (`unpark`).
const NAP: Duration = Duration::from_millis(100);
/// Of a load whose length is known, the last look comes when this part of it has passed, so that it is loaded still.
const LOOKED_AT: f64 = 0.8;
/// Of others, looks come after this time, twice this time, four times …
const FIRST_LOOK: Duration = Duration::from_millis(200);
/// Between looks that only tell how it goes.
const GLANCE: Duration = Duration::from_secs(1);
const PROC: &str = "/proc";

/// The latest second, for whoever shows it.
pub type Latest = Arc<Mutex<Option<Samples>>>;

/// Who is looked at.
pub struct Watch {
    sampler: Sampler,
    /// What each process is that is looked at.
    roles: HashMap<u32, Role>,
    /// Says that there are more processes than are looked at.
    beyond: Option<Unseen>,
    /// Whether the target runs on this machine.
    pub local: bool,
    /// Who, in words.
    pub words: String,
    /// What the machine did in the latest second of a load.
    pub latest: Latest,
    /// Whether to look every second too, which nothing but `latest` needs.
    pub glances: bool,
    /// CPU time that looking has taken, the whole of its thread.
    pub cpu: Duration,
    /// How long loads went on meanwhile.
    loaded: Duration,
}

impl Watch {
    /// Watches processes, those that descend from them, and this one as the generator. `local`: whether the target runs on
    /// this machine, even when none of its processes may be seen.
    #[must_use]
    pub fn new(processes: &[(u32, Role)], local: bool, words: String) -> Self {
        let own = std::process::id();
        // The generator comes first: what is beyond the bound is left out.
        let (mut pids, mut roles) = (vec![own], HashMap::from([(own, Role::Generator)]));
        for (pid, role) in with_descendants(processes) {
            if roles.insert(pid, role).is_none() {
                pids.push(pid);
            }
        }
        let more = pids.len().saturating_sub(1 + processes.len());
        let words = if more > 0 { format!("{words}, and {more} that descend from it") } else { words };
        let beyond = beyond(pids.len());
        let words = beyond.as_ref().map_or_else(|| words.clone(), |beyond| format!("{words} ({})", beyond.why));
        for pid in pids.split_off(pids.len().min(WATCHED_MAX)) {
            roles.remove(&pid);
        }
        let sampler = Sampler::new(Root::machine(), &pids);
        Self {
            sampler,
            local: local || !processes.is_empty(),
            roles,
            beyond,
            words,
            latest: Latest::default(),
            glances: true,
            cpu: Duration::ZERO,
            loaded: Duration::ZERO,
        }
    }

    /// Whether a process of the service is looked at.
    #[must_use]
    pub fn sees_service(&self) -> bool {
        self.roles.values().any(|role| *role == Role::Service)
    }

    /// Share of one CPU that looking itself took while loads went on; none before the first.
    #[must_use]
    pub fn cpu_share(&self) -> Option<f64> {
        (!self.loaded.is_zero()).then(|| self.cpu.as_secs_f64() / self.loaded.as_secs_f64())
    }

    /// The processes that are looked at and have a role.
    #[must_use]
    pub fn with_role(&self, role: Role) -> Vec<u32> {
        let mut pids: Vec<u32> = self.roles.iter().filter(|(_, its)| **its == role).map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    }

    /// Loads, and looks at the machine meanwhile: from `warmup` after the moment that `load` tells as its begin. Nothing was seen of
    /// a load that ended before its measurement began, or told of none.
    pub fn during<T>(
        &mut self,
        warmup: Duration,
        length: Option<Duration>,
        load: impl FnOnce(&Begin<'_>) -> T,
    ) -> (T, Option<Samples>) {
        let (over, begin, begun) = (AtomicBool::new(false), OnceLock::new(), Nanos::now());
        let glance = if self.glances { GLANCE } else { Duration::MAX };
        let (roles, latest, beyond) = (&self.roles, &self.latest, self.beyond.as_ref());
        let (over, at) = (&over, &begin);
        let mut looking = Looking { sampler: &mut self.sampler, roles, beyond, latest, glance, at, over };
        std::thread::scope(|scope| {
            let look = move || (looking.look(warmup, length), thread_cpu());
            // Without a thread to look from, nothing is seen.
            let looker = Builder::new().name("watch".to_owned()).spawn_scoped(scope, look).ok();
            let ending = Ending { over, looker: looker.as_ref().map(|looker| looker.thread().clone()) };
            let done = load(&Begin { at, looker: ending.looker.as_ref() });
            drop(ending);
            let (seen, cpu) = looker.and_then(|looker| looker.join().ok()).unwrap_or_default();
            self.cpu += cpu;
            self.loaded += Nanos::now().since(begun);
            (done, seen)
        })
    }

    /// What the machine and the generator say together, the most certain first.
    #[must_use]
    pub fn judge(&self, mut samples: Samples, outcome: &Outcome) -> Vec<Finding> {
        samples.load = Some(load_of(outcome));
        findings(&samples, self.local)
    }
}

/// What samples say of a target on this machine (`local`) or elsewhere, the most certain first.
#[must_use]
pub fn findings(samples: &Samples, local: bool) -> Vec<Finding> {
    // Of a target elsewhere, the others would speak of the generator's machine.
    judge_some(samples, |class| local || says_something_of_remote(class))
}

/// What the generator tells of a run.
#[must_use]
pub fn load_of(outcome: &Outcome) -> Load {
    let counts = &outcome.total.counts;
    // Where connections are kept, those of the beginning are all that there are: they are no part of the rate.
    let opened = counts.connections_opened.saturating_sub(outcome.places as u64);
    let per_s = |count: u64| count as f64 / outcome.window.as_secs_f64();
    let connects = per_s(opened.saturating_add(counts.connect_errors));
    let failed = per_s(counts.connect_errors);
    Load {
        connections: outcome.places as u64,
        rate: outcome.throughput_rps(),
        target_rate: outcome.target_rate,
        service_time: Duration::from_nanos(outcome.total.service.mean().map_or(0, Known::ns)),
        connects_per_s: Some(connects).filter(|connects| connects.is_finite()),
        failed_connects_per_s: if failed.is_finite() { failed } else { 0.0 },
        was_the_limit: outcome.limit().is_generator(),
    }
}

/// What can be seen of a target elsewhere: TCP, its timing, and the generator's own machine.
fn says_something_of_remote(class: Class) -> bool {
    matches!(
        class,
        Class::Generator
            | Class::AllCpus
            | Class::Competitor
            | Class::Steal
            | Class::Bandwidth
            | Class::PacketLoss
            | Class::Ports
            | Class::KernelTable
            | Class::NoneFound
    )
}

/// Who loads tells by it when the load begins: until then connections are opened, which may take long.
pub struct Begin<'a> {
    at: &'a OnceLock<Nanos>,
    looker: Option<&'a Thread>,
}

impl Begin<'_> {
    /// The load begins at this moment. Only the first call counts.
    pub fn at(&self, moment: Nanos) {
        let _ = self.at.set(moment);
        if let Some(looker) = self.looker {
            looker.unpark();
        }
    }
}

/// Tells whoever looks that the load is over when it is dropped, which a load that panics does too: the scope waits for that thread.
struct Ending<'a> {
    over: &'a AtomicBool,
    looker: Option<Thread>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(looker) = &self.looker {
            looker.unpark();
        }
    }
}

/// One load's looks.
struct Looking<'a> {
    sampler: &'a mut Sampler,
    roles: &'a HashMap<u32, Role>,
    beyond: Option<&'a Unseen>,
    latest: &'a Latest,
    glance: Duration,
    at: &'a OnceLock<Nanos>,
    over: &'a AtomicBool,
}

impl Looking<'_> {
    fn look(&mut self, warmup: Duration, length: Option<Duration>) -> Option<Samples> {
        let begin = loop {
            match self.at.get() {
                Some(begin) => break *begin,
                None if self.over.load(Ordering::Relaxed) => return None,
                None => std::thread::park_timeout(NAP),
            }
        };
        if !sleep_until(begin.after(warmup), self.over) {
            return None;
        }
        let first = self.sampler.sample_end(Nanos::now());
        let (mut last, mut found) = (first.clone(), None);
        let mut whole_at = length.map_or(FIRST_LOOK, |length| length.mul_f64(LOOKED_AT));
        loop {
            let passed = Nanos::now().since(first.at);
            let goes_on = sleep(whole_at.saturating_sub(passed).min(self.glance), self.over);
            if !goes_on && found.is_some() {
                return found;
            }
            let at = Nanos::now();
            let ends = at.since(first.at) >= whole_at || !goes_on;
            let now = if ends { self.sampler.sample_end(at) } else { self.sampler.sample(at) };
            self.show(&last, &now);
            if ends {
                let mut samples = self.between(&first, &now);
                self.sampler.survey(&mut samples);
                found = Some(samples);
                // What comes after a length that is known are the last answers, not the load.
                whole_at = length.map_or(whole_at.saturating_mul(2), |_| Duration::MAX);
            }
            if !goes_on {
                return found;
            }
            last = now;
        }
    }

    fn between(&self, earlier: &Sample, later: &Sample) -> Samples {
        let mut samples = Samples::between(earlier, later, |pid| self.roles.get(&pid).copied().unwrap_or_default());
        samples.unseen.extend(self.beyond.cloned());
        samples
    }

    fn show(&self, earlier: &Sample, later: &Sample) {
        let samples = self.between(earlier, later);
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(samples);
    }
}

/// What is not seen of so many processes.
fn beyond(all: usize) -> Option<Unseen> {
    let why = Why::TooMany { seen: WATCHED_MAX, all };
    (all > WATCHED_MAX).then(|| Unseen { file: "proc/*/task".to_owned(), why })
}

/// Whether the whole time passed before it was over.
pub fn sleep(time: Duration, over: &AtomicBool) -> bool {
    sleep_until(Nanos::now().after(time), over)
}

fn sleep_until(until: Nanos, over: &AtomicBool) -> bool {
    loop {
        let now = Nanos::now();
        if over.load(Ordering::Relaxed) {
            return false;
        }
        if now >= until {
            return true;
        }
        std::thread::park_timeout(until.since(now).min(NAP));
    }
}

/// With those that descend from them: workers of a server that forks.
fn with_descendants(processes: &[(u32, Role)]) -> Vec<(u32, Role)> {
    let all = process::all(Path::new(PROC)).unwrap_or_default();
    let mut found = processes.to_vec();
    for (pid, role) in processes {
        for stat in process::descendants(&all, *pid) {
            if stat.pid != std::process::id() && !found.iter().any(|(pid, _)| *pid == stat.pid) {
                found.push((stat.pid, *role));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
