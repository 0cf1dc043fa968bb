//! Every case against Hotrow without a proxy.

use super::cases;
use super::{Alone, Case};
use crate::overload::wire::{Failed, Received, Reply, Then, exchange};
use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

/// Returns the difference between the received and the expected answers.
fn complaint(case: &Case, seen: &Received) -> Option<String> {
    let statuses: Vec<u16> = seen.replies.iter().map(|reply| reply.status).collect();
    let fine = match case.alone {
        Alone::Continues(expected) => seen.probed && statuses == [expected, &[200]].concat(),
        Alone::Closes(expected) => !seen.probed && statuses == expected,
        Alone::Open => {
            statuses.len() <= 1 && statuses.iter().all(|status| (400..500).contains(status))
        }
    };
    (!fine).then(|| {
        let what = &case.what;
        let alone = case.alone;
        let probed = seen.probed;
        format!("{what}: expected {alone:?}, got {statuses:?}, the probe answered: {probed}")
    })
}

#[test]
fn each_message_ends_as_in_the_standard_or_is_refused_with_everything_after_it() {
    let database = Database::with_products(1_000);
    // HTTP/1.1 alone: the preface of HTTP/2 would begin another protocol.
    let config = Config::new(database.path()).collection("products").set("listen.http2", "false");
    let server = Server::start(&config);
    let mut answered = 0;
    let mut complaints = Vec::new();
    for case in cases() {
        match exchange(server.data, &case.bytes, Then::Probe) {
            Ok(seen) => {
                answered += seen.replies.len() as u64;
                complaints.extend(complaint(&case, &seen));
            }
            Err(failed) => complaints.push(format!("{}: {failed:?}", case.what)),
        }
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    await_until("every answer to be counted, and nothing else", SOON, || {
        server.metrics().sum("hotrow_http_requests_total", &[]) as u64 == answered
    });
    assert_eq!(server.get("/products/2").status, 200);
}

/// Sends the same cases as HEAD: no answer may have a body, for any defect of the request,
/// because a client would read it as the next answer.
#[test]
fn no_answer_to_head_has_a_body() {
    let database = Database::with_products(10);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    let mut refused = 0;
    let mut complaints = Vec::new();
    for case in cases() {
        let Some(bytes) = as_head(&case.bytes) else { continue };
        match exchange(server.data, &bytes, Then::End) {
            Ok(Received { replies, .. }) => {
                refused += usize::from(replies.first().is_some_and(|reply| reply.status >= 400));
                let sound = |reply: &Reply| reply.body.is_empty();
                if !replies.first().is_none_or(sound) {
                    complaints.push(format!("{}: {replies:?}", case.what));
                }
            }
            Err(Failed::NotHttp(why)) => complaints.push(format!("{}: {why}", case.what)),
            Err(open @ Failed::Open(_)) => complaints.push(format!("{}: {open:?}", case.what)),
        }
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    assert!(refused >= 150, "only {refused} cases were refused");
}

/// Returns the case with the method HEAD, if its method can be exchanged.
fn as_head(bytes: &[u8]) -> Option<Vec<u8>> {
    let rest =
        [&b"GET "[..], b"POST "].into_iter().find_map(|method| bytes.strip_prefix(method))?;
    Some([b"HEAD ", rest].concat())
}
