//! Whether a set-up answers rightly, and what its services counted: asked before and after, never while it is measured.

use std::net::SocketAddr;
use std::time::Duration;

use hotrow_load::ask::{self, Reply};
use hotrow_load::request::{Description, Mix, RequestError};
use hotrow_load::target::Address;

use super::metrics::Metrics;
use super::standing::{Backend, Standing};
use crate::experiment::{Count, Expect, Load, Service};

/// How long one answer may take.
const WITHIN: Duration = Duration::from_secs(10);
/// Largest answer that is taken, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest piece of an answer that a message repeats, in characters.
const SHOWN_CHARS_MAX: usize = 120;
/// Most questions through the entrance, however many backends there are.
const ROUNDS_MAX: usize = 16;

/// A plain question.
pub(super) fn get(path: &str, host: &str) -> Result<Mix, RequestError> {
    let request = Description { method: "GET", path, host, headers: &[], body: None, weight: 1, keepalive: false };
    Mix::new(&[request], None)
}

/// Asks a load's request of every backend itself, and through the entrance at least once for each of them. What is wrong.
pub(super) fn check(load: &Load, standing: &Standing, seed: u64) -> Result<(), String> {
    let entrance = &standing.entrance;
    let requests = load.requests(&entrance.host).map_err(|e| e.to_string())?;
    let wrong = |who: &str, why: String| format!("wrong answer to {} {} by {who}: {why}", load.method, load.path);
    let patience = WITHIN.max(load.timeout);
    let ask = |address: &Address, tls, seed| ask::once(address, tls, &requests, seed, patience, ANSWER_BYTES_MAX);
    for backend in &standing.backends {
        let reply = ask(&Address::Tcp(backend.address), None, seed).map_err(|e| wrong(&backend.name, e.to_string()))?;
        judge(&load.expect, &reply).map_err(|why| wrong(&backend.name, why))?;
    }
    let weights: u32 = standing.backends.iter().map(|backend| backend.weight).sum();
    for round in 0..(weights as usize).clamp(1, ROUNDS_MAX) as u64 {
        let reply = ask(&entrance.address, entrance.tls.as_ref(), seed + round)
            .map_err(|e| wrong("the set-up as a whole", e.to_string()))?;
        judge(&load.expect, &reply).map_err(|why| wrong("the set-up as a whole", why))?;
    }
    Ok(())
}

/// Whether an answer is right; if not, why.
fn judge(expect: &Expect, reply: &Reply) -> Result<(), String> {
    let shown = || {
        let text: String = reply.text().chars().take(SHOWN_CHARS_MAX).collect();
        format!("{text:?}")
    };
    match expect.status {
        Some(status) if reply.status != status => {
            return Err(format!("status {} where {status} is expected; it says {}", reply.status, shown()));
        }
        None if !(200..300).contains(&reply.status) => {
            return Err(format!("status {} where 2xx is expected; it says {}", reply.status, shown()));
        }
        _ => {}
    }
    if let Some((least, most)) = expect.body_bytes.filter(|(least, most)| !(least..=most).contains(&&reply.body.len()))
    {
        return Err(format!("a body of {} bytes where {least} to {most} are expected", reply.body.len()));
    }
    if !reply.text().contains(&expect.body_contains) {
        return Err(format!("a body without {:?}; it begins with {}", expect.body_contains, shown()));
    }
    Ok(())
}

/// What an instance has counted: requests served, where it tells.
pub(super) fn count(service: &Service, backend: &Backend) -> Result<Option<u64>, String> {
    match &service.count {
        None => Ok(None),
        Some(Count::Path(path)) => {
            let text = page(backend.address, path, &backend.name)?;
            let number = text.trim().parse().map_err(|_| {
                let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
                format!("{} answers {path} with {shown:?}; it must be a plain number", backend.name)
            })?;
            Ok(Some(number))
        }
        Some(Count::Metric(series)) => {
            let sum = metrics(service, backend)?.sum([series]);
            // A series appears with its first request.
            Ok(Some(sum.unwrap_or(0.0) as u64))
        }
    }
}

/// The metrics of an instance; empty where it has none.
pub(super) fn metrics(service: &Service, backend: &Backend) -> Result<Metrics, String> {
    match &service.metrics {
        None => Ok(Metrics::default()),
        Some(path) => Ok(Metrics::parse(&page(backend.admin, path, &backend.name)?)),
    }
}

fn page(address: SocketAddr, path: &str, name: &str) -> Result<String, String> {
    let wrong = |why: String| format!("{name} does not answer {path}: {why}");
    let request = get(path, &address.to_string()).map_err(|e| wrong(e.to_string()))?;
    let reply = ask::once(&Address::Tcp(address), None, &request, 1, WITHIN, ANSWER_BYTES_MAX)
        .map_err(|e| wrong(e.to_string()))?;
    if reply.status != 200 {
        return Err(wrong(format!("status {}", reply.status)));
    }
    Ok(reply.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged() {
        let reply = |status, body: &str| Reply { status, headers: Vec::new(), body: body.as_bytes().to_vec() };
        let any = Expect::default();
        assert!(judge(&any, &reply(204, "")).is_ok());
        assert!(judge(&any, &reply(302, "")).unwrap_err().contains("302 where 2xx"));
        let strict = Expect { status: Some(404), body_contains: "no".to_owned(), body_bytes: Some((2, 3)) };
        assert!(judge(&strict, &reply(404, "no!")).is_ok());
        assert!(judge(&strict, &reply(200, "no!")).unwrap_err().contains("200 where 404"));
        assert!(judge(&strict, &reply(404, "none")).unwrap_err().contains("4 bytes where 2 to 3"));
        assert!(judge(&strict, &reply(404, "yes")).unwrap_err().contains("without \"no\""));
    }
}
