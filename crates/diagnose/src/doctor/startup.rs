//! What `serve` and `load` say, in one line, when a limit is below what they were asked to do. What stops them, or
//! makes them lower their own settings, they tell themselves; this is about what would only show under load.

use super::rate::TIME_WAIT_S;
use super::verdict::rounded_up;
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
    /// Connections, all opened at the start.
    pub connections: u64,
    /// New connections per second later on; none when connections are kept, or as many as are answered.
    pub new_per_s: Option<f64>,
    /// Whether the target is on this machine, so that its limits are these.
    pub local: bool,
}

/// Whether the kernel gives a server the queue that it asks for. What cannot be read is no reason for a warning.
#[must_use]
pub fn server(root: &Root, wanted: &Server) -> Option<String> {
    let somaxconn: u64 = root.value("proc/sys/net/core/somaxconn").ok()?;
    (somaxconn < wanted.backlog).then(|| {
        format!(
            "net.core.somaxconn ({somaxconn}) shortens the accept queue of {} that is asked for: connections that \
             come in a burst are dropped; sysctl -w net.core.somaxconn={}; hotrow doctor tells more",
            wanted.backlog, wanted.backlog
        )
    })
}

/// Whether a generator overruns the queue of a server on this machine, or runs out of ports.
#[must_use]
pub fn generator(root: &Root, wanted: &Generator) -> Option<String> {
    queue(root, wanted).or_else(|| ports(root, wanted))
}

/// A connection that finds the queue full is tried again after a second, which would be taken for the server's
/// slowness.
fn queue(root: &Root, wanted: &Generator) -> Option<String> {
    let somaxconn: u64 = root.value("proc/sys/net/core/somaxconn").ok()?;
    let fit = somaxconn.saturating_add(1);
    (wanted.local && wanted.connections > fit).then(|| {
        format!(
            "{} connections are opened at once, and net.core.somaxconn ({somaxconn}) lets {fit} wait for each \
             listener here: some may take a second longer; sysctl -w net.core.somaxconn={}; hotrow doctor tells more",
            wanted.connections,
            rounded_up(wanted.connections)
        )
    })
}

/// Whoever closes first keeps the port. On the loopback the kernel lets it be used again.
fn ports(root: &Root, wanted: &Generator) -> Option<String> {
    let rate = wanted.new_per_s?;
    let ports = crate::probe::ports::read(root).ok()?.count();
    let reuse: u64 = root.value("proc/sys/net/ipv4/tcp_tw_reuse").ok()?;
    let timestamps = !root.value::<u64>("proc/sys/net/ipv4/tcp_timestamps").is_ok_and(|timestamps| timestamps == 0);
    if timestamps && (reuse == 1 || (reuse == 2 && wanted.local)) {
        return None;
    }
    let (held_s, allowed) = (TIME_WAIT_S, ports / TIME_WAIT_S);
    (rate > allowed as f64).then(|| {
        format!(
            "{ports} local ports, each kept for {held_s} s where this side closes first, allow {allowed} new \
             connections per second to one address; {rate:.0} are asked for; sysctl -w net.ipv4.tcp_tw_reuse=1{}; \
             hotrow doctor tells more",
            if timestamps { "" } else { " net.ipv4.tcp_timestamps=1" }
        )
    })
}
