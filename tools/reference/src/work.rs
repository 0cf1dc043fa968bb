//! `/spin` and `/sleep`: CPU work, and waiting.

use std::hint::black_box;
use std::time::Duration;

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;

use crate::problem::Problem;

/// Longest work, in µs of CPU time.
const SPIN_US_MAX: u64 = 1_000_000;
/// Longest sleep, in ms.
const SLEEP_MS_MAX: u64 = 10_000;
/// Steps between two readings of the clock: about a microsecond.
const STEPS: u32 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spin {
    us: u64,
}

/// `/spin?us=N`: uses N µs of this thread's CPU time, not of elapsed time: a thread that shares its
/// core would otherwise do less work, and a service with too many workers would look fast.
pub(crate) async fn spin(
    query: Result<Query<Spin>, QueryRejection>,
) -> Result<&'static str, Problem> {
    let Query(Spin { us }) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
    if us > SPIN_US_MAX {
        return Err(Problem::bad_request(format!("us={us} is too long; {SPIN_US_MAX} at most")));
    }
    let end = cpu_time() + Duration::from_micros(us);
    let mut state = us;
    while cpu_time() < end {
        for _ in 0..STEPS {
            // A step of xorshift, which the compiler cannot predict.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        state = black_box(state);
    }
    Ok("done\n")
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // This clock is never negative.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sleep {
    ms: u64,
}

/// `/sleep?ms=N`: waits, as for an external system. In the blocking model the worker is blocked.
pub(crate) async fn sleep(
    query: Result<Query<Sleep>, QueryRejection>,
) -> Result<&'static str, Problem> {
    let Query(Sleep { ms }) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
    if ms > SLEEP_MS_MAX {
        return Err(Problem::bad_request(format!("ms={ms} is too long; {SLEEP_MS_MAX} at most")));
    }
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok("done\n")
}
