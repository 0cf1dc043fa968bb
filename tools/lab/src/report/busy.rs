//! Check that a deployment could get the CPU time that it was given: the sum of its limits against
//! what other processes of the machine left during the measurement. Pure.

use hotrow_measure::statistics;
use hotrow_report::numbers::cores;
use hotrow_results::{MachineUse, Measurement, Results};

use super::summary::SEED;

/// Share of its limits that must have been free. A process group that reaches this share of its
/// limit counts as being at the limit.
const FREE_SHARE: f64 = 0.95;

/// A measurement whose deployment was given more than the machine had free.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shortage<'a> {
    of: &'a Measurement,
    machine: MachineUse,
    /// Sum of the limits, in cores.
    given: f64,
    /// Cores that others left.
    free: f64,
}

/// Returns the sum of the CPU limits of a measurement's deployment, in cores.
fn given(measurement: &Measurement) -> f64 {
    measurement.tiers.iter().filter_map(|tier| tier.limit_cores).sum()
}

/// Returns whether others used what a deployment was given, on a machine with `cpus`.
fn shortage(measurement: &Measurement, cpus: u32) -> Option<Shortage<'_>> {
    let machine = measurement.machine?;
    let given = given(measurement);
    let free = (f64::from(cpus) - machine.others_cores - machine.stolen_cores).max(0.0);
    (given * FREE_SHARE > free).then_some(Shortage { of: measurement, machine, given, free })
}

/// Returns the warning with which a report begins if the machine had less free than a deployment
/// was given; `None` if all deployments could reach their limits.
pub(super) fn warning(results: &Results) -> Option<String> {
    let cpus = results.host.cpus;
    let short: Vec<Shortage<'_>> =
        results.measurements.iter().filter_map(|of| shortage(of, cpus)).collect();
    let lacking = |shortage: &&Shortage<'_>| shortage.given - shortage.free;
    let worst = short.iter().max_by(|a, b| lacking(a).total_cmp(&lacking(b)))?;
    let Shortage { of, machine, given, free } = worst;
    let (row, round) = (&of.row, u64::from(of.round) + 1);
    let (limits, left) = (cores(*given), cores(*free));
    let count = format!("{} of {} measurements", short.len(), results.measurements.len());
    if given * FREE_SHARE > f64::from(cpus) {
        return Some(format!(
            "the machine is too small: in {count} the limits of the deployment together exceed \
             its CPUs. The most are {limits} cores of {cpus}, in {row}, round {round}."
        ));
    }
    let stolen = match machine.stolen_cores {
        taken if taken >= 0.005 => format!(", the hypervisor took {}", cores(taken)),
        _ => String::new(),
    };
    Some(format!(
        "the machine was busy: in {count} it had fewer cores free than the limits of the \
         deployment together. The fewest in {row}, round {round}: other processes used {} of \
         {cpus} cores{stolen}, which left {left} for limits of {limits}. Repeat the run on an idle \
         machine.",
        cores(machine.others_cores)
    ))
}

/// Describes how much of the machine other processes used; `None` in older results.
pub(super) fn others(results: &Results) -> Option<String> {
    let used: Vec<f64> =
        results.measurements.iter().filter_map(|of| Some(of.machine?.others_cores)).collect();
    let found = statistics::estimate(&used, SEED)?;
    let most = used.iter().copied().fold(0.0, f64::max);
    let cpus = results.host.cpus;
    Some(format!("used {} of {cpus} cores (median), at most {}", cores(found.median), cores(most)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture;
    use super::*;
    use hotrow_report::document::Block;

    /// Returns results whose first measurement has these limits beside this use by others.
    fn results(limits: &[f64], others_cores: f64, stolen_cores: f64) -> Results {
        let mut results = fixture::results(1);
        let first = &mut results.measurements[0];
        let mut tier = first.tiers[0].clone();
        first.tiers = limits
            .iter()
            .map(|limit| {
                tier.limit_cores = Some(*limit);
                tier.clone()
            })
            .collect();
        first.machine = Some(MachineUse { interval_s: 5.0, others_cores, stolen_cores });
        results
    }

    #[test]
    fn limits_must_fit_into_what_others_left() {
        for (limits, others, stolen, short) in [
            (&[0.25, 0.25, 0.25][..], 1.0, 0.0, false),
            (&[0.25, 0.25, 0.25], 1.25, 0.0, false),
            (&[0.25, 0.25, 0.25], 1.5, 0.0, true),
            (&[0.25, 0.25, 0.25], 1.0, 0.5, true),
            // What is measured as used by others is more than there is: ticks round.
            (&[0.25], 2.1, 0.0, true),
            (&[1.0, 1.0], 0.05, 0.0, false),
            (&[1.0, 1.0], 0.2, 0.0, true),
            // Without a limit there is nothing to keep.
            (&[], 2.0, 0.0, false),
        ] {
            let found = warning(&results(limits, others, stolen));
            assert_eq!(found.is_some(), short, "{limits:?} {others} {stolen}: {found:?}");
        }
        let mut old = results(&[0.5], 2.0, 0.0);
        old.measurements[0].machine = None;
        assert_eq!(warning(&old), None, "older results do not know");
    }

    #[test]
    fn the_worst_measurement_is_named_with_its_figures() {
        let busy = results(&[0.25, 0.25, 0.25], 1.4, 0.05);
        assert_eq!(
            warning(&busy).as_deref(),
            Some(
                "the machine was busy: in 1 of 20 measurements it had fewer cores free than the \
                 limits of the deployment together. The fewest in direct/date/1, round 1: other \
                 processes used 1.40 of 2 cores, the hypervisor took 0.05, which left 0.55 for \
                 limits of 0.75. Repeat the run on an idle machine."
            )
        );
        assert_eq!(others(&busy).as_deref(), Some("used 0.02 of 2 cores (median), at most 1.40"));
        let small = warning(&results(&[1.0, 1.0, 1.0], 0.0, 0.0)).unwrap();
        assert!(small.starts_with("the machine is too small") && small.contains("3.00 cores of 2"));
    }

    #[test]
    fn a_report_of_a_busy_machine_begins_with_that() {
        let first = |results: &Results| {
            let document = super::super::compose::document(results);
            document.blocks.into_iter().next().unwrap()
        };
        let Block::Warning(text) = first(&results(&[0.75], 1.9, 0.0)) else {
            panic!("the first block is no warning");
        };
        assert!(text.starts_with("the machine was busy: "), "{text}");
        assert!(matches!(first(&results(&[0.75], 0.1, 0.0)), Block::Question(_)));
    }
}
