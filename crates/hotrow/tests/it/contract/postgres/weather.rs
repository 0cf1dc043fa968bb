//! Disturbances of the service, of its database and of the connections between them, each for a
//! while, under load.

use std::time::Duration;

use rustix::process::Signal;

use super::PostgresRun;
use super::proxy::{BOTH, CLASSES, Class, FEED, Way};
use super::session::PostgresSession;
use crate::contract::board::Instance;
use crate::contract::rows::{Random, payload};
use crate::contract::writer::{note, state};

/// One disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Disturbance {
    /// The stream's connection is reset.
    StreamCut,
    /// All of the feed's connections are reset, and new ones refused for a while.
    FeedRefused,
    /// The stream is late, keep-alives included: by less than the bound, and by more.
    StreamLate,
    StreamVeryLate,
    /// The stream is silent but open.
    StreamHeld,
    /// The feed's queries get no answer while its stream continues.
    ProbesHeld,
    /// The feed's messages do not reach the server.
    FeedMuted,
    ReadersLate,
    ReadersHeld,
    ReadersCut,
    /// All connections are reset at once.
    AllCut,
    /// The server's side of the stream is terminated.
    StreamTerminated,
    ServerPaused,
    ServicePaused,
    ServerKilled,
    /// No fault: the table is emptied.
    Truncated,
    /// No fault: one transaction changes more rows than the feed lists.
    ManyChanged,
}

pub(super) const DISTURBANCES: [Disturbance; 17] = [
    Disturbance::StreamCut,
    Disturbance::FeedRefused,
    Disturbance::StreamLate,
    Disturbance::StreamVeryLate,
    Disturbance::StreamHeld,
    Disturbance::ProbesHeld,
    Disturbance::FeedMuted,
    Disturbance::ReadersLate,
    Disturbance::ReadersHeld,
    Disturbance::ReadersCut,
    Disturbance::AllCut,
    Disturbance::StreamTerminated,
    Disturbance::ServerPaused,
    Disturbance::ServicePaused,
    Disturbance::ServerKilled,
    Disturbance::Truncated,
    Disturbance::ManyChanged,
];

impl Disturbance {
    /// Returns true if the disturbance ends the feed.
    pub(super) fn ends_the_feed(self) -> bool {
        use Disturbance::{AllCut, FeedRefused, ServerKilled, StreamCut, StreamTerminated};
        matches!(self, AllCut | FeedRefused | ServerKilled | StreamCut | StreamTerminated)
    }

    /// Applies the disturbance and ends it.
    pub(super) fn apply(self, run: &mut PostgresRun, instance: Instance, random: &mut Random) {
        // Around the bound, so that some end before the policy applies and some do not.
        let a_while = Duration::from_millis(
            200 + random.below(2 * run.plan.max_staleness.as_millis() as u64),
        );
        let stream = &[Class::Replication];
        let readers = &[Class::Readers];
        let proxy = &run.database.proxy;
        match self {
            Self::StreamCut => proxy.cut(stream),
            Self::FeedRefused => {
                proxy.refuse(&FEED, true);
                proxy.cut(&FEED);
            }
            Self::StreamLate => proxy.delay(stream, &[Way::ToService], run.plan.max_staleness / 5),
            Self::StreamVeryLate => {
                proxy.delay(stream, &[Way::ToService], run.plan.max_staleness * 3)
            }
            Self::StreamHeld => proxy.hold(stream, &[Way::ToService]),
            Self::ProbesHeld => proxy.hold(&[Class::FeedSql], &BOTH),
            Self::FeedMuted => proxy.hold(&FEED, &[Way::ToServer]),
            Self::ReadersLate => {
                proxy.delay(readers, &BOTH, Duration::from_millis(1 + random.below(100)))
            }
            Self::ReadersHeld => proxy.hold(readers, &[Way::ToService]),
            Self::ReadersCut => proxy.cut(readers),
            Self::AllCut => proxy.cut(&CLASSES),
            Self::StreamTerminated => {
                // Ends no session if the feed is just connecting.
                run.database
                    .server
                    .batch("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
            }
            Self::ServerPaused => run.database.server.pause(),
            Self::ServicePaused => run.server(instance).stop(),
            Self::ServerKilled => run.database.server.kill9(),
            Self::Truncated => run.truncate(),
            Self::ManyChanged => run.change_all(),
        }
        run.pass(if self == Self::StreamVeryLate { a_while * 3 } else { a_while });
        match self {
            Self::ServerPaused => run.database.server.resume(),
            Self::ServicePaused => run.server(instance).signal(Signal::CONT),
            Self::ServerKilled => run.restart(),
            _ => run.database.proxy.calm(),
        }
    }
}

impl PostgresRun {
    /// Empties the table while the writers are paused.
    pub(super) fn truncate(&mut self) {
        self.at_once(false, |_| "TRUNCATE items".to_owned());
    }

    /// Gives every key a row in one transaction, while the writers are paused: more rows than the
    /// feed lists.
    pub(super) fn change_all(&mut self) {
        let sizes = self.plan.sizes;
        self.at_once(true, |versions| {
            let row = |(key, version): &(u32, u64)| {
                format!("({key}, {version}, '{}')", payload(*key, *version, sizes))
            };
            let rows: Vec<String> = versions.iter().map(row).collect();
            let conflict = "ON CONFLICT (id) \
                DO UPDATE SET version = excluded.version, payload = excluded.payload";
            format!("INSERT INTO items VALUES {} {conflict}", rows.join(","))
        });
    }

    /// Commits one statement after which every key has a row, or none has. `sql` receives the
    /// changed keys with their versions.
    fn at_once(&mut self, present: bool, sql: impl Fn(&[(u32, u64)]) -> String) {
        self.board.pause_writers(self.writer_count());
        let mut locked: Vec<_> = self
            .writer_histories
            .iter()
            .map(|histories| histories.lock().expect("no panics here"))
            .collect();
        let histories = locked.iter_mut().flat_map(|histories| histories.iter_mut());
        let (versions, mut changed): (Vec<_>, Vec<_>) = histories
            .filter(|(_, history)| present || history.last().present)
            .map(|(key, history)| ((*key, history.next_version()), history))
            .unzip();
        let mut session = PostgresSession::new(self.database.server.url());
        let commit = session.commit_sql(&sql(&versions), &self.board);
        changed.iter_mut().for_each(|history| _ = history.push(state(&commit, present, u8::MAX)));
        note(&self.board, &commit, changed.len());
        drop(changed);
        drop(locked);
        self.board.resume_writers();
    }
}
