//! What connections and threads cost in memory.

use super::goal::Goal;
use super::limits::Limits;
use super::verdict::{Allows, Commands, Enough, RESERVE, Unit, Verdict, rounded_up};
use super::{Rule, see, see_if_there};
use crate::root::Seen;

pub(super) const RULES: &[(&str, Rule)] =
    &[("net.ipv4.tcp_mem", tcp_mem), ("memory of connections", connections), ("memory of threads", threads)];

/// Kernel memory of one idle TCP connection with its file and its place in an epoll set, in bytes: 2.7 to 3.7 KiB on
/// Linux 6.18 (docs/diagnosis.md), rounded up.
pub const CONNECTION_BYTES: u64 = 4 << 10;
/// Memory of one idle thread, in bytes: a kernel stack of 16 KiB, its task, page tables, and the pages of its stack
/// that it has touched (docs/diagnosis.md).
pub const THREAD_BYTES: u64 = 40 << 10;
/// Pages of TCP buffers of a connection that has a little to send and to receive.
const PAGES_PER_CONNECTION: u64 = 2;

/// A first receive buffer for very many connections, in bytes: room for a request.
const FIRST_BUFFER_BYTES: u64 = 16 << 10;

/// The bound on all TCP buffers together.
fn tcp_mem(limits: &Limits, goal: &Goal) -> Seen<Option<Verdict>> {
    let ([.., most_pages], page) = (*see(&limits.tcp_mem)?, limits.page_bytes);
    let ([least, receive, largest], [_, send, _]) = (*see(&limits.tcp_rmem)?, *see(&limits.tcp_wmem)?);
    let allows =
        Allows { most: Some(most_pages / PAGES_PER_CONNECTION), wanted: goal.connections, unit: Unit::Connections };
    let raise = all_buffers(goal.connections.saturating_mul(PAGES_PER_CONNECTION));
    let value = format!("{most_pages} pages of {page} bytes");
    let mut verdict = Verdict::counted("net.ipv4.tcp_mem", value, allows, raise);
    let both = receive.saturating_add(send);
    let full = most_pages.saturating_mul(page) / both.max(1);
    if full < goal.connections && verdict.enough == Enough::Yes {
        verdict.enough = Enough::Tight;
        let bytes = goal.connections.saturating_mul(both);
        let roomy = see(&limits.memory).is_ok_and(|memory| bytes < memory.total / 2);
        // More than the machine has is no cure: smaller buffers to begin with are, and they grow where that pays.
        verdict.raise = if roomy {
            all_buffers(bytes / page.max(1))
        } else {
            Commands::sysctl("net.ipv4.tcp_rmem", format!("{least} {FIRST_BUFFER_BYTES} {largest}"))
        };
    }
    let formula = format!("{most_pages} pages / {PAGES_PER_CONNECTION}: one to receive, one to send");
    let note = format!(
        "{full} connections, if all fill their first buffers at once (tcp_rmem {receive} + tcp_wmem {send} bytes); \
         near the bound the kernel shrinks buffers, past it it drops"
    );
    Ok(Some(verdict.because(formula, "tcp(7), tcp_mem").noting(note)))
}

/// Room for so many pages and the reserve; the kernel begins to save at three quarters.
fn all_buffers(pages: u64) -> Commands {
    let pages = (pages as f64 * (1.0 + RESERVE)).ceil() as u64;
    Commands::sysctl("net.ipv4.tcp_mem", format!("{} {} {pages}", pages / 2, pages / 4 * 3))
}

fn connections(limits: &Limits, goal: &Goal) -> Seen<Option<Verdict>> {
    let allows = |most| Allows { most: Some(most), wanted: goal.connections, unit: Unit::Connections };
    let what = "an idle connection in the kernel";
    room(limits, "memory of connections", CONNECTION_BYTES, what, goal.connections, allows)
}

fn threads(limits: &Limits, goal: &Goal) -> Seen<Option<Verdict>> {
    let allows = |most| Allows { most: Some(most), wanted: goal.threads, unit: Unit::Threads };
    room(limits, "memory of threads", THREAD_BYTES, "an idle thread", goal.threads, allows)
}

/// Memory that is left, of the machine or of the cgroup, over what one takes.
fn room(
    limits: &Limits,
    name: &'static str,
    each: u64,
    what: &str,
    wanted: u64,
    allows: impl Fn(u64) -> Allows,
) -> Seen<Option<Verdict>> {
    let available = see(&limits.memory)?.available;
    let held = see_if_there(&limits.groups)?.and_then(|groups| groups.memory.clone());
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
    let verdict = Verdict::counted(name, format!("{} MiB left {whose}", left >> 20), allows(left / each), raise);
    let formula = format!("{left} bytes left / {each} bytes for {what}");
    let total = wanted.saturating_mul(each) >> 20;
    let note = format!("the goal takes {total} MiB; what the program itself keeps for each comes on top");
    Ok(Some(verdict.because(formula, "docs/diagnosis.md").noting(note)))
}
