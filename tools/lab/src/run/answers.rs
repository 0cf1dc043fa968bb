//! Checks of a deployment's responses and of its services' request counts, before and after a
//! measurement, never during it.

use std::net::SocketAddr;
use std::time::Duration;

use hotrow_transport::fetch::{self, FetchedResponse, Request};
use hotrow_transport::target::Address;

use super::deployment::Deployment;
use super::instance::Backend;
use super::metrics::Metrics;
use super::reach::Reach;
use crate::experiment::{Count, Expect, Load, Service};

/// Time limit of one response.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(10);
/// Largest accepted response, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest excerpt of a response in a message, in characters.
const SHOWN_CHARS_MAX: usize = 120;
/// Most checks through the entry point, however many backends there are.
const ROUNDS_MAX: usize = 16;

/// Sends a load's request to every backend, and through the entry point at least once per backend.
/// Returns the first problem.
pub(super) fn check(load: &Load, deployment: &Deployment, seed: u64) -> Result<(), String> {
    let entry_point = &deployment.entry_point;
    let requests =
        load.requests(&entry_point.host, &entry_point.reach.headers).map_err(|e| e.to_string())?;
    let wrong = |who: &str, why: String| {
        format!("wrong response to {} {} by {who}: {why}", load.method, load.path)
    };
    let patience = RESPONSE_TIME_MAX.max(load.timeout);
    let ask = |reach: &Reach, seed| {
        let tls = reach.tls.as_ref();
        requests.with_first(seed, |request| {
            fetch::fetch(&reach.address, tls, request, patience, ANSWER_BYTES_MAX)
        })
    };
    for backend in deployment.backends.iter().filter(|backend| backend.running) {
        let reply = ask(&backend.reach, seed).map_err(|e| wrong(&backend.name, e.to_string()))?;
        judge(&load.expect, &reply).map_err(|why| wrong(&backend.name, why))?;
    }
    let weights: u32 = deployment.backends.iter().map(|backend| backend.weight).sum();
    for round in 0..(weights as usize).clamp(1, ROUNDS_MAX) as u64 {
        let reply = ask(&entry_point.reach, seed + round)
            .map_err(|e| wrong("the deployment as a whole", e.to_string()))?;
        judge(&load.expect, &reply).map_err(|why| wrong("the deployment as a whole", why))?;
    }
    Ok(())
}

/// Checks a response; returns the reason if it is unexpected.
fn judge(expect: &Expect, reply: &FetchedResponse) -> Result<(), String> {
    let shown = || {
        let text: String = reply.text().chars().take(SHOWN_CHARS_MAX).collect();
        format!("{text:?}")
    };
    match expect.status {
        Some(status) if reply.status != status => {
            return Err(format!(
                "status {} where {status} is expected; the body is {}",
                reply.status,
                shown()
            ));
        }
        None if !(200..300).contains(&reply.status) => {
            return Err(format!(
                "status {} where 2xx is expected; the body is {}",
                reply.status,
                shown()
            ));
        }
        _ => {}
    }
    if let Some((least, most)) =
        expect.body_bytes.filter(|(least, most)| !(least..=most).contains(&&reply.body.len()))
    {
        return Err(format!(
            "a body of {} bytes where {least} to {most} are expected",
            reply.body.len()
        ));
    }
    if !reply.text().contains(&expect.body_contains) {
        return Err(format!(
            "a body without {:?}; it begins with {}",
            expect.body_contains,
            shown()
        ));
    }
    Ok(())
}

/// Returns an instance's count of served requests, if it has one.
pub(super) fn count(service: &Service, backend: &Backend) -> Result<Option<u64>, String> {
    match &service.count {
        None => Ok(None),
        Some(Count::Path(path)) => {
            let text = page(backend.address, path, &backend.name)?;
            let number = text.trim().parse().map_err(|_| {
                let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
                format!(
                    "{} responded to {path} with {shown:?}; it must be a plain number",
                    backend.name
                )
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

/// Returns the metrics of an instance; empty if it has none.
pub(super) fn metrics(service: &Service, backend: &Backend) -> Result<Metrics, String> {
    match &service.metrics {
        None => Ok(Metrics::default()),
        Some(path) => Ok(Metrics::parse(&page(backend.admin, path, &backend.name)?)),
    }
}

fn page(address: SocketAddr, path: &str, name: &str) -> Result<String, String> {
    let wrong = |why: String| format!("{name} did not answer {path}: {why}");
    let request = fetch::get(path, &address.to_string(), &[]).map_err(|e| wrong(e.to_string()))?;
    let request = Request { bytes: &request, answer_has_body: true };
    let address = Address::Tcp(address);
    let reply = fetch::fetch(&address, None, request, RESPONSE_TIME_MAX, ANSWER_BYTES_MAX)
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
    fn responses_are_checked() {
        let reply = |status, body: &str| FetchedResponse {
            status,
            headers: Vec::new(),
            body: body.as_bytes().to_vec(),
        };
        let any = Expect::default();
        assert!(judge(&any, &reply(204, "")).is_ok());
        assert!(judge(&any, &reply(302, "")).unwrap_err().contains("302 where 2xx"));
        let strict =
            Expect { status: Some(404), body_contains: "no".to_owned(), body_bytes: Some((2, 3)) };
        assert!(judge(&strict, &reply(404, "no!")).is_ok());
        assert!(judge(&strict, &reply(200, "no!")).unwrap_err().contains("200 where 404"));
        assert!(judge(&strict, &reply(404, "none")).unwrap_err().contains("4 bytes where 2 to 3"));
        assert!(judge(&strict, &reply(404, "yes")).unwrap_err().contains("without \"no\""));
    }
}
