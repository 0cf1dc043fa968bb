//! Settings of followers of changes.

use std::time::Duration;

use hotrow_types::key::CollectionId;

/// Which collections may be followed, and the bounds on followers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Collections whose changes may be followed.
    pub collections: Vec<CollectionId>,
    /// Most followers at once; more get 503.
    pub followers: usize,
    /// Most followers of one client (of IPv6, one /64) at once; more get 429. 0: unlimited.
    pub followers_per_client: usize,
    /// Most ids that one follower may name.
    pub ids: usize,
    /// Most bytes of changes per collection from which a follower can be resumed, and of changes
    /// that are not proven visible.
    pub window_bytes: usize,
    /// Interval of heartbeats.
    pub heartbeat: Duration,
}

impl Default for Follow {
    fn default() -> Self {
        Self {
            collections: Vec::new(),
            followers: 10_000,
            followers_per_client: 0,
            ids: 100,
            window_bytes: 4 << 20,
            heartbeat: Duration::from_secs(5),
        }
    }
}
