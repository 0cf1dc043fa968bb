//! Self-check of the server: lateness of its answers, and the mean of its work.

use crate::schedule::Schedule;

/// Upper bounds of the lateness classes, in µs.
const BOUNDS_US: [u64; 10] = [10, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 25_000];

/// Answers by lateness; the last class exceeds every bound.
#[derive(Debug, Default)]
pub struct Check {
    late: [u64; BOUNDS_US.len() + 1],
    late_ns_max: u64,
}

impl Check {
    /// Records an answer that left this late, in ns.
    pub fn left(&mut self, late_ns: u64) {
        let at =
            BOUNDS_US.iter().position(|bound| late_ns < bound * 1_000).unwrap_or(BOUNDS_US.len());
        self.late[at] += 1;
        self.late_ns_max = self.late_ns_max.max(late_ns);
    }

    /// Returns an HTTP answer with all counts as JSON.
    pub fn answer(&self, schedule: &Schedule) -> Vec<u8> {
        let list =
            |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let mean_us = schedule.work_ns / schedule.works.max(1) as f64 / 1e3;
        let body = format!(
            "{{\"late_below_us\":[{}],\"answers\":[{}],\"late_max_us\":{},\"works\":{},\
             \"work_mean_us\":{mean_us:.3}}}",
            list(&BOUNDS_US),
            list(&self.late),
            self.late_ns_max / 1_000,
            schedule.works,
        );
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }
}
