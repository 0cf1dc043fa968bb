//! Clients that keep copies (docs/redis.md), while commits are hidden and the feed is cut.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use super::{Hides, with_items};
use crate::e2e::redis::with_redis;
use hotrow_testkit::harness::{SOON, Server, await_until};

/// A connection of RESP3 that tracks. Its commands are lines.
struct Tracking {
    reader: BufReader<TcpStream>,
}

impl Tracking {
    fn open(server: &Server) -> Self {
        let stream = TcpStream::connect(server.redis()).expect("a connection");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        let mut client = Self { reader: BufReader::new(stream) };
        // Its reply is a map, which ends with the list of modules.
        client.send("HELLO 3");
        while client.line() != "*0" {}
        client.send("CLIENT TRACKING ON");
        assert_eq!(client.line(), "+OK");
        client
    }

    fn send(&mut self, command: &str) {
        self.reader.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("sent");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Returns a record, or an error.
    fn get(&mut self, key: &str) -> String {
        self.send(&format!("GET {key}"));
        let first = self.line();
        if first.starts_with('$') { self.line() } else { first }
    }

    /// Returns the next message: the lines between it and the next reply.
    fn pushed(&mut self) -> Vec<String> {
        assert_eq!([self.line(), self.line(), self.line()], [">2", "$10", "invalidate"]);
        let keys = self.line();
        let count = keys.strip_prefix('*').map_or(0, |count| count.parse().expect("a number"));
        let mut pushed = Vec::new();
        for _ in 0..count {
            self.line();
            pushed.push(self.line());
        }
        pushed
    }

    /// Returns whether nothing has come.
    fn is_quiet(&mut self) -> bool {
        self.send("PING");
        let line = self.line();
        if line == "+PONG" {
            return true;
        }
        // The rest of a message, and the reply.
        while self.line() != "+PONG" {}
        false
    }
}

/// Race B: what is read while the commit is hidden must not be kept.
pub(super) fn no_copy_lacks_a_change_that_was_hidden<H: Hides>() {
    let database = with_items::<H>();
    let server = Server::start(&with_redis(database.service().collection("items")));
    let mut client = Tracking::open(&server);
    await_until("a read that is kept", SOON, || {
        client.get("items:5");
        client.is_quiet()
    });
    let changes = || server.metrics().sum_or_zero("hotrow_feed_changes_total", &[]);
    let before = changes();
    let sql = format!("{} UPDATE items SET v = 1 WHERE id = 5", H::HIDDEN);
    database.while_hidden(
        || database.execute(&sql),
        || {
            await_until("the change to be delivered", SOON, || changes() > before);
            // Each read begins after the delivery, and does not see the change.
            for _ in 0..20 {
                let record = client.get("items:5");
                assert!(record.contains("\"v\":0"), "{record}");
                assert_eq!(client.pushed(), ["items:5"]);
            }
        },
    );
    await_until("a read that is kept", SOON, || {
        let record = client.get("items:5");
        client.is_quiet() && record.contains("\"v\":1")
    });
    database.execute("UPDATE items SET v = 2 WHERE id = 5");
    assert_eq!(client.pushed(), ["items:5"]);
}

pub(super) fn copies_end_when_the_feed_is_cut<H: Hides>() {
    let database = with_items::<H>();
    let server = Server::start(&with_redis(database.service().collection("items")));
    let mut client = Tracking::open(&server);
    await_until("a read that is kept", SOON, || {
        client.get("items:5");
        client.is_quiet()
    });
    database.cut();
    assert!(client.pushed().is_empty(), "a null: everything");
    await_until("a read that is kept again", SOON, || {
        client.get("items:5");
        client.is_quiet()
    });
    database.execute("UPDATE items SET v = 1 WHERE id = 5");
    assert_eq!(client.pushed(), ["items:5"]);
}
