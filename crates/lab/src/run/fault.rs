//! A fault during a measurement: an instance is killed and later started again, and the requests of
//! every backend are counted before, during and after. Its metrics are read right before it is
//! killed, because its counters end with it.
//!
//! The fault runs in a thread beside the load. It waits for the begin of the load ([`LoadBegin`])
//! and for the moments of the fault, and always leaves the instance running, because the rows that
//! follow need it.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use hotrow_load::outcome::Outcome;

use super::answers;
use super::deployment::{Deployment, StartError};
use super::metrics::Metrics;
use super::ready;
use crate::experiment::{Fault, Service};
use crate::results::{Backend, TierKind};
use crate::stage::{Process, Stage, StopSignal, Usage};

/// Longest time from the order of a load to its begin; connections are opened in between.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(60);

/// Reports the begin of the load to the fault; dropping it reports the end.
pub(super) struct LoadBegin(Sender<()>);

impl LoadBegin {
    pub(super) fn now(&self) {
        // The other end waits until this one is dropped.
        let _ = self.0.send(());
    }
}

/// What a fault needs to know of the deployment.
pub(super) struct FaultPlan<'a> {
    fault: Fault,
    length: Duration,
    service: &'a Service,
    deployment: &'a Deployment,
    /// Index of the instance among the deployment's processes.
    member: usize,
    begun: Receiver<()>,
}

/// What happened.
pub(super) struct FaultRun {
    /// Index among the deployment's processes.
    pub(super) member: usize,
    /// The instance after its start.
    pub(super) restarted: Process,
    /// Usage of the killed one.
    pub(super) killed: Usage,
    /// Index of the instance among the backends.
    instance: usize,
    /// Counts when it was killed and when it was ready again.
    at_kill: Counts,
    at_ready: Counts,
    /// Metrics of the killed one, at its end.
    pub(super) lost: Metrics,
    /// Time from the kill until it was ready.
    outage: Duration,
}

/// Counted requests of every backend; `None` for one that has no count.
type Counts = Vec<Option<u64>>;

impl<'a> FaultPlan<'a> {
    /// Plans the fault of a measurement that lasts `length`.
    pub(super) fn new(
        fault: Fault,
        length: Duration,
        service: &'a Service,
        deployment: &'a Deployment,
    ) -> Result<(Self, LoadBegin), String> {
        let instances = deployment.members.iter().enumerate();
        let mut instances = instances.filter(|(_, member)| member.kind == TierKind::Service);
        let (member, _) = instances
            .nth(fault.instance.saturating_sub(1) as usize)
            .ok_or_else(|| format!("there is no instance {}", fault.instance))?;
        let (begin, begun) = mpsc::channel();
        Ok((Self { fault, length, service, deployment, member, begun }, LoadBegin(begin)))
    }

    /// Runs the fault; `None` if the load ended before the kill.
    pub(super) fn run(
        self,
        stage: &mut Stage,
        stop: &AtomicBool,
    ) -> Result<Option<FaultRun>, String> {
        if self.begun.recv_timeout(BEGIN_TIME_MAX).is_err() {
            return Ok(None);
        }
        let began = Instant::now();
        if !self.sleep_until(began + self.length.mul_f64(self.fault.stop)) {
            return Ok(None);
        }
        let instance = self.fault.instance as usize - 1;
        let failing = &self.deployment.members[self.member];
        let at_kill = self.counts(None)?;
        let lost = match self.deployment.backends.get(instance) {
            Some(backend) => answers::metrics(self.service, backend)?,
            None => Metrics::default(),
        };
        let killed_at = Instant::now();
        stage.stop_with(&failing.process, StopSignal::Kill).map_err(|e| e.to_string())?;
        let killed = stage.usage(&failing.process);
        // Started even if the load has ended since: the next rows need it.
        self.sleep_until(began + self.length.mul_f64(self.fault.start));
        let restarted = self.restart(stage, stop).map_err(|e| e.to_string())?;
        let outage = killed_at.elapsed();
        let at_ready = self.counts(Some(instance))?;
        let member = self.member;
        let run = FaultRun { member, restarted, killed, instance, at_kill, at_ready, lost, outage };
        Ok(Some(run))
    }

    /// Starts the instance again and waits until it is ready.
    fn restart(&self, stage: &mut Stage, stop: &AtomicBool) -> Result<Process, StartError> {
        let failing = &self.deployment.members[self.member];
        let process = stage.start(&failing.command)?;
        if let Some(ready) = &failing.ready {
            let check = ready::ReadyCheck {
                service: self.service,
                address: ready.address,
                ready_command: &ready.command,
                log: &ready.log,
                dir: &failing.command.dir,
            };
            ready::wait(stage, &process, &check, stop)?;
        }
        Ok(process)
    }

    /// Sleeps; returns false if the load ends before.
    fn sleep_until(&self, moment: Instant) -> bool {
        let wait = moment.saturating_duration_since(Instant::now());
        self.begun.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
    }

    /// Returns the counts of all backends; a new instance, which has none yet, counts as zero.
    fn counts(&self, new: Option<usize>) -> Result<Counts, String> {
        let count = |(at, backend)| {
            if new == Some(at) { Ok(Some(0)) } else { answers::count(self.service, backend) }
        };
        self.deployment.backends.iter().enumerate().map(count).collect()
    }
}

impl FaultRun {
    /// Returns the requests of each backend before, during and after the fault; `None` if they have
    /// no counts.
    fn phases(&self, before: &[Option<u64>], after: &[Option<u64>]) -> Option<[Vec<u64>; 3]> {
        let all = |counts: &[Option<u64>]| counts.iter().copied().collect::<Option<Vec<u64>>>();
        let (before, at_kill) = (all(before)?, all(&self.at_kill)?);
        let (at_ready, after) = (all(&self.at_ready)?, all(after)?);
        let since = |from: &[u64], to: &[u64]| -> Vec<u64> {
            from.iter().zip(to).map(|(from, to)| to.saturating_sub(*from)).collect()
        };
        let mut during = since(&at_kill, &at_ready);
        if let Some(killed) = during.get_mut(self.instance) {
            *killed = 0;
        }
        Some([since(&before, &at_kill), during, since(&at_ready, &after)])
    }

    /// Returns the requests of each backend during the whole measurement.
    pub(super) fn served(&self, before: &[Option<u64>], after: &[Option<u64>]) -> Option<Vec<u64>> {
        let [first, during, last] = self.phases(before, after)?;
        Some(first.iter().zip(&during).zip(&last).map(|((a, b), c)| a + b + c).collect())
    }

    /// Returns the figures of a measurement with a fault: failed requests, the outage, and the
    /// share of each backend in each phase.
    pub(super) fn figures(
        &self,
        outcome: &Outcome,
        backends: &[Backend],
        before: &[Option<u64>],
        after: &[Option<u64>],
    ) -> Vec<(String, f64, String)> {
        let counts = &outcome.total.counts;
        let failed = counts.errors.total() + counts.timeouts + counts.connect_errors;
        let [failed_requests, failed_share, outage] = Fault::FIGURES.map(str::to_owned);
        let mut figures = vec![(failed_requests, failed as f64, String::new())];
        let all = counts.ok + failed;
        if all > 0 {
            figures.push((failed_share, 100.0 * failed as f64 / all as f64, "%".to_owned()));
        }
        figures.push((outage, self.outage.as_secs_f64(), "s".to_owned()));
        let Some(phases) = self.phases(before, after) else { return figures };
        for (phase, requests) in ["before", "during", "after"].iter().zip(phases) {
            let total: u64 = requests.iter().sum();
            // A phase without requests has no shares.
            let shares = requests.iter().zip(backends).filter(|_| total > 0);
            figures.extend(shares.map(|(requests, backend)| {
                let share = 100.0 * *requests as f64 / total as f64;
                (format!("{}, {phase}", backend.name), share, "%".to_owned())
            }));
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> FaultRun {
        FaultRun {
            member: 1,
            restarted: Process::unknown("app-2"),
            killed: Usage::default(),
            instance: 1,
            at_kill: vec![Some(150), Some(70)],
            at_ready: vec![Some(250), Some(0)],
            lost: Metrics::default(),
            outage: Duration::from_millis(1500),
        }
    }

    #[test]
    fn requests_are_counted_over_a_restart() {
        let (before, after) = ([Some(100), Some(20)], [Some(300), Some(40)]);
        let phases = run().phases(&before, &after).unwrap();
        assert_eq!(phases, [vec![50, 50], vec![100, 0], vec![50, 40]]);
        assert_eq!(run().served(&before, &after), Some(vec![200, 90]));
        assert_eq!(run().served(&[None, None], &after), None);
    }
}
