//! Programs of others.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server};

/// Folder of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Runs a program to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"))
}

/// Runs a program that must succeed, and returns its standard output.
pub(crate) fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = output(command);
    let printed = String::from_utf8_lossy(&stdout).into_owned();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{printed}\n{errors}");
    printed
}

/// Passes bytes through a program, such as a decoder.
pub(crate) fn filter(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a filter starts");
    let mut sink = child.stdin.take().expect("standard input");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || sink.write_all(&input));
    let output = child.wait_with_output().expect("a filter ends");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    writer.join().expect("no panic").expect("the filter reads its input");
    output.stdout
}

/// Creates a Python environment with these packages, in `folder`, and returns its programs' folder.
pub(crate) fn python_with(folder: &Path, packages: &[&str]) -> std::path::PathBuf {
    let environment = folder.join("python");
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let programs = environment.join("bin");
    let mut install = Command::new(programs.join("pip"));
    succeed(install.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages));
    programs
}

/// Settings of a server of the Redis protocol.
pub(crate) const REDIS: [(&str, &str); 1] = [("listen.redis", "\"127.0.0.1:0\"")];

/// A server with products that needs a credential, and a key for it.
pub(crate) struct Shop {
    _database: Database,
    pub(crate) server: Server,
    pub(crate) key: String,
}

impl Shop {
    /// Starts it with these further settings.
    pub(crate) fn start(more: &[(&str, &str)]) -> Self {
        let database = Database::with_products(3);
        let made =
            Ended::run(&["key", "new", "--name", "client", "--role", "reader", "--json"], SOON);
        let made: serde_json::Value = serde_json::from_str(&made.output).expect("JSON");
        let config = Config::new(database.path()).collection("products").with(&[
            ("access.roles.reader.collections", r#"["products"]"#),
            ("access.keys.client.id", &made["id"].to_string()),
            ("access.keys.client.sha256", &made["sha256"].to_string()),
            ("access.keys.client.roles", r#"["reader"]"#),
        ]);
        let key = made["key"].as_str().expect("a key").to_owned();
        Self { server: Server::start(&config.with(more)), _database: database, key }
    }
}
