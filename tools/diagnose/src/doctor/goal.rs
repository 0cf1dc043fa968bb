//! The goal that limits are compared with.

/// Default number of open connections: what is commonly called many.
pub const CONNECTIONS_DEFAULT: u64 = 10_000;

/// Default number of threads: the size of a service with one thread per request.
pub const THREADS_DEFAULT: u64 = 1_000;

/// Default requests per second.
pub const RATE_DEFAULT: f64 = 10_000.0;

/// Time within which all connections may have to be reopened, in s: after a restart, a failover, or
/// at a test's start.
pub const RECONNECT_S: f64 = 1.0;

/// The goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Concurrently open connections; this machine holds one end of each.
    pub connections: u64,
    /// Threads of one process.
    pub threads: u64,
    /// Requests per second.
    pub rate: f64,
    /// True if a connection carries many requests; otherwise each request opens one.
    pub keepalive: bool,
    /// True if this machine opens the connections, as a load generator or a proxy does; otherwise
    /// it accepts them.
    pub client: bool,
}

impl Default for Goal {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_DEFAULT,
            threads: THREADS_DEFAULT,
            rate: RATE_DEFAULT,
            keepalive: true,
            client: false,
        }
    }
}

impl Goal {
    /// Returns the connections opened per second in the worst case.
    pub fn opened_per_s(&self) -> f64 {
        let reconnect = self.connections as f64 / RECONNECT_S;
        if self.keepalive { reconnect } else { reconnect.max(self.rate) }
    }
}
