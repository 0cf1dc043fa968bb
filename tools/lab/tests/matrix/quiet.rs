//! Detection of other load on this machine, which may be the limit instead of the plant.

use std::time::{Duration, Instant};

use hotrow_diagnose::probe::cpu::{CpuStat, FILE, parse};
use hotrow_diagnose::root::Root;

/// Share of all CPUs in use by other processes from which the machine counts as busy, 0 to 1.
const BUSY: f64 = 0.25;
/// Share of the demanded CPU time that may be stolen by the hypervisor, 0 to 1.
const STOLEN: f64 = 0.25;
/// Duration of an observation.
const OBSERVATION: Duration = Duration::from_millis(200);

/// Waits for an idle machine, at most for `left`, which is reduced by the wait. Returns true if the
/// machine is idle.
pub(crate) fn wait(left: &mut Duration) -> bool {
    let begun = Instant::now();
    while !now() {
        if begun.elapsed() >= *left {
            *left = Duration::ZERO;
            return false;
        }
    }
    *left = left.saturating_sub(begun.elapsed());
    true
}

/// Returns true if the machine is idle now.
pub(crate) fn now() -> bool {
    let before = cpu_times();
    std::thread::sleep(OBSERVATION);
    let after = cpu_times();
    let shares = after.cores.iter().filter_map(|(cpu, time)| {
        let (_, earlier) = before.cores.iter().find(|(other, _)| other == cpu)?;
        time.since(earlier).shares()
    });
    let (busy, cpus) = shares
        .fold((0.0, 0.0), |(busy, cpus), share| (busy + share.busy + share.steal, cpus + 1.0));
    busy <= BUSY * cpus
}

/// Share of the demanded CPU time that the hypervisor steals from now on.
pub(crate) struct Stolen(CpuStat);

impl Stolen {
    pub(crate) fn since_now() -> Self {
        Self(cpu_times())
    }

    /// Returns true if the stolen share disturbs a measurement.
    pub(crate) fn is_disturbing(&self) -> bool {
        let before = &self.0.cores;
        let after = cpu_times().cores;
        let mut busy = 0.0;
        let mut steal = 0.0;
        for (cpu, time) in &after {
            let earlier = before.iter().find(|(other, _)| other == cpu);
            if let Some(shares) = earlier.and_then(|(_, earlier)| time.since(earlier).shares()) {
                (busy, steal) = (busy + shares.busy, steal + shares.steal);
            }
        }
        steal > STOLEN * (busy + steal)
    }
}

fn cpu_times() -> CpuStat {
    Root::machine().parse(FILE, parse).expect("this is Linux")
}
