//! Whether something else uses this machine: then that is what limits, and naming a plant would be wrong.

use std::time::{Duration, Instant};

use hotrow_diagnose::probe::cpu::{CpuStat, FILE, parse};
use hotrow_diagnose::root::Root;

/// Above this share of all CPUs somebody uses them, 0 to 1.
const BUSY: f64 = 0.25;
/// Above this share of the CPU time that is wanted, the hypervisor disturbs, 0 to 1.
const STOLEN: f64 = 0.25;
/// How long is looked.
const LOOK: Duration = Duration::from_millis(200);

/// Waits until nobody uses the machine, for at most the time that is left, of which it takes what it used. Whether that was so.
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

/// Whether nobody uses it at this moment.
pub(crate) fn now() -> bool {
    let before = look();
    std::thread::sleep(LOOK);
    let after = look();
    let shares = after.cores.iter().filter_map(|(cpu, time)| {
        let (_, earlier) = before.cores.iter().find(|(other, _)| other == cpu)?;
        time.since(earlier).shares()
    });
    let (busy, cpus) = shares.fold((0.0, 0.0), |(busy, cpus), share| (busy + share.busy + share.steal, cpus + 1.0));
    busy <= BUSY * cpus
}

/// What the hypervisor takes during something, of the CPU time that is wanted.
pub(crate) struct Stolen(CpuStat);

impl Stolen {
    pub(crate) fn since_now() -> Self {
        Self(look())
    }

    /// Whether so much was taken that it limits, or blurs what does.
    pub(crate) fn much(&self) -> bool {
        let (before, after) = (&self.0.cores, look().cores);
        let (mut busy, mut steal) = (0.0, 0.0);
        for (cpu, time) in &after {
            let earlier = before.iter().find(|(other, _)| other == cpu);
            if let Some(shares) = earlier.and_then(|(_, earlier)| time.since(earlier).shares()) {
                (busy, steal) = (busy + shares.busy, steal + shares.steal);
            }
        }
        steal > STOLEN * (busy + steal)
    }
}

fn look() -> CpuStat {
    Root::machine().parse(FILE, parse).expect("this is Linux")
}
