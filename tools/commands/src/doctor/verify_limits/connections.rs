//! Verification of connections: open files, and the length of an accept queue.

use hotrow_diagnose::doctor::goal::Goal;
use hotrow_diagnose::root::Root;

use super::child::{RAMP_MAX, RampOrder};
use super::{LimitCheck, LimitCheckError, parent};

const OPEN_FILES: u64 = 512;
const BACKLOG: u16 = 32;

pub(super) fn show(goal: &Goal, checks: &mut Vec<LimitCheck>) -> Result<(), LimitCheckError> {
    checks.push(open_files(goal)?);
    checks.push(queue()?);
    Ok(())
}

/// Verifies the limit on open files. Both ends of each connection are open files of the child.
fn open_files(goal: &Goal) -> Result<LimitCheck, LimitCheckError> {
    let most = goal.connections.min(RAMP_MAX);
    let result_ = parent::run(&RampOrder::Connections { most, open_files: Some(OPEN_FILES) })?;
    let open = result_.first.files;
    let fit = OPEN_FILES.saturating_sub(open) / 2;
    let mut evidence = vec![
        result_.end.clone(),
        format!(
            "/proc/net/sockstat counted {} TCP sockets of the machine before and {} then",
            result_.first.sockets, result_.last.sockets
        ),
    ];
    if result_.stopped {
        evidence.push(format!(
            "/proc/PID/fd held {} of {OPEN_FILES} files, and a connection needs two here",
            result_.last.files
        ));
    }
    Ok(LimitCheck {
        what: format!(
            "connections of a process with itself, RLIMIT_NOFILE lowered to {OPEN_FILES}"
        ),
        predicted: fit.min(most),
        observed: result_.made,
        why: format!(
            "({OPEN_FILES} − {open} other open files) / 2, because both ends are in this process; \
             at most the goal of {most}"
        ),
        evidence,
    })
}

/// Verifies the accept queue; no connection is accepted.
fn queue() -> Result<LimitCheck, LimitCheckError> {
    let somaxconn = Root::machine().value::<u64>("proc/sys/net/core/somaxconn").unwrap_or(u64::MAX);
    let result_ = parent::run(&RampOrder::Queue { backlog: BACKLOG })?;
    let fit = somaxconn.min(u64::from(BACKLOG)) + 1;
    Ok(LimitCheck {
        what: format!("connections to a listener that never accepts, backlog {BACKLOG}"),
        predicted: fit,
        observed: result_.made,
        why: format!("min({BACKLOG}, somaxconn {somaxconn}) + 1"),
        evidence: vec![
            result_.end,
            format!(
                "/proc/net/tcp shows {} connections in the queue of the listener",
                result_.last.queued
            ),
            format!(
                "ListenOverflows of /proc/net/netstat went from {} to {}",
                result_.first.overflows, result_.last.overflows
            ),
        ],
    })
}
