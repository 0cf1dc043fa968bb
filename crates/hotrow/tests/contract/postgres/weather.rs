//! What can go wrong between the service and its database, and with both: each for a while, under load.

use std::time::Duration;

use rustix::process::Signal;

use super::PostgresRun;
use super::proxy::{BOTH, CLASSES, Class, FEED, Way};
use super::session::PostgresSession;
use crate::board::Instance;
use crate::rows::{Random, payload};
use crate::writer::{note, state};

/// One disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weather {
    /// The stream's connection is reset.
    StreamCut,
    /// All of the feed's connections are reset, and new ones for a while.
    FeedRefused,
    /// The stream arrives late, keep-alives included: by a little, and by more than the bound.
    StreamLate,
    StreamVeryLate,
    /// Nothing of the stream arrives, and nothing is closed.
    StreamHeld,
    /// The feed's questions are not answered, while its stream goes on.
    ProbesHeld,
    /// What the feed says does not reach the server.
    FeedUnheard,
    ReadersLate,
    ReadersHeld,
    ReadersCut,
    /// Everything is reset at once.
    AllCut,
    /// Somebody ends the server's side of the stream.
    StreamTerminated,
    ServerPaused,
    ServicePaused,
    ServerKilled,
    /// No fault: the table is emptied.
    Truncated,
    /// No fault: one transaction changes more rows than a feed lists.
    ManyChanged,
}

pub(super) const WEATHERS: [Weather; 17] = [
    Weather::StreamCut,
    Weather::FeedRefused,
    Weather::StreamLate,
    Weather::StreamVeryLate,
    Weather::StreamHeld,
    Weather::ProbesHeld,
    Weather::FeedUnheard,
    Weather::ReadersLate,
    Weather::ReadersHeld,
    Weather::ReadersCut,
    Weather::AllCut,
    Weather::StreamTerminated,
    Weather::ServerPaused,
    Weather::ServicePaused,
    Weather::ServerKilled,
    Weather::Truncated,
    Weather::ManyChanged,
];

impl Weather {
    /// Whether the feed must lose its place by it.
    pub(super) fn ends_the_feed(self) -> bool {
        use Weather::{AllCut, FeedRefused, ServerKilled, StreamCut, StreamTerminated};
        matches!(self, AllCut | FeedRefused | ServerKilled | StreamCut | StreamTerminated)
    }

    /// Brings it about and lets it pass.
    pub(super) fn come(self, run: &mut PostgresRun, instance: Instance, random: &mut Random) {
        // Around the bound: some pass before the policy acts, some do not.
        let a_while = Duration::from_millis(200 + random.below(2 * run.plan.max_staleness.as_millis() as u64));
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
            Self::StreamVeryLate => proxy.delay(stream, &[Way::ToService], run.plan.max_staleness * 3),
            Self::StreamHeld => proxy.hold(stream, &[Way::ToService]),
            Self::ProbesHeld => proxy.hold(&[Class::FeedSql], &BOTH),
            Self::FeedUnheard => proxy.hold(&FEED, &[Way::ToServer]),
            Self::ReadersLate => proxy.delay(readers, &BOTH, Duration::from_millis(1 + random.below(100))),
            Self::ReadersHeld => proxy.hold(readers, &[Way::ToService]),
            Self::ReadersCut => proxy.cut(readers),
            Self::AllCut => proxy.cut(&CLASSES),
            Self::StreamTerminated => {
                // None, where the feed is just connecting.
                run.database.server.batch("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
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
            Self::ServerKilled => run.database.server.restart(),
            _ => run.database.proxy.calm(),
        }
    }
}

impl PostgresRun {
    /// Empties the table while the writers pause.
    pub(super) fn truncate(&mut self) {
        self.at_once(false, |_| "TRUNCATE items".to_owned());
    }

    /// Gives every key a row, in one transaction, while the writers pause: more rows than a feed lists.
    pub(super) fn change_all(&mut self) {
        let sizes = self.plan.sizes;
        self.at_once(true, |versions| {
            let row = |(key, version): &(u32, u64)| format!("({key}, {version}, '{}')", payload(*key, *version, sizes));
            let rows: Vec<String> = versions.iter().map(row).collect();
            let conflict = "ON CONFLICT (id) DO UPDATE SET version = excluded.version, payload = excluded.payload";
            format!("INSERT INTO items VALUES {} {conflict}", rows.join(","))
        });
    }

    /// Makes one commit after which every key has a row, or none has. `sql` gets the keys that change with their versions.
    fn at_once(&mut self, present: bool, sql: impl Fn(&[(u32, u64)]) -> String) {
        self.board.pause_writers(self.writer_count());
        let mut kept: Vec<_> = self.kept.iter().map(|kept| kept.lock().expect("no panics here")).collect();
        let histories = kept.iter_mut().flat_map(|kept| kept.iter_mut());
        let (versions, mut changed): (Vec<_>, Vec<_>) = histories
            .filter(|(_, history)| present || history.last().present)
            .map(|(key, history)| ((*key, history.next_version()), history))
            .unzip();
        let mut session = PostgresSession::new(self.database.server.url());
        let commit = session.commit_sql(&sql(&versions), &self.board);
        changed.iter_mut().for_each(|history| _ = history.push(state(&commit, present, u8::MAX)));
        note(&self.board, &commit, changed.len());
        drop(changed);
        drop(kept);
        self.board.resume_writers();
    }
}
