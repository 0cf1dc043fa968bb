//! `serve --demo` without any file or setup.

use rustix::process::Signal;

use crate::e2e::curl::curl;
use hotrow_testkit::harness::{EventStream, SOON, Server, await_until};

fn files(folder: &std::path::Path) -> Vec<String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn it_serves_100_000_products_and_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_demo(folder.path(), &["--demo-writes", "200"]);
    server.await_ready();
    let invitation = server.output();
    let commands: Vec<&str> =
        invitation.lines().filter_map(|line| line.trim().strip_prefix("curl ")).collect();
    // The one that follows changes has no end.
    let (endless, commands): (Vec<&str>, Vec<&str>) =
        commands.into_iter().partition(|command| command.starts_with("-N "));
    assert_eq!((endless.len(), commands.len()), (1, 2), "{invitation}");
    let (_, path) = endless[0].rsplit_once(&server.data.to_string()).expect("its address");
    assert_eq!(EventStream::open(server.data, path, "").next_news().name, "begin");
    for command in &commands {
        // Split as a shell would.
        let arguments: Vec<&str> = command.split(' ').map(|word| word.trim_matches('\'')).collect();
        let Some(output) = curl(&arguments) else { break };
        let expected = ["\"id\":4711", "\"items\":{\"1\":{"];
        assert!(expected.iter().any(|part| output.contains(part)), "{command}: {output}");
    }
    let mut client = server.client();
    for id in [1, 50_000, 100_000] {
        assert_eq!(client.get(&format!("/products/{id}")).json()["id"], id);
    }
    assert_eq!(client.get("/products/100001").status, 404);
    assert_eq!(
        client.get_with("/products/1", &[("Cache-Control", "no-cache")]).cache(),
        "bypass",
        "granted here"
    );
    await_until("the writes to be received", SOON, || {
        server.status()["sources"]["default"]["feed"]["changes"].as_u64().unwrap() > 50
    });
    assert_eq!(server.status()["sources"]["default"]["feed"]["current"], true);
    assert_eq!(files(folder.path()).len(), 1, "one folder of its own");
    server.signal(Signal::TERM);
    let ended = server.ended(SOON);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(files(folder.path()), Vec::<String>::new(), "removed");
}

#[test]
fn an_interrupted_demo_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_demo(folder.path(), &[]);
    server.signal(Signal::INT);
    let ended = server.ended(SOON);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(files(folder.path()), Vec::<String>::new());
}

#[test]
fn a_reload_without_a_configuration_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_demo(folder.path(), &[]);
    server.await_ready();
    let reported = |trigger: &str| {
        let line = format!(
            "no configuration file to read again: this process was started without \
                            one trigger=\"{trigger}\""
        );
        server.log().matches(&line).count()
    };
    for times in 1..=2 {
        server.signal(Signal::HUP);
        await_until("the line of the log", SOON, || reported("signal") == times);
    }
    let answer = server.admin_client().change("/reload", "");
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("started without a configuration file"), "{}", answer.text());
    await_until("the line of the log", SOON, || reported("admin") == 1);
    assert_eq!(server.get("/products/1").status, 200, "it goes on");
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
}
