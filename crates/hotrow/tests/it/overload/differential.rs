//! Answers of Hotrow and of a real nginx to the same bytes, case by case, with a reason for every
//! difference.
//!
//! The cases are data in `differential/*.toml`: the bytes sent, the answer of each server, and the
//! reason of a difference. A changed answer of either server fails the test, and so does a
//! difference without a reason. nginx serves the same records from files.

mod case;
mod site;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use case::Case;
use site::Site;

use crate::overload::wire::{Failed, exchange};
use hotrow_testkit::harness::{Config, Database, Server};

/// Version with which `differential/*.toml` was recorded; others may differ in details.
const NGINX: &str = "nginx/1.22.1";
/// Least number of cases, so that no part of HTTP/1.1 is left out.
const CASES_MIN: usize = 120;
/// Both servers have records 1 to this.
const RECORDS: usize = 9;

/// Returns the answers in the words of the table, such as `200 body, 400 empty, closed`.
fn outcome(server: SocketAddr, case: &Case) -> String {
    match exchange(server, &case.bytes, case.then) {
        Err(Failed::NotHttp(_)) => "not HTTP, closed".to_owned(),
        Err(Failed::Open(fault)) => format!("open: {fault:?}"),
        Ok(seen) => {
            let content = |body: &[u8]| if body.is_empty() { "empty" } else { "body" };
            let mut words: Vec<String> = seen
                .to_case()
                .iter()
                .map(|reply| format!("{} {}", reply.status, content(&reply.body)))
                .collect();
            words.push(if seen.probed { "kept" } else { "closed" }.to_owned());
            words.join(", ")
        }
    }
}

/// Returns whether the answers match the table. The word `any` allows a body and an empty one,
/// because a refusal by the parser may have none.
fn agrees(seen: &str, expected: &str) -> bool {
    let same = |seen: &str, expected: &str| match expected.strip_suffix(" any") {
        Some(status) => seen == format!("{status} body") || seen == format!("{status} empty"),
        None => seen == expected,
    };
    let (seen, expected): (Vec<_>, Vec<_>) =
        (seen.split(", ").collect(), expected.split(", ").collect());
    seen.len() == expected.len()
        && seen.iter().zip(expected).all(|(seen, expected)| same(seen, expected))
}

#[test]
fn the_word_any_leaves_only_the_body_open() {
    assert!(
        agrees("400 body, closed", "400 any, closed")
            && agrees("400 empty, closed", "400 any, closed")
    );
    for (seen, expected) in [
        ("400 body, kept", "400 any, closed"),
        ("404 body, closed", "400 any, closed"),
        ("400 empty, closed", "400 body, closed"),
        ("400 body, closed", "400 any, 200 body, closed"),
        ("closed", "400 any, closed"),
    ] {
        assert!(!agrees(seen, expected), "{seen} against {expected}");
    }
}

#[test]
fn hotrow_and_nginx_answer_as_in_the_table_and_every_difference_has_a_reason() {
    let cases = case::all();
    let database = Database::with_products(RECORDS as u32);
    let hotrow = Server::start(
        &Config::new(database.path())
            .collection("products")
            .set("listen.unknown_parameters", "\"ignore\"")
            .set("listen.http2", "false"),
    );
    let nginx = Site::start(RECORDS);
    let mut complaints = Vec::new();
    let mut differing = 0;
    for case in &cases {
        let seen = [outcome(hotrow.data, case), outcome(nginx.address(), case)];
        differing += usize::from(case.why.is_some());
        for (who, seen, expected) in
            [("Hotrow", &seen[0], &case.hotrow), ("nginx", &seen[1], &case.nginx)]
        {
            if !agrees(seen, expected) {
                complaints.push(format!(
                    "{}\t{}\t{who}: expected {expected:?}, got {seen:?}",
                    case.file, case.name
                ));
            }
        }
    }
    println!("{} cases, {differing} with a difference and its reason", cases.len());
    let version = site::version();
    assert!(
        complaints.is_empty(),
        "{} complaints; recorded with {NGINX}, this is {version}:\n{}",
        complaints.len(),
        complaints.join("\n")
    );
}

#[test]
fn the_table_is_complete_and_each_case_occurs_once() {
    let cases = case::all();
    assert!(cases.len() >= CASES_MIN, "{} cases", cases.len());
    let mut names = BTreeSet::new();
    let mut bytes = BTreeSet::new();
    for case in &cases {
        assert!(names.insert(&case.name), "two cases are called {}", case.name);
        assert!(
            bytes.insert((&case.bytes, case.then)),
            "{}: another case sends the same",
            case.name
        );
    }
    let of = |file: &str| cases.iter().filter(|case| case.file == file).count();
    for file in case::FILES {
        assert!(of(file) >= 8, "{file} has {} cases", of(file));
    }
}
