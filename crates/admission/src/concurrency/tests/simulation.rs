//! Simulated database in virtual time, for the tests: servers behind a queue, slow spells, a cliff.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::concurrency::limit::{Config, Limiter, Outcome, Sample};

/// Pseudo-random numbers (xorshift64*), the same in each run.
pub(in crate::concurrency) struct Random(u64);

impl Random {
    pub(in crate::concurrency) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number evenly distributed between 0 and 1, both excluded.
    pub(in crate::concurrency) fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Returns a number exponentially distributed with mean 1.
    pub(in crate::concurrency) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}

/// Behaviour of the database.
#[derive(Clone, Copy)]
pub(in crate::concurrency) struct Database {
    /// Queries processed at once; the others wait inside the database.
    pub(in crate::concurrency) servers: usize,
    /// Seconds of work per query and per key.
    pub(in crate::concurrency) base_s: f64,
    pub(in crate::concurrency) per_key_s: f64,
    /// `true`: work is multiplied by an exponentially distributed factor with mean 1.
    pub(in crate::concurrency) random: bool,
    /// More queries than this hinder each other: work grows by the square of the surplus.
    pub(in crate::concurrency) cliff: usize,
    /// Work takes this many times as long between these seconds.
    pub(in crate::concurrency) spell: (f64, f64, f64),
    /// All queries time out between these seconds.
    pub(in crate::concurrency) outage: (f64, f64),
}

impl Database {
    pub(in crate::concurrency) const WELL: Self = Self {
        servers: usize::MAX,
        base_s: 0.001,
        per_key_s: 0.0,
        random: false,
        cliff: usize::MAX,
        spell: (0.0, 0.0, 1.0),
        outage: (0.0, 0.0),
    };
}

/// Requests of the clients.
#[derive(Clone, Copy)]
pub(in crate::concurrency) struct Load {
    /// Queries waiting to be sent at any time.
    pub(in crate::concurrency) queries: usize,
    /// Keys of a query: from, to.
    pub(in crate::concurrency) keys: (usize, usize),
}

/// Results, second by second.
#[derive(Default)]
pub(in crate::concurrency) struct SimulationResult {
    /// Mean limit of each second.
    pub(in crate::concurrency) limits: Vec<f64>,
    /// Queries answered in each second.
    pub(in crate::concurrency) answered: Vec<f64>,
    pub(in crate::concurrency) probes_total: u64,
}

impl SimulationResult {
    pub(in crate::concurrency) fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

struct Flight {
    sent_at: Nanos,
    keys: usize,
    in_flight: usize,
    sent_before: u64,
    timed_out: bool,
}

/// Simulates `seconds` seconds, with as many queries in flight as the limit and the load allow.
pub(in crate::concurrency) fn run(
    config: Config,
    database: Database,
    load: Load,
    seconds: u64,
) -> SimulationResult {
    let mut world = World {
        database,
        load,
        limiter: Limiter::new(config, 1),
        random: Random::new(42),
        free_at: Vec::new(),
        ends: BinaryHeap::new(),
        flights: Vec::new(),
        sent: 0,
    };
    let mut result = SimulationResult::default();
    let mut now = Nanos::ZERO;
    let mut next_second = second(1);
    let mut limits = Vec::new();
    let mut answered = 0.0;
    while result.limits.len() < seconds as usize {
        world.send(now);
        let Reverse((ends_at, slot)) = world.ends.pop().expect("something is under way");
        now = Nanos(ends_at);
        while now >= next_second {
            result.limits.push(if limits.is_empty() {
                world.limiter.limit() as f64
            } else {
                SimulationResult::mean(&limits)
            });
            result.answered.push(answered);
            (limits, answered) = (Vec::new(), 0.0);
            next_second = next_second.after(Duration::from_secs(1));
        }
        answered += f64::from(u8::from(world.end(slot, now)));
        limits.push(world.limiter.limit() as f64);
    }
    result.probes_total = world.limiter.probes_total();
    result
}

const fn second(n: u64) -> Nanos {
    Nanos(n * 1_000_000_000)
}

struct World {
    database: Database,
    load: Load,
    limiter: Limiter,
    random: Random,
    /// Time from which each server is free.
    free_at: Vec<f64>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    flights: Vec<Option<Flight>>,
    sent: u64,
}

impl World {
    fn send(&mut self, now: Nanos) {
        while self.ends.len() < self.limiter.limit().min(self.load.queries) {
            let (from, to) = self.load.keys;
            let keys = from + ((to - from) as f64 * self.random.unit()) as usize;
            let now_s = now.0 as f64 / 1e9;
            let timed_out = (self.database.outage.0..self.database.outage.1).contains(&now_s);
            let ends_s = if timed_out { now_s + 0.2 } else { self.work(keys, now_s) };
            let flight = Flight {
                sent_at: now,
                keys,
                in_flight: self.ends.len() + 1,
                sent_before: self.sent,
                timed_out,
            };
            self.sent += 1;
            let slot = self.flights.iter().position(Option::is_none).unwrap_or_else(|| {
                self.flights.push(None);
                self.flights.len() - 1
            });
            self.flights[slot] = Some(flight);
            self.ends.push(Reverse(((ends_s * 1e9) as u64, slot)));
        }
    }

    /// Returns the time of the answer to a query sent now.
    fn work(&mut self, keys: usize, now_s: f64) -> f64 {
        let database = self.database;
        let factor = if database.random { self.random.exponential() } else { 1.0 };
        let surplus = (self.ends.len() + 1).saturating_sub(database.cliff) as f64;
        let (from, to, slower) = database.spell;
        let spell = if (from..to).contains(&now_s) { slower } else { 1.0 };
        let work_s = (database.base_s + database.per_key_s * keys as f64)
            * factor
            * (1.0 + surplus * surplus)
            * spell;
        if database.servers == usize::MAX {
            return now_s + work_s;
        }
        self.free_at.resize(database.servers, 0.0);
        let first =
            self.free_at.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there is a server");
        *first = first.max(now_s) + work_s;
        *first
    }

    /// Ends a query. Returns whether it was answered.
    fn end(&mut self, slot: usize, now: Nanos) -> bool {
        let flight = self.flights[slot].take().expect("it is under way");
        let alone = flight.in_flight == 1 && self.sent == flight.sent_before + 1;
        let outcome = if flight.timed_out { Outcome::TimedOut } else { Outcome::Answered };
        let keys = flight.keys;
        let in_flight = flight.in_flight;
        let latency = now.since(flight.sent_at);
        self.limiter
            .record(&Sample { collection: 0, keys, latency, outcome, in_flight, alone }, now);
        outcome == Outcome::Answered
    }
}
