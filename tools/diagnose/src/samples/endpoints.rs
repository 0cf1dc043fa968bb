//! Comparison of the ends of an interval: CPU use of other processes, and context switches of
//! threads.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{OtherProcess, WatchedProcess};
use crate::process::{Stat, TICK, descendants};
use crate::sampler::sample::EndpointSample;

/// Most programs kept.
const OTHERS_MAX: usize = 5;
/// Deepest ancestry followed.
const ANCESTORS_MAX: usize = 64;

/// Returns the CPU time of processes that are neither watched nor descendants of watched ones, the
/// busiest first. `cores_most` caps each: the work that all CPUs did for others, where known.
pub(super) fn others(
    before: &EndpointSample,
    now: &EndpointSample,
    watched: &[WatchedProcess],
    span: Duration,
    cores_most: Option<f64>,
) -> Vec<OtherProcess> {
    let (Ok(old), Ok(new)) = (&before.processes_of_machine, &now.processes_of_machine) else {
        return Vec::new();
    };
    let mut ours: HashSet<u32> = watched.iter().map(|process| process.pid).collect();
    for process in watched {
        ours.extend(descendants(new, process.pid).iter().map(|stat| stat.pid));
    }
    let earlier: HashMap<u32, &Stat> = old.iter().map(|stat| (stat.pid, stat)).collect();
    let gone = gone(old, new);
    let newest_ticks = old.iter().map(|stat| stat.began_ticks).max().unwrap_or(0);
    let seconds = span.as_secs_f64();
    let other = |stat: &Stat| {
        let used = match earlier.get(&stat.pid).filter(|then| then.began_ticks == stat.began_ticks)
        {
            Some(then) => {
                // CPU time that children had used before counts only once: the part within the
                // interval.
                let known = gone.get(&stat.pid).copied().unwrap_or_default();
                let ended =
                    stat.children_cpu.saturating_sub(then.children_cpu).saturating_sub(known);
                stat.cpu.saturating_sub(then.cpu).saturating_add(ended)
            }
            // A new process, or one with a reused id, began with zero.
            None => part_since(stat, newest_ticks, span),
        };
        let cores = used.as_secs_f64() / seconds;
        let cores = cores_most.map_or(cores, |most| cores.min(most));
        (cores > 0.0 && cores.is_finite()).then(|| OtherProcess {
            pid: stat.pid,
            name: stat.shown_name(),
            processes: 1,
            cores,
        })
    };
    by_name(new.iter().filter(|stat| !ours.contains(&stat.pid)).filter_map(other).collect())
}

/// Adds up the processes of one name: a database or a build is many of them. Returns the busiest
/// first, at most [`OTHERS_MAX`].
fn by_name(mut processes: Vec<OtherProcess>) -> Vec<OtherProcess> {
    processes.sort_by(|one, other| other.cores.total_cmp(&one.cores));
    let mut at: HashMap<String, usize> = HashMap::new();
    let mut programs: Vec<OtherProcess> = Vec::new();
    for process in processes {
        match at.get(&process.name).and_then(|at| programs.get_mut(*at)) {
            Some(program) => {
                program.processes += 1;
                program.cores += process.cores;
            }
            None => {
                at.insert(process.name.clone(), programs.len());
                programs.push(process);
            }
        }
    }
    programs.sort_by(|one, other| other.cores.total_cmp(&one.cores));
    programs.truncate(OTHERS_MAX);
    programs
}

/// Returns the CPU time in the interval of a process that the first sample lacks. If it started
/// before the newest process in that sample, it existed and was missed: of it counts what it would
/// have used at a constant rate over its life.
fn part_since(stat: &Stat, newest_ticks: u64, span: Duration) -> Duration {
    let life = stat.cpu.saturating_add(stat.children_cpu);
    let before = TICK.saturating_mul(
        u32::try_from(newest_ticks.saturating_sub(stat.began_ticks)).unwrap_or(u32::MAX),
    );
    let whole = span.saturating_add(before);
    if before.is_zero() || whole.is_zero() {
        life
    } else {
        life.mul_f64(span.as_secs_f64() / whole.as_secs_f64())
    }
}

/// Returns the earlier CPU time of ended processes, by their nearest living ancestor: when that one
/// reaps them, their whole time is added to its account.
fn gone(old: &[Stat], new: &[Stat]) -> HashMap<u32, Duration> {
    let alive: HashSet<(u32, u64)> = new.iter().map(|stat| (stat.pid, stat.began_ticks)).collect();
    let ended = |stat: &Stat| !alive.contains(&(stat.pid, stat.began_ticks));
    let parents: HashMap<u32, u32> =
        old.iter().filter(|stat| ended(stat)).map(|stat| (stat.pid, stat.parent)).collect();
    let mut gone: HashMap<u32, Duration> = HashMap::new();
    for stat in old.iter().filter(|stat| ended(stat)) {
        // Entries read one after the other may refer to each other's reused ids.
        let ancestors = std::iter::successors(Some(stat.parent), |pid| parents.get(pid).copied())
            .take(ANCESTORS_MAX);
        let known = gone.entry(ancestors.last().unwrap_or(stat.parent)).or_default();
        *known = known.saturating_add(stat.cpu).saturating_add(stat.children_cpu);
    }
    gone
}

/// Returns context switches of a process's threads per second: voluntary and involuntary.
pub(super) fn switches(
    before: &EndpointSample,
    now: &EndpointSample,
    pid: u32,
    span: Duration,
) -> Option<(f64, f64)> {
    let (old, new) = (before.switches.get(&pid)?, now.switches.get(&pid)?);
    let (mut waits, mut preempted) = (0_u64, 0_u64);
    for (tid, now) in new {
        let then = old.get(tid).copied().unwrap_or_default();
        waits = waits.saturating_add(now.waits.saturating_sub(then.waits));
        preempted = preempted.saturating_add(now.preempted.saturating_sub(then.preempted));
    }
    let per_s = |count: u64| count as f64 / span.as_secs_f64();
    (!new.is_empty() && !span.is_zero()).then(|| (per_s(waits), per_s(preempted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::status::Switches;
    use crate::root::{ProbeError, ProbeErrorKind};

    fn stat(pid: u32, parent: u32, cpu_ms: u64, children_ms: u64) -> Stat {
        Stat {
            pid,
            name: format!("p{pid}"),
            kernel: pid < 10,
            state: 'S',
            parent,
            group: 1,
            session: 1,
            cpu: Duration::from_millis(cpu_ms),
            children_cpu: Duration::from_millis(children_ms),
            began_ticks: u64::from(pid),
            rss_pages: 1,
        }
    }

    fn end(processes_of_machine: Vec<Stat>) -> EndpointSample {
        EndpointSample {
            processes_of_machine: Ok(processes_of_machine),
            hidden: None,
            switches: HashMap::new(),
        }
    }

    #[test]
    fn others_are_found_and_the_watched_with_their_children_are_not() {
        let watched = [WatchedProcess { pid: 40, ..WatchedProcess::default() }];
        let before = end(vec![
            stat(2, 0, 0, 0),
            stat(30, 1, 500, 0),
            stat(40, 1, 900, 0),
            stat(41, 40, 0, 0),
        ]);
        let now = end(vec![
            stat(2, 0, 200, 0),
            stat(30, 1, 500, 0),
            stat(40, 1, 1900, 0),
            stat(41, 40, 800, 0),
            stat(50, 1, 1000, 0),
        ]);
        let others = others(&before, &now, &watched, Duration::from_secs(2), None);
        let found: Vec<_> =
            others.iter().map(|other| (other.pid, other.name.as_str(), other.cores)).collect();
        assert_eq!(found, [(50, "p50", 0.5), (2, "[p2]", 0.1)]);
    }

    /// A build: short-lived children do the work.
    #[test]
    fn children_that_ended_count_for_the_stretch_only() {
        let before = end(vec![stat(60, 1, 100, 4000), stat(61, 60, 700, 200), stat(62, 60, 50, 0)]);
        let now = end(vec![stat(60, 1, 100, 6000), stat(62, 60, 50, 0)]);
        let others = others(&before, &now, &[], Duration::from_secs(1), None);
        assert_eq!(
            others.iter().map(|other| (other.pid, other.cores)).collect::<Vec<_>>(),
            [(60, 1.1)]
        );
    }

    /// A shell waiting for a build: the compiler, and the make that reaped it, end within the
    /// interval.
    #[test]
    fn earlier_cpu_time_of_a_process_tree_is_not_counted() {
        let before =
            end(vec![stat(60, 1, 100, 0), stat(61, 60, 300, 1000), stat(62, 61, 40_000, 500)]);
        let now = end(vec![stat(60, 1, 100, 42_500)]);
        let of = |most| others(&before, &now, &[], Duration::from_secs(1), most);
        assert!(matches!(
            of(None).as_slice(),
            [OtherProcess { pid: 60, cores, .. }] if (cores - 0.7).abs() < 1e-9
        ));
        assert_eq!(of(Some(0.25)).iter().map(|other| other.cores).collect::<Vec<_>>(), [0.25]);
        assert!(of(Some(0.0)).is_empty());
    }

    /// More processes than are examined: one of them takes the place of an ended one.
    #[test]
    fn an_older_process_seen_late_counts_in_part() {
        let now = end(vec![stat(3000, 1, 0, 0), stat(2800, 1, 30_000, 0), stat(3001, 1, 500, 0)]);
        let found =
            others(&end(vec![stat(3000, 1, 0, 0)]), &now, &[], Duration::from_secs(1), None);
        let found: Vec<_> =
            found.iter().map(|other| (other.pid, (other.cores * 100.0).round())).collect();
        // 30 s of CPU time in at least 2 s before the interval and its one second.
        assert_eq!(found, [(2800, 1000.0), (3001, 50.0)]);
    }

    #[test]
    fn an_id_that_is_used_again_is_another_process() {
        let now = Stat { began_ticks: 99, ..stat(70, 1, 300, 0) };
        let others = others(
            &end(vec![stat(70, 1, 200, 0)]),
            &end(vec![now]),
            &[],
            Duration::from_secs(1),
            None,
        );
        assert_eq!(others.iter().map(|other| other.cores).collect::<Vec<_>>(), [0.3]);
        let many = (10..30).map(|pid| stat(pid, 1, u64::from(pid), 0)).collect();
        let kept = super::others(&end(Vec::new()), &end(many), &[], Duration::from_secs(1), None);
        assert_eq!((kept.len(), kept[0].pid), (OTHERS_MAX, 29));
        let missing = ProbeError { file: "proc".to_owned(), why: ProbeErrorKind::Missing };
        let blind = EndpointSample { processes_of_machine: Err(missing), ..end(Vec::new()) };
        assert!(super::others(&blind, &blind, &[], Duration::from_secs(1), None).is_empty());
    }

    #[test]
    fn switches_of_living_threads_are_added_up() {
        let of = |threads: &[(u32, u64, u64)]| {
            let threads = threads.iter().map(|(tid, waits, preempted)| {
                (*tid, Switches { waits: *waits, preempted: *preempted })
            });
            EndpointSample { switches: HashMap::from([(5, threads.collect())]), ..end(Vec::new()) }
        };
        let (before, now) = (of(&[(5, 100, 10), (6, 7, 7)]), of(&[(5, 300, 10), (7, 40, 6)]));
        assert_eq!(switches(&before, &now, 5, Duration::from_secs(2)), Some((120.0, 3.0)));
        assert_eq!(switches(&before, &now, 6, Duration::from_secs(2)), None);
        assert_eq!(switches(&before, &now, 5, Duration::ZERO), None);
    }
}
