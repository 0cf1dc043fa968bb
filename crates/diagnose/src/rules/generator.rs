//! The load generator was the limit. It judges that itself, from what only it can know; this repeats it, and looks at
//! its threads.

use super::finding::{Class, Finding, percent};
use super::want::{granted, taken};
use crate::probe::group::PERIODS_MIN;
use crate::samples::{Role, Samples, Watched};

/// From this share of a CPU on a generator's thread has nothing left to give.
const BUSY: f64 = 0.95;
/// From this share of all CPUs on the machine is full: a generator that found none free is then one of those that filled it.
const MACHINE_FULL: f64 = 0.9;

/// When the hypervisor grants less than this share of what is wanted, it disturbs whoever works.
const GRANTED: f64 = 0.9;
/// From this share of its periods on, in which a cgroup holds it up, it is limited by that.
const HELD_UP: f64 = 0.3;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let busiest =
        samples.with_role(Role::Generator).filter_map(|process| Some((process.pid, process.threads.first()?)));
    let busiest = busiest.max_by(|(_, one), (_, other)| one.busy.total_cmp(&other.busy));
    let judged_itself = samples.load.is_some_and(|load| load.was_the_limit);
    let busy = busiest.filter(|(_, thread)| thread.busy >= BUSY);
    if !judged_itself && (samples.load.is_some() || busy.is_none()) {
        // Its own judgement, where there is one, knows more than its CPU time.
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
    evidence.extend(held_up.map(|share| format!("its own cgroup held it up in {} of its periods", percent(share))));
    Some(Finding {
        class: Class::Generator,
        confidence: match judged_itself {
            // Whoever fills the machine: it would not get more.
            true if held_up.is_some() => 0.95,
            _ if taken(samples).is_some_and(|taken| taken >= MACHINE_FULL) => 0.4,
            // So is one that the hypervisor stopped, with everybody else here.
            true if granted(samples) < GRANTED => 0.4,
            true => 0.95,
            false => 0.7,
        },
        evidence,
        counterfactual: match held_up {
            // More threads would share what the group has.
            Some(_) => "a larger quota of the generator's cgroup (cpu.max), or a second machine that generates, raises the rate",
            None => "one more thread of the generator, or a second machine that generates, raises the rate",
        }
        .to_owned(),
    })
}

/// Share of the periods in which the generator's own group held it up, and the service's did not do so to the service.
fn held_up_alone(samples: &Samples) -> Option<f64> {
    let share = |process: &Watched| {
        let group = process.group.filter(|group| group.periods >= PERIODS_MIN)?;
        Some(group.throttled_periods as f64 / group.periods as f64).filter(|share| *share >= HELD_UP)
    };
    let services = samples.processes.iter().filter(|process| process.role != Role::Generator);
    if services.filter_map(share).next().is_some() {
        return None;
    }
    samples.with_role(Role::Generator).filter_map(share).reduce(f64::max)
}
