//! An experiment's deployments and times in words, for the report.

use std::time::Duration;

use super::{DeploymentSpec, Proxy, ProxyKind};
use hotrow_proxies::nginx::{Balance, ProxyProfile};

/// Describes the proxy: "nginx, tuned profile", "none".
pub(super) fn proxy_text(deployment: &DeploymentSpec) -> String {
    let Some(proxy) = &deployment.proxy else { return "none".to_owned() };
    let mut words = match (proxy.kind, &proxy.template, proxy.profile) {
        (ProxyKind::Haproxy, ..) => "HAProxy".to_owned(),
        (_, Some(_), _) => "nginx, own configuration".to_owned(),
        (_, None, ProxyProfile::Published) => "nginx, published profile".to_owned(),
        (_, None, ProxyProfile::Tuned) => "nginx, tuned profile".to_owned(),
    };
    match proxy.upstream_keepalive {
        None => {}
        Some(0) => words.push_str(", no upstream keep-alive"),
        Some(connections) => words.push_str(&format!(", upstream keep-alive {connections}")),
    }
    if let Some(n) = proxy.failover.max_fails {
        words.push_str(&format!(", max_fails={n}"));
    }
    if let Some(seconds) = proxy.failover.fail_timeout_s {
        words.push_str(&format!(", fail_timeout={seconds}s"));
    }
    if !proxy.failover.retry {
        words.push_str(", one attempt");
    }
    if let Some(level) = proxy.gzip {
        words.push_str(&format!(", gzip {level}"));
    }
    if let Some(rate) = proxy.response_rate {
        words.push_str(&format!(", {rate} bytes/s per response"));
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
pub(super) fn caching_text(deployment: &DeploymentSpec) -> String {
    let cache = deployment.proxy.as_ref().and_then(|proxy| proxy.cache);
    cache.map_or_else(|| "none".to_owned(), |time| format!("{} in nginx", duration_text(time)))
}

/// Describes the balancing: "round robin over 3", "weights 4:1:1", "none".
pub(super) fn balancing_text(deployment: &DeploymentSpec) -> String {
    let Some(Proxy { balance, failover, load_bound, .. }) = &deployment.proxy else {
        return "none".to_owned();
    };
    let n = deployment.weights.len().saturating_sub(deployment.spares);
    if let Some(primaries) = n.checked_sub(failover.backups).filter(|_| failover.backups > 0) {
        return format!("{primaries}, with {} as backup", failover.backups);
    }
    match balance {
        _ if n == 1 => "none".to_owned(),
        Balance::RoundRobin => format!("round robin over {n}"),
        Balance::Weights => {
            let weights: Vec<String> = deployment.weights.iter().map(u32::to_string).collect();
            format!("weights {}", weights.join(":"))
        }
        Balance::LeastConnections => format!("least connections of {n}"),
        Balance::HashOnId => match load_bound {
            None => format!("hash of the id over {n}"),
            Some(percent) => format!("hash of the id over {n}, bounded load {percent} %"),
        },
        Balance::ModuloOnId => format!("hash of the id, modulo {n}"),
        Balance::IpHash => format!("hash of the client's address over {n}"),
    }
}

/// Formats a duration: "1 s", "250 ms".
pub(crate) fn duration_text(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_secs_f64() * 1e3),
    }
}
