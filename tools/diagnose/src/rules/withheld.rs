//! CPU time that the machine has and this service does not get: the quota of its cgroup is used up,
//! or the hypervisor gives the CPUs to other machines.

use super::finding::{Finding, LimitClass, confidence, percent};
use crate::probe::group::PERIODS_MIN;
use crate::samples::{Role, Samples};

/// Share of throttled periods from which a group is at its limit.
const THROTTLED: f64 = 0.3;
/// Share from which it certainly is.
const FULLY_THROTTLED: f64 = 0.8;

/// The cgroup's CPU quota is used up.
pub(super) fn throttled(samples: &Samples) -> Option<Finding> {
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
        confidence: confidence(share, THROTTLED, FULLY_THROTTLED),
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

/// Share of all CPUs from which it limits, or at least adds noise.
const STEAL: f64 = 0.1;
/// Share from which it certainly limits.
const FULLY_STOLEN: f64 = 0.3;
/// Stolen time matters only with less idle time than this.
const IDLE: f64 = 0.15;

/// The hypervisor gives the CPUs to other machines.
pub(super) fn steal(samples: &Samples) -> Option<Finding> {
    let (steal, busy) = (samples.steal()?, samples.busy()?);
    if steal < STEAL || 1.0 - busy - steal > IDLE {
        return None;
    }
    Some(Finding {
        class: LimitClass::Steal,
        confidence: confidence(steal, STEAL, FULLY_STOLEN),
        evidence: vec![
            format!("{} of CPU time went to other machines of this host", percent(steal)),
            format!("{} was work", percent(busy)),
        ],
        counterfactual: format!(
            "on CPUs of its own the rate is up to {:.2} times as high; measure there, for figures \
             from here vary with the neighbours",
            (busy + steal) / busy.max(0.01)
        ),
    })
}
