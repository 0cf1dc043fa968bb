//! A set-up in the words of the report.

use std::time::Duration;

use super::{Proxy, Setup};
use crate::nginx::{Balance, Form};

/// "nginx, original form", "none".
pub(super) fn proxy(setup: &Setup) -> String {
    let Some(proxy) = &setup.proxy else { return "none".to_owned() };
    let mut words = match (&proxy.template, proxy.form) {
        (Some(_), _) => "nginx, own configuration".to_owned(),
        (None, Form::Original) => "nginx, original form".to_owned(),
        (None, Form::Tuned) => "nginx, tuned form".to_owned(),
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

/// "1 s in nginx", "none".
pub(super) fn caching(setup: &Setup) -> String {
    let cache = setup.proxy.as_ref().and_then(|proxy| proxy.cache);
    cache.map_or_else(|| "none".to_owned(), |time| format!("{} in nginx", length(time)))
}

/// "round robin over 3", "weights 4:1:1", "none".
pub(super) fn balancing(setup: &Setup) -> String {
    let Some(Proxy { balance, .. }) = &setup.proxy else { return "none".to_owned() };
    let n = setup.weights.len();
    match balance {
        _ if n == 1 => "none".to_owned(),
        Balance::RoundRobin => format!("round robin over {n}"),
        Balance::Weights => {
            let weights: Vec<String> = setup.weights.iter().map(u32::to_string).collect();
            format!("weights {}", weights.join(":"))
        }
        Balance::LeastConnections => format!("least connections of {n}"),
        Balance::HashOnId => format!("hash of the id over {n}"),
    }
}

/// "1 s", "250 ms".
pub(super) fn length(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_secs_f64() * 1e3),
    }
}
