//! Threads: what each maps, and where address space and pids.max give way.

use hotrow_diagnose::doctor::goal::Goal;
use hotrow_diagnose::doctor::threads::{STACK_BYTES, STACK_EXTRA_BYTES};
use hotrow_diagnose::root::Root;

use super::climber::{CLIMB_MAX, Order};
use super::pids_group::PidsGroup;
use super::{DemonstrationError, Shown, parent};

/// Threads that the lowered limits leave room for.
const ROOM: u64 = 250;
/// Threads of the climb that measures what one maps.
const FEW: u64 = 16;

pub(super) fn show(goal: &Goal, shown: &mut Vec<Shown>) -> Result<(), DemonstrationError> {
    let most = goal.threads.min(CLIMB_MAX);
    shown.push(maps(most)?);
    shown.push(address_space()?);
    match PidsGroup::new(ROOM) {
        Ok(group) => shown.push(pids(&group)?),
        // It is no failure of a prediction that this machine does not allow to try it.
        Err(why) => {
            if let Some(last) = shown.last_mut() {
                last.evidence.push(format!("pids.max could not be tried: {why}"));
            }
        }
    }
    Ok(())
}

/// What a thread maps here, to the nearest whole number: newer systems need no map for the guard of a stack.
fn maps_each() -> Result<u64, DemonstrationError> {
    let heard = parent::run(&Order::Threads { most: FEW, address_space_left: None, group: None })?;
    let made = heard.last.made.max(1);
    Ok((heard.last.maps.saturating_sub(heard.first.maps) + made / 2) / made)
}

/// Nothing is lowered: what do so many threads map?
fn maps(most: u64) -> Result<Shown, DemonstrationError> {
    let maps_each = maps_each()?;
    let heard = parent::run(&Order::Threads { most, address_space_left: None, group: None })?;
    let made = heard.made.max(1) as f64;
    let each = heard.last.maps.saturating_sub(heard.first.maps) as f64 / made;
    let limit = Root::machine().value::<u64>("proc/sys/vm/max_map_count").ok();
    let mut evidence = vec![
        format!("{} threads were made; {}", heard.made, heard.end),
        format!("/proc/PID/maps went from {} to {} lines: {each:.2} for each", heard.first.maps, heard.last.maps),
        format!(
            "/proc/loadavg counted {} threads of the machine before and {} then",
            heard.first.machine_threads, heard.last.machine_threads
        ),
    ];
    if let Some(limit) = limit.filter(|_| each > 0.0) {
        evidence.push(format!(
            "at that, vm.max_map_count ({limit}) gives way at {:.0} threads",
            (limit - heard.first.maps.min(limit)) as f64 / each
        ));
    }
    Ok(Shown {
        what: format!("maps of {most} threads, nothing lowered"),
        predicted: most * maps_each,
        happened: heard.last.maps.saturating_sub(heard.first.maps),
        why: format!("{most} threads of Rust's std × {maps_each} maps, as {FEW} of them showed"),
        evidence,
    })
}

/// The address space is lowered in the child.
fn address_space() -> Result<Shown, DemonstrationError> {
    let each = STACK_BYTES + STACK_EXTRA_BYTES;
    let left = ROOM * each;
    let heard = parent::run(&Order::Threads { most: CLIMB_MAX, address_space_left: Some(left), group: None })?;
    let limit = heard.first.address_space + left;
    let mut evidence = vec![heard.end.clone()];
    if heard.last.made > 0 {
        evidence.push(format!(
            "/proc/PID/status: {} of {limit} bytes in use, so the next stack of {STACK_BYTES} does not fit",
            heard.last.address_space
        ));
    }
    Ok(Shown {
        what: format!("threads with RLIMIT_AS lowered to {left} bytes above what is in use"),
        predicted: ROOM,
        happened: heard.made,
        why: format!("{left} bytes / {each} bytes for each: a stack of 2 MiB, guards, a signal stack"),
        evidence,
    })
}

/// A cgroup that allows few.
fn pids(group: &PidsGroup) -> Result<Shown, DemonstrationError> {
    let before = group.refusals();
    let order = Order::Threads { most: CLIMB_MAX, address_space_left: None, group: Some(group.folder.clone()) };
    let heard = parent::run(&order)?;
    let mut evidence = vec![heard.end.clone()];
    if let Some((before, after)) = before.zip(group.refusals()) {
        evidence.push(format!("pids.events of the group: max went from {before} to {after}"));
    }
    Ok(Shown {
        what: format!("threads in a cgroup with pids.max = {ROOM}"),
        predicted: ROOM - 1,
        happened: heard.made,
        why: format!("{ROOM} − 1, for the first thread of the process is one too"),
        evidence,
    })
}
