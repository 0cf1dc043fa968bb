//! A private replica set: the stand-in for MongoDB (docs/mongodb.md states its limits), or
//! SecantusDB where a run chooses it ([`SecantusSet`]). The stand-in's switches replace a proxy:
//! they disturb each command. Writers of a test use the same members, so they are disturbed too.

use std::time::Duration;

use crate::backend::Backend;
use crate::backend::secantus::SecantusSet;
use hotrow_testkit::harness::Config;
use hotrow_testkit::mongo::{MongoDatabase, Secantus};
use hotrow_testkit::standin::{Failure, Fault, Kind, Standin};

/// Members of [`Backend::start`]'s set.
const MEMBERS: usize = 2;
/// Commands that are disturbed.
const COMMANDS: [&str; 5] = ["getMore", "watch", "find", "hello", "*"];

/// A replica set.
pub(crate) struct Mongo {
    /// First field, so that it is dropped before its server.
    pub(crate) mongo: MongoDatabase,
    secantus: Option<SecantusSet>,
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
        Self { mongo, secantus: None, members, primary: 0 }
    }

    /// Starts a private set; SecantusDB has one member, whatever their number.
    pub(crate) fn private(members: usize) -> Self {
        if !Secantus::is_chosen() {
            return Self::over(MongoDatabase::on_kind(Kind::ReplicaSet, members), members);
        }
        let set = SecantusSet::start();
        Self { secantus: Some(set.0), ..Self::over(set.1, 1) }
    }

    #[track_caller]
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

    /// Returns the newest operation time.
    pub(crate) fn log_end(&self) -> u64 {
        match &self.secantus {
            Some(_) => self.mongo.operation_time(),
            None => self.standin().now(),
        }
    }
}

impl Backend for Mongo {
    const FEED_RESUMES: bool = true;
    const LATE_FEED_ANSWERS_RARELY: bool = true;

    fn start() -> Self {
        Self::private(MEMBERS)
    }

    fn config(&self) -> Config {
        let config = match &self.secantus {
            Some(set) => set.config(),
            None => Config::over(self.mongo.url()),
        };
        config.set("source.connect_timeout", "\"2s\"")
    }

    fn delay_reads(&self, delay: Duration) {
        match &self.secantus {
            Some(set) => set.delay_reads(delay),
            None => self.standin().inject("find", Fault::Delay(delay)),
        }
    }

    fn hold_reads(&self) {
        match &self.secantus {
            Some(set) => set.hold_reads(),
            None => self.standin().inject("find", Fault::Hold),
        }
    }

    fn hold_next_read(&self) {
        match &self.secantus {
            Some(set) => set.hold_reads(),
            None => self.standin().inject_times("find", Fault::Hold, Some(1)),
        }
    }

    fn holds_a_read(&self) -> bool {
        match &self.secantus {
            Some(set) => set.holds_a_read(),
            None => self.standin().held("find") > 0,
        }
    }

    fn delay_feed(&self, delay: Duration) {
        match &self.secantus {
            Some(set) => set.delay_feed(delay),
            None => self.standin().inject("getMore", Fault::Delay(delay)),
        }
    }

    fn hold_feed(&self) {
        match &self.secantus {
            Some(set) => set.hold_feed(),
            None => self.standin().inject("getMore", Fault::Hold),
        }
    }

    fn refuse_feed(&self) {
        if let Some(set) = &self.secantus {
            return set.refuse_feed();
        }
        self.standin().inject("watch", Fault::Fail(shutdown()));
        self.standin().inject("getMore", Fault::Fail(shutdown()));
    }

    fn cut(&self) {
        match &self.secantus {
            Some(set) => set.cut(),
            None => self.standin().cut(None),
        }
    }

    fn clear_faults(&self) {
        if let Some(set) = &self.secantus {
            return set.clear_faults();
        }
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
        if let Some(set) = &mut self.secantus {
            return set.stop();
        }
        let killed = self.primary;
        self.mongo.standin_mut().stop(killed);
        if self.other() != killed {
            self.standin().elect(self.other());
        }
    }

    /// Starts the killed member; the other one stays primary.
    fn restart(&mut self) {
        if let Some(set) = &mut self.secantus {
            return set.restart();
        }
        let killed = self.primary;
        self.mongo.standin_mut().restart(killed);
        self.primary = self.other();
    }

    fn pause(&self) {
        match &self.secantus {
            Some(set) => set.pause(),
            None => self.standin().inject("*", Fault::Hold),
        }
    }

    fn resume(&self) {
        match &self.secantus {
            Some(set) => set.resume(),
            None => self.standin().clear_faults("*"),
        }
    }
}
