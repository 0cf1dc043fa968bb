//! The clients in `examples`, with a credential and session tokens.

use std::path::Path;
use std::process::Command;

use hotrow_testkit::harness::{Database, Ended, SOON, Server, program};

use crate::programs::{Shop, output, repository, succeed};

const SETTINGS: [(&str, &str); 4] = [
    ("collections.products.allow_min_position", "true"),
    ("collections.products.compression", "\"gzip\""),
    ("collections.products.compression_min", "0"),
    ("access.roles.reader.allow_min_position", "true"),
];

impl Shop {
    /// Runs a client on `products/ID` with this key.
    fn command(&self, program: &Path, id: &str, key: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["products", id]).env("HOTROW_KEY", key).env("no_proxy", "*");
        command.env("HOTROW_URL", format!("http://{}", self.server.data));
        command
    }

    /// Checks what every client does, here and against what `hotrow init` writes. `fix` adds what
    /// the language needs before the arguments.
    fn check(&self, program: &Path, fix: impl Fn(Command) -> Command) {
        let command = |id: &str, key: &str| fix(self.command(program, id, key));
        let printed = succeed(&mut command("1", &self.key));
        let lines: Vec<&str> = printed.lines().collect();
        let [record, position, unchanged] = lines[..] else { panic!("{printed}") };
        let record: serde_json::Value = serde_json::from_str(record).expect("a record");
        assert_eq!(record, serde_json::json!({"id": 1, "name": "p1", "price": 100}));
        let (_, at) = position.strip_prefix("position ").unwrap().split_once('-').unwrap();
        assert!(at.parse::<u64>().is_ok(), "{position}");
        assert_eq!(unchanged, "unchanged");
        for (id, key, status) in
            [("99", &*self.key, "404"), ("x", &self.key, "400"), ("1", "hrk_wrong", "401")]
        {
            let done = output(&mut command(id, key));
            let errors = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(1), "{id}: {errors}");
            assert!(errors.contains(status), "{id}: {errors}");
            assert!(!errors.contains(&self.key), "a key is a secret");
        }
        let (server, _database) = as_init_writes();
        let mut command = command("1", "");
        command.env("HOTROW_URL", format!("http://{}", server.data)).env_remove("HOTROW_KEY");
        let printed = succeed(&mut command);
        assert!(printed.contains("\nposition ") && printed.ends_with("\nunchanged\n"), "{printed}");
    }
}

/// Serves a database by the file that `hotrow init` writes for it.
fn as_init_writes() -> (Server, Database) {
    let database = Database::with_products(1);
    let url = format!("sqlite:{}", database.path().display());
    let file = database.folder().join("hotrow.toml");
    let file = file.to_str().unwrap();
    let written = Ended::run(&["init", "--from", &url, "--output", file], SOON);
    assert_eq!(written.code(), 0, "{written:?}");
    let mut serve = Command::new(program("hotrow"));
    serve.args(["serve", "--config", file, "--data", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let server = Server::start_command(serve);
    server.await_ready();
    (server, database)
}

fn example(path: &str) -> std::path::PathBuf {
    repository().join("examples").join(path)
}

#[test]
fn curl_and_python() {
    for client in ["curl/read.sh", "python/read.py"] {
        Shop::start(&SETTINGS).check(&example(client), |command| command);
    }
}

#[test]
#[ignore = "long: needs Go"]
fn go() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("read");
    let go = std::env::var("HOTROW_GO").unwrap_or_else(|_| "/usr/local/go/bin/go".to_owned());
    let mut build = Command::new(go);
    build.current_dir(example("go")).args(["build", "-o"]).arg(&program).arg("read.go");
    succeed(build.env("GOCACHE", folder.path().join("cache")));
    Shop::start(&SETTINGS).check(&program, |command| command);
}

#[test]
#[ignore = "long: needs a JDK"]
fn java() {
    let folder = tempfile::tempdir().unwrap();
    let mut compile = Command::new("javac");
    succeed(compile.arg("-d").arg(folder.path()).arg(example("java/Read.java")));
    Shop::start(&SETTINGS).check(Path::new("java"), |command| {
        with_arguments(Command::new("java").arg("-cp").arg(folder.path()).arg("Read"), &command)
    });
}

#[test]
#[ignore = "long: npm fetches the compiler of TypeScript"]
fn typescript() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["read.ts", "tsconfig.json", "package.json"] {
        std::fs::copy(example("typescript").join(file), folder.path().join(file)).unwrap();
    }
    let mut install = Command::new("npm");
    succeed(install.current_dir(folder.path()).args(["install", "--no-audit", "--no-fund"]));
    succeed(Command::new("npx").current_dir(folder.path()).arg("tsc"));
    let script = folder.path().join("read.js");
    Shop::start(&SETTINGS).check(Path::new("node"), |command| {
        with_arguments(Command::new("node").arg(&script), &command)
    });
}

/// Returns `program` with its arguments, then the arguments and variables of `command`.
fn with_arguments(program: &Command, command: &Command) -> Command {
    let mut whole = Command::new(program.get_program());
    whole.args(program.get_args()).args(command.get_args());
    command.get_envs().for_each(|(name, value)| _ = whole.env(name, value.unwrap_or_default()));
    whole
}
