//! The miss-ratio curve of the real server, and `hotrow advise`.

use std::ops::Range;

use serde_json::Value;

use hotrow_testkit::harness::{Client, Config, Database, Ended, SOON, Server, await_some};

/// Rows of a kilobyte: 34 MiB hold 32,000 of them, the fewest from which anything is predicted.
const CAPACITY: &str = "\"48MiB\"";
const ROWS: u32 = 9_000;

fn database() -> Database {
    let database = Database::new();
    database.execute(&format!(
        "CREATE TABLE pages(id INTEGER PRIMARY KEY, text TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO pages SELECT i, replace(hex(zeroblob(450)), '0', 'x') FROM n"
    ));
    database
}

fn start(database: &Database, settings: &[(&str, &str)]) -> Server {
    let config = Config::new(database.path()).collection("pages");
    Server::start(&config.with(settings))
}

fn request(client: &mut Client, ids: Range<u32>) {
    for chunk in ids.collect::<Vec<_>>().chunks(100) {
        let ids: Vec<String> = chunk.iter().map(u32::to_string).collect();
        assert_eq!(client.get(&format!("/pages?ids={}", ids.join(","))).status, 200);
    }
}

fn curve(server: &Server) -> Value {
    server.status()["miss_ratio_curve"].clone()
}

fn advise(arguments: &[&str]) -> Ended {
    Ended::run(&[&["advise"], arguments].concat(), SOON)
}

#[test]
fn the_curve_agrees_with_what_was_measured_and_advise_prints_it() {
    let database = database();
    let server = start(&database, &[("cache.capacity", CAPACITY)]);
    let mut client = server.client();
    request(&mut client, 1..201);
    let sampled = await_some("the first entries to show their size", SOON, || {
        let unknown = curve(&server)["unknown"].as_str().unwrap_or_default().to_owned();
        unknown.starts_with("too few lookups").then_some(unknown)
    });
    assert!(sampled.contains("0 of the 4096 sampled ones"), "{sampled}");
    let known = await_some("enough sampled lookups", SOON, || {
        request(&mut client, 1..ROWS + 1);
        let curve = curve(&server);
        curve["unknown"].is_null().then_some(curve)
    });
    let number = |pointer: &str| known.pointer(pointer).and_then(Value::as_f64).unwrap();
    assert!((0.07..0.125).contains(&number("/sampling_rate")), "{known}");
    assert!(number("/sampled_lookups") >= 4096.0 && number("/dropped") == 0.0, "{known}");
    let error = number("/current/predicted_hit_ratio") - number("/current/measured_hit_ratio");
    assert!(error.abs() < 0.03, "{known}");
    let points = known["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    for point in points {
        let value = |name: &str| point[name].as_f64().unwrap();
        assert!(value("low") <= value("hit_ratio") && value("hit_ratio") <= value("high"));
        assert!(value("high") <= 1.0 && value("database_reads_per_s") >= 0.0);
        // A fourth of the capacity has room for all rows.
        assert!((value("hit_ratio") - number("/current/predicted_hit_ratio")).abs() < 0.03);
    }
    assert_eq!(points[3]["capacity_bytes"], known["current"]["capacity_bytes"]);
    assert_eq!(known["collections"]["pages"]["hit_ratios"].as_array().unwrap().len(), 8);
    let sentence = known["sentence"].as_str().unwrap();
    assert!(sentence.contains("24 MiB instead of 48 MiB"), "{sentence}");

    let metrics = server.admin_client().get("/metrics").text();
    for line in [
        "hotrow_cache_predicted_hit_ratio{capacity_factor=\"0.25\"} 0.",
        "hotrow_cache_predicted_hit_ratio{capacity_factor=\"8\"} 0.",
        "hotrow_cache_measured_hit_ratio 0.",
        "hotrow_cache_samples_total{result=\"dropped\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }

    let admin = format!("http://{}", server.admin);
    let shown = advise(&[&admin]);
    assert_eq!((shown.code(), shown.log.as_str()), (0, ""), "{shown:?}");
    assert!(shown.output.contains("in force") && shown.output.contains("24 MiB instead of 48 MiB"));
    let json = advise(&["--json", &admin]);
    let json: Value = serde_json::from_str(&json.output).unwrap();
    assert_eq!(json["points"].as_array().unwrap().len(), 8);
}

#[test]
fn advise_says_when_the_service_does_not_know() {
    let database = database();
    for (settings, reason) in [
        (&[("cache.miss_ratio_curve", "false")][..], "cache.miss_ratio_curve is off"),
        (&[("cache.enabled", "false")][..], "cache.enabled is off"),
        (&[("cache.capacity", "\"16MiB\"")][..], "too small to predict"),
    ] {
        let server = start(&database, settings);
        request(&mut server.client(), 1..301);
        let admin = format!("http://{}", server.admin);
        let said = await_some(reason, SOON, || {
            let said = advise(&[&admin]);
            said.log.contains(reason).then_some(said)
        });
        assert_eq!((said.code(), said.output.as_str()), (1, ""), "{said:?}");
        assert!(said.log.starts_with("hotrow advise: the service does not know: "), "{said:?}");
        let json = advise(&["--json", &admin]);
        assert_eq!(json.code(), 1);
        assert!(json.output.contains("\"unknown\""), "{json:?}");
    }
}

#[test]
fn advise_reports_other_answers_and_needs_the_token() {
    let database = database();
    let token = "0123456789abcdefSECRET";
    let server = start(&database, &[("admin.token", &format!("{token:?}"))]);
    let admin = format!("http://{}", server.admin);
    let refused = advise(&[&admin]);
    assert_eq!(refused.code(), 1);
    assert!(refused.log.contains("answered 401") && refused.log.contains("--token-file"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, token).unwrap();
    let known = advise(&["--token-file", &file.display().to_string(), &admin]);
    assert!(known.log.contains("does not know: the cache has 0 entries so far"), "{known:?}");
    let data = advise(&[&format!("http://{}/pages/1", server.data)]);
    assert!(data.log.contains("without the member miss_ratio_curve"), "{data:?}");
    for usage in [&["--http2", &*admin][..], &["ftp://a"], &["--insecure", &admin]] {
        assert_eq!(advise(usage).code(), 2, "{usage:?}");
    }
    drop(server);
    assert_eq!(advise(&[&admin]).code(), 1);
}
