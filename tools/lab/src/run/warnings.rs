//! Warnings about a run's results.

use std::collections::BTreeSet;

use crate::experiment::Experiment;
use crate::stage::Stage;
use hotrow_results::{Measurement, Results, Tier, TierKind};

/// Share of all CPUs from which generator and services competed for CPU time.
const SHARED_SHARE: f64 = 0.9;

/// Returns whether any deployment limits the CPU of a service.
pub(super) fn limited(experiment: &Experiment) -> bool {
    let planned: BTreeSet<usize> =
        experiment.rows.iter().map(|planned| planned.deployment).collect();
    let limits = |i: &usize| {
        let setup = &experiment.deployments[*i];
        setup.cores.or_else(|| experiment.services.get(&setup.service)?.cores).is_some()
    };
    planned.iter().any(limits)
}

/// Returns the warnings known before the first measurement.
pub(super) fn fixed(experiment: &Experiment, stage: &Stage, skipped: Vec<String>) -> Vec<String> {
    let mut warnings = skipped;
    if limited(experiment) {
        let limits = stage.limits();
        if !limits.possible {
            warnings.push(format!(
                "The CPU limits of the experiment are not in force; {}.",
                limits.words
            ));
        }
        warnings.extend(limits.warning.clone());
    }
    warnings
}

/// Returns all warnings, with those from the measurements.
pub(super) fn all(fixed: &[String], left: &BTreeSet<String>, results: &Results) -> Vec<String> {
    let mut warnings = fixed.to_vec();
    warnings.extend(left.iter().cloned());
    warnings.extend(shared(results));
    warnings
}

/// Warns of rows in which generator and deployment used nearly all CPUs.
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
    let rows: Vec<&str> =
        results.rows.iter().map(|row| row.id.as_str()).filter(|id| crowded.contains(id)).collect();
    Some(format!(
        "The generator shared the CPUs with what it measured: together they used {:.0} % or more \
         of them, so that a kind of what the generator used was missing in the deployment. Rows: \
         {}.",
        SHARED_SHARE * 100.0,
        rows.join(", ")
    ))
}

/// Returns the share of all CPUs used by generator and deployment, 0 to 1.
fn used(measurement: &Measurement, cpus: u32) -> f64 {
    let window_s = measurement.load.as_ref().map_or(0.0, |load| load.window_s);
    let generator =
        measurement.tiers.iter().any(|tier| tier.kind == TierKind::Generator && tier.cpu_s > 0.0);
    if window_s <= 0.0 || cpus == 0 || !generator {
        return 0.0;
    }
    // CPU time of the deployment is counted until the last response.
    let interval_s =
        measurement.machine.map_or(window_s, |machine| machine.interval_s.max(window_s));
    let cores = |tier: &Tier| {
        tier.cpu_s / if tier.kind == TierKind::Generator { window_s } else { interval_s }
    };
    measurement.tiers.iter().map(cores).sum::<f64>() / f64::from(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow_results::{Load, MachineUse};

    fn measurement(service_s: f64, generator_s: f64) -> Measurement {
        let tier = |kind, cpu_s| Tier {
            kind,
            name: "x".to_owned(),
            cpu_s,
            limit_cores: None,
            throttled: None,
            rss_bytes: 0,
        };
        Measurement {
            load: Some(Load { window_s: 2.0, ..Load::default() }),
            tiers: vec![tier(TierKind::Service, service_s), tier(TierKind::Generator, generator_s)],
            ..super::super::measure::empty("a/b/1", 0)
        }
    }

    #[test]
    fn shared_cpus_are_reported() {
        assert!(used(&measurement(2.6, 1.2), 2) >= SHARED_SHARE);
        assert!(used(&measurement(2.0, 1.2), 2) < SHARED_SHARE);
        // The generator alone shares with no process; without a load there is nothing to report.
        assert!(used(&measurement(4.0, 0.0), 2) < SHARED_SHARE);
        assert!(used(&Measurement { load: None, ..measurement(4.0, 1.0) }, 2) < SHARED_SHARE);
        // The service worked on after the window of 2 s, for another 2 s.
        let machine = Some(MachineUse { interval_s: 4.0, ..MachineUse::default() });
        let long = Measurement { machine, ..measurement(5.2, 1.0) };
        assert_eq!(used(&long, 2), (5.2 / 4.0 + 0.5) / 2.0);
    }
}
