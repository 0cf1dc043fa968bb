//! Disturbances of the service, of its deployment and of the connections between them, each for a
//! while, under load.

use std::time::Duration;

use rustix::process::Signal;

use super::scene::{give_stream, take_stream};
use super::standin::Trouble;
use super::{MEMBERS, MongoRun};
use crate::contract::board::Instance;
use crate::contract::rows::Random;

/// One disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Disturbance {
    /// The stream's connection is closed.
    StreamCut,
    /// No stream for a while; it resumes at its position.
    StreamRefused,
    /// No stream, and the oplog drops the history.
    HistoryLost,
    /// The stream is late: by less than the bound, and by more.
    StreamLate,
    StreamVeryLate,
    /// The stream is silent but open.
    StreamHeld,
    /// The feed's queries for the time get no answer.
    ProbesHeld,
    ReadersLate,
    ReadersHeld,
    ReadersCut,
    /// All connections are closed at once.
    AllCut,
    /// Commits are in the oplog but not visible.
    VisibilityHeld,
    /// Another member becomes primary.
    Elected,
    /// The primary stops, another takes over, and it returns.
    MemberStopped,
    ServerPaused,
    ServicePaused,
}

pub(super) const DISTURBANCES: [Disturbance; 16] = [
    Disturbance::StreamCut,
    Disturbance::StreamRefused,
    Disturbance::HistoryLost,
    Disturbance::StreamLate,
    Disturbance::StreamVeryLate,
    Disturbance::StreamHeld,
    Disturbance::ProbesHeld,
    Disturbance::ReadersLate,
    Disturbance::ReadersHeld,
    Disturbance::ReadersCut,
    Disturbance::AllCut,
    Disturbance::VisibilityHeld,
    Disturbance::Elected,
    Disturbance::MemberStopped,
    Disturbance::ServerPaused,
    Disturbance::ServicePaused,
];

impl Disturbance {
    /// Returns true if the disturbance ends the feed.
    pub(super) fn ends_the_feed(self) -> bool {
        self == Self::HistoryLost
    }

    /// Applies the disturbance and ends it. `primary` is the index of the primary member.
    pub(super) fn apply(
        self,
        run: &mut MongoRun,
        instance: Instance,
        primary: &mut usize,
        random: &mut Random,
    ) {
        // Around the bound, so that some end before the policy applies and some do not.
        let a_while = Duration::from_millis(
            200 + random.below(2 * run.plan.max_staleness.as_millis() as u64),
        );
        let bound = run.plan.max_staleness;
        let other = (*primary + 1) % MEMBERS;
        let standin = run.database.standin_mut();
        match self {
            Self::StreamCut => standin.trouble_times("getMore", Trouble::Cut, Some(2)),
            Self::StreamRefused | Self::HistoryLost => take_stream(standin),
            Self::StreamLate => standin.trouble("getMore", Trouble::Delay(bound / 5)),
            Self::StreamVeryLate => standin.trouble("getMore", Trouble::Delay(bound * 3)),
            Self::StreamHeld => standin.trouble("getMore", Trouble::Hold),
            Self::ProbesHeld => standin.trouble("hello", Trouble::Hold),
            Self::ReadersLate => standin
                .trouble("find", Trouble::Delay(Duration::from_millis(1 + random.below(100)))),
            Self::ReadersHeld => standin.trouble("find", Trouble::Hold),
            Self::ReadersCut => standin.trouble_times("find", Trouble::Cut, Some(20)),
            Self::AllCut => standin.cut(None),
            Self::VisibilityHeld => standin.hold_visibility(),
            Self::Elected => standin.elect(other),
            Self::MemberStopped => {
                standin.stop(*primary);
                standin.elect(other);
            }
            Self::ServerPaused => standin.trouble("*", Trouble::Hold),
            Self::ServicePaused => run.server(instance).stop(),
        }
        run.pass(if self == Self::StreamVeryLate { a_while * 3 } else { a_while });
        let standin = run.database.standin_mut();
        match self {
            Self::HistoryLost => {
                standin.prune_oplog();
                give_stream(standin);
            }
            Self::StreamRefused => give_stream(standin),
            Self::VisibilityHeld => standin.release_visibility(),
            Self::Elected => *primary = other,
            Self::MemberStopped => {
                standin.restart(*primary);
                *primary = other;
            }
            Self::ServicePaused => run.server(instance).signal(Signal::CONT),
            _ => ["getMore", "hello", "find", "*"].into_iter().for_each(|name| standin.calm(name)),
        }
    }
}
