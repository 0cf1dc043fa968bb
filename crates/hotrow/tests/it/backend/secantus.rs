//! SecantusDB with two proxies between it and the service: for reads and for the feed. It has one
//! member and no majority, so that no commit is hidden. It is stopped in order where another server
//! is killed: killed, it loses acknowledged writes.

use std::time::Duration;

use rustix::process::Signal;

use hotrow_testkit::harness::Config;
use hotrow_testkit::mongo::{MongoDatabase, Secantus};
use hotrow_testkit::proxy::{BOTH, CLASSES, Class, Direction, Proxy};

const DATABASE: &str = "shop";

/// A server with its proxies. All connections of a proxy are of one class.
pub(crate) struct SecantusSet {
    /// First fields, so that they are dropped before the server.
    reads: Proxy,
    feed: Proxy,
    server: Secantus,
}

impl SecantusSet {
    /// Starts a server, and connects writers to it directly.
    pub(crate) fn start() -> (Self, MongoDatabase) {
        let server = Secantus::start();
        let proxy = || Proxy::plain(server.port(), Class::Readers);
        let database = MongoDatabase::over(&server.url(server.port(), DATABASE), DATABASE);
        (Self { reads: proxy(), feed: proxy(), server }, database)
    }

    pub(crate) fn config(&self) -> Config {
        let url = |proxy: &Proxy| self.server.url(proxy.port(), DATABASE);
        Config::over(&url(&self.reads)).set("source.feed_url", &format!("\"{}\"", url(&self.feed)))
    }

    pub(crate) fn delay_reads(&self, delay: Duration) {
        self.reads.delay(&CLASSES, &BOTH, delay);
    }

    pub(crate) fn hold_reads(&self) {
        self.reads.hold(&CLASSES, &[Direction::ToService]);
    }

    pub(crate) fn holds_a_read(&self) -> bool {
        self.reads.waiting(Class::Readers, Direction::ToService) > 0
    }

    pub(crate) fn delay_feed(&self, delay: Duration) {
        self.feed.delay(&CLASSES, &[Direction::ToService], delay);
    }

    pub(crate) fn hold_feed(&self) {
        self.feed.hold(&CLASSES, &[Direction::ToService]);
    }

    pub(crate) fn refuse_feed(&self) {
        self.feed.refuse(&CLASSES, true);
        self.feed.cut(&CLASSES);
    }

    pub(crate) fn cut(&self) {
        self.reads.cut(&CLASSES);
        self.feed.cut(&CLASSES);
    }

    pub(crate) fn clear_faults(&self) {
        self.reads.clear_faults();
        self.feed.clear_faults();
    }

    pub(crate) fn stop(&mut self) {
        self.server.stop();
    }

    pub(crate) fn restart(&mut self) {
        self.server.restart();
    }

    pub(crate) fn pause(&self) {
        self.server.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.server.signal(Signal::CONT);
    }
}
