//! The files of examples/compose, but for the images: a server after their SQL, Hotrow's checks of
//! it, Prometheus' own check.

use std::path::Path;
use std::process::Command;

use crate::postgres::server::Server as Postgres;
use hotrow_testkit::harness::program;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/compose");

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {all}");
    all
}

#[test]
fn what_compose_starts_fits_together() {
    let server = Postgres::start(&[]);
    let read = |name: &str| std::fs::read_to_string(Path::new(FOLDER).join(name)).expect(name);
    server.batch(&read("init.sql"));
    let folder = tempfile::tempdir().expect("a folder");
    let address = format!("127.0.0.1:{}", server.port());
    let url = server.url();
    let database = url.rsplit('/').next().expect("a name").to_owned();
    let text = read("hotrow.toml").replace("@database/shop", &format!("@{address}/{database}"));
    std::fs::write(folder.path().join("hotrow.toml"), text).expect("written");
    let said = run(Command::new(program("hotrow"))
        .args(["check", "--config"])
        .arg(folder.path().join("hotrow.toml"))
        .env("DB_PASSWORD", "only-for-trying")
        .env("ADMIN_TOKEN", "only-for-trying-it"));
    assert!(said.contains("fine") && !said.contains("warning"), "{said}");
    let rules = Path::new(FOLDER).join("../../packaging/monitoring/hotrow.rules.yml");
    std::fs::copy(rules, folder.path().join("hotrow.rules.yml")).expect("the rules");
    std::fs::write(folder.path().join("prometheus.yml"), read("prometheus.yml")).expect("written");
    run(Command::new("promtool")
        .args(["check", "config"])
        .arg(folder.path().join("prometheus.yml")));
}
