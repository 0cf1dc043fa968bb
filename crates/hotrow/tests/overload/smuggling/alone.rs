//! Every case against Hotrow itself.

use super::case::{Alone, Case};
use super::cases;
use crate::harness::answer::Answer;
use crate::harness::client::Fault;
use crate::harness::{Config, Database, SOON, Server, await_until};

/// Follows every case on its connection.
const PROBE: &str = "GET /products/9 HTTP/1.1\r\nHost: probe\r\n\r\n";

/// What came back: final answers, and how it ended.
struct Seen {
    answers: Vec<Answer>,
    end: Fault,
}

fn seen(server: &Server, case: &Case) -> Seen {
    let mut client = server.client();
    // What is refused need not be taken in full.
    let _ = client.try_send([&case.bytes, PROBE.as_bytes()].concat());
    client.try_end_sending();
    let mut method = if case.bytes.starts_with(b"HEAD ") { "HEAD" } else { "GET" };
    let mut answers = Vec::new();
    loop {
        match client.try_answer(method, SOON) {
            Ok(answer) if answer.status < 200 => {}
            Ok(answer) => {
                answers.push(answer);
                method = "GET";
            }
            Err(end) => return Seen { answers, end },
        }
    }
}

/// What is wrong with what came back.
fn complaint(case: &Case, seen: &Seen) -> Option<String> {
    let statuses: Vec<u16> = seen.answers.iter().map(|answer| answer.status).collect();
    let probed = seen.answers.last().is_some_and(|last| last.status == 200 && last.json_or_null()["id"] == 9);
    let fine = match case.alone {
        Alone::Goes(expected) => probed && statuses == [expected, &[200]].concat(),
        Alone::Ends(expected) => !probed && statuses == expected,
        Alone::Open => statuses.len() <= 1 && statuses.iter().all(|status| (400..500).contains(status)),
    };
    let closed = matches!(seen.end, Fault::Closed);
    (!fine || !closed).then(|| {
        let (what, alone, end) = (&case.what, case.alone, &seen.end);
        format!("{what}: expected {alone:?}, got {statuses:?}, the probe answered: {probed}, then {end:?}")
    })
}

#[test]
fn each_message_ends_where_the_standard_says_or_is_refused_with_all_that_follows() {
    let database = Database::with_products(1_000);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    let (mut answered, mut complaints) = (0, Vec::new());
    for case in cases() {
        let seen = seen(&server, &case);
        answered += seen.answers.len() as u64;
        complaints.extend(complaint(&case, &seen));
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    await_until("every answer to be counted, and nothing else", SOON, || {
        server.metrics().sum("hotrow_http_requests_total", &[]) as u64 == answered
    });
    assert_eq!(server.get("/products/2").status, 200);
}
