//! Inputs of the model. Each names the run that measured it, or says that it is assumed.

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A kept run in `bench/runs`.
    Run(&'static str),
    /// Not measured: a round figure on the safe side.
    Assumed,
}

/// A figure with its unit.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
    pub origin: Origin,
}

const HUB: Origin = Origin::Run("2026-11-26-0404-feed-hub");
const SERVE: Origin = Origin::Run("2026-11-26-0400-serve");
const HUB_COST: Origin = Origin::Run("2026-11-26-0601-feed-hub-cost");
const COLD: Origin = Origin::Run("2026-11-20-2344-cold");

const fn input(name: &'static str, value: f64, unit: &'static str, origin: Origin) -> Input {
    Input { name, value, unit, origin }
}

pub const HIT: Input = input("instance: a hit", 4.99, "µs of CPU", SERVE);
pub const MISS: Input = input("instance: a miss", 13.7, "µs of CPU", COLD);
pub const READ_MERGED: Input =
    input("database: a key, 9.5 of them per query", 9.0, "µs of CPU", COLD);
pub const READ_ALONE: Input = input("database: a key alone in its query", 30.3, "µs of CPU", COLD);
pub const CATALOGUE: Input =
    input("database: an instance's look at the tables' shapes", 2_670.0, "µs of CPU per s", HUB);
pub const PROBES: Input = input("database: probes of one feed", 4_022.0, "µs of CPU per s", HUB);
pub const CHANGE: Input =
    input("database: a change in one feed (13,007 µs/s at 200/s)", 65.0, "µs of CPU", HUB);
pub const DELIVERY: Input =
    input("NATS: one change to one of ten instances", 10.3, "µs of CPU", HUB_COST);
pub const APPLY: Input = input("instance: a change", 14.7, "µs of CPU", HUB_COST);
pub const CHANGE_BYTES: Input = input("a change on its way", 76.0, "bytes", HUB_COST);
pub const ROW_BYTES: Input = input("a row on its way", 500.0, "bytes", Origin::Assumed);

/// All, in the order of the table.
pub const ALL: [Input; 11] = [
    HIT,
    MISS,
    READ_MERGED,
    READ_ALONE,
    CATALOGUE,
    PROBES,
    CHANGE,
    DELIVERY,
    APPLY,
    CHANGE_BYTES,
    ROW_BYTES,
];

/// What one machine of each kind has; a share above 1 is more than that.
pub struct Limits {
    pub instance_cores: f64,
    pub primary_cores: f64,
    pub primary_connections: f64,
    pub nats_cores: f64,
    pub network_bits: f64,
}

pub const LIMITS: Limits = Limits {
    instance_cores: 2.0,
    primary_cores: 8.0,
    primary_connections: 500.0,
    nats_cores: 4.0,
    network_bits: 10e9,
};

/// Connections of an instance to the database: `reads_in_flight`, and the one that watches the
/// tables' shapes.
pub const CONNECTIONS: f64 = 5.0;
/// Interval of the looks at the log's end: a quarter of `max_staleness`.
pub const PROBE_INTERVAL_S: f64 = 0.25;
/// Time for which a loss lasts until an instance has joined again.
pub const JOIN_S: f64 = 0.5;
/// Misses per second of one instance from which its queries have several keys: the rate of the run.
pub const MERGED_FROM: f64 = 5_000.0;
