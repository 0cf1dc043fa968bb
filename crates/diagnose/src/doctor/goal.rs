//! What is wanted of the machine.

/// Connections that are open at once, unless the user says otherwise: ten thousand is what people mean by many.
pub const CONNECTIONS_DEFAULT: u64 = 10_000;
/// Threads, unless the user says otherwise: what a service with a thread per request grows to.
pub const THREADS_DEFAULT: u64 = 1_000;
/// Requests per second, unless the user says otherwise.
pub const RATE_DEFAULT: f64 = 10_000.0;
/// All connections may have to be opened anew within this time, in s: after a restart, a failover, or at a test's
/// start.
pub const RECONNECT_S: f64 = 1.0;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Connections that are open at once; this machine holds one end of each.
    pub connections: u64,
    /// Threads of one process.
    pub threads: u64,
    /// Requests per second.
    pub rate: f64,
    /// Whether a connection carries many requests; else each request opens one.
    pub keepalive: bool,
    /// Whether this machine opens the connections, as a load generator or a proxy does; else it accepts them.
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
    /// Connections that are opened per second, at the worst time.
    #[must_use]
    pub fn opened_per_s(&self) -> f64 {
        let reconnect = self.connections as f64 / RECONNECT_S;
        if self.keepalive { reconnect } else { reconnect.max(self.rate) }
    }
}
