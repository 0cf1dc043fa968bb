//! Counters of followers. Written when a follower begins or ends, and once per frame.
//!
//! Reference `metrics`: Followers of changes
//!
//! With a collection that has `changes`, or is purged; [what they mean](changes.md#limits).
//!
//! - `hotrow_followers`: Clients that follow changes.
//! - `hotrow_followers_begun_total`: Followers admitted.
//! - `hotrow_followers_ended_total` (`reason`): Followers that ended: `client` (it has gone),
//!   `slow` (it did not take its events), `draining`, `access` (its credential), `removed` (its
//!   collection).
//! - `hotrow_followers_refused_total`: Followers refused: `follow.followers`,
//!   `follow.followers_per_client`.
//! - `hotrow_follower_resets_total`: Resets sent: changes may have been missed.
//! - `hotrow_follower_sent_bytes_total`: Bytes of events.
//! - `hotrow_followed_changes_total`: Changes released to followers.
//! - `hotrow_followed_changes_window_bytes`: Memory of released changes.
//! - `hotrow_followed_changes_hidden_bytes`: Memory of delivered changes not proven visible yet.
//!   High for long: commits wait, for instance for a synchronous standby.
//! - `hotrow_followed_changes_overflows_total`: Times that these exceeded `follow.window`.
//!   Followers were reset.

use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_telemetry::exposition::Exposition;

use super::Follows;

/// Reason for which a follower ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Its client has gone.
    Client,
    /// It did not take its events fast enough.
    Slow,
    /// The process ends, or another one takes over.
    Draining,
    /// Its credential has expired, was revoked or lost the grant.
    Access,
    /// The collection has left the configuration.
    Removed,
}

impl EndCause {
    pub(crate) const ALL: [Self; 5] =
        [Self::Client, Self::Slow, Self::Draining, Self::Access, Self::Removed];

    /// Returns its name in metrics and events.
    pub fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Slow => "slow",
            Self::Draining => "draining",
            Self::Access => "access",
            Self::Removed => "removed",
        }
    }
}

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub struct FollowCounts {
    begun: AtomicU64,
    ended: [AtomicU64; EndCause::ALL.len()],
    refused: AtomicU64,
    resets: AtomicU64,
    sent_bytes: AtomicU64,
}

impl FollowCounts {
    /// Counts a follower that begins.
    pub fn begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a follower.
    pub fn ended(&self, cause: EndCause) {
        self.ended[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a follower that is not admitted.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a follower that must read everything again.
    pub fn reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes sent.
    pub fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns how many ended for this reason.
    pub(crate) fn ended_by(&self, cause: EndCause) -> u64 {
        self.ended[cause as usize].load(Ordering::Relaxed)
    }
}

impl Follows {
    /// Writes the metrics.
    pub fn expose(&self, out: &mut Exposition) {
        let counts = &self.counts;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let usage = self.usage();
        out.gauge(
            "hotrow_followers",
            "Clients that follow the changes of a collection.",
            [([], self.followers() as u64)],
        );
        out.counter(
            "hotrow_followers_begun_total",
            "Followers that were admitted.",
            [([], get(&counts.begun))],
        );
        let ended =
            EndCause::ALL.map(|cause| ([("reason", cause.label())], counts.ended_by(cause)));
        out.counter("hotrow_followers_ended_total", "Followers that ended, by reason.", ended);
        out.counter(
            "hotrow_followers_refused_total",
            "Followers refused because there were too many, of all clients or of one.",
            [([], get(&counts.refused))],
        );
        out.counter(
            "hotrow_follower_resets_total",
            "Resets sent to followers, which may have missed changes.",
            [([], get(&counts.resets))],
        );
        out.counter(
            "hotrow_follower_sent_bytes_total",
            "Bytes of events handed over for followers.",
            [([], get(&counts.sent_bytes))],
        );
        out.counter(
            "hotrow_followed_changes_total",
            "Changes proven visible, and released to followers.",
            [([], usage.released_total)],
        );
        out.gauge(
            "hotrow_followed_changes_window_bytes",
            "Bytes of released changes from which followers can be resumed.",
            [([], usage.window_bytes as u64)],
        );
        out.gauge(
            "hotrow_followed_changes_hidden_bytes",
            "Bytes of delivered changes that are not proven visible yet.",
            [([], usage.pending_bytes as u64)],
        );
        out.counter(
            "hotrow_followed_changes_overflows_total",
            "Times that more changes waited for the proof than fit; followers were reset.",
            [([], usage.overflows_total)],
        );
    }

    /// Returns the followers' part of `/status`.
    pub fn status(&self) -> serde_json::Value {
        let usage = self.usage();
        let count = |cause: EndCause| (cause.label().into(), self.counts.ended_by(cause).into());
        let ended: serde_json::Map<String, serde_json::Value> =
            EndCause::ALL.into_iter().map(count).collect();
        serde_json::json!({
            "followers": self.followers(),
            "followers_max": self.settings.followers,
            "ended": ended,
            "released": usage.released_total,
            "window_bytes": usage.window_bytes,
            "window_bytes_max": self.settings.window_bytes,
            "hidden_bytes": usage.pending_bytes,
        })
    }
}
