//! Descriptions of a deployment for the report.

use std::time::Duration;

use super::{DeploymentSpec, Proxy};
use crate::nginx::{Balance, ProxyProfile};

/// Describes the proxy: "nginx, tuned profile", "none".
pub(super) fn proxy(deployment: &DeploymentSpec) -> String {
    let Some(proxy) = &deployment.proxy else { return "none".to_owned() };
    let mut words = match (&proxy.template, proxy.profile) {
        (Some(_), _) => "nginx, own configuration".to_owned(),
        (None, ProxyProfile::Published) => "nginx, published profile".to_owned(),
        (None, ProxyProfile::Tuned) => "nginx, tuned profile".to_owned(),
    };
    match proxy.upstream_keepalive {
        None => {}
        Some(0) => words.push_str(", no upstream keep-alive"),
        Some(connections) => words.push_str(&format!(", upstream keep-alive {connections}")),
    }
    if proxy.access_log {
        words.push_str(", access log");
    }
    if proxy.tls {
        words.push_str(", TLS");
    }
    words
}

/// Describes the cache: "1 s in nginx", "none".
pub(super) fn caching(deployment: &DeploymentSpec) -> String {
    let cache = deployment.proxy.as_ref().and_then(|proxy| proxy.cache);
    cache.map_or_else(|| "none".to_owned(), |time| format!("{} in nginx", length(time)))
}

/// Describes the balancing: "round robin over 3", "weights 4:1:1", "none".
pub(super) fn balancing(deployment: &DeploymentSpec) -> String {
    let Some(Proxy { balance, .. }) = &deployment.proxy else { return "none".to_owned() };
    let n = deployment.weights.len();
    match balance {
        _ if n == 1 => "none".to_owned(),
        Balance::RoundRobin => format!("round robin over {n}"),
        Balance::Weights => {
            let weights: Vec<String> = deployment.weights.iter().map(u32::to_string).collect();
            format!("weights {}", weights.join(":"))
        }
        Balance::LeastConnections => format!("least connections of {n}"),
        Balance::HashOnId => format!("hash of the id over {n}"),
    }
}

/// Formats a duration: "1 s", "250 ms".
pub(super) fn length(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_secs_f64() * 1e3),
    }
}
