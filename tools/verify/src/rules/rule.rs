//! The rules, with their names and what they require.

/// A rule of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Every response is a committed state.
    Committed,
    /// Point 1.
    Monotonic,
    /// Point 2.
    Fresh,
    /// Point 2: the `Age` header.
    Age,
    /// Point 1: `no-cache`.
    NoCache,
    /// Point 3: the response's own token.
    Token,
    /// Point 3, with a token.
    Session,
    /// Point 3, with the position of a commit.
    OwnWrite,
    /// Strict reads.
    Strict,
    /// Snapshot batches.
    Snapshot,
    /// Purges.
    Purged,
    /// Copies of clients that track.
    Copied,
    /// Followers of changes.
    Followed,
    /// Point 4.
    Convergent,
}

/// All rules, for counts.
pub const RULES: [Rule; 14] = [
    Rule::Committed,
    Rule::Monotonic,
    Rule::Fresh,
    Rule::Age,
    Rule::NoCache,
    Rule::Token,
    Rule::Session,
    Rule::OwnWrite,
    Rule::Strict,
    Rule::Snapshot,
    Rule::Purged,
    Rule::Copied,
    Rule::Followed,
    Rule::Convergent,
];

impl Rule {
    /// Returns a short name for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Monotonic => "monotonic",
            Self::Fresh => "fresh",
            Self::Age => "age",
            Self::NoCache => "no_cache",
            Self::Token => "token",
            Self::Session => "session",
            Self::OwnWrite => "own_write",
            Self::Strict => "strict",
            Self::Snapshot => "snapshot",
            Self::Purged => "purged",
            Self::Copied => "copied",
            Self::Followed => "followed",
            Self::Convergent => "convergent",
        }
    }

    /// Returns its requirement in a sentence.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Committed => "every response is a committed state, or a documented refusal",
            Self::Monotonic => {
                "point 1, monotonic: a request received after a response with version v was fully \
                 sent never gets an older version of that key from that instance"
            }
            Self::Fresh => {
                "point 2, fresh: a read that begins more than max_staleness after COMMIT returned \
                 sees the change, or is marked stale, or gets 503 or 504"
            }
            Self::Age => {
                "point 2, Age: a response is behind the database by no more than its Age says \
                 (rounded to seconds)"
            }
            Self::NoCache => {
                "point 1, no-cache: the response is read from the database after the request \
                 arrived"
            }
            Self::Token => {
                "point 3, tokens: the response is the state at its own Hotrow-Position; where an \
                 engine's positions are not exact, no newer"
            }
            Self::Session => {
                "point 3, sessions: with the Hotrow-Position of an earlier response as \
                 Hotrow-Min-Position, a response of any instance is at least as new"
            }
            Self::OwnWrite => {
                "point 3, read your writes: with the position of a commit as Hotrow-Min-Position, \
                 the response reflects every commit up to it"
            }
            Self::Strict => {
                "point 6, strict: with Hotrow-Min-Position: now, the response reflects every \
                 commit that had returned before the request was sent, and whatever an earlier \
                 strict response of any instance showed"
            }
            Self::Snapshot => {
                "point 7, snapshot: all records of the response, and none of the missing ones, \
                 are the database at one point of its log, with whole transactions only"
            }
            Self::Purged => {
                "a read after a purge returned shows a state read from the database after the \
                 purge was sent"
            }
            Self::Copied => {
                "copies: a near cache has invalidated its copy by twice max_staleness and 600 ms \
                 after COMMIT returned, while its connection is alive"
            }
            Self::Followed => {
                "followers: a read or a copy after an event reflects every commit up to the \
                 event's position, unless it is marked stale"
            }
            Self::Convergent => {
                "point 4, convergent: when writes stop, every key equals the database within \
                 max_staleness"
            }
        }
    }
}
