//! Timelines: lanes, each with periods in one state.

use serde::{Deserialize, Serialize};

/// State of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// It had a request and ran or was runnable.
    Running,
    /// Its request slept.
    Sleeping,
    /// It waited for work, for a slot, or for the others of its batch.
    Waiting,
}

/// A period in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneSpan {
    /// The state.
    pub state: LaneState,
    /// Start, in µs since the run began.
    pub from_us: u64,
    /// End, in µs since the run began.
    pub to_us: u64,
}

/// A lane of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Its label.
    pub label: String,
    /// Its periods, in order.
    pub spans: Vec<LaneSpan>,
}
