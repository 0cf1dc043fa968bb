//! End of processes: signals, waits and kills, and reaping of adopted orphans.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use hotrow_diagnose::process::Stat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::service::{Service, descendants, signal};

/// Time limit for a process to end after its signal.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// Time for descendants to follow a process that has ended, before they count as left behind.
const FOLLOW_WAIT: Duration = Duration::from_millis(100);
/// Time limit for descendants to end after SIGTERM.
const LEFT_WAIT: Duration = Duration::from_secs(1);
/// Time limit for killed processes to disappear; only the kernel can delay that.
const KILL_WAIT: Duration = Duration::from_secs(10);
/// Consecutive scans that must find no process if no group lists them: reading `/proc` is not
/// atomic, and a forking process can escape a single scan.
const UNLISTED_SCANS: u32 = 5;
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Ends a service completely. `lab` signals a hang-up when the lab dies; processes are then killed
/// without a request.
///
/// # Errors
/// The processes that survived SIGKILL.
pub(super) fn stop(
    service: &mut Service,
    others: &mut [&mut Service],
    asking: Signal,
    lab: impl AsFd,
) -> Result<(), String> {
    if service.has_ended() {
        return Ok(());
    }
    service.request_end(asking);
    await_end(service, lab);
    let mut await_none = |service: &mut Service, wait: Duration| {
        let until = Instant::now() + wait;
        loop {
            let living = service.living_descendants(&descendants());
            if living.is_empty() || Instant::now() > until {
                reap(
                    std::iter::once(&mut *service)
                        .chain(others.iter_mut().map(|other| &mut **other)),
                );
                return living;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    };
    let left = await_none(service, if service.runs() { Duration::ZERO } else { FOLLOW_WAIT });
    if !left.is_empty() {
        left.iter().for_each(|stat| signal(stat, Signal::TERM));
        await_none(service, LEFT_WAIT);
    }
    let (until, mut scans) = (Instant::now() + KILL_WAIT, 0);
    loop {
        service.allocation.kill();
        service.request_end(Signal::KILL);
        let living = await_none(service, Duration::ZERO);
        living.iter().for_each(|stat| signal(stat, Signal::KILL));
        let none =
            living.is_empty() && !service.runs() && service.allocation.processes().is_empty();
        scans = if none { scans + 1 } else { 0 };
        if scans >= if service.allocation.lists() { 1 } else { UNLISTED_SCANS } {
            break;
        }
        if Instant::now() > until {
            return Err(format!(
                "SIGKILL did not end it within {} s: {}",
                KILL_WAIT.as_secs(),
                names(&living)
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    service.finish(u32::try_from(left.len()).unwrap_or(u32::MAX));
    Ok(())
}

/// Kills every descendant of this process.
///
/// # Errors
/// The processes that survived.
pub(super) fn kill_all(services: &mut [&mut Service]) -> Result<(), String> {
    let until = Instant::now() + KILL_WAIT;
    loop {
        services.iter().for_each(|service| service.allocation.kill());
        let living = descendants();
        living.iter().filter(|stat| !stat.ended()).for_each(|stat| signal(stat, Signal::KILL));
        // Orphans become children, so after the last child no descendant is left.
        if !reap(services.iter_mut().map(|service| &mut **service)) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!(
                "SIGKILL did not end within {} s: {}",
                KILL_WAIT.as_secs(),
                names(&living)
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Reaps all ended children and adds their usage to their services. Returns whether children are
/// left.
pub(super) fn reap<'a>(services: impl Iterator<Item = &'a mut Service>) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::All, look) {
        Err(_) => return false,
        Ok(None) => return true,
        Ok(Some(_)) => {}
    }
    let (family, mut services): (Vec<Stat>, Vec<_>) = (descendants(), services.collect());
    let dead = family.iter().filter(|stat| stat.state == 'Z' && stat.parent == std::process::id());
    for dead in dead {
        let owner = services.iter_mut().find_map(|service| {
            let owns = !service.has_ended()
                && service.members(&family).iter().any(|stat| stat.pid == dead.pid);
            owns.then_some(service)
        });
        let buried = owner.is_some_and(|owner| owner.reap_member(dead));
        if let (false, Some(pid)) = (buried, i32::try_from(dead.pid).ok().and_then(Pid::from_raw)) {
            // It has ended, so the call does not block; an error means that it was reaped before.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }
    !matches!(waitid(WaitId::All, look), Err(rustix::io::Errno::CHILD))
}

/// Waits until the process has ended or the lab has hung up, for at most [`STOP_WAIT`].
fn await_end(service: &Service, lab: impl AsFd) {
    let until = Instant::now() + STOP_WAIT;
    while service.runs() {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(wait) = Timespec::try_from(left) else { return };
        // A hang-up is reported without a requested event.
        let mut fds = [
            PollFd::from_borrowed_fd(service.handle(), PollFlags::IN),
            PollFd::new(&lab, PollFlags::empty()),
        ];
        match poll(&mut fds, Some(&wait)) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

fn names(living: &[Stat]) -> String {
    let names: Vec<String> =
        living.iter().map(|stat| format!("{} (pid {})", stat.name, stat.pid)).collect();
    names.join(", ")
}
