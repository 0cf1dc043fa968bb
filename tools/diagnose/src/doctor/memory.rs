//! Memory cost of connections and threads.

use super::goal::Goal;
use super::limit_verdict::{
    Allowance, Commands, LimitVerdict, RESERVE, Rule, Sufficiency, Unit, rounded_up,
};
use super::limits::Limits;
use crate::root::{ProbeResult, read_optional, read_value};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("net.ipv4.tcp_mem", tcp_mem),
    ("memory of connections", connections),
    ("memory of threads", threads),
];

/// Kernel memory of an idle TCP connection with its file and epoll entry, in bytes: 2.7 to 3.7 KiB
/// on Linux 6.18 (docs/diagnosis.md), rounded up.
pub const CONNECTION_BYTES: u64 = 4 << 10;
/// Memory of an idle thread, in bytes: a kernel stack of 16 KiB, its task, page tables, and touched
/// stack pages (docs/diagnosis.md).
pub const THREAD_BYTES: u64 = 40 << 10;
/// TCP buffer pages of a connection with little to send and receive.
const PAGES_PER_CONNECTION: u64 = 2;

/// Initial receive buffer for very many connections, in bytes: room for one request.
const FIRST_BUFFER_BYTES: u64 = 16 << 10;

/// The bound on all TCP buffers together.
fn tcp_mem(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let ([.., most_pages], page) = (*read_value(&limits.tcp_mem)?, limits.page_bytes);
    let ([least, receive, largest], [_, send, _]) =
        (*read_value(&limits.tcp_rmem)?, *read_value(&limits.tcp_wmem)?);
    let allows = Allowance {
        max: Some(most_pages / PAGES_PER_CONNECTION),
        wanted: goal.connections,
        unit: Unit::Connections,
    };
    let raise = all_buffers(goal.connections.saturating_mul(PAGES_PER_CONNECTION));
    let value = format!("{most_pages} pages of {page} bytes");
    let mut verdict = LimitVerdict::counted("net.ipv4.tcp_mem", value, allows, raise);
    let both = receive.saturating_add(send);
    let full = most_pages.saturating_mul(page) / both.max(1);
    if full < goal.connections && verdict.enough == Sufficiency::Yes {
        verdict.enough = Sufficiency::Tight;
        let bytes = goal.connections.saturating_mul(both);
        let roomy = read_value(&limits.memory).is_ok_and(|memory| bytes < memory.total / 2);
        // A bound above the machine's memory does not help; smaller initial buffers do, and they
        // grow where that pays.
        verdict.raise = if roomy {
            all_buffers(bytes / page.max(1))
        } else {
            Commands::sysctl("net.ipv4.tcp_rmem", format!("{least} {FIRST_BUFFER_BYTES} {largest}"))
        };
    }
    let formula =
        format!("{most_pages} pages / {PAGES_PER_CONNECTION}: one to receive, one to send");
    let note = format!(
        "{full} connections, if all fill their first buffers at once (tcp_rmem {receive} + \
         tcp_wmem {send} bytes); near the bound the kernel shrinks buffers, past it it drops"
    );
    Ok(Some(verdict.because(formula, "tcp(7), tcp_mem").noting(note)))
}

/// Returns settings for this many pages and the reserve; the kernel's memory pressure begins at
/// three quarters.
fn all_buffers(pages: u64) -> Commands {
    let pages = (pages as f64 * (1.0 + RESERVE)).ceil() as u64;
    Commands::sysctl("net.ipv4.tcp_mem", format!("{} {} {pages}", pages / 2, pages / 4 * 3))
}

fn connections(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let allows =
        |max| Allowance { max: Some(max), wanted: goal.connections, unit: Unit::Connections };
    let what = "an idle connection in the kernel";
    room(limits, "memory of connections", CONNECTION_BYTES, what, goal.connections, allows)
}

fn threads(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let allows = |max| Allowance { max: Some(max), wanted: goal.threads, unit: Unit::Threads };
    room(limits, "memory of threads", THREAD_BYTES, "an idle thread", goal.threads, allows)
}

/// Returns the remaining memory, of the machine or of the cgroup, divided by the cost of one item.
fn room(
    limits: &Limits,
    name: &'static str,
    each: u64,
    what: &str,
    wanted: u64,
    allows: impl Fn(u64) -> Allowance,
) -> ProbeResult<Option<LimitVerdict>> {
    let available = read_value(&limits.memory)?.available;
    let held = read_optional(&limits.groups)?.and_then(|groups| groups.memory.clone());
    let (left, whose, raise) = match held.filter(|held| held.left() < available) {
        Some(held) => {
            let needed = rounded_up(held.used.saturating_add(wanted.saturating_mul(each)));
            let raise = Commands::group(&held.file, needed, "MemoryMax", "--memory");
            (held.left(), format!("of {}", held.file.display()), raise)
        }
        None => (
            available,
            "of the machine".to_owned(),
            Commands { now: vec!["more memory".to_owned()], ..Commands::default() },
        ),
    };
    let verdict = LimitVerdict::counted(
        name,
        format!("{} MiB left {whose}", left >> 20),
        allows(left / each),
        raise,
    );
    let formula = format!("{left} bytes left / {each} bytes for {what}");
    let total = wanted.saturating_mul(each) >> 20;
    let note =
        format!("the goal takes {total} MiB; what the program itself keeps for each comes on top");
    Ok(Some(verdict.because(formula, "docs/diagnosis.md").noting(note)))
}
