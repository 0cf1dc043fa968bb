//! A policy chosen by configuration.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::gcra::Gcra;
use super::leaky::Leaky;
use super::meter::Meter;
use super::value::Rate;
use super::window::FixedWindow;
use super::{Decision, Policy};

/// Kind of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bursts pass; the excess is refused.
    TokenBucket,
    /// The excess waits, up to a bound.
    LeakyBucket {
        /// The bound.
        max_wait: Duration,
    },
    /// A count per period of the clock.
    FixedWindow,
}

impl Kind {
    /// Returns the name used in the configuration.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket { .. } => "leaky_bucket",
            Self::FixedWindow => "fixed_window",
        }
    }
}

/// A limit as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its kind.
    pub kind: Kind,
    /// Units per period.
    pub rate: Rate,
    /// Units that pass at once after a pause; a fixed window has none.
    pub burst: u32,
    /// Time over which rate and burst grow from a third to the whole after the start; a fixed
    /// window has none.
    pub warm_up: Duration,
}

/// A limit in operation.
#[derive(Debug)]
pub enum Limit {
    /// See [`Gcra`].
    TokenBucket(Gcra),
    /// See [`Leaky`].
    LeakyBucket(Leaky),
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
}

/// Reason for which a limit cannot be changed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Another period.
    #[error(
        "the length of a fixed window cannot change in operation; keep the period of its rate, or \
         change the file"
    )]
    Period,
    /// A burst for a fixed window.
    #[error("a fixed window has no burst, only a rate")]
    Burst,
}

impl Limit {
    /// Starts at `now`. `offset_ns` is the wall clock's lead over the process's clock, for windows
    /// that begin at whole minutes.
    #[must_use]
    pub fn new(setting: &Setting, offset_ns: u64, now: Nanos) -> Self {
        let meter = || Meter::new(setting.rate, setting.burst, setting.warm_up, now);
        match setting.kind {
            Kind::TokenBucket => Self::TokenBucket(Gcra(meter())),
            Kind::LeakyBucket { max_wait } => Self::LeakyBucket(Leaky { meter: meter(), max_wait }),
            Kind::FixedWindow => Self::FixedWindow(FixedWindow::new(setting.rate, offset_ns)),
        }
    }

    /// Returns the setting in force.
    pub fn setting(&self) -> Setting {
        let of = |kind, meter: &Meter| Setting {
            kind,
            rate: meter.rate(),
            burst: meter.burst(),
            warm_up: meter.warm_up(),
        };
        match self {
            Self::TokenBucket(Gcra(meter)) => of(Kind::TokenBucket, meter),
            Self::LeakyBucket(Leaky { meter, max_wait }) => {
                of(Kind::LeakyBucket { max_wait: *max_wait }, meter)
            }
            Self::FixedWindow(window) => {
                let rate = window.rate();
                Setting {
                    kind: Kind::FixedWindow,
                    rate,
                    burst: rate.units(),
                    warm_up: Duration::ZERO,
                }
            }
        }
    }

    /// Sets the rate, the burst, or both, from `now` on; every key keeps its tokens and its debts.
    ///
    /// # Errors
    /// A change that a fixed window does not support.
    pub fn change(
        &self,
        rate: Option<Rate>,
        burst: Option<u32>,
        now: Nanos,
    ) -> Result<(), ChangeError> {
        match self {
            Self::TokenBucket(Gcra(meter)) | Self::LeakyBucket(Leaky { meter, .. }) => {
                meter.change(rate, burst, now)
            }
            Self::FixedWindow(_) if burst.is_some() => return Err(ChangeError::Burst),
            Self::FixedWindow(window) => {
                if !rate.is_none_or(|rate| window.change(rate)) {
                    return Err(ChangeError::Period);
                }
            }
        }
        Ok(())
    }
}

impl Policy for Limit {
    #[inline]
    fn judge(&self, state: u64, cost: u64, now: Nanos) -> (Decision, Option<u64>) {
        match self {
            Self::TokenBucket(gcra) => gcra.judge(state, cost, now),
            Self::LeakyBucket(leaky) => leaky.judge(state, cost, now),
            Self::FixedWindow(window) => window.judge(state, cost, now),
        }
    }

    fn settled_after(&self, state: u64, now: Nanos) -> Duration {
        match self {
            Self::TokenBucket(gcra) => gcra.settled_after(state, now),
            Self::LeakyBucket(leaky) => leaky.settled_after(state, now),
            Self::FixedWindow(window) => window.settled_after(state, now),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::rate::Cell;

    fn limit(kind: Kind, rate: &str, burst: u32) -> Limit {
        Limit::new(
            &Setting { kind, rate: rate.parse().unwrap(), burst, warm_up: Duration::ZERO },
            0,
            Nanos(0),
        )
    }

    #[test]
    fn the_setting_in_force_is_the_one_that_was_set() {
        let max_wait = Duration::from_secs(1);
        for kind in [Kind::TokenBucket, Kind::LeakyBucket { max_wait }] {
            let limit = limit(kind, "10/m", 20);
            assert_eq!((limit.setting().kind, limit.setting().burst), (kind, 20));
            limit.change(Some("5/s".parse().unwrap()), None, Nanos(0)).unwrap();
            limit.change(None, Some(3), Nanos(0)).unwrap();
            assert_eq!(
                (limit.setting().rate.to_string(), limit.setting().burst),
                ("5/s".to_owned(), 3)
            );
        }
    }

    #[test]
    fn a_window_refuses_unsupported_changes() {
        let window = limit(Kind::FixedWindow, "10/m", 10);
        assert_eq!(window.change(None, Some(3), Nanos(0)), Err(ChangeError::Burst));
        assert_eq!(
            window.change(Some("1/s".parse().unwrap()), None, Nanos(0)),
            Err(ChangeError::Period)
        );
        window.change(Some("4/m".parse().unwrap()), None, Nanos(0)).unwrap();
        assert_eq!(
            (window.setting().rate.to_string(), window.setting().burst),
            ("4/m".to_owned(), 4)
        );
    }

    #[test]
    fn each_kind_decides_by_its_own_rule() {
        let second = |kind| {
            let limit = limit(kind, "1/s", 1);
            let cell = Cell::default();
            assert!(cell.decide(&limit, 1, Nanos(0)).is_admitted());
            cell.decide(&limit, 1, Nanos(0))
        };
        assert!(matches!(second(Kind::TokenBucket), Decision::Refused { .. }));
        assert!(matches!(
            second(Kind::LeakyBucket { max_wait: Duration::from_secs(2) }),
            Decision::Wait { .. }
        ));
        assert!(matches!(second(Kind::FixedWindow), Decision::Refused { .. }));
    }
}
