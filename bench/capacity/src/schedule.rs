//! Times at which requests are answered. They are absolute and depend on arrivals alone, so a late
//! wake-up delays one request and no other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::random::Random;

/// Decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Answered with 200, not before this time, in ns.
    LeavesAt(u64),
    /// Answered with 429, at once.
    Refused,
}

/// Kind of a server's limit.
#[derive(Clone, Debug)]
pub enum LimitKind {
    /// A token bucket: one token per `gap_ns`, at most `burst` in stock. Early requests wait for a
    /// token.
    Delays(Bucket),
    /// The same bucket; early requests are refused.
    Refuses(Bucket),
    /// One worker, first come, first served. Work is exponential with mean `mean_ns`.
    Queue { mean_ns: f64, random: Random },
    /// Several workers, first come, first served. Work always takes `work_ns`.
    Workers { work_ns: u64, free_at_ns: BinaryHeap<Reverse<u64>> },
}

/// A token bucket as a generic cell rate algorithm (ITU-T I.371, appendix); `next_ns` is the due
/// time of the next request at an even rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    pub gap_ns: f64,
    pub burst: f64,
    pub next_ns: f64,
}

/// State of a server.
#[derive(Debug)]
pub struct Schedule {
    limit_kind: LimitKind,
    /// Time at which the last accepted request is answered.
    last_ns: u64,
    /// Number of requests with work, and their total work.
    pub works: u64,
    pub work_ns: f64,
}

impl Schedule {
    pub fn new(limit_kind: LimitKind) -> Self {
        Self { limit_kind, last_ns: 0, works: 0, work_ns: 0.0 }
    }

    /// Returns the decision on a request that arrives now, in ns; arrivals must not go back in
    /// time.
    pub fn arrival(&mut self, now_ns: u64) -> Decision {
        let leaves_ns = match &mut self.limit_kind {
            LimitKind::Delays(bucket) => bucket.take(now_ns as f64),
            LimitKind::Refuses(bucket) => {
                if bucket.next_ns - now_ns as f64 > bucket.gap_ns * (bucket.burst - 1.0) {
                    return Decision::Refused;
                }
                bucket.take(now_ns as f64);
                now_ns
            }
            LimitKind::Queue { mean_ns, random } => {
                let work_ns = random.exponential() * *mean_ns;
                self.works += 1;
                self.work_ns += work_ns;
                self.last_ns.max(now_ns) + work_ns as u64
            }
            LimitKind::Workers { work_ns, free_at_ns } => {
                self.works += 1;
                self.work_ns += *work_ns as f64;
                let Reverse(free_ns) = free_at_ns.pop().unwrap_or_default();
                let leaves_ns = free_ns.max(now_ns) + *work_ns;
                free_at_ns.push(Reverse(leaves_ns));
                leaves_ns
            }
        };
        self.last_ns = self.last_ns.max(leaves_ns);
        Decision::LeavesAt(self.last_ns)
    }
}

impl LimitKind {
    /// Returns workers whose work takes as long as to answer `rate` requests per second together.
    pub fn workers(rate: f64, workers: NonZeroUsize) -> Self {
        let work_ns = (1e9 * workers.get() as f64 / rate) as u64;
        Self::Workers { work_ns, free_at_ns: vec![Reverse(0); workers.get()].into() }
    }
}

impl Bucket {
    pub fn new(rate: f64, burst: f64) -> Self {
        Self { gap_ns: Duration::from_secs(1).as_nanos() as f64 / rate, burst, next_ns: 0.0 }
    }

    /// Takes a token and returns the time at which it is available.
    fn take(&mut self, now_ns: f64) -> u64 {
        let due_ns = self.next_ns.max(now_ns - self.gap_ns * (self.burst - 1.0));
        self.next_ns = due_ns + self.gap_ns;
        due_ns.max(now_ns) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_bucket_delays_what_exceeds_its_rate() {
        let mut schedule = Schedule::new(LimitKind::Delays(Bucket::new(1_000.0, 2.0)));
        let at: Vec<Decision> = [0; 4].map(|ms: u64| schedule.arrival((1_000 + ms) * MS)).to_vec();
        let leaves = |ms: u64| Decision::LeavesAt((1_000 + ms) * MS);
        assert_eq!(at, [leaves(0), leaves(0), leaves(1), leaves(2)]);
        assert_eq!(schedule.arrival(2_000 * MS), Decision::LeavesAt(2_000 * MS));
    }

    #[test]
    fn a_bucket_refuses_what_exceeds_its_rate() {
        let mut schedule = Schedule::new(LimitKind::Refuses(Bucket::new(1_000.0, 10.0)));
        let mut accepted = |per_s: u64| {
            let times = (0..10 * per_s).map(|i| 10_000 * MS + i * 1_000 * MS / per_s);
            times.filter(|now| schedule.arrival(*now) != Decision::Refused).count()
        };
        assert!((10_000..=10_020).contains(&accepted(2_000)));
    }

    #[test]
    fn workers_work_at_once() {
        let two = NonZeroUsize::new(2).expect("not zero");
        let mut schedule = Schedule::new(LimitKind::workers(200.0, two));
        let at = [0, 1, 2, 30].map(|ms| schedule.arrival((1_000 + ms) * MS));
        let leaves = |ms: u64| Decision::LeavesAt((1_000 + ms) * MS);
        assert_eq!(at, [leaves(10), leaves(11), leaves(20), leaves(40)]);
        assert_eq!((schedule.works, schedule.work_ns), (4, 4e7));
    }

    #[test]
    fn work_follows_work_and_is_exponential() {
        let mut schedule = Schedule::new(LimitKind::Queue { mean_ns: 1e6, random: Random::new(1) });
        let mut last_ns = 0;
        let mut longest_ns = 0;
        for _ in 0..100_000 {
            let Decision::LeavesAt(at_ns) = schedule.arrival(0) else {
                panic!("a queue never refuses")
            };
            longest_ns = longest_ns.max(at_ns - last_ns);
            last_ns = at_ns;
        }
        assert!(
            (last_ns as f64 / 1e11 - 1.0).abs() < 0.02 && (8 * MS..20 * MS).contains(&longest_ns),
            "{longest_ns}"
        );
        assert_eq!(schedule.works, 100_000);
    }
}
