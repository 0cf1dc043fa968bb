//! The stand-in for MongoDB (docs/mongodb.md states its limits). Its switches replace a proxy: they
//! disturb each command. Writers of a test use the same members, so they are disturbed too.

use std::time::Duration;

use crate::backend::Backend;
use hotrow_testkit::harness::Config;
use hotrow_testkit::mongo::MongoDatabase;
use hotrow_testkit::standin::{Failure, Fault, Kind, Standin};

/// Members of [`Backend::start`]'s set.
const MEMBERS: usize = 2;
/// Commands that are disturbed.
const COMMANDS: [&str; 5] = ["getMore", "watch", "find", "hello", "*"];

/// A replica set.
pub(crate) struct Mongo {
    pub(crate) mongo: MongoDatabase,
    members: usize,
    /// Index of the primary member.
    primary: usize,
}

/// Returns a server's answer during its shutdown.
pub(crate) fn shutdown() -> Failure {
    Failure::new(91, "ShutdownInProgress", "not now").labelled("ResumableChangeStreamError")
}

impl Mongo {
    /// Uses a deployment with this number of members, of which the first is the primary.
    pub(crate) fn over(mongo: MongoDatabase, members: usize) -> Self {
        Self { mongo, members, primary: 0 }
    }

    pub(crate) fn standin(&self) -> &Standin {
        self.mongo.standin()
    }

    /// Makes the other member the primary.
    pub(crate) fn elect_other(&mut self) {
        self.primary = self.other();
        self.standin().elect(self.primary);
    }

    /// Returns the member after the primary; of one member, this member.
    fn other(&self) -> usize {
        (self.primary + 1) % self.members
    }
}

impl Backend for Mongo {
    const FEED_RESUMES: bool = true;
    const LATE_FEED_ANSWERS_RARELY: bool = true;

    fn start() -> Self {
        Self::over(MongoDatabase::on_kind(Kind::ReplicaSet, MEMBERS), MEMBERS)
    }

    fn config(&self) -> Config {
        Config::over(self.mongo.url()).set("source.connect_timeout", "\"2s\"")
    }

    fn delay_reads(&self, delay: Duration) {
        self.standin().inject("find", Fault::Delay(delay));
    }

    fn hold_reads(&self) {
        self.standin().inject("find", Fault::Hold);
    }

    fn hold_next_read(&self) {
        self.standin().inject_times("find", Fault::Hold, Some(1));
    }

    fn holds_a_read(&self) -> bool {
        self.standin().held("find") > 0
    }

    fn delay_feed(&self, delay: Duration) {
        self.standin().inject("getMore", Fault::Delay(delay));
    }

    fn hold_feed(&self) {
        self.standin().inject("getMore", Fault::Hold);
    }

    fn refuse_feed(&self) {
        self.standin().inject("watch", Fault::Fail(shutdown()));
        self.standin().inject("getMore", Fault::Fail(shutdown()));
    }

    fn cut(&self) {
        self.standin().cut(None);
    }

    fn clear_faults(&self) {
        COMMANDS.into_iter().for_each(|command| self.standin().clear_faults(command));
    }

    fn prune_log(&self) {
        self.standin().prune_oplog();
    }

    fn hide_commits(&self) {
        self.standin().hold_visibility();
    }

    fn show_commits(&self) {
        self.standin().release_visibility();
    }

    fn kill(&mut self) {
        let killed = self.primary;
        self.mongo.standin_mut().stop(killed);
        if self.other() != killed {
            self.standin().elect(self.other());
        }
    }

    /// Starts the killed member; the other one stays primary.
    fn restart(&mut self) {
        let killed = self.primary;
        self.mongo.standin_mut().restart(killed);
        self.primary = self.other();
    }

    fn pause(&self) {
        self.standin().inject("*", Fault::Hold);
    }

    fn resume(&self) {
        self.standin().clear_faults("*");
    }
}
