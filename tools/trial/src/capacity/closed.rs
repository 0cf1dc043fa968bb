//! Closed-loop search: connections are doubled until the throughput stops rising, and the same
//! numbers of connections are measured again in further rounds, to separate variation over time
//! from the effect of the connections. Pure: [`Climb::next`] takes the last result and returns the
//! next step.

use std::time::Duration;

use hotrow_measure::statistics::median;

use super::usl::Point;

/// Smallest relative gain that counts as a rise of the throughput.
pub const RISE: f64 = 0.05;
/// Doublings in a row without a rise that end the climb; a single one may be an accident.
pub const FLAT_MAX: usize = 2;
/// Pause after a step.
pub const PAUSE: Duration = Duration::from_millis(200);

/// Limits of a climb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections.
    pub connections_max: usize,
    /// Measurements of each number of connections.
    pub rounds: usize,
    /// Length of one measurement.
    pub step: Duration,
    /// Total time of the climb.
    pub time: Duration,
}

/// Climb over numbers of connections.
#[derive(Clone, Debug)]
pub struct Climb {
    limits: Limits,
    levels: Vec<Level>,
    /// Current round, from 0.
    round: usize,
    /// Index of the next or current level.
    at: usize,
    /// Reason the first round ended.
    top: Option<Top>,
    under_way: bool,
    /// True if the generator was the limit once at the next level; it may have been an accident.
    again: bool,
    used: Duration,
}

/// One number of connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Connections.
    pub connections: usize,
    /// Rate of each round, in requests per second.
    pub rates_rps: Vec<f64>,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Load.
    Run {
        /// Connections.
        connections: usize,
        /// Warm-up before `length`; not counted.
        warmup: Duration,
        /// Measured time.
        length: Duration,
        /// Time without load afterwards.
        pause: Duration,
    },
    /// The climb has ended.
    Done(ClimbEnd),
}

/// Result of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Expected responses per second.
    pub rate_rps: f64,
    /// LevelVerdict on the load.
    pub verdict: LevelVerdict,
    /// Total time that the load took.
    pub took: Duration,
}

/// LevelVerdict on a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelVerdict {
    /// The rate is the target's.
    Fine,
    /// The generator was the bottleneck.
    GeneratorLimited,
    /// The load caused harm; the climb must end.
    Harmed,
}

/// Reason a climb stopped rising.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Top {
    Knee,
    Most,
    Generator,
}

/// Reason a climb ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClimbEnd {
    /// More connections did not raise the throughput.
    Knee,
    /// The throughput still rose at the largest allowed number of connections.
    StillRising,
    /// The generator reached its own limit.
    GeneratorLimited,
    /// The time was used up.
    TimeUp,
    /// A load caused harm.
    Harmed,
    /// The user interrupted it.
    Interrupted,
}

impl Climb {
    /// Creates a climb that has not started.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let first = Level { connections: 1, rates_rps: Vec::new() };
        Self {
            limits,
            levels: vec![first],
            round: 0,
            at: 0,
            top: None,
            under_way: false,
            again: false,
            used: Duration::ZERO,
        }
    }

    /// Returns the next step, given the result of the load that the last step asked for.
    pub fn next(&mut self, last: Option<Measured>) -> Step {
        if let Some(measured) = last.filter(|_| std::mem::take(&mut self.under_way)) {
            self.used = self.used.saturating_add(measured.took);
            let limited = measured.verdict == LevelVerdict::GeneratorLimited;
            self.again = limited && self.round == 0 && !self.again;
            match measured.verdict {
                LevelVerdict::Harmed => return Step::Done(ClimbEnd::Harmed),
                LevelVerdict::Fine => self.levels[self.at].rates_rps.push(measured.rate_rps),
                // A lower bound is not a result, and higher levels have the same bound.
                LevelVerdict::GeneratorLimited if self.round == 0 && !self.again => {
                    self.top = Some(Top::Generator)
                }
                LevelVerdict::GeneratorLimited => {}
            }
            if !self.again {
                self.advance();
            }
        }
        if self.round >= self.limits.rounds.max(1) || self.levels.is_empty() {
            return Step::Done(self.end());
        }
        let Limits { step, time, .. } = self.limits;
        let warmup = step / super::WARMUP_PART;
        if self.used.saturating_add(warmup + step + PAUSE) > time {
            return Step::Done(if self.round == 0 { ClimbEnd::TimeUp } else { self.end() });
        }
        self.under_way = true;
        Step::Run {
            connections: self.levels[self.at].connections,
            warmup,
            length: step,
            pause: PAUSE,
        }
    }

    /// Returns the measured levels, fewest connections first.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Moves to the next level: twice the connections in the first round, the same levels again
    /// afterwards.
    fn advance(&mut self) {
        if self.round > 0 {
            self.at += 1;
        } else {
            if self.top.is_none() {
                self.top = self.top_reached();
            }
            if self.top.is_none() {
                let more = self.levels[self.at]
                    .connections
                    .saturating_mul(2)
                    .min(self.limits.connections_max);
                self.levels.push(Level { connections: more, rates_rps: Vec::new() });
            }
            self.at += 1;
            // The level at which the generator was the bottleneck has no rate.
            self.levels.retain(|level| self.top.is_none() || !level.rates_rps.is_empty());
        }
        if self.at >= self.levels.len() {
            (self.round, self.at) = (self.round + 1, 0);
        }
    }

    fn top_reached(&self) -> Option<Top> {
        let rates: Vec<f64> =
            self.levels.iter().filter_map(|level| level.rates_rps.first().copied()).collect();
        let flat = rates.len().checked_sub(FLAT_MAX).filter(|earlier| *earlier > 0).is_some_and(
            |earlier| {
                let best = rates[..earlier].iter().copied().fold(0.0, f64::max);
                rates[earlier..].iter().all(|rate| *rate < best * (1.0 + RISE))
            },
        );
        if flat {
            return Some(Top::Knee);
        }
        (self.levels[self.at].connections >= self.limits.connections_max).then_some(Top::Most)
    }

    fn end(&self) -> ClimbEnd {
        match self.top {
            Some(Top::Knee) => ClimbEnd::Knee,
            Some(Top::Generator) => ClimbEnd::GeneratorLimited,
            Some(Top::Most) => ClimbEnd::StillRising,
            None => ClimbEnd::TimeUp,
        }
    }
}

impl Level {
    /// Returns the median rate of the rounds; `None` before the first.
    pub fn median_rps(&self) -> Option<f64> {
        median(&self.rates_rps)
    }
}

/// Returns the fewest connections that reach the best throughput less [`RISE`], and that best
/// throughput.
pub fn knee(levels: &[Level]) -> Option<(usize, f64)> {
    let measured: Vec<(usize, f64)> =
        levels.iter().filter_map(|l| Some((l.connections, l.median_rps()?))).collect();
    let best = measured.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    measured.into_iter().find(|(_, rate)| *rate >= best * (1.0 - RISE) && *rate > 0.0)
}

/// Returns every measurement, as input for [`super::usl::fit`].
pub fn points(levels: &[Level]) -> Vec<Point> {
    let of = |level: &Level| {
        let connections = level.connections as f64;
        let point = move |rate_rps: &f64| Point { connections, rate_rps: *rate_rps };
        level.rates_rps.iter().map(point).collect::<Vec<_>>()
    };
    levels.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        connections_max: 1024,
        rounds: 3,
        step: Duration::from_secs(2),
        time: Duration::from_secs(300),
    };

    fn drive(
        limits: Limits,
        mut server: impl FnMut(usize) -> (f64, LevelVerdict),
    ) -> (Climb, ClimbEnd) {
        let (mut climb, mut last) = (Climb::new(limits), None);
        for _ in 0..1000 {
            match climb.next(last) {
                Step::Done(end) => return (climb, end),
                Step::Run { connections, warmup, length, pause } => {
                    let (rate_rps, verdict) = server(connections);
                    last = Some(Measured { rate_rps, verdict, took: warmup + length + pause });
                }
            }
        }
        panic!("it does not end: {climb:?}")
    }

    /// Four workers of 1 ms each.
    fn workers(connections: usize) -> f64 {
        connections.min(4) as f64 * 1_000.0
    }

    #[test]
    fn connections_double_until_the_throughput_stops_rising_and_are_measured_again() {
        let (climb, end) = drive(LIMITS, |n| (workers(n), LevelVerdict::Fine));
        assert_eq!(end, ClimbEnd::Knee);
        let connections: Vec<usize> =
            climb.levels().iter().map(|level| level.connections).collect();
        assert_eq!(connections, [1, 2, 4, 8, 16]);
        assert!(climb.levels().iter().all(|level| level.rates_rps.len() == 3), "{climb:?}");
        assert_eq!(knee(climb.levels()), Some((4, 4_000.0)));
        assert_eq!(points(climb.levels()).len(), 15);
    }

    #[test]
    fn one_bad_step_does_not_end_the_climb() {
        let mut bad = true;
        let (climb, end) = drive(LIMITS, |n| {
            let hiccup = n == 2 && std::mem::take(&mut bad);
            (if hiccup { 300.0 } else { workers(n) }, LevelVerdict::Fine)
        });
        assert_eq!((end, knee(climb.levels())), (ClimbEnd::Knee, Some((4, 4_000.0))));
    }

    #[test]
    fn a_level_is_retried_after_the_generator_lost_its_cpu_once() {
        let mut bad = true;
        let (climb, end) = drive(LIMITS, |n| {
            let lost = n == 2 && std::mem::take(&mut bad);
            (workers(n), if lost { LevelVerdict::GeneratorLimited } else { LevelVerdict::Fine })
        });
        assert_eq!((end, knee(climb.levels())), (ClimbEnd::Knee, Some((4, 4_000.0))));
    }

    #[test]
    fn every_other_end_is_reported() {
        let rising = |n: usize| (n as f64 * 10.0, LevelVerdict::Fine);
        let (climb, end) = drive(Limits { connections_max: 100, ..LIMITS }, rising);
        assert_eq!(
            (end, climb.levels().last().map(|level| level.connections)),
            (ClimbEnd::StillRising, Some(100))
        );
        let generator = |n: usize| {
            (10.0, if n > 8 { LevelVerdict::GeneratorLimited } else { LevelVerdict::Fine })
        };
        let (climb, end) = drive(LIMITS, |n| (rising(n).0, generator(n).1));
        assert_eq!(
            (end, climb.levels().last().map(|level| level.connections)),
            (ClimbEnd::GeneratorLimited, Some(8))
        );
        let (climb, end) = drive(LIMITS, |n| {
            (10.0, if n > 2 { LevelVerdict::Harmed } else { LevelVerdict::Fine })
        });
        assert_eq!((end, climb.levels()[1].rates_rps.len()), (ClimbEnd::Harmed, 1));
        let (climb, end) = drive(LIMITS, |_| (10.0, LevelVerdict::GeneratorLimited));
        assert_eq!((end, knee(climb.levels())), (ClimbEnd::GeneratorLimited, None));
        let (_, end) = drive(Limits { time: Duration::from_secs(5), ..LIMITS }, rising);
        assert_eq!(end, ClimbEnd::TimeUp);
        let (climb, end) = drive(Limits { time: Duration::from_secs(20), ..LIMITS }, |n| {
            (workers(n), LevelVerdict::Fine)
        });
        assert_eq!(
            (end, climb.levels()[0].rates_rps.len()),
            (ClimbEnd::Knee, 2),
            "later rounds may be left out"
        );
    }
}
