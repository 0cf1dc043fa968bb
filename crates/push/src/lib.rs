//! Changes for followers, without I/O, clock or threads: when a change may be pushed, and what a
//! follower that comes back still needs.
//!
//! A feed delivers a change before readers can see it (Race B, `docs/design.md`). A follower that
//! were informed at once would read the old row, and nothing would inform it again. So a change
//! waits ([`ChangeLog`], `pending`) until a version that every new read sees contains it, and with
//! it all changes after it: followers get commits in the order of the log. Then it enters the
//! window of its collection (`window`), from which followers read, and in which a follower that
//! returns with a [`ResumeId`] finds what it has missed.
//!
//! Followers have no queues here. Each is a [`Cursor`], and the window is shared, so that one
//! follower costs a few bytes however many changes wait for it. Registration and replay are one
//! step: the cursor is set to where the replay begins.
//!
//! Whenever changes may have been missed, the *generation* of the window is raised, and each of its
//! followers gets [`Event::Reset`]: at the loss, and again where the new feed begins.
//!
//! Clients that keep copies of what they read are another matter: they get the keys that they have
//! asked for, in no particular order, and never return for what they have missed ([`tracking`],
//! [`invalidation`]).

//!
//! Purges of caches in front of the service leave by the same proof: what is to be purged at one
//! target, and when again, is in its [`PurgeQueue`].

mod change_log;
pub mod invalidation;
mod pending;
#[cfg(any(test, feature = "failpoints"))]
mod plants;
mod purge_queue;
mod resume;
pub mod tracking;
mod window;

pub use change_log::{ChangeLog, Config, Usage};
#[cfg(any(test, feature = "failpoints"))]
pub use plants::{FollowPlant, PurgePlant};
pub use purge_queue::{
    Added, Batch, BatchLimits, ENTRY_OVERHEAD_BYTES, Purge, PurgeLimits, PurgeQueue,
};
pub use resume::{ResumeId, ResumeIdError};
pub use window::{Cursor, Event, Opening, Progress};
