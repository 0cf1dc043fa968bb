//! The live page in a real browser: what it shows, and changes from it with
//! the protections of the admin side, which `scripts/page-changes` makes.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use hotrow_testkit::browser::await_rendered;
use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

const TOKEN: &str = "0123456789abcdefSECRET";

#[test]
fn the_page_loads_and_shows_the_numbers() {
    let database = Database::with_products(3);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    for _ in 0..3 {
        server.get("/products/1");
    }
    let page = server.admin_client().get("/").text();
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "all resources are from the same origin"
    );
    // The keys come with the samples, the ratio only with those of busy seconds.
    for path in ["/charts.js", "/tables.js", "/uplot.js", "/uplot.css"] {
        assert_eq!(server.admin_client().get(path).status, 200, "{path}");
    }
    await_until("a sample of the requests", SOON, || {
        let history = server.admin_client().get("/history").json();
        let memory = history["series"]["lookups.memory"].as_array();
        memory.is_some_and(|memory| memory.iter().any(|rate| rate.as_f64() > Some(0.0)))
    });
    let awaited = [
        // On a busy machine "but pressure is …" may follow.
        ">Ready",
        ">products</th>",
        "products/1",
        "Actions for products/1",
        "Purge products/1",
        // Of charts without data only the captions remain.
        "Errors and refusals</h2><p>nothing in the time shown",
        "data-tip=\"Waited for a database read",
        "The feed follows",
        "<canvas",
    ];
    let url = format!("http://{}/", server.admin);
    await_rendered(&url, &awaited);
    // An outage is the first thing on the page, and refusals are 5xx.
    database.execute("ALTER TABLE products RENAME TO gone");
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut client, is_watched) = (server.client(), is_over.clone());
    let requests = std::thread::spawn(move || {
        while !is_watched.load(Relaxed) {
            client.get("/products/2");
        }
    });
    await_rendered(&url, &[">Outage: clients get 5xx", "class=\"alarm\"", "of the answers."]);
    is_over.store(true, Relaxed);
    requests.join().expect("answers");
}

#[test]
#[ignore = "long: half a minute"]
fn purges_and_limits_are_changed_from_the_page_with_its_protections() {
    let database = Database::with_products(20);
    let config = Config::new(database.path())
        .collection("products")
        .set("admin.token", &format!("{TOKEN:?}"))
        .set("limits.rate.clients.rate", "\"1000000/s\"");
    let server = Server::start(&config);
    let mut client = server.client();
    let authorization = format!("Bearer {TOKEN}");
    await_until("keys that were requested", SOON, || {
        for id in 1..=20 {
            assert_eq!(client.get(&format!("/products/{id}")).status, 200);
        }
        let fields = [("Authorization", authorization.as_str())];
        let keys = server.admin_client().get_with("/hot-keys", &fields).json();
        keys["collections"]["products"]["keys"].as_array().is_some_and(|keys| !keys.is_empty())
    });
    let token = database.folder().join("token");
    std::fs::write(&token, TOKEN).expect("writable");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/page-changes");
    let mut command = Command::new(script);
    command.arg(format!("http://{}", server.admin)).arg(token).args(["products", "clients"]);
    let done = command.output().expect("python3 starts");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && out.contains("its protections hold"), "{out}{err}");
    // It goes on as before.
    assert_eq!(client.get("/products/1").status, 200);
}
