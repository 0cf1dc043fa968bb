//! CPU limits on this machine, determined once: cgroup v2 or v1, else pinning, else none.

use std::path::PathBuf;

use hotrow_diagnose::cgroup::{Hierarchy, Version};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::allocation::Allocation;
use super::cgroup::{Group, PERIOD, Weight, candidates, make};
use super::message::{Limits, Weights};
use super::pins::Pins;
use super::{CORES, launch, leftovers};

/// Limits processes and assigns their groups.
#[derive(Debug)]
pub(super) struct Limiter {
    method: Method,
    /// Group hierarchy for counting, finding and killing, with any method: v2, unless `method` uses
    /// it.
    counter: Option<Group>,
    /// The generator's group, beside that of the deployment.
    generator: Option<Group>,
    /// File through which the generator returns to the group it came from.
    home: Option<PathBuf>,
}

#[derive(Debug)]
enum Method {
    Group(Group),
    Pinned(Pins),
    Impossible,
}

impl Limiter {
    /// Determines the method, and clears remains of dead supervisors. `label` names the folders.
    pub(super) fn new(label: &str, cgroups: Cgroups) -> (Self, Limits) {
        leftovers::clear();
        let hierarchies = leftovers::hierarchies();
        let (found, mut reasons) = match (cgroups, &hierarchies) {
            (Cgroups::Avoid, _) => (Vec::new(), vec!["cgroups are disabled".to_owned()]),
            (Cgroups::Try, Ok(hierarchies)) => candidates(hierarchies),
            (Cgroups::Try, Err(error)) => {
                (Vec::new(), vec![format!("the list of cgroups cannot be read: {error}")])
            }
        };
        let (mut limiting, mut counter) = (None, None);
        for candidate in &found {
            let wanted = if candidate.limits { limiting.is_none() } else { counter.is_none() };
            if !wanted || (limiting.is_some() && candidate.version == Version::V1) {
                continue;
            }
            match make(candidate, label, launch::try_join) {
                Ok(group) if candidate.limits => limiting = Some((candidate.version, group)),
                Ok(group) => counter = Some(group),
                Err(why) => reasons.push(why),
            }
        }
        if let Some((Version::V2, _)) = limiting {
            counter = None;
        }
        let home = limiting.as_ref().and_then(|(version, _)| {
            let with_cpu = |hierarchy: &&Hierarchy| {
                hierarchy.version == *version && hierarchy.controllers.iter().any(|c| c == "cpu")
            };
            let found = hierarchies.as_ref().ok()?.iter().find(with_cpu)?;
            Some(found.own.join("cgroup.procs"))
        });
        let (method, limits) = choose(limiting, &allowed_cpus(), &reasons);
        (Self { method, counter, generator: None, home }, limits)
    }

    /// Gives the deployment's processes together the greatest weight against other processes of
    /// the machine, and the generator, another process, a known part of it.
    pub(super) fn weigh(&mut self, generator_pid: u32) -> Weights {
        let Method::Group(base) = &self.method else {
            return Weights::unset("there is no CPU cgroup to set them in");
        };
        if let Err(error) = base.set_weight(Weight::Deployment) {
            return Weights::unset(&error.to_string());
        }
        let version = base.version();
        let deployment = Weight::Deployment.value(version);
        match self.generator_group(generator_pid) {
            Ok(()) => Weights {
                words: format!(
                    "deployment {deployment}, generator {}, other processes {}",
                    Weight::Generator.value(version),
                    if version == Version::V1 { 1024 } else { 100 }
                ),
                warning: None,
            },
            Err(error) => Weights {
                words: format!("deployment {deployment}, generator as other processes"),
                warning: Some(format!(
                    "The generator has the CPU weight of an ordinary process, so that other \
                     processes of this machine can delay it ({error})."
                )),
            },
        }
    }

    fn generator_group(&mut self, pid: u32) -> std::io::Result<()> {
        let Method::Group(base) = &self.method else { return Ok(()) };
        if self.generator.is_none() {
            self.generator = Some(base.sibling(leftovers::GENERATOR_SUFFIX)?);
        }
        let Some(group) = &self.generator else { return Ok(()) };
        group.set_weight(Weight::Generator)?;
        group.add(pid)
    }

    /// Allocates the resources of a process that is about to start.
    pub(super) fn admit(&mut self, name: &str, cores: Option<f64>) -> Result<Allocation, String> {
        if let Some(cores) = cores.filter(|cores| !CORES.contains(cores)) {
            let (least, most) = (CORES.start(), CORES.end());
            return Err(format!(
                "a limit of {cores} cores is not possible; it must be between {least} and {most}"
            ));
        }
        let mut allocation =
            Allocation { requested_cores: cores.unwrap_or_default(), ..Allocation::default() };
        let admitted = self.fill(&mut allocation, name, cores);
        if admitted.is_err() {
            self.release(&allocation);
        }
        admitted.map(|()| allocation)
    }

    fn fill(
        &mut self,
        allocation: &mut Allocation,
        name: &str,
        cores: Option<f64>,
    ) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("its group cannot be created: {error}");
        match (&mut self.method, cores) {
            (Method::Group(base), cores) => {
                allocation.groups.push(base.child(name).map_err(failed)?);
                if let (Some(cores), Some(group)) = (cores, allocation.groups.last()) {
                    group.limit(cores).map_err(|error| {
                        format!("its limit of {cores} cores is rejected: {error}")
                    })?;
                    allocation.limit_cores = Some(cores);
                }
            }
            (Method::Pinned(pins), Some(cores)) => {
                allocation.cpus = pins.take(cores)?;
                // Pinning limits to whole CPUs.
                allocation.limit_cores = Some(allocation.cpus.len() as f64);
            }
            (Method::Pinned(_), None) | (Method::Impossible, _) => {}
        }
        if let Some(base) = &self.counter {
            allocation.groups.push(base.child(name).map_err(failed)?);
        }
        Ok(())
    }

    /// Releases the resources of an ended process.
    pub(super) fn release(&mut self, allocation: &Allocation) {
        allocation.groups.iter().for_each(Group::remove);
        if let (Method::Pinned(pins), false) = (&mut self.method, allocation.cpus.is_empty()) {
            pins.release(&allocation.cpus, allocation.requested_cores);
        }
    }

    /// Removes all created groups.
    pub(super) fn close(&self) {
        if let (Some(generator), Some(home)) = (&self.generator, &self.home) {
            generator.move_processes(home);
            generator.remove();
        }
        if let Method::Group(base) = &self.method {
            base.remove();
        }
        if let Some(base) = &self.counter {
            base.remove();
        }
    }
}

/// Returns the method and its description.
fn choose(
    limiting: Option<(Version, Group)>,
    cpus: &[usize],
    reasons: &[String],
) -> (Method, Limits) {
    let reasons = reasons.join("; ");
    if let Some((version, group)) = limiting {
        let number = if version == Version::V2 { 2 } else { 1 };
        let words = format!("cgroup v{number}, period {} ms", PERIOD.as_millis());
        return (Method::Group(group), Limits { words, possible: true, warning: None });
    }
    match Pins::new(cpus) {
        Some(pins) => {
            let warning = format!(
                "CPU could be limited by pinning only, to whole CPUs: what has a share of a core \
                 may use all of it while its neighbours on the same CPU are idle ({reasons})"
            );
            let limits =
                Limits { words: "pinned".to_owned(), possible: true, warning: Some(warning) };
            (Method::Pinned(pins), limits)
        }
        None => {
            let words = format!("not possible: there is one CPU to pin to, and {reasons}");
            let warning = Some(format!(
                "CPU could not be limited: there is one CPU to pin to, and {reasons}"
            ));
            (Method::Impossible, Limits { words, possible: false, warning })
        }
    }
}

/// Returns the CPUs that this process may use.
fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Use of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// If the system permits it.
    Try,
    /// Not at all: for tests, and where they cause problems.
    Avoid,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_groups_it_pins_and_with_one_cpu_it_reports_why_not() {
        let reasons = ["a is read-only".to_owned(), "b is not ours".to_owned()];
        let (method, limits) = choose(None, &[0, 1], &reasons);
        assert!(matches!(method, Method::Pinned(_)) && limits.possible && limits.words == "pinned");
        assert!(limits.warning.unwrap().ends_with("(a is read-only; b is not ours)"));
        let (method, limits) = choose(None, &[0], &reasons);
        assert!(matches!(method, Method::Impossible) && !limits.possible);
        let expected =
            "not possible: there is one CPU to pin to, and a is read-only; b is not ours";
        assert_eq!(limits.words, expected);
    }

    #[test]
    fn a_pinned_process_has_whole_cpus() {
        let (method, _) = choose(None, &[2, 3], &[]);
        let mut limiter = Limiter { method, counter: None, generator: None, home: None };
        let allocation = limiter.admit("a", Some(0.25)).unwrap();
        assert_eq!((allocation.cpus.len(), allocation.limit_cores), (1, Some(1.0)));
        let free = limiter.admit("b", None).unwrap();
        assert!(free.cpus.is_empty() && free.limit_cores.is_none() && !free.lists());
        assert!(limiter.admit("c", Some(3.0)).unwrap_err().contains("there are 2"));
        limiter.release(&allocation);
        assert_eq!(limiter.admit("d", Some(2.0)).unwrap().cpus.len(), 2);
    }

    #[test]
    fn weights_that_cannot_be_set_are_reported() {
        let mut limiter =
            Limiter { method: Method::Impossible, counter: None, generator: None, home: None };
        let weights = limiter.weigh(std::process::id());
        assert_eq!(weights.words, "not set: there is no CPU cgroup to set them in");
        let warning = weights.warning.unwrap();
        assert!(
            warning.starts_with("The deployment has no CPU weight of its own")
                && warning.contains("there is no CPU cgroup"),
            "{warning}"
        );
    }

    #[test]
    fn limits_out_of_range_are_refused() {
        let mut limiter =
            Limiter { method: Method::Impossible, counter: None, generator: None, home: None };
        for cores in [0.0, -1.0, f64::NAN, f64::INFINITY, 5000.0] {
            let error = limiter.admit("a", Some(cores)).unwrap_err();
            assert!(error.ends_with("must be between 0.01 and 1024"), "{error}");
        }
        assert_eq!(limiter.admit("a", Some(0.5)).unwrap().limit_cores, None);
    }
}
