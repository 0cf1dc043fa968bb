//! Connections: where open files give way, and how long an accept queue is.

use hotrow_diagnose::doctor::goal::Goal;
use hotrow_diagnose::root::Root;

use super::climber::{CLIMB_MAX, Order};
use super::{DemonstrationError, Shown, parent};

/// Open files that the child may have.
const OPEN_FILES: u64 = 512;
/// What the child asks of `listen`.
const BACKLOG: u16 = 32;

pub(super) fn show(goal: &Goal, shown: &mut Vec<Shown>) -> Result<(), DemonstrationError> {
    shown.push(open_files(goal)?);
    shown.push(queue()?);
    Ok(())
}

/// Both ends of each connection are open files of the child.
fn open_files(goal: &Goal) -> Result<Shown, DemonstrationError> {
    let most = goal.connections.min(CLIMB_MAX);
    let heard = parent::run(&Order::Connections { most, open_files: Some(OPEN_FILES) })?;
    let open = heard.first.files;
    let fit = OPEN_FILES.saturating_sub(open) / 2;
    let mut evidence = vec![
        heard.end.clone(),
        format!(
            "/proc/net/sockstat counted {} TCP sockets of the machine before and {} then",
            heard.first.sockets, heard.last.sockets
        ),
    ];
    if heard.stopped {
        evidence.push(format!(
            "/proc/PID/fd held {} of {OPEN_FILES} files, and a connection needs two here",
            heard.last.files
        ));
    }
    Ok(Shown {
        what: format!("connections of a process with itself, RLIMIT_NOFILE lowered to {OPEN_FILES}"),
        predicted: fit.min(most),
        happened: heard.made,
        why: format!(
            "({OPEN_FILES} − {open} other open files) / 2, for both ends are here; at most the goal of {most}"
        ),
        evidence,
    })
}

/// Nobody accepts.
fn queue() -> Result<Shown, DemonstrationError> {
    let somaxconn = Root::machine().value::<u64>("proc/sys/net/core/somaxconn").unwrap_or(u64::MAX);
    let heard = parent::run(&Order::Queue { backlog: BACKLOG })?;
    let fit = somaxconn.min(u64::from(BACKLOG)) + 1;
    Ok(Shown {
        what: format!("connections to a listener that accepts none, backlog {BACKLOG}"),
        predicted: fit,
        happened: heard.made,
        why: format!("min({BACKLOG}, somaxconn {somaxconn}) + 1"),
        evidence: vec![
            heard.end,
            format!("/proc/net/tcp shows {} connections in the queue of the listener", heard.last.queued),
            format!(
                "ListenOverflows of /proc/net/netstat went from {} to {}",
                heard.first.overflows, heard.last.overflows
            ),
        ],
    })
}
