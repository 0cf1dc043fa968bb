//! The load generator was the limit. The generator judges that itself from its own measurements;
//! this rule reports it, and examines its threads.

use super::cpu_demand::{granted, taken};
use super::finding::{Finding, LimitClass, percent};
use crate::probe::group::PERIODS_MIN;
use crate::samples::{Role, Samples, WatchedProcess};

/// CPU share from which a generator thread has no capacity left.
const BUSY: f64 = 0.95;
/// Share of all CPUs from which the machine is full: a generator without a free CPU is then one of
/// the causes.
const MACHINE_FULL: f64 = 0.9;

/// Share of the demand below which the hypervisor's grant disturbs every process.
const GRANTED: f64 = 0.9;
/// Share of throttled periods from which a cgroup limits the generator.
const HELD_UP: f64 = 0.3;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let busiest = samples
        .with_role(Role::Generator)
        .filter_map(|process| Some((process.pid, process.threads.first()?)));
    let busiest = busiest.max_by(|(_, one), (_, other)| one.busy.total_cmp(&other.busy));
    let judged_itself = samples.load.is_some_and(|load| load.was_the_limit);
    let busy = busiest.filter(|(_, thread)| thread.busy >= BUSY);
    if !judged_itself && (samples.load.is_some() || busy.is_none()) {
        // The generator's own judgement, where present, is better than its CPU time.
        return None;
    }
    let held_up = held_up_alone(samples);
    let mut evidence = Vec::new();
    if judged_itself {
        evidence.push("it judges itself to have been the limit".to_owned());
    }
    evidence.extend(busiest.map(|(pid, thread)| {
        format!("thread {:?} of process {pid} used {} of a CPU", thread.name, percent(thread.busy))
    }));
    evidence.extend(
        held_up.map(|share| {
            format!("its own cgroup throttled it in {} of its periods", percent(share))
        }),
    );
    Some(Finding {
        class: LimitClass::Generator,
        confidence: match judged_itself {
            // The generator shares a full machine: it would not get more CPU.
            true if held_up.is_some() => 0.95,
            _ if taken(samples).is_some_and(|taken| taken >= MACHINE_FULL) => 0.4,
            // The hypervisor stopped it together with every other process here.
            true if granted(samples) < GRANTED => 0.4,
            true => 0.95,
            false => 0.7,
        },
        evidence,
        counterfactual: match held_up {
            // More threads would share the group's quota.
            Some(_) => {
                "a larger quota of the generator's cgroup (cpu.max), or a second machine that \
                 generates, raises the rate"
            }
            None => {
                "one more thread of the generator, or a second machine that generates, raises the \
                 rate"
            }
        }
        .to_owned(),
    })
}

/// Returns the share of throttled periods of the generator's group, when the service's group did
/// not throttle the service.
fn held_up_alone(samples: &Samples) -> Option<f64> {
    let share = |process: &WatchedProcess| {
        let group = process.group.filter(|group| group.periods >= PERIODS_MIN)?;
        Some(group.throttled_periods as f64 / group.periods as f64)
            .filter(|share| *share >= HELD_UP)
    };
    let services = samples.processes.iter().filter(|process| process.role != Role::Generator);
    if services.filter_map(share).next().is_some() {
        return None;
    }
    samples.with_role(Role::Generator).filter_map(share).reduce(f64::max)
}
