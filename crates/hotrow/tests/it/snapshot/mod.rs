//! Snapshot batches over each engine: records of two collections, which writers change together.
//!
//! Reading order: this (answers and refusals), then [`races`] (torn reads, each forced) and
//! [`checked`] (writers and readers at once).

mod checked;
mod limits;
mod races;

use serde_json::{Value, json};

use crate::alias::Users;
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use hotrow_testkit::harness::{Answer, Config, Database, SOON, Server, await_until};

/// All records, and one that is missing from each collection at first.
const BODY: &str = r#"{"parts":[1,2,3,4,5,99],"prices":[1,99]}"#;
const PARTS: &str = "/parts?ids=1,2,3,4,5,99&snapshot=true";

/// Creates five parts and a price with the number 0.
fn with_parts<U: Users>(database: U) -> U {
    for table in ["parts", "prices"] {
        database.execute(&format!("CREATE TABLE {table}(id integer PRIMARY KEY, n integer)"));
    }
    database.execute("INSERT INTO parts VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)");
    database.execute("INSERT INTO prices VALUES (1, 0)");
    database
}

fn snapshots(config: Config) -> Config {
    let config = config.collection("parts").collection("prices");
    config.with(&[
        ("collections.parts.allow_min_position", "true"),
        ("collections.prices.allow_min_position", "true"),
    ])
}

fn serve(database: &impl Users) -> Server {
    Server::start(&snapshots(database.service()))
}

/// Returns a transaction that gives every record this number, and creates or removes the others.
fn change(n: u32) -> String {
    let other = |table: &str| match n % 2 {
        1 => format!("INSERT INTO {table} VALUES (99, {n});"),
        _ => format!("DELETE FROM {table} WHERE id = 99;"),
    };
    format!(
        "BEGIN; UPDATE parts SET n = {n} WHERE id <= 5; UPDATE prices SET n = {n} WHERE id = 1; \
         {} {} COMMIT",
        other("parts"),
        other("prices")
    )
}

/// Returns the number that all records of a snapshot have.
#[track_caller]
fn number_of(answer: &Answer) -> u32 {
    assert_eq!(answer.status, 200, "{answer:?}");
    let whole = answer.json();
    let position = answer.header("hotrow-position").expect("a position");
    let collections: Vec<&Value> = match whole.get("collections") {
        None => vec![&whole],
        Some(collections) => {
            assert_eq!(whole["position"], position);
            collections.as_object().expect("an object").values().collect()
        }
    };
    let mut numbers = Vec::new();
    for collection in collections {
        let items = collection["items"].as_object().expect("an object");
        numbers.extend(items.values().map(|item| item["n"].as_u64().expect("a number")));
        // The others exist while the number is odd.
        let missing = collection["missing"].as_array().expect("an array");
        let is_asked = items.contains_key("99") || !missing.is_empty();
        let exists = items.contains_key("99") == (numbers[0] % 2 == 1);
        assert!(!is_asked || exists, "torn: {}", answer.text());
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 1, "torn: {}", answer.text());
    u32::try_from(numbers[0]).expect("a small number")
}

fn ways(server: &Server, way: &str) -> f64 {
    server.metrics().sum_or_zero("hotrow_snapshots_total", &[("way", way)])
}

/// Asks until memory answers alone.
fn await_memory(server: &Server, mut ask: impl FnMut() -> Answer) -> Answer {
    let mut last = ask();
    await_until("a snapshot of memory", SOON, || {
        let before = ways(server, "memory");
        last = ask();
        ways(server, "memory") > before
    });
    last
}

fn answers_of_every_form_are_of_one_point<U: Users>() {
    let database = with_parts(U::shared());
    let server = serve(&database);
    let mut client = server.client();
    let record = |id: u32, n: u32| json!({ "id": id, "n": n });
    let batch = client.get("/parts?ids=2,1,99,1&snapshot=true");
    let expected = json!({ "items": { "2": record(2, 0), "1": record(1, 0) }, "missing": ["99"] });
    assert_eq!((batch.status, batch.json()), (200, expected), "{batch:?}");
    let posted = client.post("/parts", r#"{"snapshot":true,"ids":[1]}"#);
    assert_eq!(posted.json(), json!({ "items": { "1": record(1, 0) }, "missing": [] }));
    let both = client.post("/_snapshot", BODY);
    assert_eq!(number_of(&both), 0);
    let price = json!({ "items": { "1": record(1, 0) }, "missing": ["99"] });
    assert_eq!(both.json()["collections"]["prices"], price);
    let warm = await_memory(&server, || server.client().post("/_snapshot", BODY));
    assert_eq!((number_of(&warm), warm.cache()), (0, "hit"));
    database.execute(&change(7));
    let position = server.get("/parts/1").header("hotrow-position").map(str::to_owned);
    let position = position.expect("a position");
    await_until("the change", SOON, || number_of(&server.client().post("/_snapshot", BODY)) == 7);
    let headers = [("Hotrow-Min-Position", &*position)];
    let at_least = client.get_with(PARTS, &headers);
    assert_eq!(number_of(&at_least), 7);
    assert!(at_least.position().at >= hotrow_position(&position));
    assert_eq!(number_of(&await_memory(&server, || server.get(PARTS))), 7);
}

fn hotrow_position(text: &str) -> u64 {
    text.rsplit_once('-').expect("a hyphen").1.parse().expect("a number")
}

fn bad_input_is_refused_with_its_reason<U: Users>() {
    let database = with_parts(U::shared());
    let server = Server::start(&snapshots(database.service()).with(&[("limits.max_batch", "4")]));
    let mut client = server.client();
    for (path, status, says) in [
        ("/parts?ids=1&snapshot=yes", 400, "snapshot=true"),
        ("/parts?ids=1&snapshot", 400, "snapshot=true"),
        ("/parts?ids=1&snapshot=true&snapshot=true", 400, "snapshot=true"),
        ("/parts?snapshot=true", 400, "names its ids"),
        ("/parts?ids=1,2,3,4,5&snapshot=true", 400, "the limit is 4"),
        ("/parts/1?snapshot=true", 400, "unknown"),
        ("/_snapshot", 405, "POST"),
    ] {
        let answer = client.get(path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.text().contains(says), "{path}: {}", answer.text());
    }
    for (path, body, status, says) in [
        ("/parts", r#"{"ids":[1],"snapshot":false}"#, 400, "is true"),
        ("/parts", r#"{"snapshot":true}"#, 400, "no list of ids"),
        ("/parts", r#"{"snapshot":true,"ids":[1],"snapshot":true}"#, 400, "twice"),
        ("/_snapshot", "{}", 400, "no list of ids"),
        ("/_snapshot", r#"{"parts":[]}"#, 400, "names its ids"),
        ("/_snapshot", r#"{"parts":[1],"parts":[2]}"#, 400, "twice"),
        ("/_snapshot", r#"{"parts":[1,2,3],"prices":[1,2]}"#, 400, "more than 4 ids"),
        ("/_snapshot", r#"{"parts":["x"]}"#, 400, "id 1"),
        ("/_snapshot", r#"{"parts":[1],"others":[2]}"#, 404, "no collection"),
        ("/_snapshot", "[1]", 400, "not an object"),
    ] {
        let answer = client.post(path, body);
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert!(answer.text().contains(says), "{body}: {}", answer.text());
    }
    let now = server.get("/parts/1").position();
    let wanted = |position: String| {
        let headers = [("Hotrow-Min-Position", &*position)];
        server.client().get_with("/parts?ids=1&snapshot=true", &headers).status
    };
    let other = format!("{:016x}-{}", 1, now.at);
    assert_eq!(wanted(other), 400, "of another database");
    assert_eq!(wanted("x".into()), 400);
}

mod sqlite {
    use super::*;

    tests! {
        Database:
        super::answers_of_every_form_are_of_one_point,
        super::bad_input_is_refused_with_its_reason,
        checked::no_snapshot_is_torn_beside_writers,
        #[cfg(feature = "failpoints")]
        races::a_change_between_two_takes_is_not_torn,
    }
}

mod postgres {
    use super::*;

    tests! {
        Postgres:
        super::answers_of_every_form_are_of_one_point,
        super::bad_input_is_refused_with_its_reason,
        checked::no_snapshot_is_torn_beside_writers,
        races::a_hidden_commit_is_in_a_snapshot_whole_or_delays_it,
    }
}

mod mariadb {
    use super::*;

    tests! {
        Maria:
        super::answers_of_every_form_are_of_one_point,
        super::bad_input_is_refused_with_its_reason,
        checked::no_snapshot_is_torn_beside_writers,
        races::a_hidden_commit_is_in_a_snapshot_whole_or_delays_it,
    }
}
