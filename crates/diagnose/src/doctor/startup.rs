//! What `serve` and `load` say, in one line, when a limit is below what they were asked to do. What stops them, or makes them
//! lower their own settings, they tell themselves; this is about what would only show under load.

use crate::root::Root;

/// What a server wants of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Connections that may wait in the queue of one listener, as it asks the kernel.
    pub backlog: u64,
}

/// What a load generator wants of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generator {
    /// New connections per second; none when connections are kept.
    pub new_per_s: Option<f64>,
    /// Whether the target is on this machine.
    pub local: bool,
}

/// Whether the kernel gives a server the queue that it asks for. What cannot be read is no reason for a warning.
#[must_use]
pub fn server(root: &Root, wanted: &Server) -> Option<String> {
    let somaxconn: u64 = root.value("proc/sys/net/core/somaxconn").ok()?;
    (somaxconn < wanted.backlog).then(|| {
        format!(
            "net.core.somaxconn ({somaxconn}) shortens the accept queue of {} that is asked for: connections that come in a \
             burst are dropped; sysctl -w net.core.somaxconn={}; hotrow doctor tells more",
            wanted.backlog, wanted.backlog
        )
    })
}

/// Whether a generator that opens connections all the time runs out of ports.
#[must_use]
pub fn generator(root: &Root, wanted: &Generator) -> Option<String> {
    let rate = wanted.new_per_s?;
    let ports = crate::probe::ports::read(root).ok()?.count();
    let reuse: u64 = root.value("proc/sys/net/ipv4/tcp_tw_reuse").ok()?;
    // 1 allows it everywhere, 2 on the loopback.
    if reuse == 1 || (reuse == 2 && wanted.local) {
        return None;
    }
    let allowed = ports / super::rate::TIME_WAIT_S;
    (rate > allowed as f64).then(|| {
        format!(
            "{ports} local ports, each kept for {} s, allow {allowed} new connections per second to one address if this side \
             closes them; {rate:.0} are asked for; sysctl -w net.ipv4.tcp_tw_reuse=1; hotrow doctor tells more",
            super::rate::TIME_WAIT_S
        )
    })
}
