//! Calibration: the maximum rate of this generator on this machine, measured against the
//! [`crate::null`] server in the same process.
//!
//! Generator and server share the machine's cores, so the rate also depends on the server. The
//! ceiling of a thread is therefore computed from its CPU time per request, which excludes the
//! server's CPU time (except for the loopback's kernel work that is charged to the sender).

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::null::NullServer;
use crate::outcome::{Outcome, RunEnd};
use crate::plan::{Arrivals, LoadModel, Plan, RATE_MAX, Rate, StopCondition};
use crate::request::{RequestError, RequestMix, RequestSpec};
use crate::run::{self, Config, ExpectedStatus, RunError, RunqueueWait};
use hotrow_transport::target::Address;
use hotrow_transport::tls::HttpVersion;

/// Rounds; each measures a closed loop, then an open loop. Odd, so that the median is one of them.
pub const ROUNDS: usize = 3;
/// Length of one measurement, and of the closed loop's warm-up before it.
const MEASURE: Duration = Duration::from_secs(1);
const WARMUP: Duration = Duration::from_millis(200);
/// The open loop's target rate as a multiple of the closed loop's rate, so that it is never idle.
const OPEN_X: f64 = 1.5;

/// The measured maximum of the generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Threads in the measurement.
    pub threads: usize,
    /// Connections in the measurement.
    pub connections: usize,
    /// Closed loop, keep-alive.
    pub closed: LoopSpeed,
    /// Open loop, keep-alive, at a rate that it cannot reach.
    pub open: LoopSpeed,
}

/// The measured speed of one loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoopSpeed {
    /// Responses per second of all threads, beside a server on the same cores.
    pub answers_per_s: f64,
    /// CPU time per response, in µs.
    pub cpu_us_per_request: f64,
}

/// Reasons for a missing calibration.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The null server cannot be started.
    #[error("the null server cannot be started: {0}")]
    Server(io::Error),
    /// The request cannot be built.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run measured nothing.
    #[error("the null server gave no answers; is 127.0.0.1 blocked?")]
    Nothing,
    /// The user interrupted it.
    #[error("interrupted; nothing was calibrated")]
    Interrupted,
}

impl LoopSpeed {
    /// Returns the ceiling of one thread with a CPU of its own, in requests per second.
    pub fn ceiling_per_thread(&self) -> f64 {
        1e6 / self.cpu_us_per_request
    }

    fn of(outcome: &Outcome) -> Option<Self> {
        let cpu_us_per_request = outcome.cpu_us_per_request().filter(|us| *us > 0.0)?;
        Some(Self { answers_per_s: outcome.throughput_rps(), cpu_us_per_request })
    }
}

/// Measures for some seconds. `on_round` receives the number of each completed round, from 1 to
/// [`ROUNDS`].
///
/// # Errors
/// Fails when no server can run on 127.0.0.1, or when `stop` is set.
pub fn calibrate(
    connections: usize,
    threads: usize,
    runqueue_wait: Option<RunqueueWait>,
    stop: &Arc<AtomicBool>,
    on_round: &mut dyn FnMut(usize),
) -> Result<Calibration, CalibrateError> {
    let server = NullServer::start(threads).map_err(CalibrateError::Server)?;
    let mut config = config(&server, connections, threads, runqueue_wait)?;
    let (mut closed, mut open) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        (config.plan.model, config.plan.warmup) = (LoadModel::Closed, WARMUP);
        let speed = measure(&config, stop)?;
        closed.push(speed);
        // A measured rate is above zero; the clamp keeps it below the largest rate.
        let rate = (speed.answers_per_s * OPEN_X).clamp(1.0, RATE_MAX);
        let rate = Rate::new(rate, rate).map_err(RunError::Plan)?;
        // No warm-up: on a machine that became busy, the warm-up's backlog would fill the whole
        // second.
        (config.plan.model, config.plan.warmup) =
            (LoadModel::Open { rate, arrivals: Arrivals::Uniform }, Duration::ZERO);
        open.push(measure(&config, stop)?);
        on_round(round);
    }
    Ok(Calibration { threads, connections, closed: median(closed), open: median(open) })
}

fn measure(config: &Config, stop: &Arc<AtomicBool>) -> Result<LoopSpeed, CalibrateError> {
    let outcome = match run::run(config, stop, &mut |_, _| {}) {
        Ok(outcome) if outcome.end == RunEnd::Interrupted => {
            return Err(CalibrateError::Interrupted);
        }
        Err(RunError::InterruptedBefore) => return Err(CalibrateError::Interrupted),
        done => done?,
    };
    LoopSpeed::of(&outcome).ok_or(CalibrateError::Nothing)
}

fn config(
    server: &NullServer,
    connections: usize,
    threads: usize,
    runqueue_wait: Option<RunqueueWait>,
) -> Result<Config, CalibrateError> {
    let request = RequestSpec {
        method: "GET",
        path: "/",
        host: "null",
        headers: &[],
        body: None,
        weight: 1,
        keepalive: true,
    };
    Ok(Config {
        address: Address::Tcp(server.address()),
        tls: None,
        requests: RequestMix::new(&[request], None)?,
        plan: Plan {
            model: LoadModel::Closed,
            warmup: WARMUP,
            stop: StopCondition { duration: Some(MEASURE), requests: None },
            seed: 1,
        },
        connections,
        threads,
        keepalive: true,
        version: HttpVersion::Http1,
        depth: 1,
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        expect: ExpectedStatus::Success,
        seed: 1,
        runqueue_wait,
        burn_per_request: Duration::ZERO,
    })
}

/// Returns the middle round by CPU time, so that a disturbed round is not chosen.
fn median(mut speeds: Vec<LoopSpeed>) -> LoopSpeed {
    // Never empty: there is one element for each of ROUNDS.
    speeds.sort_by(|a, b| a.cpu_us_per_request.total_cmp(&b.cpu_us_per_request));
    speeds[speeds.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_loops_are_measured_and_the_ceiling_follows_from_cpu_time() {
        let mut rounds = Vec::new();
        let stop = Arc::new(AtomicBool::new(false));
        let found = calibrate(4, 2, None, &stop, &mut |round| rounds.push(round)).unwrap();
        assert_eq!((found.threads, found.connections, rounds.len()), (2, 4, ROUNDS));
        for speed in [found.closed, found.open] {
            assert!(speed.answers_per_s > 100.0 && speed.cpu_us_per_request > 0.1, "{speed:?}");
            // Two threads cannot exceed twice one thread's ceiling; the extra tenth covers clock
            // readings at different moments.
            assert!(speed.answers_per_s <= speed.ceiling_per_thread() * 2.0 * 1.1, "{speed:?}");
        }
        let speed = LoopSpeed { answers_per_s: 1.0, cpu_us_per_request: 8.0 };
        assert_eq!(speed.ceiling_per_thread(), 125_000.0);
    }

    #[test]
    fn it_can_be_broken_off() {
        let stop = Arc::new(AtomicBool::new(true));
        let error = calibrate(1, 1, None, &stop, &mut |_| {}).unwrap_err();
        assert!(matches!(error, CalibrateError::Interrupted), "{error}");
    }
}
