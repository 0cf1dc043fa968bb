//! Settings of what operators see of single requests and queries.

use std::path::PathBuf;
use std::time::Duration;

use super::trace::Trace;

/// Access log, timing in answers, and traces.
#[derive(Clone, Debug, Default)]
pub struct Observability {
    /// Access log; `None`: off.
    pub access_log: Option<AccessLog>,
    /// `true`: answers have `Server-Timing`, except for those of collections with tenants.
    pub has_server_timing: bool,
    /// Traces; `None`: none are recorded.
    pub trace: Option<Trace>,
}

/// Settings of the access log.
#[derive(Clone, Debug)]
pub struct AccessLog {
    /// Where its lines go.
    pub output: AccessLogOutput,
    /// Share of the requests that have a line although they are neither slow nor failed, 0 to 1.
    pub sample: f64,
    /// Duration from which a request is slow and always has a line.
    pub slow: Duration,
    /// `true`: lines have the path, and so the ids of records.
    pub has_ids: bool,
}

/// Where the lines of the access log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogOutput {
    /// Standard output.
    Stdout,
    /// Standard error, which has the log too.
    Stderr,
    /// A regular file, which is appended to.
    File(PathBuf),
}
