//! Events during a measurement: instances are killed and started, and requests and metrics of every
//! instance are counted between them. Those of an instance that is killed are read right before,
//! because its counters end with it.
//!
//! The events run in a thread beside the load. It waits for the begin of the load ([`LoadBegin`])
//! and for the time of each event. What it did is applied to the deployment after the load
//! ([`EventRun::apply_to`]).

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::deployment::Deployment;
use super::instance::{Backend, DeployedProcess};
use super::ready;
use super::snapshot::Snapshot;
use super::start_error::StartError;
use crate::experiment::{Event, EventKind, Service};
use crate::stage::{Process, Stage, StopSignal, Usage};
use hotrow_results::TierKind;

/// Longest time from the order of a load to its begin; connections are opened in between.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(60);

/// Reports the begin of the load to its events; dropping it reports the end.
pub(super) struct LoadBegin(Sender<()>);

impl LoadBegin {
    pub(super) fn now(&self) {
        // The other end waits until this one is dropped.
        let _ = self.0.send(());
    }
}

/// What events need to know of the deployment.
pub(super) struct EventPlan<'a> {
    events: &'a [Event],
    length: Duration,
    service: &'a Service,
    deployment: &'a Deployment,
    begun: Receiver<()>,
}

/// What happened.
#[derive(Default)]
pub(super) struct EventRun {
    /// Instances that were killed, by index, with their usage, in order.
    pub(super) killed: Vec<(usize, Usage)>,
    /// Instances that were started, with their new process, in order.
    pub(super) started: Vec<(usize, Process)>,
    /// One for each event.
    pub(super) moments: Vec<Moment>,
    /// Time from the kill of an instance until it was ready again, of all of them.
    pub(super) outage: Option<Duration>,
}

/// One event. An instance that starts has no share of the time before it is ready.
pub(super) struct Moment {
    /// Time since the begin of the load.
    pub(super) at: Duration,
    /// Counts at the end of the phase before it, and at the begin of the phase after it.
    pub(super) before: Snapshot,
    pub(super) after: Snapshot,
    /// Which instances run after it.
    pub(super) running: Vec<bool>,
}

impl<'a> EventPlan<'a> {
    /// Plans the events of a measurement that lasts `length`.
    pub(super) fn new(
        events: &'a [Event],
        length: Duration,
        service: &'a Service,
        deployment: &'a Deployment,
    ) -> (Self, LoadBegin) {
        let (begin, begun) = mpsc::channel();
        (Self { events, length, service, deployment, begun }, LoadBegin(begin))
    }

    /// Runs the events; fewer than planned if the load ended before. A failure leaves what was done
    /// until then.
    pub(super) fn run(
        self,
        stage: &mut Stage,
        stop: &AtomicBool,
    ) -> (EventRun, Result<(), String>) {
        let mut run = EventRun::default();
        let result = self.run_into(&mut run, stage, stop);
        (run, result)
    }

    fn run_into(
        &self,
        run: &mut EventRun,
        stage: &mut Stage,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        if self.begun.recv_timeout(BEGIN_TIME_MAX).is_err() {
            return Ok(());
        }
        let began = Instant::now();
        let backends = &self.deployment.backends;
        let mut running: Vec<bool> = backends.iter().map(|backend| backend.running).collect();
        let mut killed_at: Vec<Option<Instant>> = vec![None; backends.len()];
        for event in self.events {
            if !self.sleep_until(began + self.length.mul_f64(event.at)) {
                return Ok(());
            }
            let instance = event.instance.saturating_sub(1) as usize;
            let Some(backend) = backends.get(instance) else {
                return Err(format!("there is no instance {}", event.instance));
            };
            let (at, before);
            match event.kind {
                EventKind::Kill => {
                    before = Snapshot::take(self.service, backends, &running)?;
                    at = began.elapsed();
                    killed_at[instance] = Some(Instant::now());
                    let process = self.process_of(run, instance, backend);
                    let Some(process) = process else {
                        return Err(format!("{} does not run", backend.name));
                    };
                    stage.stop_with(&process, StopSignal::Kill).map_err(|e| e.to_string())?;
                    running[instance] = false;
                    run.killed.push((instance, stage.usage(&process)));
                }
                EventKind::Start => {
                    let process =
                        stage.start(&backend.launch.command).map_err(|e| e.to_string())?;
                    run.started.push((instance, process.clone()));
                    self.await_ready(backend, &process, stage, stop).map_err(|e| e.to_string())?;
                    if let Some(killed_at) = killed_at[instance].take() {
                        *run.outage.get_or_insert_default() += killed_at.elapsed();
                    }
                    // The counters of the new process begin at zero.
                    before = Snapshot::take(self.service, backends, &running)?;
                    at = began.elapsed();
                    running[instance] = true;
                }
            }
            let after = before.without(instance);
            run.moments.push(Moment { at, before, after, running: running.clone() });
        }
        // The load goes on; its end is not an event.
        let _ = self.begun.recv();
        Ok(())
    }

    /// Returns the process of an instance at this moment.
    fn process_of(&self, run: &EventRun, instance: usize, backend: &Backend) -> Option<Process> {
        let started = run.started.iter().rev().find(|(at, _)| *at == instance);
        let first = backend.member.and_then(|member| self.deployment.members.get(member));
        started
            .map(|(_, process)| process.clone())
            .or_else(|| first.map(|member| member.process.clone()))
    }

    fn await_ready(
        &self,
        backend: &Backend,
        process: &Process,
        stage: &mut Stage,
        stop: &AtomicBool,
    ) -> Result<(), StartError> {
        let check = backend.launch.check(self.service);
        Ok(ready::wait(stage, process, &check, stop)?)
    }

    /// Sleeps; returns false if the load ends before.
    fn sleep_until(&self, moment: Instant) -> bool {
        let wait = moment.saturating_duration_since(Instant::now());
        self.begun.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
    }
}

impl EventRun {
    /// Applies what events did to the instances. Returns the CPU time that ended with processes
    /// which were replaced, by index of the process.
    pub(super) fn apply_to(&self, deployment: &mut Deployment) -> Vec<(usize, Usage)> {
        let mut replaced = Vec::new();
        let mut killed = self.killed.clone();
        for (instance, process) in &self.started {
            let Some(backend) = deployment.backends.get_mut(*instance) else { continue };
            if let Some(member) = backend.member {
                // Kills and starts of an instance take turns.
                if let Some(at) = killed.iter().position(|(of, _)| of == instance) {
                    replaced.push((member, killed.remove(at).1));
                }
                deployment.members[member].process = process.clone();
            } else {
                backend.member = Some(deployment.members.len());
                deployment.members.push(DeployedProcess {
                    kind: TierKind::Service,
                    process: process.clone(),
                    killed: false,
                    signal: StopSignal::Terminate,
                });
            }
        }
        if let Some(last) = self.moments.last() {
            for (backend, running) in deployment.backends.iter_mut().zip(&last.running) {
                backend.running = *running;
                if let Some(member) = backend.member {
                    deployment.members[member].killed = !running;
                }
            }
        }
        replaced
    }
}
