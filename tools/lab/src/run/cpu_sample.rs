//! CPU time of a deployment and of the rest of the machine.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::deployment::Deployment;
use crate::stage::{self, MachineCpu, Stage, Usage};
use hotrow_results::MachineUse;

/// CPU time of the deployment and of the machine at one moment.
pub(super) struct CpuSample {
    at: Instant,
    /// Of each process of the deployment, in its order.
    pub(super) usages: Vec<Usage>,
    machine: MachineCpu,
    /// Of this process, the generator included, and of the supervisor.
    lab: Duration,
}

impl CpuSample {
    pub(super) fn take(deployment: &Deployment, stage: &Stage) -> Self {
        let usages = deployment.members.iter().map(|member| stage.usage(&member.process)).collect();
        let own = clock_gettime(ClockId::ProcessCPUTime);
        // The clock counts from zero, so it is never negative.
        let own = Duration::try_from(own).unwrap_or_default();
        let lab = own + stage.supervisor_cpu();
        Self { at: Instant::now(), usages, machine: stage::machine_cpu(), lab }
    }

    /// Returns the CPU use of the rest of the machine since `earlier`.
    pub(super) fn rest_since(&self, earlier: &Self) -> MachineUse {
        let of = |sample: &Self| {
            sample.lab + sample.usages.iter().map(|usage| usage.cpu).sum::<Duration>()
        };
        let ours = of(self).saturating_sub(of(earlier));
        let used = self.machine.used.saturating_sub(earlier.machine.used);
        let stolen = self.machine.stolen.saturating_sub(earlier.machine.stolen);
        let interval_s = self.at.duration_since(earlier.at).as_secs_f64();
        let cores = |time: Duration| {
            if interval_s > 0.0 { time.as_secs_f64() / interval_s } else { 0.0 }
        };
        MachineUse {
            interval_s,
            others_cores: cores(used.saturating_sub(ours)),
            stolen_cores: cores(stolen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(
        at: Instant,
        used_ms: u64,
        stolen_ms: u64,
        service_ms: u64,
        lab_ms: u64,
    ) -> CpuSample {
        let ms = Duration::from_millis;
        CpuSample {
            at,
            usages: vec![Usage { cpu: ms(service_ms), ..Usage::default() }; 2],
            machine: MachineCpu { used: ms(used_ms), stolen: ms(stolen_ms) },
            lab: ms(lab_ms),
        }
    }

    #[test]
    fn the_rest_of_the_machine_is_what_deployment_and_lab_did_not_use() {
        let begin = Instant::now();
        let before = sample(begin, 10_000, 500, 100, 50);
        // Of 3 s, two services used 0.5 s each and the lab 1 s.
        let after = sample(begin + Duration::from_secs(2), 13_000, 700, 600, 1_050);
        let rest = after.rest_since(&before);
        assert_eq!((rest.interval_s, rest.others_cores, rest.stolen_cores), (2.0, 0.5, 0.1));
        // Ticks round: it is never negative.
        let after = sample(begin + Duration::from_secs(2), 10_100, 500, 600, 1_050);
        assert_eq!(after.rest_since(&before).others_cores, 0.0);
        assert_eq!(before.rest_since(&before).others_cores, 0.0, "no time has passed");
    }
}
