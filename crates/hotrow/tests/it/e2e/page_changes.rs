//! Changes from the live page in a real Chromium, with the protections of the admin side. What the
//! page does and shows is checked by `scripts/page-changes`.

use std::path::Path;
use std::process::Command;

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

const TOKEN: &str = "0123456789abcdefSECRET";

#[test]
#[ignore = "needs Chromium, which ./test --long installs: half a minute"]
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
