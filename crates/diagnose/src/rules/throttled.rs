//! The cgroup's CPU quota is used up.

use super::finding::{Finding, LimitClass, confidence, percent};
use crate::probe::group::PERIODS_MIN;
use crate::samples::{Role, Samples};

/// Share of throttled periods from which a group is at its limit.
const THROTTLED: f64 = 0.3;
/// Share from which it certainly is.
const FULL: f64 = 0.8;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let throttled =
        samples.processes.iter().filter(|process| process.role != Role::Generator).filter_map(
            |process| {
                let group = process.group.filter(|group| group.periods >= PERIODS_MIN)?;
                let share = group.throttled_periods as f64 / group.periods as f64;
                (share >= THROTTLED).then_some((process, group, share))
            },
        );
    let (process, group, share) =
        throttled.max_by(|(.., one), (.., other)| one.total_cmp(other))?;
    Some(Finding {
        class: LimitClass::Throttled,
        confidence: confidence(share, THROTTLED, FULL),
        evidence: vec![
            format!(
                "the group of process {}{} was throttled in {} of {} periods ({})",
                process.pid,
                process
                    .held_in
                    .as_ref()
                    .map_or(String::new(), |group| format!(" ({})", group.display())),
                group.throttled_periods,
                group.periods,
                percent(share)
            ),
            format!(
                "its threads were throttled for {:.1} s of {:.1} s",
                group.throttled.as_secs_f64(),
                samples.span.as_secs_f64()
            ),
            format!("it used {:.2} CPUs", process.cores_used()),
        ],
        counterfactual: "twice the quota (cpu.max, or cpu.cfs_quota_us) up to doubles the rate"
            .to_owned(),
    })
}
