//! Whether something else uses this machine: then that is what limits, and naming a plant would be wrong.

use std::time::{Duration, Instant};

use hotrow_diagnose::probe::cpu::{CpuStat, FILE, parse};
use hotrow_diagnose::root::Root;

/// Above this share of all CPUs somebody uses them, 0 to 1.
const BUSY: f64 = 0.25;
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

fn look() -> CpuStat {
    Root::machine().parse(FILE, parse).expect("this is Linux")
}
