//! Limits on concurrently open connections.

use super::goal::Goal;
use super::limit_verdict::{
    Allowance, Commands, LimitVerdict, Rule, Sufficiency, Unit, rounded_up,
};
use super::limits::Limits;
use crate::probe::status::Status;
use crate::root::{ProbeResult, read_optional, read_value};

pub(super) const RULES: &[(&str, Rule)] = &[
    (OPEN_FILES, open_files),
    ("fs.nr_open", nr_open),
    ("fs.file-max", file_max),
    ("net.ipv4.ip_local_port_range", ports),
    ("net.netfilter.nf_conntrack_max", conntrack),
];

const OPEN_FILES: &str = "RLIMIT_NOFILE";
/// Open files of a service besides connections: standard streams, logs, listeners, event queues,
/// the database's.
pub(super) const FILES_BASE: u64 = 64;

fn allows(max: Option<u64>, goal: &Goal) -> Allowance {
    Allowance { max, wanted: goal.connections, unit: Unit::Connections }
}

/// Programs with many connections, hotrow among them, raise the soft limit to the hard one
/// themselves, so the hard limit binds.
fn open_files(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let bound = read_value(&limits.process)?.open_files;
    let words =
        |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let value = format!("soft {}, hard {}", words(bound.soft), words(bound.hard));
    let needed = rounded_up(goal.connections.saturating_add(FILES_BASE));
    let raise = Commands::process_limit('n', "nofile", "LimitNOFILE", needed);
    let max = bound.hard.map(|hard| hard.saturating_sub(FILES_BASE));
    let mut verdict = LimitVerdict::counted(OPEN_FILES, value, allows(max, goal), raise.clone())
        .because(
            format!(
                "hard limit {} − {FILES_BASE} files that are no connections",
                words(bound.hard)
            ),
            "getrlimit(2): a connection is an open file",
        );
    let soft_allows = bound.soft.map(|soft| soft.saturating_sub(FILES_BASE));
    if verdict.enough != Sufficiency::No
        && let Some(soft) = soft_allows.filter(|soft| *soft < goal.connections)
    {
        verdict.enough = Sufficiency::Tight;
        verdict.raise = raise;
        verdict.note = Some(format!(
            "the soft limit allows {soft} only; hotrow raises it to the hard one by itself, other \
             programs may not"
        ));
    }
    Ok(Some(verdict))
}

/// Bounds the value of RLIMIT_NOFILE, so it matters only where that is too low.
fn nr_open(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let nr_open = *read_value(&limits.nr_open)?;
    let raise =
        Commands::sysctl("fs.nr_open", rounded_up(goal.connections.saturating_add(FILES_BASE)));
    let max = nr_open.saturating_sub(FILES_BASE);
    let verdict =
        LimitVerdict::counted("fs.nr_open", nr_open.to_string(), allows(Some(max), goal), raise);
    let formula = format!(
        "RLIMIT_NOFILE can be set to {nr_open}, − {FILES_BASE} files that are no connections"
    );
    Ok(Some(verdict.because(formula, "proc_sys_fs(5)")))
}

fn file_max(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let files = read_value(&limits.files)?;
    let raise =
        Commands::sysctl("fs.file-max", rounded_up(files.open.saturating_add(goal.connections)));
    let exempt = limits.exempt(Status::may_exceed_file_max);
    let max = (!exempt).then(|| files.max.saturating_sub(files.open));
    let value = format!("{}, {} in use", files.max, files.open);
    let verdict = LimitVerdict::counted("fs.file-max", value, allows(max, goal), raise);
    let verdict = verdict.because(format!("{} − {} open", files.max, files.open), "proc_sys_fs(5)");
    Ok(Some(if exempt {
        verdict.noting("this user is exempt (CAP_SYS_ADMIN); others are not")
    } else {
        verdict
    }))
}

/// A client takes a local port for each connection to one server address and port. A server does
/// not.
fn ports(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let ports = read_value(&limits.ports)?;
    let raise = Commands::sysctl("net.ipv4.ip_local_port_range", "1024 65535");
    let value = format!("{} to {}", ports.first, ports.last);
    let verdict = LimitVerdict::counted(
        "net.ipv4.ip_local_port_range",
        value,
        allows(Some(ports.count()), goal),
        raise,
    );
    let formula = format!("{} − {} + 1 − {} reserved", ports.last, ports.first, ports.reserved);
    let mut verdict = verdict
        .because(
            formula,
            "ip(7): one local port for each connection of one address to one address and port",
        )
        .noting(
            "applies to clients such as a load generator or a proxy, for each address that they \
             connect to; not to a server",
        )
        .of_client(goal);
    if matches!(verdict.enough, Sufficiency::No | Sufficiency::Tight) {
        // There are at most 65,535 ports: beyond that, only more addresses help.
        verdict.raise.now.push(
            "ip addr add ADDRESS/32 dev lo    # and connect to, or from, several addresses"
                .to_owned(),
        );
    }
    Ok(Some(verdict))
}

fn conntrack(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let Some(table) = read_optional(&limits.conntrack)? else { return Ok(None) };
    let needed = rounded_up(table.count.saturating_add(goal.connections));
    let raise = Commands::sysctl("net.netfilter.nf_conntrack_max", needed);
    let max = table.max.saturating_sub(table.count);
    let value = format!("{}, {} in use", table.max, table.count);
    let verdict = LimitVerdict::counted(
        "net.netfilter.nf_conntrack_max",
        value,
        allows(Some(max), goal),
        raise,
    );
    let verdict = verdict.because(
        format!("{} − {} entries", table.max, table.count),
        "Documentation/networking/nf_conntrack-sysctl.rst",
    );
    let idle = table.count == 0;
    Ok(Some(if idle {
        verdict.noting("no entry: if no rule requests tracking, this limit does not apply")
    } else {
        verdict
    }))
}
