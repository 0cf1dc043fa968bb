//! Garbage collection as the consumer of a service's CPU time. A collection that stops the world is
//! a lock that all threads wait for; other findings about CPU time and waiting threads are
//! completed with it.

use super::finding::{Finding, LimitClass, confidence, percent};
use super::lock;
use super::thread_states::rate_kept;
use crate::samples::{Role, Samples, Thread, WatchedProcess};

/// Share of the service's CPU time from which it is named.
const NAMED_FROM: f64 = 0.15;
/// Share from which it is the next step.
const DECISIVE_FROM: f64 = 0.4;
/// Share from which it certainly limits.
const FULL: f64 = 0.8;
/// Least CPUs of the service from which they are demanded at all.
const DEMANDED_CORES: f64 = 0.7;
/// Confidence factor: a collector that works beside the threads stops none of them.
const CONCURRENT_FACTOR: f64 = 0.8;
/// Beginnings of the names of collecting threads, as the kernel shows them: of HotSpot's collectors
/// (G1, Parallel, Serial in the thread of the virtual machine, Z, Shenandoah), and of .NET.
const THREADS: [&str; 10] = [
    "GC Thread#",
    "G1 ",
    "ParGC Thread#",
    "VM Thread",
    "ZWorker",
    "ZDriver",
    "Shenandoah",
    "Concurrent Mark",
    ".NET Server GC",
    ".NET BGC",
];

/// Garbage collection takes most of the CPU time: while threads collect, the others wait.
pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let collection = Collection::of(samples)?;
    let limited = rate_kept(samples) || samples.load.is_some_and(|load| load.was_the_limit);
    let little = collection.share < DECISIVE_FROM || collection.cores < DEMANDED_CORES;
    // Then `explain` completes that finding.
    if limited || little || lock::evaluate(samples).is_some() {
        return None;
    }
    Some(Finding {
        class: LimitClass::Lock,
        confidence: confidence(collection.share, DECISIVE_FROM, FULL) * CONCURRENT_FACTOR,
        evidence: vec![
            collection.words(),
            "while they collect, the threads of requests wait".to_owned(),
        ],
        counterfactual: collection.counterfactual(),
    })
}

/// Adds garbage collection to the findings that it explains.
pub(super) fn explain(findings: &mut [Finding], samples: &Samples) {
    let Some(collection) = Collection::of(samples) else { return };
    let explained =
        |class| matches!(class, LimitClass::AllCpus | LimitClass::OneThread | LimitClass::Lock);
    for finding in findings.iter_mut().filter(|finding| explained(finding.class)) {
        let words = collection.words();
        if finding.evidence.contains(&words) {
            continue;
        }
        finding.evidence.push(words);
        if collection.share >= DECISIVE_FROM {
            finding.counterfactual =
                format!("{}; then {}", collection.counterfactual(), finding.counterfactual);
        }
    }
}

/// The service that collects most.
struct Collection<'a> {
    process: &'a WatchedProcess,
    busiest: &'a Thread,
    /// Share of the process's CPU time, 0 to 1.
    share: f64,
    /// CPUs that the process uses.
    cores: f64,
}

impl<'a> Collection<'a> {
    /// Returns `None` where the share is not worth a word.
    fn of(samples: &'a Samples) -> Option<Self> {
        let services = samples.with_role(Role::Service);
        let shares = services.filter_map(|process| Some((share(process)?, process)));
        let (share, process) = shares.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
        let busiest = process.threads.iter().find(|thread| collects(thread))?;
        let cores = process.cores_used();
        (share >= NAMED_FROM).then_some(Self { process, busiest, share, cores })
    }

    fn words(&self) -> String {
        format!(
            "garbage collection (thread {:?} and others) uses {} of the CPU time of process {}",
            self.busiest.name,
            percent(self.share),
            self.process.pid
        )
    }

    fn counterfactual(&self) -> String {
        format!(
            "a larger heap, or fewer allocations per request, gives back up to {} of the CPU time",
            percent(self.share)
        )
    }
}

/// Returns the share of a process's CPU time in collecting threads, 0 to 1; `None` when it used
/// none.
fn share(process: &WatchedProcess) -> Option<f64> {
    let sum = |threads: &mut dyn Iterator<Item = &Thread>| -> f64 {
        threads.map(|thread| thread.busy).sum()
    };
    let all = sum(&mut process.threads.iter());
    (all > 0.0).then(|| sum(&mut process.threads.iter().filter(|thread| collects(thread))) / all)
}

fn collects(thread: &Thread) -> bool {
    THREADS.iter().any(|name| thread.name.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(threads: &[(&str, f64)]) -> Samples {
        let threads = threads
            .iter()
            .map(|(name, busy)| Thread { name: (*name).to_owned(), busy: *busy, waited: None })
            .collect();
        let process = WatchedProcess { pid: 7, threads, ..WatchedProcess::default() };
        Samples { processes: vec![process], ..Samples::default() }
    }

    fn explained(class: LimitClass, threads: &[(&str, f64)]) -> Finding {
        let counterfactual = "more CPUs".to_owned();
        let mut findings =
            [Finding { class, confidence: 0.9, evidence: Vec::new(), counterfactual }];
        explain(&mut findings, &samples(threads));
        let [finding] = findings;
        finding
    }

    #[test]
    fn the_collectors_threads_are_named() {
        let collecting = [("GC Thread#1", 0.6), ("GC Thread#0", 0.3), ("pool-1-thread-1", 0.9)];
        let finding = explained(LimitClass::AllCpus, &collecting);
        assert_eq!(
            finding.evidence,
            [
                "garbage collection (thread \"GC Thread#1\" and others) uses 50 % of the CPU time of \
              process 7"
            ]
        );
        assert!(finding.counterfactual.starts_with("a larger heap"), "{finding:?}");
        let little = [("VM Thread", 0.2), ("pool-1-thread-1", 0.8)];
        let finding = explained(LimitClass::OneThread, &little);
        assert_eq!((finding.evidence.len(), finding.counterfactual.as_str()), (1, "more CPUs"));
    }

    #[test]
    fn a_collection_that_stops_the_world_is_a_limit_of_its_own() {
        let collecting = [("GC Thread#1", 0.5), ("GC Thread#0", 0.4), ("pool-1-thread-1", 0.3)];
        let finding = evaluate(&samples(&collecting)).expect("75 % of 1.2 CPUs");
        assert_eq!(finding.class, LimitClass::Lock);
        assert!((0.5..0.8).contains(&finding.confidence), "{finding:?}");
        let mut findings = [finding.clone()];
        explain(&mut findings, &samples(&collecting));
        assert_eq!(findings, [finding], "named once");
        for threads in [
            &[("GC Thread#1", 0.3), ("pool-1-thread-1", 0.9)][..],
            &[("GC Thread#1", 0.4), ("pool-1-thread-1", 0.1)],
        ] {
            assert_eq!(evaluate(&samples(threads)), None, "{threads:?}");
        }
    }

    #[test]
    fn other_limits_and_other_threads_are_left_alone() {
        let collecting = [("GC Thread#1", 0.9)];
        assert_eq!(explained(LimitClass::Disk, &collecting).evidence, [""; 0]);
        for threads in [&[("GCD worker", 0.9)][..], &[("G1 Conc#0", 0.01), ("main", 0.9)], &[]] {
            assert_eq!(explained(LimitClass::AllCpus, threads).evidence, [""; 0], "{threads:?}");
        }
    }
}
