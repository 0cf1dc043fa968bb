//! What the ends of a stretch tell of it: who else used CPU time, and how often threads were switched.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{Other, Watched};
use crate::process::{Stat, TICK, descendants};
use crate::sampler::End;

/// Most processes that are kept.
const OTHERS_MAX: usize = 5;
/// Deepest descent that is followed.
const ANCESTORS_MAX: usize = 64;

/// CPU time of those that are not watched and do not descend from the watched, the busiest first. None used more than `cores_most`
/// CPUs: what all of them did for others meanwhile, where that is known.
pub(super) fn others(
    before: &End,
    now: &End,
    watched: &[Watched],
    span: Duration,
    cores_most: Option<f64>,
) -> Vec<Other> {
    let (Ok(old), Ok(new)) = (&before.everyone, &now.everyone) else { return Vec::new() };
    let mut ours: HashSet<u32> = watched.iter().map(|process| process.pid).collect();
    for process in watched {
        ours.extend(descendants(new, process.pid).iter().map(|stat| stat.pid));
    }
    let earlier: HashMap<u32, &Stat> = old.iter().map(|stat| (stat.pid, stat)).collect();
    let gone = gone(old, new);
    let newest_ticks = old.iter().map(|stat| stat.began_ticks).max().unwrap_or(0);
    let seconds = span.as_secs_f64();
    let other = |stat: &Stat| {
        let used = match earlier.get(&stat.pid).filter(|then| then.began_ticks == stat.began_ticks) {
            Some(then) => {
                // What children had used before they ended counts only for the time since.
                let known = gone.get(&stat.pid).copied().unwrap_or_default();
                let ended = stat.children_cpu.saturating_sub(then.children_cpu).saturating_sub(known);
                stat.cpu.saturating_sub(then.cpu).saturating_add(ended)
            }
            // One that is new, or has an id that was another's, began with nothing.
            None => part_since(stat, newest_ticks, span),
        };
        let cores = used.as_secs_f64() / seconds;
        let cores = cores_most.map_or(cores, |most| cores.min(most));
        (cores > 0.0 && cores.is_finite()).then(|| Other { pid: stat.pid, name: stat.shown_name(), cores })
    };
    let mut others: Vec<Other> = new.iter().filter(|stat| !ours.contains(&stat.pid)).filter_map(other).collect();
    others.sort_by(|one, other| other.cores.total_cmp(&one.cores));
    others.truncate(OTHERS_MAX);
    others
}

/// What a process used of late that was not seen before. One that began before the newest of those that were seen lived already, and was
/// missed: of it counts what it would have used evenly over its life.
fn part_since(stat: &Stat, newest_ticks: u64, span: Duration) -> Duration {
    let life = stat.cpu.saturating_add(stat.children_cpu);
    let before = TICK.saturating_mul(u32::try_from(newest_ticks.saturating_sub(stat.began_ticks)).unwrap_or(u32::MAX));
    let whole = span.saturating_add(before);
    if before.is_zero() || whole.is_zero() { life } else { life.mul_f64(span.as_secs_f64() / whole.as_secs_f64()) }
}

/// CPU time that processes which have ended had used before, by the nearest of their ancestors that lives: when it asks for them, or has
/// asked for who asked for them, all of their time is added to its own account.
fn gone(old: &[Stat], new: &[Stat]) -> HashMap<u32, Duration> {
    let alive: HashSet<(u32, u64)> = new.iter().map(|stat| (stat.pid, stat.began_ticks)).collect();
    let ended = |stat: &Stat| !alive.contains(&(stat.pid, stat.began_ticks));
    let parents: HashMap<u32, u32> =
        old.iter().filter(|stat| ended(stat)).map(|stat| (stat.pid, stat.parent)).collect();
    let mut gone: HashMap<u32, Duration> = HashMap::new();
    for stat in old.iter().filter(|stat| ended(stat)) {
        // Read one after the other, two entries may name each other's reused ids.
        let ancestors = std::iter::successors(Some(stat.parent), |pid| parents.get(pid).copied()).take(ANCESTORS_MAX);
        let known = gone.entry(ancestors.last().unwrap_or(stat.parent)).or_default();
        *known = known.saturating_add(stat.cpu).saturating_add(stat.children_cpu);
    }
    gone
}

/// Switches of a process's threads per second: those that waited, and those that made room for another.
pub(super) fn switches(before: &End, now: &End, pid: u32, span: Duration) -> Option<(f64, f64)> {
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
    use crate::root::{Unseen, Why};

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

    fn end(everyone: Vec<Stat>) -> End {
        End { everyone: Ok(everyone), hidden: None, switches: HashMap::new() }
    }

    #[test]
    fn others_are_found_and_the_watched_with_their_children_are_not() {
        let watched = [Watched { pid: 40, ..Watched::default() }];
        let before = end(vec![stat(2, 0, 0, 0), stat(30, 1, 500, 0), stat(40, 1, 900, 0), stat(41, 40, 0, 0)]);
        let now = end(vec![
            stat(2, 0, 200, 0),
            stat(30, 1, 500, 0),
            stat(40, 1, 1900, 0),
            stat(41, 40, 800, 0),
            stat(50, 1, 1000, 0),
        ]);
        let others = others(&before, &now, &watched, Duration::from_secs(2), None);
        let found: Vec<_> = others.iter().map(|other| (other.pid, other.name.as_str(), other.cores)).collect();
        assert_eq!(found, [(50, "p50", 0.5), (2, "[p2]", 0.1)]);
    }

    /// As with a build: what counts is done by children that live for less than the stretch.
    #[test]
    fn children_that_ended_count_for_the_stretch_only() {
        let before = end(vec![stat(60, 1, 100, 4000), stat(61, 60, 700, 200), stat(62, 60, 50, 0)]);
        let now = end(vec![stat(60, 1, 100, 6000), stat(62, 60, 50, 0)]);
        let others = others(&before, &now, &[], Duration::from_secs(1), None);
        assert_eq!(others.iter().map(|other| (other.pid, other.cores)).collect::<Vec<_>>(), [(60, 1.1)]);
    }

    /// A shell that waits for a build: the compiler, and make that waited for it, end within the stretch.
    #[test]
    fn what_a_whole_branch_had_used_before_is_not_of_the_stretch() {
        let before = end(vec![stat(60, 1, 100, 0), stat(61, 60, 300, 1000), stat(62, 61, 40_000, 500)]);
        let now = end(vec![stat(60, 1, 100, 42_500)]);
        let of = |most| others(&before, &now, &[], Duration::from_secs(1), most);
        assert!(matches!(of(None).as_slice(), [Other { pid: 60, cores, .. }] if (cores - 0.7).abs() < 1e-9));
        assert_eq!(of(Some(0.25)).iter().map(|other| other.cores).collect::<Vec<_>>(), [0.25]);
        assert!(of(Some(0.0)).is_empty());
    }

    /// More processes than are looked at: one of them took the place of one that ended.
    #[test]
    fn who_lived_before_and_was_not_seen_counts_for_a_part() {
        let now = end(vec![stat(3000, 1, 0, 0), stat(2800, 1, 30_000, 0), stat(3001, 1, 500, 0)]);
        let found = others(&end(vec![stat(3000, 1, 0, 0)]), &now, &[], Duration::from_secs(1), None);
        let found: Vec<_> = found.iter().map(|other| (other.pid, (other.cores * 100.0).round())).collect();
        // 30 s of CPU time in at least 2 s before and the second of the stretch.
        assert_eq!(found, [(2800, 1000.0), (3001, 50.0)]);
    }

    #[test]
    fn an_id_that_is_used_again_is_another_process() {
        let now = Stat { began_ticks: 99, ..stat(70, 1, 300, 0) };
        let others = others(&end(vec![stat(70, 1, 200, 0)]), &end(vec![now]), &[], Duration::from_secs(1), None);
        assert_eq!(others.iter().map(|other| other.cores).collect::<Vec<_>>(), [0.3]);
        let many = (10..30).map(|pid| stat(pid, 1, u64::from(pid), 0)).collect();
        let kept = super::others(&end(Vec::new()), &end(many), &[], Duration::from_secs(1), None);
        assert_eq!((kept.len(), kept[0].pid), (OTHERS_MAX, 29));
        let missing = Unseen { file: "proc".to_owned(), why: Why::Missing };
        let blind = End { everyone: Err(missing), ..end(Vec::new()) };
        assert!(super::others(&blind, &blind, &[], Duration::from_secs(1), None).is_empty());
    }

    #[test]
    fn switches_of_living_threads_are_added_up() {
        let of = |threads: &[(u32, u64, u64)]| {
            let threads =
                threads.iter().map(|(tid, waits, preempted)| (*tid, Switches { waits: *waits, preempted: *preempted }));
            End { switches: HashMap::from([(5, threads.collect())]), ..end(Vec::new()) }
        };
        let (before, now) = (of(&[(5, 100, 10), (6, 7, 7)]), of(&[(5, 300, 10), (7, 40, 6)]));
        assert_eq!(switches(&before, &now, 5, Duration::from_secs(2)), Some((120.0, 3.0)));
        assert_eq!(switches(&before, &now, 6, Duration::from_secs(2)), None);
        assert_eq!(switches(&before, &now, 5, Duration::ZERO), None);
    }
}
