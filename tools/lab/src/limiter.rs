//! The vectors of the published rate limiter (W2), run in virtual time: a token bucket with all its
//! calls ([`bucket`]), and the limits of the server per key.
//!
//! A vector is data: a limit, and calls at given times with their expected results. Reading order:
//! [`Vector`], [`vectors`], [`run`] (every call on the real limit), [`cost`] (time per call).

use std::cell::Cell as Shared;
use std::hint::black_box;
use std::time::{Duration, Instant};

use hotrow_admission::rate::gcra::Gcra;
use hotrow_admission::rate::leaky::Leaky;
use hotrow_admission::rate::meter::Meter;
use hotrow_admission::rate::value::{Period, Rate, RateError};
use hotrow_admission::rate::window::FixedWindow;
use hotrow_admission::rate::{Cell, Decision, Policy};
use hotrow_measure::clock::Nanos;
use serde::Deserialize;

use self::bucket::{Clock, SharedBucket, TokenBucket};

mod bucket;

/// Published time of one wait call, in ns.
pub const PUBLISHED_CALL_NS: f64 = 175.0;
/// Calls per measured round of [`cost`].
const COST_CALLS: u32 = 100_000;
/// Rounds of [`cost`]; the best counts, because other work of the machine only adds time.
const COST_ROUNDS: u32 = 5;

/// A limit and its calls.
#[derive(Clone, Debug, Deserialize)]
pub struct Vector {
    /// The limit.
    pub limiter: Limiter,
    /// Calls in order of time.
    pub calls: Vec<CallAt>,
}

/// A limit under test. Times in ms.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// Token bucket with one owner.
    Bucket {
        /// Time after which `quantum` tokens arrive.
        fill_ms: u64,
        /// Most tokens.
        capacity: u64,
        /// Tokens per fill.
        quantum: u64,
        /// Time over which a cold bucket reaches its rate; 0 for none.
        warm_up_ms: u64,
    },
    /// Token bucket per key: excess is refused.
    TokensPerKey {
        /// Tokens per second.
        per_second: u64,
        /// Tokens after a pause.
        burst: u32,
    },
    /// Leaky bucket per key: excess waits.
    LeakyPerKey {
        /// Requests per second.
        per_second: u64,
        /// Requests that leave at once after a pause.
        burst: u32,
        /// Longest wait.
        max_wait_ms: u64,
    },
    /// Fixed window of a second per key.
    WindowPerKey {
        /// Requests per window.
        per_second: u64,
    },
}

/// A call at a time, with the expected result.
#[derive(Clone, Debug, Deserialize)]
pub struct CallAt {
    /// Time since the limit was created, in ms.
    pub at_ms: u64,
    /// The call.
    pub call: Call,
    /// The expected result, as [`run`] formats it.
    pub expected: String,
}

/// A call of a limit. Limits per key know only `Request`; buckets know all others.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Takes tokens and returns the wait.
    Take(u64),
    /// Takes at most so many of the tokens that are there.
    TakeAvailable(u64),
    /// Takes tokens if the wait is at most so many ms.
    TakeMaxWait(u64, u64),
    /// Takes tokens and waits for them.
    Wait(u64),
    /// Takes tokens and waits, if that is at most so many ms.
    WaitMax(u64, u64),
    /// Takes single tokens without a wait until one is refused; returns their number.
    Burst,
    /// Returns the tokens that are there; negative: owed.
    Available,
    /// Sets the capacity.
    SetCapacity(u64),
    /// Sets the fill interval in ms and the quantum.
    SetFill(u64, u64),
    /// A request of a client.
    Request,
}

/// A call with its expected and its actual result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The limit, in words.
    pub limiter: String,
    /// Time of the call, in ms.
    pub at_ms: u64,
    /// The call, in words.
    pub call: String,
    /// The expected result.
    pub expected: String,
    /// The actual result.
    pub actual: String,
}

impl Step {
    /// Returns whether the result is the expected one.
    pub fn is_right(&self) -> bool {
        self.expected == self.actual
    }
}

/// Returns all vectors. The first two are published with their figures; the others are its rules,
/// and what goes beyond the original.
///
/// # Errors
/// None, unless the file in this program is none.
pub fn vectors() -> serde_json::Result<Vec<Vector>> {
    serde_json::from_str(include_str!("limiter/vectors.json"))
}

/// Runs vectors on the limits.
///
/// # Errors
/// A rate that no limit can have.
pub fn run(vectors: &[Vector]) -> Result<Vec<Step>, RateError> {
    let mut steps = Vec::new();
    for vector in vectors {
        let mut limit = LimitUnderTest::new(vector.limiter)?;
        steps.extend(vector.calls.iter().map(|call| Step {
            limiter: vector.limiter.words(),
            at_ms: call.at_ms,
            call: call.call.words(),
            expected: call.expected.clone(),
            actual: limit.call(call.at_ms, call.call),
        }));
    }
    Ok(steps)
}

/// A clock that only sleeping advances.
struct VirtualClock(Shared<Nanos>);

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn sleep(&self, duration: Duration) {
        self.0.set(self.0.get().after(duration));
    }
}

/// A limit that a vector is run on.
enum LimitUnderTest {
    Bucket(SharedBucket),
    PerKey(Cell, PerKey),
}

/// A policy of the server.
enum PerKey {
    Tokens(Gcra),
    Leaky(Leaky),
    Window(FixedWindow),
}

impl LimitUnderTest {
    fn new(limiter: Limiter) -> Result<Self, RateError> {
        let begin = Nanos(0);
        let per_second = |units| Rate::new(units, Period::Second);
        let meter = |units, burst| {
            per_second(units).map(|rate| Meter::new(rate, burst, Duration::ZERO, begin))
        };
        let policy = match limiter {
            Limiter::Bucket { fill_ms, capacity, quantum, warm_up_ms } => {
                let bucket = TokenBucket::new(ms(fill_ms), capacity, quantum, begin);
                let bucket = match warm_up_ms {
                    0 => bucket,
                    warm_up_ms => bucket.with_warm_up(ms(warm_up_ms), begin),
                };
                return Ok(Self::Bucket(SharedBucket::new(bucket)));
            }
            Limiter::TokensPerKey { per_second, burst } => {
                PerKey::Tokens(Gcra(meter(per_second, burst)?))
            }
            Limiter::LeakyPerKey { per_second, burst, max_wait_ms } => {
                PerKey::Leaky(Leaky { meter: meter(per_second, burst)?, max_wait: ms(max_wait_ms) })
            }
            Limiter::WindowPerKey { per_second: units } => {
                PerKey::Window(FixedWindow::new(per_second(units)?, 0))
            }
        };
        Ok(Self::PerKey(Cell::default(), policy))
    }

    /// Makes a call; returns its result in words.
    fn call(&mut self, at_ms: u64, call: Call) -> String {
        let now = Nanos(at_ms * 1_000_000);
        match self {
            Self::Bucket(bucket) => call_bucket(bucket, now, call),
            Self::PerKey(cell, policy) if matches!(call, Call::Request) => match policy {
                PerKey::Tokens(policy) => request(cell, policy, now),
                PerKey::Leaky(policy) => request(cell, policy, now),
                PerKey::Window(policy) => request(cell, policy, now),
            },
            Self::PerKey(..) => "no such call".to_owned(),
        }
    }
}

fn call_bucket(bucket: &SharedBucket, now: Nanos, call: Call) -> String {
    let clock = VirtualClock(Shared::new(now));
    let or_refused = |wait: Option<Duration>| wait.map_or_else(|| "refused".to_owned(), time);
    match call {
        Call::Take(tokens) => time(bucket.with(|bucket| bucket.take(now, tokens))),
        Call::TakeAvailable(tokens) => {
            bucket.with(|bucket| bucket.take_available(now, tokens)).to_string()
        }
        Call::TakeMaxWait(tokens, max_wait_ms) => {
            or_refused(bucket.with(|bucket| bucket.take_max_wait(now, tokens, ms(max_wait_ms))))
        }
        Call::Wait(tokens) => {
            bucket.wait(&clock, tokens);
            time(clock.now().since(now))
        }
        Call::WaitMax(tokens, max_wait_ms) => {
            let waited = bucket.wait_max(&clock, tokens, ms(max_wait_ms));
            or_refused(waited.map(|_| clock.now().since(now)))
        }
        Call::Burst => {
            let admitted =
                || bucket.with(|bucket| bucket.take_max_wait(now, 1, Duration::ZERO)).is_some();
            std::iter::repeat_with(admitted).take_while(|admitted| *admitted).count().to_string()
        }
        Call::Available => bucket.with(|bucket| bucket.available(now)).to_string(),
        Call::SetCapacity(capacity) => {
            bucket.with(|bucket| bucket.set_capacity(now, capacity));
            "set".to_owned()
        }
        Call::SetFill(fill_ms, quantum) => {
            bucket.with(|bucket| bucket.set_fill(now, ms(fill_ms), quantum));
            "set".to_owned()
        }
        Call::Request => "no such call".to_owned(),
    }
}

fn request(cell: &Cell, policy: &impl Policy, now: Nanos) -> String {
    match cell.decide(policy, 1, now) {
        Decision::Admitted { remaining } => format!("admitted, {remaining} left"),
        Decision::Wait { delay } => time(delay),
        Decision::Refused { retry_after } => format!("refused for {}", time(retry_after)),
        Decision::TooLarge { most } => format!("too large, at most {most}"),
    }
}

/// Returns the best mean time of a wait call that need not wait, in ns.
pub fn cost() -> f64 {
    let tokens = u64::from(COST_CALLS);
    let round = || {
        let clock = VirtualClock(Shared::new(Nanos(0)));
        let bucket = SharedBucket::new(TokenBucket::new(ms(1), tokens, 1, Nanos(0)));
        let began = Instant::now();
        for _ in 0..COST_CALLS {
            black_box(bucket.wait(black_box(&clock), 1));
        }
        began.elapsed()
    };
    let best = (0..COST_ROUNDS).map(|_| round()).min().unwrap_or_default();
    best.as_secs_f64() * 1e9 / f64::from(COST_CALLS)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Formats a time in ms, rounded: the meters of limits per key count ticks, not nanoseconds.
fn time(time: Duration) -> String {
    format!("{} ms", (time.as_secs_f64() * 1e3).round())
}

impl Limiter {
    fn words(self) -> String {
        match self {
            Self::Bucket { fill_ms, capacity, quantum, warm_up_ms: 0 } => {
                format!("bucket of {capacity}, {quantum} every {fill_ms} ms")
            }
            Self::Bucket { fill_ms, capacity, quantum, warm_up_ms } => format!(
                "bucket of {capacity}, {quantum} every {fill_ms} ms, warm-up {warm_up_ms} ms"
            ),
            Self::TokensPerKey { per_second, burst } => {
                format!("token_bucket {per_second}/s, burst {burst}")
            }
            Self::LeakyPerKey { per_second, burst, max_wait_ms } => {
                format!("leaky_bucket {per_second}/s, burst {burst}, wait up to {max_wait_ms} ms")
            }
            Self::WindowPerKey { per_second } => format!("fixed_window {per_second}/s"),
        }
    }
}

impl Call {
    fn words(self) -> String {
        match self {
            Self::Take(tokens) => format!("take {tokens}"),
            Self::TakeAvailable(tokens) => format!("take available {tokens}"),
            Self::TakeMaxWait(tokens, ms) => format!("take {tokens} if the wait is ≤ {ms} ms"),
            Self::Wait(tokens) => format!("wait for {tokens}"),
            Self::WaitMax(tokens, ms) => format!("wait for {tokens}, at most {ms} ms"),
            Self::Burst => "take 1 until refused".to_owned(),
            Self::Available => "available".to_owned(),
            Self::SetCapacity(capacity) => format!("set capacity {capacity}"),
            Self::SetFill(ms, quantum) => format!("set fill {quantum} every {ms} ms"),
            Self::Request => "request".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_pass_every_vector() {
        let steps = run(&vectors().unwrap()).unwrap();
        let wrong: Vec<&Step> = steps.iter().filter(|step| !step.is_right()).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn a_difference_is_found() {
        let limiter = Limiter::Bucket { fill_ms: 250, capacity: 10, quantum: 1, warm_up_ms: 0 };
        let call = |expected: &str| CallAt {
            at_ms: 0,
            call: Call::Take(11),
            expected: expected.to_owned(),
        };
        let calls = vec![call("0 ms"), call("3000 ms")];
        let steps = run(&[Vector { limiter, calls }]).unwrap();
        assert_eq!(steps.iter().map(Step::is_right).collect::<Vec<_>>(), [false, true]);
        assert_eq!(steps[0].actual, "250 ms");
    }

    #[test]
    fn a_call_has_a_cost() {
        assert!(cost() > 0.0);
    }
}
