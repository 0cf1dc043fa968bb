//! Limits on connections per second, and on requests per second.

use super::goal::{Goal, RECONNECT_S};
use super::limit_verdict::{Allowance, Commands, LimitVerdict, Rule, Unit, rounded_up, whole};
use super::limits::Limits;
use crate::root::{ProbeResult, read_optional, read_value};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("net.core.somaxconn", somaxconn),
    ("net.ipv4.tcp_max_syn_backlog", syn_backlog),
    ("TIME_WAIT", time_wait),
    ("conntrack TIME_WAIT", conntrack),
    ("CPU", cpu),
];

/// Longest pause of a server before it accepts, in s. Pauses of that length are ordinary: a garbage
/// collection, or a scheduling delay on a busy machine.
pub const ACCEPT_STALL_S: f64 = 0.1;
/// Lifetime of a half-open connection, in s: a round trip to a distant client.
pub const ROUND_TRIP_S: f64 = 0.1;
/// Time that the side that closed first keeps a connection's port, in s (TCP_TIMEWAIT_LEN,
/// include/net/tcp.h).
pub const TIME_WAIT_S: u64 = 60;
/// Age from which `tcp_tw_reuse` allows a port to be reused, in s (net/ipv4/tcp_ipv4.c; new kernels
/// have `tcp_tw_reuse_delay` for it, with the same default).
const REUSE_S: u64 = 1;
/// CPU time of a cached read on keep-alive connections, kernel included, in µs
/// (docs/benchmarks.md). Other machines and work differ; hardly any HTTP service costs less.
pub const CPU_US_PER_REQUEST: f64 = 5.3;

fn allows_new(max: Option<u64>, goal: &Goal) -> Allowance {
    Allowance { max, wanted: goal.opened_per_s().ceil() as u64, unit: Unit::NewConnections }
}

/// A queue of length `q` holds the arrivals during a stall.
fn somaxconn(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let somaxconn = *read_value(&limits.somaxconn)?;
    let raise = Commands::sysctl(
        "net.core.somaxconn",
        rounded_up((goal.opened_per_s() * ACCEPT_STALL_S) as u64),
    );
    let max = whole((somaxconn as f64 + 1.0) / ACCEPT_STALL_S);
    let verdict = LimitVerdict::counted(
        "net.core.somaxconn",
        somaxconn.to_string(),
        allows_new(Some(max), goal),
        raise,
    );
    let formula = format!(
        "({somaxconn} + 1) in the accept queue of one listener / {ACCEPT_STALL_S} s without an \
         accept; wanted: all connections anew within {RECONNECT_S} s"
    );
    let note = "the queue is min(what the program asks for, somaxconn); hotrow serve asks for 4096 \
                in each worker";
    Ok(Some(
        verdict
            .because(formula, "listen(2); sk_acceptq_is_full in include/net/sock.h")
            .noting(note),
    ))
}

/// With cookies a full queue refuses no client. Without them the kernel reserves a quarter for
/// known hosts, and admits no more than the accept queue has room for.
fn syn_backlog(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let (backlog, cookies) = (*read_value(&limits.syn_backlog)?, *read_value(&limits.syncookies)?);
    let somaxconn = *read_value(&limits.somaxconn)?;
    let needed = rounded_up((goal.opened_per_s() * ROUND_TRIP_S) as u64);
    let mut raise = Commands::sysctl("net.ipv4.tcp_max_syn_backlog", needed);
    if (somaxconn as f64) < backlog as f64 * 0.75 {
        raise = raise.and(Commands::sysctl("net.core.somaxconn", needed));
    }
    let raise = raise.and(Commands::sysctl("net.ipv4.tcp_syncookies", 1));
    let max =
        (cookies == 0).then(|| whole((backlog as f64 * 0.75).min(somaxconn as f64) / ROUND_TRIP_S));
    let value = format!("{backlog}, cookies {}", if cookies == 0 { "off" } else { "on" });
    let formula = match max {
        Some(_) => format!(
            "min({backlog} × 3/4, somaxconn {somaxconn}) half-open / {ROUND_TRIP_S} s round trip"
        ),
        None => "no bound: when the queue is full, cookies take its place".to_owned(),
    };
    let verdict =
        LimitVerdict::counted("net.ipv4.tcp_max_syn_backlog", value, allows_new(max, goal), raise);
    Ok(Some(verdict.because(formula, "tcp_conn_request in net/ipv4/tcp_input.c; tcp(7)")))
}

/// The side that closes first keeps the port. Only a client without keep-alive runs out.
fn time_wait(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    if goal.keepalive {
        return Ok(None);
    }
    let (ports, reuse) = (read_value(&limits.ports)?.count(), *read_value(&limits.tw_reuse)?);
    // Without timestamps the kernel cannot distinguish an old segment from a new one
    // (tcp_twsk_unique in net/ipv4/tcp_ipv4.c).
    let timestamps = !limits.timestamps.as_ref().is_ok_and(|timestamps| *timestamps == 0);
    let held_s = if reuse == 1 && timestamps { REUSE_S } else { TIME_WAIT_S };
    let allows = Allowance {
        max: Some(ports / held_s),
        wanted: whole(goal.rate.ceil()),
        unit: Unit::NewConnections,
    };
    let raise = Commands::sysctl("net.ipv4.tcp_tw_reuse", 1)
        .and(Commands::sysctl("net.ipv4.ip_local_port_range", "1024 65535"));
    let raise =
        if timestamps { raise } else { raise.and(Commands::sysctl("net.ipv4.tcp_timestamps", 1)) };
    let words = ["off", "on", "on the loopback only"];
    let how =
        usize::try_from(reuse).ok().and_then(|at| words.get(at)).copied().unwrap_or("unknown");
    let verdict =
        LimitVerdict::counted("TIME_WAIT", format!("{ports} ports, reuse {how}"), allows, raise);
    let note = match reuse {
        1 | 2 if !timestamps => {
            "ports are used again only with net.ipv4.tcp_timestamps, which is 0".to_owned()
        }
        2 => format!(
            "to this machine's own addresses {} a second are allowed; connections that are kept \
             need none of this",
            ports / REUSE_S
        ),
        _ => "connections that are kept need none of this".to_owned(),
    };
    let formula = format!("{ports} ports / {held_s} s each, to one address and port");
    let verdict =
        verdict.because(formula, "TCP_TIMEWAIT_LEN in include/net/tcp.h; tcp(7)").noting(note);
    Ok(Some(verdict.of_client(goal)))
}

fn conntrack(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let Some(table) = read_optional(&limits.conntrack)? else { return Ok(None) };
    // Without an entry most likely no rule requests tracking; the table size is reported with the
    // connections.
    if goal.keepalive || table.count == 0 {
        return Ok(None);
    }
    let (max, held_s) = (table.max, table.time_wait_s.max(1));
    let allows = Allowance {
        max: Some(max / held_s),
        wanted: whole(goal.rate.ceil()),
        unit: Unit::NewConnections,
    };
    let needed = rounded_up(whole(goal.rate * held_s as f64));
    let raise = Commands::sysctl("net.netfilter.nf_conntrack_max", needed)
        .and(Commands::sysctl("net.netfilter.nf_conntrack_tcp_timeout_time_wait", 30));
    let verdict = LimitVerdict::counted(
        "conntrack TIME_WAIT",
        format!("{max} entries for {held_s} s"),
        allows,
        raise,
    );
    let formula = format!("{max} entries / {held_s} s that an ended connection keeps one");
    Ok(Some(verdict.because(formula, "Documentation/networking/nf_conntrack-sysctl.rst")))
}

/// The minimum of the online CPUs, this process's CPUs, and its cgroup's quota.
fn cpu(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let online = *read_value(&limits.cpus)? as f64;
    let allowed = read_value(&limits.status)?.cpus.map_or(online, |cpus| cpus as f64);
    let quota = read_optional(&limits.groups)?.and_then(|groups| groups.cpu.clone());
    let cores = online.min(allowed).min(quota.as_ref().map_or(f64::INFINITY, |quota| quota.cores));
    let max = whole(cores * 1e6 / CPU_US_PER_REQUEST);
    let allows =
        Allowance { max: Some(max), wanted: whole(goal.rate.ceil()), unit: Unit::Requests };
    let mut raise = Commands::default();
    if let Some(quota) = quota.filter(|quota| quota.cores <= cores) {
        raise.now.push(format!(
            "raise {} (docker run --cpus, CPUQuota= of the systemd unit)",
            quota.file.display()
        ));
    } else {
        raise.now.push("another machine, or more CPUs for this one".to_owned());
    }
    let value = format!("{online} online, {allowed} allowed, {cores:.2} to use");
    let verdict = LimitVerdict::counted("CPU", value, allows, raise);
    let formula = format!(
        "{cores:.2} CPUs / {CPU_US_PER_REQUEST} µs, the CPU time of a cached read, kernel included"
    );
    let note = "an upper bound: reads that go to a database cost more, and a load generator here \
                takes as much again";
    Ok(Some(verdict.because(formula, "docs/benchmarks.md").noting(note)))
}
