//! The live page in a real browser, if one is installed.

use std::process::{Command, Stdio};

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

/// Most loads of the page. On a busy machine the browser's five virtual seconds can pass before the
/// page's first request is answered.
const LOADS_MAX: usize = 6;

/// Returns the page's text once its script has shown the awaited text, or its last text; `None`,
/// with the reason printed, without a browser.
pub(crate) fn rendered(url: &str, awaited: &str) -> Option<String> {
    let mut dom = dump(url)?;
    for _ in 1..LOADS_MAX {
        if dom.contains(awaited) {
            break;
        }
        dom = dump(url)?;
    }
    Some(dom)
}

/// Returns the page's text after its script has run for a while.
fn dump(url: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let profile = format!("--user-data-dir={}", folder.path().display());
    for browser in ["chromium", "chromium-browser", "google-chrome", "chrome"] {
        let done = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--virtual-time-budget=5000",
                &profile,
                "--dump-dom",
                url,
            ])
            .stdin(Stdio::null())
            .output();
        if let Ok(done) = done {
            assert!(done.status.success(), "{browser}: {}", String::from_utf8_lossy(&done.stderr));
            return Some(String::from_utf8_lossy(&done.stdout).into_owned());
        }
    }
    println!("skipped: no Chromium or Chrome is installed");
    None
}

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
    let Some(dom) = rendered(&format!("http://{}/", server.admin), "products/1") else { return };
    for awaited in ["Ready.", ">products</th>", "Purge products/1", "The feed follows", "<canvas"] {
        assert!(dom.contains(awaited), "{awaited}: {dom}");
    }
}
