//! What a follower asks for.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use hotrow_push::ResumeId;
use hotrow_types::key::Key;

/// What a follower asks for.
pub(super) struct FollowRequest {
    /// Records; `None`: all.
    pub(crate) keys: Option<HashSet<Key, RandomState>>,
    /// The follower has everything up to this point.
    pub(crate) last: Option<ResumeId>,
    pub(crate) framing: Framing,
}

/// How the body of a follower is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// In chunks: HTTP/1.1.
    Chunked,
    /// Until the connection closes: HTTP/1.0.
    UntilClosed,
    /// In frames, beside others: HTTP/2. It is asked for one when the client has room for it.
    Multiplexed,
}
