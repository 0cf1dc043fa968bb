//! Verification of threads: memory maps of each, and the limits on address space and pids.max.

use hotrow_diagnose::doctor::goal::Goal;
use hotrow_diagnose::doctor::threads::{STACK_BYTES, STACK_EXTRA_BYTES};
use hotrow_diagnose::root::Root;

use super::child::{RAMP_MAX, RampOrder};
use super::pids_group::PidsGroup;
use super::{LimitCheck, LimitCheckError, parent};

/// Threads allowed by the lowered limits.
const ROOM_THREADS: u64 = 250;
/// Threads created to measure the maps of one.
const FEW_THREADS: u64 = 16;

pub(super) fn show(goal: &Goal, checks: &mut Vec<LimitCheck>) -> Result<(), LimitCheckError> {
    checks.push(maps(goal.threads.min(RAMP_MAX))?);
    checks.push(address_space()?);
    match PidsGroup::new(ROOM_THREADS) {
        Ok(group) => checks.push(pids(&group)?),
        // A machine that does not allow the attempt does not fail the prediction.
        Err(why) => {
            if let Some(last) = checks.last_mut() {
                last.evidence.push(format!("pids.max could not be tested: {why}"));
            }
        }
    }
    Ok(())
}

/// Returns the maps of a thread, rounded (newer systems need no map for a stack's guard), and how
/// many threads this process's limit on address space allows.
fn maps_each() -> Result<(u64, u64), LimitCheckError> {
    let result_ = parent::run(&RampOrder::Threads {
        most: FEW_THREADS,
        address_space_left: None,
        group: None,
    })?;
    let made = result_.last.made.max(1);
    let each = (result_.last.maps.saturating_sub(result_.first.maps) + made / 2) / made;
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    let left = limit.unwrap_or(u64::MAX).saturating_sub(result_.first.address_space);
    Ok((each, left / (STACK_BYTES + STACK_EXTRA_BYTES)))
}

/// Measures the maps of this many threads, or of those that the address space allows, with no limit
/// lowered.
fn maps(most: u64) -> Result<LimitCheck, LimitCheckError> {
    let (maps_each, allowed) = maps_each()?;
    // The program itself needs some addresses, too.
    let possible = most.min(allowed / 10 * 9);
    let order = RampOrder::Threads { most: possible, address_space_left: None, group: None };
    let result_ = parent::run(&order)?;
    let made = result_.made.max(1) as f64;
    let each = result_.last.maps.saturating_sub(result_.first.maps) as f64 / made;
    let limit = Root::machine().value::<u64>("proc/sys/vm/max_map_count").ok();
    let mut evidence = vec![
        format!("{} threads were made; {}", result_.made, result_.end),
        format!(
            "/proc/PID/maps went from {} to {} lines: {each:.2} for each",
            result_.first.maps, result_.last.maps
        ),
        format!(
            "/proc/loadavg counted {} threads of the machine before and {} then",
            result_.first.machine_threads, result_.last.machine_threads
        ),
    ];
    if let Some(limit) = limit.filter(|_| each > 0.0) {
        evidence.push(format!(
            "at that cost, vm.max_map_count ({limit}) is reached at {:.0} threads",
            (limit - result_.first.maps.min(limit)) as f64 / each
        ));
    }
    Ok(LimitCheck {
        what: match possible < most {
            true => format!("maps of {possible} threads, for which RLIMIT_AS has room, of {most}"),
            false => format!("maps of {most} threads, no limit lowered"),
        },
        predicted: possible * maps_each,
        observed: result_.last.maps.saturating_sub(result_.first.maps),
        why: format!(
            "{possible} threads of Rust's std × {maps_each} maps, as {FEW_THREADS} of them showed"
        ),
        evidence,
    })
}

/// Verifies the limit on address space, lowered for the child.
fn address_space() -> Result<LimitCheck, LimitCheckError> {
    let each = STACK_BYTES + STACK_EXTRA_BYTES;
    let left = ROOM_THREADS * each;
    let result_ = parent::run(&RampOrder::Threads {
        most: RAMP_MAX,
        address_space_left: Some(left),
        group: None,
    })?;
    let limit = result_.first.address_space + left;
    let mut evidence = vec![result_.end.clone()];
    if result_.last.made > 0 {
        evidence.push(format!(
            "/proc/PID/status: {} of {limit} bytes in use, so the next stack of {STACK_BYTES} does \
             not fit",
            result_.last.address_space
        ));
    }
    Ok(LimitCheck {
        what: format!("threads with RLIMIT_AS lowered to {left} bytes above what is in use"),
        predicted: ROOM_THREADS,
        observed: result_.made,
        why: format!(
            "{left} bytes / {each} bytes for each: a stack of 2 MiB, guards, a signal stack"
        ),
        evidence,
    })
}

/// Verifies `pids.max` in a cgroup that allows few threads.
fn pids(group: &PidsGroup) -> Result<LimitCheck, LimitCheckError> {
    let before = group.refusals();
    let order = RampOrder::Threads {
        most: RAMP_MAX,
        address_space_left: None,
        group: Some(group.folder.clone()),
    };
    let result_ = parent::run(&order)?;
    let mut evidence = vec![result_.end.clone()];
    if let Some((before, after)) = before.zip(group.refusals()) {
        evidence.push(format!("pids.events of the group: max went from {before} to {after}"));
    }
    Ok(LimitCheck {
        what: format!("threads in a cgroup with pids.max = {ROOM_THREADS}"),
        predicted: ROOM_THREADS - 1,
        observed: result_.made,
        why: format!("{ROOM_THREADS} − 1, because the first thread of the process counts too"),
        evidence,
    })
}
