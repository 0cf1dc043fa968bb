//! How much this generator can do on this machine: runs against the [`crate::null`] server in the same process.
//!
//! Generator and server share the machine's cores, so the rate alone would say as much about the server. The ceiling of a
//! thread is worked out from its CPU time per request, which does not hold what the server uses (but for the part of
//! the kernel's work on the loopback that is done on the sender's account).

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::null::NullServer;
use crate::outcome::{End, Outcome};
use crate::plan::{Arrivals, Extent, Pace, Plan, RATE_MAX, Rate};
use crate::request::{Description, Mix, RequestError};
use crate::run::{self, Config, Expect, RunError, RunqueueWait};
use crate::target::Address;

/// Rounds; each measures closed and open loop in turn. An odd number, for the median.
pub const ROUNDS: usize = 3;
/// Length of one measurement, and of the warm-up of the closed loop before it.
const MEASURE: Duration = Duration::from_secs(1);
const WARMUP: Duration = Duration::from_millis(200);
/// The open loop is asked for this many times what the closed loop reached, so that it is never idle.
const OPEN_X: f64 = 1.5;

/// What the generator can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Threads that it was measured with.
    pub threads: usize,
    /// Connections that it was measured with.
    pub connections: usize,
    /// Closed loop, keep-alive.
    pub closed: Speed,
    /// Open loop, keep-alive, at a rate that it cannot reach.
    pub open: Speed,
}

/// How fast it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Answers per second, all threads together, beside a server that used the same cores.
    pub answers_per_s: f64,
    /// CPU time per answer, in µs.
    pub cpu_us_per_request: f64,
}

/// Why there is no calibration.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The null server cannot be started.
    #[error("the null server cannot be started: {0}")]
    Server(io::Error),
    /// The request cannot be made.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run measured nothing.
    #[error("the null server gave no answers; is 127.0.0.1 blocked?")]
    Nothing,
    /// The user broke it off.
    #[error("interrupted; nothing was calibrated")]
    Interrupted,
}

impl Speed {
    /// What one thread can do with a CPU of its own, in requests per second.
    #[must_use]
    pub fn ceiling_per_thread(&self) -> f64 {
        1e6 / self.cpu_us_per_request
    }

    fn of(outcome: &Outcome) -> Option<Self> {
        let cpu_us_per_request = outcome.cpu_us_per_request().filter(|us| *us > 0.0)?;
        Some(Self { answers_per_s: outcome.throughput_rps(), cpu_us_per_request })
    }
}

/// Measures, which takes some seconds. `on_round` is told the number of each round that is over, from 1 to [`ROUNDS`].
///
/// # Errors
/// When the machine lets no server run on 127.0.0.1, or `stop` was set.
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
        (config.plan.pace, config.plan.warmup) = (Pace::Closed, WARMUP);
        let speed = measure(&config, stop)?;
        closed.push(speed);
        // Below the largest rate and above zero: it is what a machine reached.
        let rate = (speed.answers_per_s * OPEN_X).clamp(1.0, RATE_MAX);
        let rate = Rate::new(rate, rate).map_err(RunError::Plan)?;
        // No warm-up: on a machine that has become busy meanwhile, what is left over from it would fill the whole second.
        (config.plan.pace, config.plan.warmup) = (Pace::Open { rate, arrivals: Arrivals::Uniform }, Duration::ZERO);
        open.push(measure(&config, stop)?);
        on_round(round);
    }
    Ok(Calibration { threads, connections, closed: median(closed), open: median(open) })
}

fn measure(config: &Config, stop: &Arc<AtomicBool>) -> Result<Speed, CalibrateError> {
    let outcome = match run::run(config, stop, &mut |_, _| {}) {
        Ok(outcome) if outcome.end == End::Interrupted => return Err(CalibrateError::Interrupted),
        Err(RunError::InterruptedBefore) => return Err(CalibrateError::Interrupted),
        done => done?,
    };
    Speed::of(&outcome).ok_or(CalibrateError::Nothing)
}

fn config(
    server: &NullServer,
    connections: usize,
    threads: usize,
    runqueue_wait: Option<RunqueueWait>,
) -> Result<Config, CalibrateError> {
    let request =
        Description { method: "GET", path: "/", host: "null", headers: &[], body: None, weight: 1, keepalive: true };
    Ok(Config {
        address: Address::Tcp(server.address()),
        tls: None,
        requests: Mix::new(&[request], None)?,
        plan: Plan {
            pace: Pace::Closed,
            warmup: WARMUP,
            extent: Extent { duration: Some(MEASURE), requests: None },
            seed: 1,
        },
        connections,
        threads,
        keepalive: true,
        pipeline: 1,
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        expect: Expect::Success,
        seed: 1,
        runqueue_wait,
        burn_per_request: Duration::ZERO,
    })
}

/// The round in the middle, by CPU time: what a busy machine spoils is not chosen.
fn median(mut speeds: Vec<Speed>) -> Speed {
    // Never empty: there is one for each of ROUNDS.
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
            // Two threads cannot do more than twice what one can; a tenth for clocks that were read at different moments.
            assert!(speed.answers_per_s <= speed.ceiling_per_thread() * 2.0 * 1.1, "{speed:?}");
        }
        let speed = Speed { answers_per_s: 1.0, cpu_us_per_request: 8.0 };
        assert_eq!(speed.ceiling_per_thread(), 125_000.0);
    }

    #[test]
    fn it_can_be_broken_off() {
        let stop = Arc::new(AtomicBool::new(true));
        let error = calibrate(1, 1, None, &stop, &mut |_| {}).unwrap_err();
        assert!(matches!(error, CalibrateError::Interrupted), "{error}");
    }
}
