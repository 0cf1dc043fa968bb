//! Client libraries of Redis that keep copies: redis-py and rueidis, over SQLite.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

use crate::programs::{python_with, repository, succeed};

/// Reads of one record, all but the first of which a client answers itself.
const READS: usize = 50;

/// A program that prints the record of each key that it is given.
pub(crate) struct Reader {
    child: Child,
    keys: ChildStdin,
    records: BufReader<ChildStdout>,
}

impl Reader {
    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the client starts");
        let keys = child.stdin.take().expect("its input");
        let records = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, keys, records }
    }

    fn get(&mut self, key: &str) -> String {
        writeln!(self.keys, "{key}").expect("the client reads");
        let mut line = String::new();
        self.records.read_line(&mut line).expect("the client answers");
        line.trim_end().to_owned()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn product(id: u32, price: u32) -> String {
    format!(r#"{{"id":{id},"name":"p{id}","price":{price}}}"#)
}

/// Reads and changes records.
pub(crate) fn check(start: impl FnOnce(&Server) -> Reader) {
    let database = Database::with_products(5);
    let config = Config::new(database.path())
        .collection("products")
        .set("listen.redis", "\"127.0.0.1:0\"")
        .set("listen.workers", "2");
    let server = Server::start(&config);
    let mut reader = start(&server);
    let gets = |server: &Server| {
        server.metrics().sum_or_zero("hotrow_redis_commands_total", &[("command", "get")])
    };
    assert_eq!(reader.get("products:1"), product(1, 100));
    await_until("the key to be tracked", SOON, || {
        server.metrics().sum_or_zero("hotrow_redis_tracked_keys", &[]) >= 1.0
    });
    let before = gets(&server);
    for _ in 0..READS {
        assert_eq!(reader.get("products:1"), product(1, 100));
    }
    assert_eq!(gets(&server), before, "all reads are answered by the client");
    for price in 1..=20 {
        database.execute(&format!("UPDATE products SET price = {price} WHERE id = 1"));
        await_until("the change", SOON, || reader.get("products:1") == product(1, price));
    }
    database.execute("DELETE FROM products WHERE id = 1");
    await_until("the end of the record", SOON, || reader.get("products:1") == "missing");
    database.execute("INSERT INTO products VALUES (1, 'p1', 7)");
    await_until("the record", SOON, || reader.get("products:1") == product(1, 7));
    assert_eq!(reader.get("products:2"), product(2, 200));
}

#[test]
#[ignore = "long: pip fetches redis-py"]
fn redis_py_keeps_copies_fresh() {
    let folder = tempfile::tempdir().unwrap();
    let python = python_with(folder.path(), &["redis"]).join("python");
    check(|server| {
        let mut command = Command::new(&python);
        command.arg(repository().join("examples/python/near_cache.py"));
        command.env("HOTROW_REDIS_URL", format!("redis://{}", server.redis()));
        Reader::start(&mut command)
    });
}

#[test]
#[ignore = "long: needs Go, which fetches rueidis"]
fn rueidis_keeps_copies_fresh() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("near_cache");
    let go = std::env::var("HOTROW_GO").unwrap_or_else(|_| "/usr/local/go/bin/go".to_owned());
    let mut build = Command::new(go);
    build.current_dir(repository().join("examples/go/near_cache"));
    succeed(build.args(["build", "-o"]).arg(&program).arg("."));
    check(|server| {
        let mut command = Command::new(&program);
        Reader::start(command.env("HOTROW_REDIS_ADDRESS", server.redis().to_string()))
    });
}
