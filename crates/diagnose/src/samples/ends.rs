//! What the ends of a stretch tell of it: who else used CPU time, and how often threads were switched.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{Other, Watched};
use crate::process::{Stat, descendants};
use crate::sampler::End;

/// Most processes that are kept.
const OTHERS_MAX: usize = 5;

/// CPU time of those that are not watched and do not descend from the watched, the busiest first.
pub(super) fn others(before: &End, now: &End, watched: &[Watched], span: Duration) -> Vec<Other> {
    let (Ok(old), Ok(new)) = (&before.everyone, &now.everyone) else { return Vec::new() };
    let mut ours: HashSet<u32> = watched.iter().map(|process| process.pid).collect();
    for process in watched {
        ours.extend(descendants(new, process.pid).iter().map(|stat| stat.pid));
    }
    let earlier: HashMap<u32, &Stat> = old.iter().map(|stat| (stat.pid, stat)).collect();
    let gone = gone(old, new);
    let seconds = span.as_secs_f64();
    let other = |stat: &Stat| {
        // A process that is new, or has an id that was another's, began with nothing.
        let then = earlier.get(&stat.pid).filter(|then| then.began_ticks == stat.began_ticks);
        let (cpu, children) = then.map_or((Duration::ZERO, Duration::ZERO), |then| (then.cpu, then.children_cpu));
        // What children had used before they ended counts only for the time since.
        let known = gone.get(&stat.pid).copied().unwrap_or_default();
        let ended = stat.children_cpu.saturating_sub(children).saturating_sub(known);
        let used = stat.cpu.saturating_sub(cpu).saturating_add(ended);
        let cores = used.as_secs_f64() / seconds;
        (cores > 0.0 && cores.is_finite()).then(|| Other { pid: stat.pid, name: stat.shown_name(), cores })
    };
    let mut others: Vec<Other> = new.iter().filter(|stat| !ours.contains(&stat.pid)).filter_map(other).collect();
    others.sort_by(|one, other| other.cores.total_cmp(&one.cores));
    others.truncate(OTHERS_MAX);
    others
}

/// CPU time that children which have ended had used before, by their parent: when it asks for them, all of their time is added to
/// its own account.
fn gone(old: &[Stat], new: &[Stat]) -> HashMap<u32, Duration> {
    let alive: HashSet<(u32, u64)> = new.iter().map(|stat| (stat.pid, stat.began_ticks)).collect();
    let mut gone: HashMap<u32, Duration> = HashMap::new();
    for stat in old.iter().filter(|stat| !alive.contains(&(stat.pid, stat.began_ticks))) {
        let known = gone.entry(stat.parent).or_default();
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
        let others = others(&before, &now, &watched, Duration::from_secs(2));
        let found: Vec<_> = others.iter().map(|other| (other.pid, other.name.as_str(), other.cores)).collect();
        assert_eq!(found, [(50, "p50", 0.5), (2, "[p2]", 0.1)]);
    }

    /// As with a build: what counts is done by children that live for less than the stretch.
    #[test]
    fn children_that_ended_count_for_the_stretch_only() {
        let before = end(vec![stat(60, 1, 100, 4000), stat(61, 60, 700, 200), stat(62, 60, 50, 0)]);
        let now = end(vec![stat(60, 1, 100, 6000), stat(62, 60, 50, 0)]);
        let others = others(&before, &now, &[], Duration::from_secs(1));
        assert_eq!(others.iter().map(|other| (other.pid, other.cores)).collect::<Vec<_>>(), [(60, 1.1)]);
    }

    #[test]
    fn an_id_that_is_used_again_is_another_process() {
        let now = Stat { began_ticks: 99, ..stat(70, 1, 300, 0) };
        let others = others(&end(vec![stat(70, 1, 200, 0)]), &end(vec![now]), &[], Duration::from_secs(1));
        assert_eq!(others.iter().map(|other| other.cores).collect::<Vec<_>>(), [0.3]);
        let many = (10..30).map(|pid| stat(pid, 1, u64::from(pid), 0)).collect();
        let kept = super::others(&end(Vec::new()), &end(many), &[], Duration::from_secs(1));
        assert_eq!((kept.len(), kept[0].pid), (OTHERS_MAX, 29));
        let missing = Unseen { file: "proc".to_owned(), why: Why::Missing };
        let blind = End { everyone: Err(missing), ..end(Vec::new()) };
        assert!(super::others(&blind, &blind, &[], Duration::from_secs(1)).is_empty());
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
