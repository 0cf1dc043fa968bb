//! What a reader of the results must know beside the figures.

use std::collections::{BTreeMap, BTreeSet};

use crate::experiment::{Experiment, Load, Planned, Setup};
use crate::results::{Measurement, Part, Results};
use crate::stage::Stage;

/// From this share of all CPUs on, generator and services took time from each other.
const SHARED_SHARE: f64 = 0.9;

/// What cannot be measured here: set-ups and loads by index, each with the environment variable that is missing.
pub(super) struct LeftOut {
    setups: BTreeMap<usize, String>,
    loads: BTreeMap<usize, String>,
}

impl LeftOut {
    pub(super) fn of(experiment: &Experiment, is_set: &dyn Fn(&str) -> bool) -> Self {
        let missing =
            |(i, setup): (usize, &Setup)| Some((i, setup.needs_env.iter().find(|name| !is_set(name))?.clone()));
        let unnamed = |(i, load): (usize, &Load)| Some((i, load.missing_env.clone()?));
        Self {
            setups: experiment.setups.iter().enumerate().filter_map(missing).collect(),
            loads: experiment.loads.iter().enumerate().filter_map(unnamed).collect(),
        }
    }

    pub(super) fn contains(&self, planned: &Planned) -> bool {
        self.setups.contains_key(&planned.setup) || self.loads.contains_key(&planned.load)
    }

    /// The same in words, one sentence for each variable.
    pub(super) fn words(&self, experiment: &Experiment) -> Vec<String> {
        let setups = self.setups.iter().map(|(i, variable)| (variable, &experiment.setups[*i].name));
        let loads = self.loads.iter().map(|(i, variable)| (variable, &experiment.loads[*i].name));
        let mut names: BTreeMap<&String, Vec<&str>> = BTreeMap::new();
        for (variable, name) in setups.chain(loads) {
            names.entry(variable).or_default().push(name);
        }
        let sentence = |(variable, names): (&String, Vec<&str>)| {
            format!("Left out, for the environment variable {variable} is not set: {}.", names.join(", "))
        };
        names.into_iter().map(sentence).collect()
    }
}

/// Whether any set-up limits the CPU of a service.
pub(super) fn limited(experiment: &Experiment) -> bool {
    let planned: BTreeSet<usize> = experiment.rows.iter().map(|planned| planned.setup).collect();
    let limits = |i: &usize| {
        let setup = &experiment.setups[*i];
        setup.cores.or_else(|| experiment.services.get(&setup.service)?.cores).is_some()
    };
    planned.iter().any(limits)
}

/// What is known before the first measurement.
pub(super) fn fixed(experiment: &Experiment, stage: &Stage, left_out: Vec<String>) -> Vec<String> {
    let mut remarks = left_out;
    if limited(experiment) {
        let limits = stage.limits();
        if !limits.possible {
            remarks.push(format!("The CPU limits that the experiment wants are not in force; {}.", limits.words));
        }
        remarks.extend(limits.remark.clone());
    }
    remarks
}

/// All remarks, with those that follow from the measurements.
pub(super) fn all(fixed: &[String], left: &BTreeSet<String>, results: &Results) -> Vec<String> {
    let mut remarks = fixed.to_vec();
    remarks.extend(left.iter().cloned());
    remarks.extend(shared(results));
    remarks
}

/// Rows in which the generator and what it measured used nearly all CPUs together.
fn shared(results: &Results) -> Option<String> {
    let crowded: BTreeSet<&str> = results
        .measurements
        .iter()
        .filter(|m| used(m, results.host.cpus) >= SHARED_SHARE)
        .map(|m| m.row.as_str())
        .collect();
    if crowded.is_empty() {
        return None;
    }
    let rows: Vec<&str> = results.rows.iter().map(|row| row.id.as_str()).filter(|id| crowded.contains(id)).collect();
    Some(format!(
        "The generator shared the CPUs with what it measured: together they used {:.0} % or more of them, so that a part of what the \
         generator took was missing to the set-up. Rows: {}.",
        SHARED_SHARE * 100.0,
        rows.join(", ")
    ))
}

/// The share of all CPUs that generator and set-up used together, 0 to 1.
fn used(measurement: &Measurement, cpus: u32) -> f64 {
    let window_s = measurement.load.as_ref().map_or(0.0, |load| load.window_s);
    let generator = measurement.tiers.iter().any(|tier| tier.part == Part::Generator && tier.cpu_s > 0.0);
    if window_s <= 0.0 || cpus == 0 || !generator {
        return 0.0;
    }
    measurement.tiers.iter().map(|tier| tier.cpu_s).sum::<f64>() / (window_s * f64::from(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Load, Tier};

    fn measurement(service_s: f64, generator_s: f64) -> Measurement {
        let tier =
            |part, cpu_s| Tier { part, name: "x".to_owned(), cpu_s, limit_cores: None, throttled: None, rss_bytes: 0 };
        Measurement {
            load: Some(Load { window_s: 2.0, ..Load::default() }),
            tiers: vec![tier(Part::Service, service_s), tier(Part::Generator, generator_s)],
            ..super::super::measure::empty("a/b/1", 0)
        }
    }

    #[test]
    fn a_shared_machine_is_seen() {
        assert!(used(&measurement(2.6, 1.2), 2) >= SHARED_SHARE);
        assert!(used(&measurement(2.0, 1.2), 2) < SHARED_SHARE);
        // Alone, the generator shares with nobody; and without a load there is nothing to say.
        assert!(used(&measurement(4.0, 0.0), 2) < SHARED_SHARE);
        assert!(used(&Measurement { load: None, ..measurement(4.0, 1.0) }, 2) < SHARED_SHARE);
    }
}
