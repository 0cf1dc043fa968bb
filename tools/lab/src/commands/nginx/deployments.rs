//! Deployments known to `hotrow-lab nginx`.

use hotrow_proxies::nginx::{Balance, Cache, CacheLifetime};

#[derive(Debug)]
pub(crate) struct NamedDeployment {
    /// Its names, the main one first.
    pub(crate) names: &'static [&'static str],
    pub(crate) description: &'static str,
    pub(crate) balance: Balance,
    /// Weights of its default backends, and of given ones without a weight, in order.
    pub(crate) weights: &'static [u32],
    pub(crate) cache: Option<Cache>,
    pub(crate) tls: bool,
}

const PLAIN: NamedDeployment = NamedDeployment {
    names: &[],
    description: "",
    balance: Balance::RoundRobin,
    weights: &[1],
    cache: None,
    tls: false,
};
const FIXED_1_S: Option<Cache> = Some(Cache { ttl_s: 1, lifetime: CacheLifetime::Fixed });
const FROM_BACKEND: Option<Cache> = Some(Cache { ttl_s: 1, lifetime: CacheLifetime::FromBackend });

/// All deployments, in listing order.
pub(crate) const DEPLOYMENTS: &[NamedDeployment] = &[
    NamedDeployment {
        names: &["one-backend", "w10"],
        description: "One backend (published deployment 1).",
        ..PLAIN
    },
    NamedDeployment {
        names: &["round-robin", "w11"],
        description: "Round robin over two backends (published deployment 2).",
        weights: &[1, 1],
        ..PLAIN
    },
    NamedDeployment {
        names: &["round-robin-limited", "w11-limited"],
        description: "Round robin over three backends (published deployment 2 with limited CPU).",
        weights: &[1, 1, 1],
        ..PLAIN
    },
    NamedDeployment {
        names: &["round-robin-cache", "w12"],
        description: "Round robin over two backends, responses cached for a second (published \
            deployment 2-withcache).",
        weights: &[1, 1],
        cache: FIXED_1_S,
        ..PLAIN
    },
    NamedDeployment {
        names: &["weights", "w13"],
        description: "Weights 4:1 over two backends (published deployment 3).",
        balance: Balance::Weights,
        weights: &[4, 1],
        ..PLAIN
    },
    NamedDeployment {
        names: &["weights-limited", "w13-limited"],
        description: "Weights 4:1:1 over three backends (published deployment 3 with limited CPU).",
        balance: Balance::Weights,
        weights: &[4, 1, 1],
        ..PLAIN
    },
    NamedDeployment {
        names: &["proxy-cost", "w21"],
        description: "One backend, to measure the cost of a proxy; add --access-log, or use tls.",
        ..PLAIN
    },
    NamedDeployment {
        names: &["least-connections"],
        description: "Two backends, each request to the one with the fewest requests in progress.",
        balance: Balance::LeastConnections,
        weights: &[1, 1],
        ..PLAIN
    },
    NamedDeployment {
        names: &["hash", "w5"],
        description: "Consistent hash of the id over five backends: each caches its own part of \
            the records.",
        balance: Balance::HashOnId,
        weights: &[1, 1, 1, 1, 1],
        ..PLAIN
    },
    NamedDeployment {
        names: &["cache-control"],
        description: "One backend, whose Cache-Control determines the cache time.",
        cache: FROM_BACKEND,
        ..PLAIN
    },
    NamedDeployment {
        names: &["tls"],
        description: "One backend, HTTPS for clients.",
        tls: true,
        ..PLAIN
    },
];

pub(crate) fn list() -> String {
    let line = |deployment: &NamedDeployment| {
        format!("{:<34} {}\n", deployment.names.join(", "), deployment.description)
    };
    DEPLOYMENTS.iter().map(line).collect()
}
