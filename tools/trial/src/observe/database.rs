//! Looks at the sessions of the database behind the service, during the measured part of a load.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread::{Builder, Scope, ScopedJoinHandle, Thread};
use std::time::Duration;

use hotrow_diagnose::database::{DatabaseLook, DatabaseWaits, WaitTally};
use hotrow_diagnose::root::{ProbeError, ProbeErrorKind};
use hotrow_diagnose::samples::Samples;
use hotrow_measure::clock::{Nanos, thread_cpu};

use super::wait::{sleep_until, start_of};

/// Interval of the looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Access to the sessions of a database.
pub trait DatabaseProbe: Send {
    /// Returns the engine's name.
    fn engine(&self) -> &'static str;

    /// Returns the sessions at this moment, within a time limit. It reconnects after an error.
    ///
    /// # Errors
    /// Returns the reason, without a password.
    fn look(&mut self) -> Result<DatabaseLook, String>;
}

/// Part of a load that is observed.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) warmup: Duration,
    /// `None`: until its end.
    pub(super) length: Option<Duration>,
}

/// Thread that asks during one load; `None` if it could not be started.
pub(super) struct DatabaseThread<'scope>(
    Option<ScopedJoinHandle<'scope, (DatabaseObservation, Duration)>>,
);

impl<'scope> DatabaseThread<'scope> {
    /// Starts it: `at` gets the beginning of the load, `over` signals its end.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>,
        probe: &'scope mut dyn DatabaseProbe,
        extent: Extent,
        at: &'scope OnceLock<Nanos>,
        over: &'scope AtomicBool,
    ) -> Self {
        let ask = move || {
            let found = DatabaseObservation::during(probe, extent, at, over);
            (found, thread_cpu())
        };
        Self(Builder::new().name("database".to_owned()).spawn_scoped(scope, ask).ok())
    }

    /// Returns a handle to wake it.
    pub(super) fn thread(&self) -> Option<Thread> {
        self.0.as_ref().map(|thread| thread.thread().clone())
    }

    /// Waits for its end and adds what it found to the samples of the load; returns its CPU time.
    pub(super) fn end(self, samples: Option<&mut Samples>) -> Duration {
        let ended = self.0.and_then(|thread| thread.join().ok());
        let (found, cpu) = ended.unwrap_or_else(|| {
            let error = Some("its thread did not run".to_owned());
            (DatabaseObservation { error, ..DatabaseObservation::default() }, Duration::ZERO)
        });
        if let Some(samples) = samples {
            found.complete(samples);
        }
        cpu
    }
}

/// What the looks during one load found.
#[derive(Debug, Default)]
struct DatabaseObservation {
    waits: Option<DatabaseWaits>,
    /// Number of looks that failed, of all.
    failed: u64,
    looks: u64,
    /// The latest error.
    error: Option<String>,
}

impl DatabaseObservation {
    /// Looks from `warmup` after the beginning of a load until its end, or until its `length` is
    /// over.
    fn during(
        probe: &mut dyn DatabaseProbe,
        Extent { warmup, length }: Extent,
        at: &OnceLock<Nanos>,
        over: &AtomicBool,
    ) -> Self {
        let mut observation = Self::default();
        let Some(first) = start_of(at, over).map(|start| start.after(warmup)) else {
            return observation;
        };
        let (mut tally, mut next) = (WaitTally::default(), first);
        while sleep_until(next, over) {
            let now = Nanos::now();
            if length.is_some_and(|length| now.since(first) >= length) {
                break;
            }
            observation.looks += 1;
            match probe.look() {
                Ok(look) => tally.add(look),
                Err(error) => {
                    observation.failed += 1;
                    observation.error = Some(error);
                }
            }
            // A slow look delays the next one: the database is not asked without a pause.
            next = Nanos::now().after(LOOK_INTERVAL);
        }
        observation.waits = tally.means(probe.engine());
        observation
    }

    /// Adds the result to the samples of the load.
    fn complete(self, samples: &mut Samples) {
        samples.database = self.waits;
        if let Some(error) = self.error {
            let words = format!("{error} ({} of {} looks failed)", self.failed, self.looks);
            let why = ProbeErrorKind::Database(words);
            samples.probe_errors.push(ProbeError { file: String::new(), why });
        }
    }
}
