//! How the supervisor ends processes: it asks, waits, and kills; and it waits for all that were given to it as orphans.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use hotrow_diagnose::process::Stat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::service::{Service, offspring, signal};

/// Longest wait for a process that was asked to end.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// Time that descendants have to follow a process that has ended, before they count as left behind.
const FOLLOW_WAIT: Duration = Duration::from_millis(100);
/// Longest wait for those that were left behind, and were asked to end.
const LEFT_WAIT: Duration = Duration::from_secs(1);
/// Longest wait for killed processes to be gone; only the kernel can hold one up.
const KILL_WAIT: Duration = Duration::from_secs(10);
/// How often it is looked who lives.
const LOOK: Duration = Duration::from_millis(5);

/// Ends a service: nothing of it lives on the return. `lab` hangs up when the lab dies; then nobody is asked any more.
///
/// # Errors
/// The processes that outlived SIGKILL.
pub(super) fn stop(
    service: &mut Service,
    others: &mut [&mut Service],
    asking: Signal,
    lab: impl AsFd,
) -> Result<(), String> {
    if service.is_over() {
        return Ok(());
    }
    service.ask_to_end(asking);
    await_end(service, lab);
    let mut await_none = |service: &mut Service, wait: Duration| {
        let until = Instant::now() + wait;
        loop {
            let living = service.living_descendants(&offspring());
            if living.is_empty() || Instant::now() > until {
                reap(std::iter::once(&mut *service).chain(others.iter_mut().map(|other| &mut **other)));
                return living;
            }
            std::thread::sleep(LOOK);
        }
    };
    let left = await_none(service, if service.runs() { Duration::ZERO } else { FOLLOW_WAIT });
    if !left.is_empty() {
        left.iter().for_each(|stat| signal(stat, Signal::TERM));
        await_none(service, LEFT_WAIT);
    }
    let until = Instant::now() + KILL_WAIT;
    loop {
        service.place.kill();
        service.ask_to_end(Signal::KILL);
        let living = await_none(service, Duration::ZERO);
        if living.is_empty() && !service.runs() {
            break;
        }
        living.iter().for_each(|stat| signal(stat, Signal::KILL));
        if Instant::now() > until {
            return Err(format!("SIGKILL did not end it within {} s: {}", KILL_WAIT.as_secs(), names(&living)));
        }
        std::thread::sleep(LOOK);
    }
    service.finish(u32::try_from(left.len()).unwrap_or(u32::MAX));
    Ok(())
}

/// Kills everything that descends from this process, whoever started it.
///
/// # Errors
/// The processes that outlived it.
pub(super) fn kill_all(services: &mut [&mut Service]) -> Result<(), String> {
    let until = Instant::now() + KILL_WAIT;
    loop {
        services.iter().for_each(|service| service.place.kill());
        let living = offspring();
        living.iter().filter(|stat| !stat.ended()).for_each(|stat| signal(stat, Signal::KILL));
        // With the last child the last descendant is gone: orphans become children.
        if !reap(services.iter_mut().map(|service| &mut **service)) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("SIGKILL did not end within {} s: {}", KILL_WAIT.as_secs(), names(&living)));
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits for all children that have ended, and enters what they used with the service whose they were. Whether children
/// are left.
pub(super) fn reap<'a>(services: impl Iterator<Item = &'a mut Service>) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::All, look) {
        Err(_) => return false,
        Ok(None) => return true,
        Ok(Some(_)) => {}
    }
    let (family, mut services): (Vec<Stat>, Vec<_>) = (offspring(), services.collect());
    let dead = family.iter().filter(|stat| stat.state == 'Z' && stat.parent == std::process::id());
    for dead in dead {
        let owner = services.iter_mut().find_map(|service| {
            let owns = !service.is_over() && service.members(&family).iter().any(|stat| stat.pid == dead.pid);
            owns.then_some(service)
        });
        let buried = owner.is_some_and(|owner| owner.bury(dead));
        if let (false, Some(pid)) = (buried, i32::try_from(dead.pid).ok().and_then(Pid::from_raw)) {
            // It has ended, so there is nothing to wait for; an error says that it was waited for already.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }
    !matches!(waitid(WaitId::All, look), Err(rustix::io::Errno::CHILD))
}

/// Waits until the process itself has ended, or the lab has hung up, for [`STOP_WAIT`] at most.
fn await_end(service: &Service, lab: impl AsFd) {
    let until = Instant::now() + STOP_WAIT;
    while service.runs() {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(wait) = Timespec::try_from(left) else { return };
        // Hanging up is told without being asked for.
        let mut fds =
            [PollFd::from_borrowed_fd(service.handle(), PollFlags::IN), PollFd::new(&lab, PollFlags::empty())];
        match poll(&mut fds, Some(&wait)) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

fn names(living: &[Stat]) -> String {
    let names: Vec<String> = living.iter().map(|stat| format!("{} (pid {})", stat.name, stat.pid)).collect();
    names.join(", ")
}
