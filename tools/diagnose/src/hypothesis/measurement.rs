//! The measurement of one load, and the spread of equal ones.

/// The measurement of one load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrialMeasurement {
    /// Expected responses per second.
    pub rate_rps: f64,
    /// Requests lost, wrong, timed out or without a connection, as a share of due requests, 0 to 1.
    pub failed_share: f64,
    /// Connections per second that found a full accept queue on this machine; 0 where unknown.
    pub overflows_per_s: f64,
    /// Share of the connections with an unread request, 0 to 1; none where unknown.
    pub unread_share: Option<f64>,
    /// True if the generator judges itself to have been the limit.
    pub generator_limited: bool,
}

/// The spread of equal loads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Lowest rate, in requests per second.
    pub low_rps: f64,
    /// Highest rate, in requests per second.
    pub high_rps: f64,
}

impl Noise {
    /// Returns the spread over the mean of both ends; 0 when all were equal.
    pub fn share(&self) -> f64 {
        let middle = f64::midpoint(self.low_rps, self.high_rps);
        if middle > 0.0 { (self.high_rps - self.low_rps) / middle } else { 0.0 }
    }

    /// Returns the larger of two.
    pub(super) fn worse(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if other.share() > one.share() { other } else { one }),
            (one, other) => one.or(other),
        }
    }
}
