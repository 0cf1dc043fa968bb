//! One-line warnings of `load` at its start, for limits whose effect would show only under load.
//! Limits that stop it, or that lower its own settings, it reports itself.

use super::limit_verdict::rounded_up;
use super::rate::TIME_WAIT_S;
use crate::root::Root;

/// A load generator's requirements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generator {
    /// Connections, all opened at the start.
    pub connections: u64,
    /// Later new connections per second; none when connections are kept, or as many as responses.
    pub new_per_s: Option<f64>,
    /// True if the target is on this machine, so that these limits apply to it.
    pub local: bool,
}

/// Returns a warning when a generator overruns the accept queue of a server on this machine, or
/// runs out of ports.
pub fn generator(root: &Root, wanted: &Generator) -> Option<String> {
    queue(root, wanted).or_else(|| ports(root, wanted))
}

/// A connection that finds the queue full is retried after a second, which would be mistaken for
/// the server's slowness.
fn queue(root: &Root, wanted: &Generator) -> Option<String> {
    let somaxconn: u64 = root.value("proc/sys/net/core/somaxconn").ok()?;
    let fit = somaxconn.saturating_add(1);
    (wanted.local && wanted.connections > fit).then(|| {
        format!(
            "{} connections are opened at once, and net.core.somaxconn ({somaxconn}) lets {fit} \
             wait for each listener here: some may take a second longer; sysctl -w \
             net.core.somaxconn={}; see hotrow doctor",
            wanted.connections,
            rounded_up(wanted.connections)
        )
    })
}

/// The side that closes first keeps the port. On the loopback the kernel allows its reuse.
fn ports(root: &Root, wanted: &Generator) -> Option<String> {
    let rate = wanted.new_per_s?;
    let ports = crate::probe::ports::read(root).ok()?.count();
    let reuse: u64 = root.value("proc/sys/net/ipv4/tcp_tw_reuse").ok()?;
    let timestamps = !root
        .value::<u64>("proc/sys/net/ipv4/tcp_timestamps")
        .is_ok_and(|timestamps| timestamps == 0);
    if timestamps && (reuse == 1 || (reuse == 2 && wanted.local)) {
        return None;
    }
    let (held_s, allowed) = (TIME_WAIT_S, ports / TIME_WAIT_S);
    (rate > allowed as f64).then(|| {
        format!(
            "{ports} local ports, each kept for {held_s} s where this side closes first, allow \
             {allowed} new connections per second to one address; {rate:.0} are asked for; sysctl \
             -w net.ipv4.tcp_tw_reuse=1{}; see hotrow doctor",
            if timestamps { "" } else { " net.ipv4.tcp_timestamps=1" }
        )
    })
}
