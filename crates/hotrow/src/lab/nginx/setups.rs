//! The set-ups that `hotrow lab nginx` knows by name.

use hotrow_lab::nginx::{Balance, Cache, Life};

/// One of them.
#[derive(Debug)]
pub(super) struct Setup {
    /// Its names, the shortest first.
    pub(super) names: &'static [&'static str],
    /// One line.
    pub(super) what: &'static str,
    pub(super) balance: Balance,
    /// Of its backends when none are named, and in this order of those that are named without one.
    pub(super) weights: &'static [u32],
    pub(super) cache: Option<Cache>,
    pub(super) tls: bool,
}

const PLAIN: Setup =
    Setup { names: &[], what: "", balance: Balance::RoundRobin, weights: &[1], cache: None, tls: false };
const AT_MOST_1_S: Option<Cache> = Some(Cache { ttl_s: 1, life: Life::AtMost });
const AS_TOLD: Option<Cache> = Some(Cache { ttl_s: 1, life: Life::AsTold });

/// All of them, in the order of the list.
pub(super) const SETUPS: &[Setup] = &[
    Setup { names: &["w10", "one"], what: "One backend (the original's set-up 1).", ..PLAIN },
    Setup {
        names: &["w11", "round-robin"],
        what: "In turn over two backends (the original's set-up 2).",
        weights: &[1, 1],
        ..PLAIN
    },
    Setup {
        names: &["w11-limited"],
        what: "In turn over three backends (the original's set-up 2 with limited CPU).",
        weights: &[1, 1, 1],
        ..PLAIN
    },
    Setup {
        names: &["w12", "w12-cache"],
        what: "In turn over two backends, every answer kept for a second (the original's set-up 2-withcache).",
        weights: &[1, 1],
        cache: AT_MOST_1_S,
        ..PLAIN
    },
    Setup {
        names: &["w13", "weights"],
        what: "By weights 4:1 over two backends (the original's set-up 3).",
        balance: Balance::Weights,
        weights: &[4, 1],
        ..PLAIN
    },
    Setup {
        names: &["w13-limited"],
        what: "By weights 4:1:1 over three backends (the original's set-up 3 with limited CPU).",
        balance: Balance::Weights,
        weights: &[4, 1, 1],
        ..PLAIN
    },
    Setup { names: &["w21"], what: "One backend, to see what a proxy costs; add --access-log, or take tls.", ..PLAIN },
    Setup {
        names: &["least-connections"],
        what: "To the one of two backends that has the fewest requests under way.",
        balance: Balance::LeastConnections,
        weights: &[1, 1],
        ..PLAIN
    },
    Setup {
        names: &["hash", "w5"],
        what: "By a consistent hash of the id over five backends: each caches its own part of the records.",
        balance: Balance::HashOnId,
        weights: &[1, 1, 1, 1, 1],
        ..PLAIN
    },
    Setup {
        names: &["cache"],
        what: "One backend, which says itself how long its answers are kept.",
        cache: AS_TOLD,
        ..PLAIN
    },
    Setup { names: &["tls"], what: "One backend, HTTPS to the clients.", tls: true, ..PLAIN },
];

/// The list for people.
pub(super) fn list() -> String {
    let line = |setup: &Setup| format!("{:<20} {}\n", setup.names.join(", "), setup.what);
    SETUPS.iter().map(line).collect()
}
