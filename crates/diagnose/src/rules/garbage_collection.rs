//! Garbage collection as the consumer of a service's CPU time. Not a rule: it completes findings
//! about CPU time and waiting threads, because a collection looks like work, or like a lock that
//! all threads wait for.

use super::finding::{Finding, LimitClass, percent};
use crate::samples::{Role, Samples, Thread, WatchedProcess};

/// Share of the service's CPU time from which it is named.
const NAMED_FROM: f64 = 0.15;
/// Share from which it is the next step.
const DECISIVE_FROM: f64 = 0.4;
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

/// Adds garbage collection to the findings that it explains.
pub(super) fn explain(findings: &mut [Finding], samples: &Samples) {
    let services = samples.with_role(Role::Service);
    let shares = services.filter_map(|process| Some((share(process)?, process)));
    let Some((share, process)) = shares.max_by(|(one, _), (other, _)| one.total_cmp(other)) else {
        return;
    };
    let Some(busiest) = process.threads.iter().find(|thread| collects(thread)) else { return };
    let explained =
        |class| matches!(class, LimitClass::AllCpus | LimitClass::OneThread | LimitClass::Lock);
    if share < NAMED_FROM {
        return;
    }
    for finding in findings.iter_mut().filter(|finding| explained(finding.class)) {
        finding.evidence.push(format!(
            "garbage collection (thread {:?} and others) uses {} of the CPU time of process {}",
            busiest.name,
            percent(share),
            process.pid
        ));
        if share >= DECISIVE_FROM {
            finding.counterfactual = format!(
                "a larger heap, or fewer allocations per request, gives back up to {} of the CPU \
                 time; then {}",
                percent(share),
                finding.counterfactual
            );
        }
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
    fn other_limits_and_other_threads_are_left_alone() {
        let collecting = [("GC Thread#1", 0.9)];
        assert_eq!(explained(LimitClass::Disk, &collecting).evidence, [""; 0]);
        for threads in [&[("GCD worker", 0.9)][..], &[("G1 Conc#0", 0.01), ("main", 0.9)], &[]] {
            assert_eq!(explained(LimitClass::AllCpus, threads).evidence, [""; 0], "{threads:?}");
        }
    }
}
