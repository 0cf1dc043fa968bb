use std::time::Duration;

use crate::config::Limits;

/// Returns small limits: 512 bytes of head, 16 fields, 64 bytes of target, 1,000 of body; header 1
/// s, body 2 s, idle 3 s, write 4 s.
pub(crate) fn limits() -> Limits {
    Limits {
        connections: 8,
        connections_per_client: 4,
        requests_in_flight: 8,
        header_bytes: 512,
        headers: 16,
        target_bytes: 64,
        body_bytes: 1_000,
        header_timeout: Duration::from_secs(1),
        body_timeout: Duration::from_secs(2),
        idle_timeout: Duration::from_secs(3),
        idle_reclaim: Duration::from_secs(1),
        write_timeout: Duration::from_secs(4),
        request_timeout: Duration::from_secs(5),
        drain_timeout: Duration::from_secs(6),
        max_batch: 10,
        position_wait: Duration::from_secs(1),
        privileged_waiters: 4,
        checks_per_s: 0,
        bytes: crate::config::ByteLimits::default(),
        drain_rate_min: 0,
    }
}
