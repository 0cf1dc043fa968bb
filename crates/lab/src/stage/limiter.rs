//! How CPU is limited here, found out once: a cgroup of version 2 or 1, else pinning, else not at all.

use std::path::{Path, PathBuf};

use hotrow_diagnose::cgroup::{self, CpuStat, Version};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::cgroup::{Group, PERIOD, candidates, make};
use super::pins::Pins;
use super::supervise::Cgroups;
use super::{CORES, Limits, leftovers};

/// Limits processes, and gives each its groups.
#[derive(Debug)]
pub(super) struct Limiter {
    method: Method,
    /// Where processes are counted, found and killed whatever limits them: v2, and not the group of `method`.
    counter: Option<Group>,
}

#[derive(Debug)]
enum Method {
    Group(Group),
    Pinned(Pins),
    Impossible,
}

/// What one process has of the limiter.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Its groups; the one with the limit, if there is one, first.
    groups: Vec<Group>,
    /// The CPUs that it is pinned to; empty when it is not.
    pub(super) cpus: Vec<usize>,
    /// The limit in force, in cores.
    pub(super) limit_cores: Option<f64>,
    asked_cores: f64,
}

impl Limiter {
    /// Finds out how this machine limits, and clears away what dead supervisors left. `label` names our folders.
    pub(super) fn new(label: &str, cgroups: Cgroups) -> (Self, Limits) {
        leftovers::clear();
        let (found, mut reasons) = match (cgroups, cgroup::hierarchies(Path::new("/"))) {
            (Cgroups::Avoid, _) => (Vec::new(), vec!["cgroups are not to be used".to_owned()]),
            (Cgroups::Try, Ok(hierarchies)) => candidates(&hierarchies),
            (Cgroups::Try, Err(error)) => (Vec::new(), vec![format!("the list of cgroups cannot be read: {error}")]),
        };
        let (mut limiting, mut counter) = (None, None);
        for candidate in &found {
            let wanted = if candidate.limits { limiting.is_none() } else { counter.is_none() };
            if !wanted || (limiting.is_some() && candidate.version == Version::V1) {
                continue;
            }
            match make(candidate, label) {
                Ok(group) if candidate.limits => limiting = Some((candidate.version, group)),
                Ok(group) => counter = Some(group),
                Err(why) => reasons.push(why),
            }
        }
        if let Some((Version::V2, _)) = limiting {
            counter = None;
        }
        let (method, limits) = choose(limiting, allowed_cpus(), &reasons);
        (Self { method, counter }, limits)
    }

    /// A place for a process that is about to start.
    pub(super) fn admit(&mut self, name: &str, cores: Option<f64>) -> Result<Place, String> {
        if let Some(cores) = cores.filter(|cores| !CORES.contains(cores)) {
            let (least, most) = (CORES.start(), CORES.end());
            return Err(format!("a limit of {cores} cores is not possible; it must lie between {least} and {most}"));
        }
        let mut place = Place { asked_cores: cores.unwrap_or_default(), ..Place::default() };
        let admitted = self.fill(&mut place, name, cores);
        if admitted.is_err() {
            self.release(&place);
        }
        admitted.map(|()| place)
    }

    fn fill(&mut self, place: &mut Place, name: &str, cores: Option<f64>) -> Result<(), String> {
        let told = |error: std::io::Error| format!("its group cannot be made: {error}");
        match (&mut self.method, cores) {
            (Method::Group(base), cores) => {
                place.groups.push(base.child(name).map_err(told)?);
                if let (Some(cores), Some(group)) = (cores, place.groups.last()) {
                    group.limit(cores).map_err(|error| format!("its limit of {cores} cores is refused: {error}"))?;
                    place.limit_cores = Some(cores);
                }
            }
            (Method::Pinned(pins), Some(cores)) => {
                place.cpus = pins.take(cores)?;
                // What pinning holds it to: whole CPUs.
                place.limit_cores = Some(place.cpus.len() as f64);
            }
            (Method::Pinned(_), None) | (Method::Impossible, _) => {}
        }
        if let Some(base) = &self.counter {
            place.groups.push(base.child(name).map_err(told)?);
        }
        Ok(())
    }

    /// Takes a place back; its processes are gone.
    pub(super) fn release(&mut self, place: &Place) {
        place.groups.iter().for_each(Group::remove);
        if let (Method::Pinned(pins), false) = (&mut self.method, place.cpus.is_empty()) {
            pins.give_back(&place.cpus, place.asked_cores);
        }
    }

    /// Removes what was made in the hierarchies.
    pub(super) fn close(&self) {
        if let Method::Group(base) = &self.method {
            base.remove();
        }
        if let Some(base) = &self.counter {
            base.remove();
        }
    }
}

impl Place {
    /// The files that the process writes itself into.
    pub(super) fn entrances(&self) -> Vec<PathBuf> {
        self.groups.iter().map(Group::entrance).collect()
    }

    /// Whether all its processes are listed.
    pub(super) fn lists(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Its processes, as far as the kernel lists them.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.groups.first().map(Group::processes).unwrap_or_default()
    }

    /// Kills all of them at one stroke, where the kernel can.
    pub(super) fn kill(&self) {
        self.groups.iter().any(Group::kill);
    }

    /// What the kernel counted: CPU time where a group of v2 has it, periods where a group limits.
    pub(super) fn cpu_stat(&self) -> CpuStat {
        let stats: Vec<CpuStat> = self.groups.iter().map(Group::cpu_stat).collect();
        let limited = stats.iter().max_by_key(|stat| stat.periods).copied().unwrap_or_default();
        CpuStat { usage: stats.iter().find_map(|stat| stat.usage), ..limited }
    }
}

/// The method, and how it is told.
fn choose(limiting: Option<(Version, Group)>, cpus: Vec<usize>, reasons: &[String]) -> (Method, Limits) {
    let reasons = reasons.join("; ");
    if let Some((version, group)) = limiting {
        let number = if version == Version::V2 { 2 } else { 1 };
        let words = format!("cgroup v{number}, period {} ms", PERIOD.as_millis());
        return (Method::Group(group), Limits { words, possible: true, remark: None });
    }
    match Pins::new(&cpus) {
        Some(pins) => {
            let remark = format!(
                "CPU could be limited by pinning only, to whole CPUs: what has a share of a core may use all of it \
                 while its neighbours on the same CPU are idle ({reasons})"
            );
            let limits = Limits { words: "pinned".to_owned(), possible: true, remark: Some(remark) };
            (Method::Pinned(pins), limits)
        }
        None => {
            let words = format!("not possible: there is one CPU to pin to, and {reasons}");
            let remark = Some(format!("CPU could not be limited: there is one CPU to pin to, and {reasons}"));
            (Method::Impossible, Limits { words, possible: false, remark })
        }
    }
}

/// The CPUs that this process may use.
fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_groups_it_pins_and_with_one_cpu_it_says_why_not() {
        let reasons = ["a is read-only".to_owned(), "b is not ours".to_owned()];
        let (method, limits) = choose(None, vec![0, 1], &reasons);
        assert!(matches!(method, Method::Pinned(_)) && limits.possible && limits.words == "pinned");
        assert!(limits.remark.unwrap().ends_with("(a is read-only; b is not ours)"));
        let (method, limits) = choose(None, vec![0], &reasons);
        assert!(matches!(method, Method::Impossible) && !limits.possible);
        let told = "not possible: there is one CPU to pin to, and a is read-only; b is not ours";
        assert_eq!(limits.words, told);
    }

    #[test]
    fn a_pinned_process_has_whole_cpus() {
        let (method, _) = choose(None, vec![2, 3], &[]);
        let mut limiter = Limiter { method, counter: None };
        let place = limiter.admit("a", Some(0.25)).unwrap();
        assert_eq!((place.cpus.len(), place.limit_cores), (1, Some(1.0)));
        let free = limiter.admit("b", None).unwrap();
        assert!(free.cpus.is_empty() && free.limit_cores.is_none() && !free.lists());
        assert!(limiter.admit("c", Some(3.0)).unwrap_err().contains("there are 2"));
        limiter.release(&place);
        assert_eq!(limiter.admit("d", Some(2.0)).unwrap().cpus.len(), 2);
    }

    #[test]
    fn limits_out_of_range_are_refused() {
        let mut limiter = Limiter { method: Method::Impossible, counter: None };
        for cores in [0.0, -1.0, f64::NAN, f64::INFINITY, 5000.0] {
            let error = limiter.admit("a", Some(cores)).unwrap_err();
            assert!(error.ends_with("must lie between 0.01 and 1024"), "{error}");
        }
        assert_eq!(limiter.admit("a", Some(0.5)).unwrap().limit_cores, None);
    }
}
