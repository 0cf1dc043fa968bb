//! Faults under load: readers and writers continue while the process stops, the file is gone or the
//! log is emptied. Every answer is judged as usual; refusals must be clear, `/readyz` must report
//! the fault, and the service must recover unaided.

use std::process::Command;
use std::time::Duration;

use crate::contract::board::Instance;
use crate::contract::engine::Engine;
use crate::contract::reader::{ReadProfile, Reader};
use crate::contract::rows::Sizes;
use crate::contract::run::{Plan, Run, Trial};
use hotrow_testkit::harness::{Client, Config, SOON, Server, await_until};
use hotrow_verify::history::Ns;
use hotrow_verify::observation::{Claim, Observation, Outcome};

mod file;
mod locked;
mod log;
mod stopped;

/// Number of the reserved keys, at the end of the range.
const RESERVED: u32 = 40;

fn plan() -> Plan {
    Plan {
        keys: 400,
        sizes: Sizes { from: 100, to: 700 },
        writers: 2,
        reserved: RESERVED,
        ..Plan::default()
    }
}

/// Starts a run with one instance, writers and readers, and waits for some reads.
fn under_load(
    plan: Plan,
    profile: ReadProfile,
    configure: impl FnOnce(Config) -> Config,
) -> (Run, Instance) {
    let mut run = Run::new(plan);
    let config = configure(run.config());
    let instance = run.serve(&config, &[]);
    run.start_writers();
    run.start_readers(4, profile);
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
        await_until(&format!("/readyz to say {status}"), SOON, || {
            admin.get("/readyz").status == status
        });
    }

    /// Returns the feed losses that the instance counted, of one cause or of all.
    pub(crate) fn losses(&self, instance: Instance, cause: Option<&str>) -> f64 {
        let labels: Vec<(&str, &str)> = cause.map(|cause| ("cause", cause)).into_iter().collect();
        self.server(instance).metrics().sum("hotrow_feed_gaps_total", &labels)
    }

    /// Reads the reserved keys in turn until an observation is `wanted`.
    #[track_caller]
    pub(crate) fn read_until(
        &self,
        reader: &mut Reader,
        instance: Instance,
        what: &str,
        wanted: impl Fn(&Observation) -> bool,
    ) {
        let mut keys = self.reserved_keys().cycle();
        await_until(what, SOON, || wanted(reader.get(instance, keys.next().expect("endless"))));
    }

    /// Waits on the run's clock while readers and writers continue.
    pub(crate) fn pass(&self, time: Duration) {
        let due = self.board.now() + time.as_nanos() as Ns;
        await_until("time to pass", time + SOON, || self.board.now() >= due);
    }

    /// Ends a run that must keep the contract: stops the writers, compares all keys with the
    /// database, judges all observations.
    pub(crate) fn finish(mut self, probe: Option<Reader>, judge_tokens: bool) -> Self {
        self.stop_writers();
        self.converged();
        self.stop_readers();
        self.observations.extend(probe.into_iter().flat_map(Reader::into_seen));
        let mut terms = self.terms();
        if !judge_tokens {
            terms.tokens = None;
        }
        let report = self.judge(&terms);
        println!(
            "{} answers, worst lag {:.1} ms",
            self.observations.len(),
            report.worst_lag_ns as f64 / 1e6
        );
        self
    }
}

/// Returns true if the answer is a refusal.
pub(crate) fn is_refused(observation: &Observation) -> bool {
    matches!(observation.seen, Claim::Refused(_) | Claim::PositionRefused)
}

/// Returns true if the answer is neither refused nor stale.
pub(crate) fn is_fresh(observation: &Observation) -> bool {
    !is_refused(observation) && observation.outcome != Outcome::Stale
}

/// Runs a system tool in a process of its own, as an operator would: to close a file in this
/// process would release the locks of its own connections.
#[track_caller]
fn shell(script: &str, arguments: &[&std::path::Path]) {
    let status = Command::new("sh")
        .arg("-euc")
        .arg(script)
        .arg("sh")
        .args(arguments)
        .status()
        .expect("run sh");
    assert!(status.success(), "{script}: {status}");
}
