//! A private MariaDB server, with two proxies between it and the service: for reads and for the
//! feed.

use std::time::Duration;

use crate::backend::Backend;
use hotrow_testkit::harness::Config;
use hotrow_testkit::mysql::{Flavor, SERVICE_PASSWORD, SERVICE_USER, Server, Stop};
use hotrow_testkit::proxy::{BOTH, CLASSES, Class, Direction, Proxy};

const SETTINGS: [(&str, &str); 4] = [
    // Commits must survive the kill; otherwise the database and its responses go back in time.
    ("innodb-flush-log-at-trx-commit", "2"),
    // When enabled, a logged commit waits for a replica that does not exist.
    ("rpl-semi-sync-master-wait-point", "AFTER_SYNC"),
    ("rpl-semi-sync-master-timeout", "3600000"),
    ("rpl-semi-sync-master-wait-no-slave", "ON"),
];
/// Streams sent by the server.
const STREAMS: &str = "command = 'Binlog Dump'";

/// A server with its proxies. All connections of a proxy are of one class.
pub(crate) struct Maria {
    /// First fields, so that they are dropped before the server.
    pub(crate) reads: Proxy,
    pub(crate) feed: Proxy,
    pub(crate) server: Server,
}

impl Maria {
    /// Puts proxies before a share of the program's server: for tests that do not stop it, hide its
    /// commits or reset its log.
    pub(crate) fn shared() -> Self {
        Self::over(Server::any())
    }

    fn over(server: Server) -> Self {
        let proxy = || Proxy::plain(server.port(), Class::Readers);
        Self { reads: proxy(), feed: proxy(), server }
    }

    /// Kills the server's side of every stream.
    pub(crate) fn kill_streams(&self) {
        self.kill_sessions(STREAMS);
    }

    /// Kills the server's side of the sessions in the test's database that this condition selects.
    pub(crate) fn kill_sessions(&self, condition: &str) {
        let list = format!(
            "SELECT id FROM information_schema.PROCESSLIST \
             WHERE {condition} AND db = DATABASE() AND id <> CONNECTION_ID()"
        );
        for id in self.server.query(&list).lines() {
            // The session may have ended already.
            _ = self.server.try_query(&format!("KILL {id}"));
        }
    }

    /// Continues the log in a new file and returns the file's name.
    pub(crate) fn begin_log_file(&self) -> String {
        self.server.batch("FLUSH BINARY LOGS");
        let newest = self.server.query("SHOW MASTER STATUS");
        newest.split('\t').next().expect("a file").to_owned()
    }
}

impl Backend for Maria {
    const FEED_RESUMES: bool = false;
    /// Probes are behind the same proxy.
    const LATE_FEED_ANSWERS_RARELY: bool = true;

    fn start() -> Self {
        // As MariaDB does it: the log has no rows that foreign keys change.
        let native = Flavor::of_run().choose(&[][..], &[("innodb-native-foreign-keys", "ON")]);
        Self::over(Server::start(&[&SETTINGS, native].concat()))
    }

    fn config(&self) -> Config {
        let url = |proxy: &Proxy| self.server.url_at(SERVICE_USER, SERVICE_PASSWORD, proxy.port());
        Config::over(&url(&self.reads))
            .set("source.feed_url", &format!("\"{}\"", url(&self.feed)))
            .set("source.connect_timeout", "\"2s\"")
    }

    fn delay_reads(&self, delay: Duration) {
        self.reads.delay(&CLASSES, &BOTH, delay);
    }

    fn hold_reads(&self) {
        self.reads.hold(&CLASSES, &[Direction::ToService]);
    }

    fn holds_a_read(&self) -> bool {
        self.reads.waiting(Class::Readers, Direction::ToService) > 0
    }

    fn delay_feed(&self, delay: Duration) {
        self.feed.delay(&CLASSES, &[Direction::ToService], delay);
    }

    fn hold_feed(&self) {
        self.feed.hold(&CLASSES, &[Direction::ToService]);
    }

    fn refuse_feed(&self) {
        self.feed.refuse(&CLASSES, true);
        self.feed.cut(&CLASSES);
    }

    fn cut(&self) {
        self.reads.cut(&CLASSES);
        self.feed.cut(&CLASSES);
    }

    fn clear_faults(&self) {
        self.reads.clear_faults();
        self.feed.clear_faults();
    }

    fn hide_commits(&self) {
        self.server.batch("SET GLOBAL rpl_semi_sync_master_enabled = ON");
    }

    fn show_commits(&self) {
        self.server.batch("SET GLOBAL rpl_semi_sync_master_enabled = OFF");
    }

    fn kill(&mut self) {
        self.server.stop(Stop::Kill);
    }

    fn restart(&mut self) {
        self.server.restart();
    }

    fn pause(&self) {
        self.server.pause();
    }

    fn resume(&self) {
        self.server.resume();
    }
}
