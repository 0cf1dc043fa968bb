//! Built-in experiments, in the order of `hotrow-lab list`.

/// A built-in experiment.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name, as in `hotrow-lab run NAME`.
    pub name: &'static str,
    /// Other names: its workload numbers.
    pub also: &'static [&'static str],
    /// Its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal $also:expr),* $(,)?) => {
        /// All built-in experiments.
        pub const SHIPPED: &[Shipped] = &[$(Shipped {
            name: $name,
            also: &$also,
            text: include_str!(concat!("../../../../experiments/", $name, ".toml")),
        }),*];
    };
}

shipped![
    "small-responses" ["w1"],
    "cache-or-database" ["w3", "w4"],
    "balancer-hit-ratio" ["w5"],
    "cold-record-burst" ["w7"],
    "backends-shared-cpu" ["w10a", "w8", "w9", "w10", "w11", "w12", "w13"],
    "backends-limited-cpu" ["w10b"],
    "connection-cost" ["w19"],
    "orm-cost" ["w20"],
    "proxy-cost" ["w21"],
    "worker-count" ["workers"],
    "round-trip-time" ["rtt"],
    "tls-cost" ["tls"],
];

/// Finds an experiment by name or alias, ignoring case.
#[must_use]
pub fn find(name: &str) -> Option<&'static Shipped> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    SHIPPED.iter().find(|shipped| is(shipped.name) || shipped.also.iter().any(|also| is(also)))
}
