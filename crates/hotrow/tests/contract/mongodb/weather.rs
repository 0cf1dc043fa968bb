//! What can go wrong between the service and its deployment, and with both: each for a while, under load.

use std::time::Duration;

use rustix::process::Signal;

use super::scene::{give_stream, take_stream};
use super::standin::Trouble;
use super::{MEMBERS, MongoRun};
use crate::board::Instance;
use crate::rows::Random;

/// One disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weather {
    /// The stream's connection goes.
    StreamCut,
    /// There is no stream for a while; then it goes on where it was.
    StreamRefused,
    /// There is no stream, and meanwhile the oplog forgets.
    HistoryLost,
    /// The stream arrives late: by a little, and by more than the bound.
    StreamLate,
    StreamVeryLate,
    /// Nothing of the stream arrives, and nothing is closed.
    StreamHeld,
    /// The feed's questions for the time are not answered.
    ProbesHeld,
    ReadersLate,
    ReadersHeld,
    ReadersCut,
    /// Everything is closed at once.
    AllCut,
    /// Commits are in the oplog and nobody sees them.
    VisibilityHeld,
    /// Another member becomes primary.
    Elected,
    /// The primary goes, another takes over, it comes back.
    MemberStopped,
    ServerPaused,
    ServicePaused,
}

pub(super) const WEATHERS: [Weather; 16] = [
    Weather::StreamCut,
    Weather::StreamRefused,
    Weather::HistoryLost,
    Weather::StreamLate,
    Weather::StreamVeryLate,
    Weather::StreamHeld,
    Weather::ProbesHeld,
    Weather::ReadersLate,
    Weather::ReadersHeld,
    Weather::ReadersCut,
    Weather::AllCut,
    Weather::VisibilityHeld,
    Weather::Elected,
    Weather::MemberStopped,
    Weather::ServerPaused,
    Weather::ServicePaused,
];

impl Weather {
    /// Whether the feed must lose its place by it.
    pub(super) fn ends_the_feed(self) -> bool {
        self == Self::HistoryLost
    }

    /// Brings it about and lets it pass. `primary`: which member is.
    pub(super) fn come(self, run: &mut MongoRun, instance: Instance, primary: &mut usize, random: &mut Random) {
        // Around the bound: some pass before the policy acts, some do not.
        let a_while = Duration::from_millis(200 + random.below(2 * run.plan.max_staleness.as_millis() as u64));
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
            Self::ReadersLate => standin.trouble("find", Trouble::Delay(Duration::from_millis(1 + random.below(100)))),
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
