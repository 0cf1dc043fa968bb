//! Rules and dashboard of `packaging/monitoring`, with Prometheus itself.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};
use serde_json::Value;

use crate::programs::{filter, repository, succeed};

/// Longest wait for Prometheus: it needs two scrapes of a second, and starts slowly.
const PATIENCE: Duration = Duration::from_secs(90);
/// Rows of a kilobyte, of which a cache of 48 MiB holds enough for a prediction.
const PAGES: u32 = 9_000;

fn folder() -> PathBuf {
    repository().join("packaging/monitoring")
}

#[test]
fn each_alert_fires_when_it_should() {
    let check = ["check", "rules", "hotrow.rules.yml"];
    succeed(Command::new("promtool").args(check).current_dir(folder()));
    let test = ["test", "rules", "hotrow.rules.test.yml"];
    succeed(Command::new("promtool").args(test).current_dir(folder()));
    let has_test = |text: &str, alert: &str| text.contains(&format!("  - name: {alert}\n"));
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    let tests = read("hotrow.rules.test.yml");
    for line in read("hotrow.rules.yml").lines() {
        let alert = line.trim().strip_prefix("- alert: ");
        assert!(alert.is_none_or(|alert| has_test(&tests, alert)), "{line} has no test");
    }
}

/// Returns a database with small rows, and with large ones from which the hit ratio at other
/// capacities is predicted.
fn database() -> Database {
    let database = Database::with_products(10);
    database.execute(&format!(
        "CREATE TABLE pages(id INTEGER PRIMARY KEY, text TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {PAGES})
         INSERT INTO pages SELECT i, replace(hex(zeroblob(450)), '0', 'x') FROM n"
    ));
    database
}

/// Requests pages until the hit ratio at other capacities is predicted.
fn await_prediction(server: &Server) {
    let mut client = server.client();
    await_until("a prediction", SOON, || {
        for first in (1..=PAGES).step_by(100) {
            let ids: Vec<String> = (first..first + 100).map(|id| id.to_string()).collect();
            assert_eq!(client.get(&format!("/pages?ids={}", ids.join(","))).status, 200);
        }
        server.status()["miss_ratio_curve"]["unknown"].is_null()
    });
}

/// Returns a configuration with most of what has metrics of its own.
fn config(database: &Database) -> Config {
    let file = |name: &str| format!("{:?}", database.folder().join(name).display().to_string());
    Config::new(database.path())
        .collection("products")
        .collection("pages")
        .set("cache.capacity", "\"48MiB\"")
        .set("limits.rate.clients.rate", "\"1000000/s\"")
        .set("warm.file", &file("hot-keys"))
        .set("access_log.output", &file("access.log"))
}

#[test]
fn the_names_and_units_of_the_metrics_are_those_of_prometheus() {
    let database = database();
    let server = Server::start(&config(&database));
    let mut client = server.client();
    for target in ["/products/1", "/products/1", "/products/99", "/products?ids=1,2", "/nothing"] {
        client.get(target);
    }
    let page = server.admin_client().get("/metrics");
    let complaints = filter(Command::new("promtool").args(["check", "metrics"]), &page.body);
    assert_eq!(String::from_utf8_lossy(&complaints), "");
}

/// A Prometheus that reads the metrics of a server every second; it ends when dropped.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(server: &Server) -> Self {
        let data = tempfile::tempdir().unwrap();
        // Free until now; another process could take it, which would fail the test.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let rules = folder().join("hotrow.rules.yml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules:?}]\n\
             scrape_configs: [{{job_name: hotrow, static_configs: [{{targets: [\"{}\"]}}]}}]\n",
            server.admin
        );
        let file = data.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus starts");
        Self { process, address, _folder: data }
    }

    /// Returns the number of series of a query's result, if it can be asked.
    fn series(&self, query: &str) -> Option<usize> {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "20", "-G", "--data-urlencode"])
            .arg(format!("query={query}"))
            .arg(format!("http://{}/api/v1/query", self.address))
            .output()
            .expect("curl starts");
        let answer: Value = serde_json::from_slice(&output.stdout).ok()?;
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().map(Vec::len)
    }

    fn await_data(&self, server: &Server, query: &str) {
        let mut client = server.client();
        let mut admin = server.admin_client();
        await_until(query, PATIENCE, || {
            // Queries too, not only hits.
            assert_eq!(admin.change("/purge/products", "").status, 200);
            for id in 0..50 {
                client.get(&format!("/products/{}", id % 12));
            }
            // NaN is no data, and not above anything.
            self.series(&format!("({query}) > -Inf")).is_some_and(|series| series > 0)
        });
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Its data is removed with the folder.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the queries of the dashboard's panels as Grafana sends them.
fn queries(dashboard: &Path) -> Vec<String> {
    let dashboard: Value = serde_json::from_slice(&std::fs::read(dashboard).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let query = |target: &Value| {
        let text = target["expr"].as_str().unwrap();
        text.replace("$__rate_interval", "1m").replace("$instance", ".*")
    };
    targets.map(query).collect()
}

#[test]
#[ignore = "starts Prometheus: half a minute"]
fn every_query_of_the_dashboard_and_the_recordings_has_data() {
    let database = database();
    let server = Server::start(&config(&database));
    await_prediction(&server);
    // A reload of each result that has a panel.
    assert_eq!(server.admin_client().change("/reload", "").status, 200);
    let prometheus = Prometheus::start(&server);
    let queries = queries(&folder().join("hotrow.dashboard.json"));
    assert!(queries.len() > 40, "{queries:?}");
    let rules = std::fs::read_to_string(folder().join("hotrow.rules.yml")).unwrap();
    let recordings = rules.lines().filter_map(|line| line.trim().strip_prefix("- record: "));
    let recordings: Vec<String> = recordings.map(str::to_owned).collect();
    assert!(recordings.len() > 5, "{recordings:?}");
    let mut shown = String::new();
    for query in queries.iter().chain(&recordings) {
        prometheus.await_data(&server, query);
        writeln!(shown, "{query}").unwrap();
    }
    // A healthy service has no alert.
    let firing = prometheus.series("ALERTS{alertstate=\"firing\"}");
    assert_eq!(firing, Some(0), "{shown}");
}
