//! Faults under load: readers and writers go on while the process stops, the file goes, the log is emptied. Every answer
//! is judged as ever; refusals must be clear, `/readyz` must tell, and the service must come back by itself.

use std::process::Command;
use std::time::Duration;

use crate::board::Instance;
use crate::engine::Engine;
use crate::harness::{Client, Config, SOON, Server, await_until};
use crate::history::Ns;
use crate::observation::{Observation, Outcome, Seen};
use crate::reader::{Reader, Taste};
use crate::rows::Sizes;
use crate::run::{Plan, Run, Trial};

mod file;
mod locked;
mod log;
mod stopped;

/// The test's own keys, at the end of the range.
const OWN: u32 = 40;

fn plan() -> Plan {
    Plan { keys: 400, sizes: Sizes { from: 100, to: 700 }, writers: 2, own: OWN, ..Plan::default() }
}

/// A run with everything going and the test's own keys in the cache.
fn under_load(plan: Plan, taste: Taste, configure: impl FnOnce(Config) -> Config) -> (Run, Instance) {
    let mut run = Run::new(plan);
    let config = configure(run.config());
    let instance = run.serve(&config, &[]);
    run.start_writers();
    run.start_readers(4, taste);
    run.await_more_reads(1000);
    (run, instance)
}

impl<E: Engine> Trial<E> {
    pub(crate) fn server(&self, instance: Instance) -> &Server {
        &self.servers[usize::from(instance.id)]
    }

    /// Waits until `/readyz` answers with this status.
    #[track_caller]
    pub(crate) fn await_readyz(&self, instance: Instance, status: u16) {
        let mut admin = Client::connect(instance.admin);
        await_until(&format!("/readyz to say {status}"), SOON, || admin.get("/readyz").status == status);
    }

    /// Losses that the instance counted, of any cause or of one.
    pub(crate) fn losses(&self, instance: Instance, cause: Option<&str>) -> f64 {
        let labels: Vec<(&str, &str)> = cause.map(|cause| ("cause", cause)).into_iter().collect();
        self.server(instance).metrics().sum("hotrow_feed_losses_total", &labels)
    }

    /// Reads the test's own keys in turn until an answer is as wanted.
    #[track_caller]
    pub(crate) fn read_until(
        &self,
        reader: &mut Reader,
        instance: Instance,
        what: &str,
        wanted: impl Fn(&Observation) -> bool,
    ) {
        let mut keys = self.own_keys().cycle();
        await_until(what, SOON, || wanted(reader.get(instance, keys.next().expect("endless"))));
    }

    /// Lets time pass on the run's clock while readers and writers go on.
    pub(crate) fn pass(&self, time: Duration) {
        let due = self.board.now() + time.as_nanos() as Ns;
        await_until("time to pass", time + SOON, || self.board.now() >= due);
    }

    /// The end of a run that must hold the contract: the writers stop, the keys equal the database, all is judged.
    pub(crate) fn finish(mut self, probe: Option<Reader>, judge_tokens: bool) -> Self {
        self.stop_writers();
        self.converged();
        self.stop_readers();
        self.observations.extend(probe.into_iter().flat_map(Reader::into_seen));
        let mut terms = self.terms();
        if !judge_tokens {
            terms.log = None;
        }
        let report = self.judge(&terms);
        println!("{} answers, worst lag {:.1} ms", self.observations.len(), report.worst_lag_ns as f64 / 1e6);
        self
    }
}

/// Whether the answer is a refusal.
pub(crate) fn is_refused(observation: &Observation) -> bool {
    matches!(observation.seen, Seen::Refused(_))
}

/// Whether the answer is within all bounds.
pub(crate) fn is_fresh(observation: &Observation) -> bool {
    !is_refused(observation) && observation.outcome != Outcome::Stale
}

/// Runs a tool of the system, as an operator would, in a process of its own: closing a file here would take the locks of
/// this process's own connections.
#[track_caller]
fn shell(script: &str, arguments: &[&std::path::Path]) {
    let status = Command::new("sh").arg("-euc").arg(script).arg("sh").args(arguments).status().expect("run sh");
    assert!(status.success(), "{script}: {status}");
}
