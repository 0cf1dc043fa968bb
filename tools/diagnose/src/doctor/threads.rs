//! Limits on threads.

use super::goal::Goal;
use super::limit_verdict::{Allowance, Commands, LimitVerdict, Rule, Unit, rounded_up};
use super::limits::Limits;
use crate::probe::status::Status;
use crate::root::{ProbeResult, read_optional, read_value};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("kernel.threads-max", threads_max),
    ("kernel.pid_max", pid_max),
    ("vm.max_map_count", max_map_count),
    ("pids.max", pids_max),
    ("RLIMIT_NPROC", processes),
    ("RLIMIT_AS", address_space),
    ("vm.overcommit_memory", overcommit),
];

/// Process ids that are not reused for new processes (RESERVED_PIDS, kernel/pid.c).
const IDS_RESERVED: u64 = 300;
/// Largest `pid_max` of 64-bit kernels (PID_MAX_LIMIT, include/linux/threads.h).
const PID_MAX_LIMIT: u64 = 1 << 22;
/// Memory maps of a thread of Rust's std: stack and guard, signal stack and guard. One less where C
/// threads take one less.
pub const MAPS_PER_THREAD: u64 = 4;
/// Memory maps of a C thread: stack and guard. With glibc 2.42 and later on Linux 6.13 and later
/// the guard takes no map.
pub const MAPS_PER_C_THREAD: u64 = 2;
/// Default stack of a thread of Rust's std (RUST_MIN_STACK), in bytes.
pub const STACK_BYTES: u64 = 2 << 20;
/// Guard page, and the signal stack with its guard, in bytes.
pub const STACK_EXTRA_BYTES: u64 = 20 << 10;

fn allows(max: Option<u64>, goal: &Goal) -> Allowance {
    Allowance { max, wanted: goal.threads, unit: Unit::Threads }
}

fn threads_max(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let (max, used) = (*read_value(&limits.threads_max)?, read_value(&limits.load)?.threads);
    let raise =
        Commands::sysctl("kernel.threads-max", rounded_up(used.saturating_add(goal.threads)));
    let verdict = LimitVerdict::counted(
        "kernel.threads-max",
        max.to_string(),
        allows(Some(max.saturating_sub(used)), goal),
        raise,
    );
    let formula = format!("{max} − {used} threads of the whole machine");
    Ok(Some(verdict.because(
        formula,
        "proc_sys_kernel(5); by default memory / 128 KiB (set_max_threads in kernel/fork.c)",
    )))
}

fn pid_max(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let (max, used) = (*read_value(&limits.pid_max)?, read_value(&limits.load)?.threads);
    let taken = used.saturating_add(IDS_RESERVED);
    let needed = rounded_up(taken.saturating_add(goal.threads)).min(PID_MAX_LIMIT);
    let max = max.saturating_sub(taken);
    let raise = Commands::sysctl("kernel.pid_max", needed);
    let verdict =
        LimitVerdict::counted("kernel.pid_max", max.to_string(), allows(Some(max), goal), raise);
    let formula =
        format!("{max} ids − {used} in use − {IDS_RESERVED} reserved; each thread has an id");
    Ok(Some(verdict.because(formula, "proc_sys_kernel(5); alloc_pid in kernel/pid.c")))
}

fn max_map_count(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let (max, own) = (*read_value(&limits.max_map_count)?, *read_value(&limits.own_maps)?);
    let left = max.saturating_sub(own);
    let needed = rounded_up(goal.threads.saturating_mul(MAPS_PER_THREAD).saturating_add(own));
    let raise = Commands::sysctl("vm.max_map_count", needed);
    let verdict = LimitVerdict::counted(
        "vm.max_map_count",
        max.to_string(),
        allows(Some(left / MAPS_PER_THREAD), goal),
        raise,
    );
    let formula = format!(
        "({max} − {own} of this process) / {MAPS_PER_THREAD} maps for each thread of Rust's std"
    );
    let note = format!("C threads take {MAPS_PER_C_THREAD}: {} of them", left / MAPS_PER_C_THREAD);
    Ok(Some(verdict.because(formula, "proc_sys_vm(5); docs/diagnosis.md").noting(note)))
}

fn pids_max(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let Some(held) = read_optional(&limits.groups)?.and_then(|groups| groups.pids.clone()) else {
        return Ok(None);
    };
    let needed = rounded_up(held.used.saturating_add(goal.threads));
    let raise = Commands::group(&held.file, needed, "TasksMax", "--pids-limit");
    let value = format!("{}, {} in use", held.limit, held.used);
    let verdict = LimitVerdict::counted("pids.max", value, allows(Some(held.left()), goal), raise);
    let formula = format!("{} − {} in the group of {}", held.limit, held.used, held.file.display());
    Ok(Some(verdict.because(formula, "Documentation/admin-guide/cgroup-v2.rst, PID")))
}

fn processes(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let (bound, status) = (read_value(&limits.process)?.processes, read_value(&limits.status)?);
    let Some(soft) = bound.soft else { return Ok(None) };
    let used = *read_value(&limits.user_threads)?;
    let needed = rounded_up(used.saturating_add(goal.threads));
    let exempt = limits.exempt(Status::may_exceed_processes);
    let max = (!exempt).then(|| soft.saturating_sub(used));
    let raise = Commands::process_limit('u', "nproc", "LimitNPROC", needed);
    let verdict = LimitVerdict::counted("RLIMIT_NPROC", soft.to_string(), allows(max, goal), raise);
    let formula = match exempt {
        true => format!("no bound: user {} is exempt", status.user),
        false => format!(
            "{soft} − {used} threads of user {}, in all its processes that can be seen",
            status.user
        ),
    };
    Ok(Some(verdict.because(formula, "getrlimit(2); copy_process in kernel/fork.c")))
}

fn address_space(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    let (bound, status) = (read_value(&limits.process)?.address_space, read_value(&limits.status)?);
    let Some(soft) = bound.soft else { return Ok(None) };
    let each = STACK_BYTES + STACK_EXTRA_BYTES;
    let max = soft.saturating_sub(status.address_space) / each;
    // `ulimit -v` counts in KiB, the others in bytes.
    let needed = rounded_up(status.address_space.saturating_add(goal.threads.saturating_mul(each)));
    let mut raise = Commands::process_limit('v', "as", "LimitAS", needed);
    let kib = needed / 1024;
    raise.now[0] = format!("ulimit -v {kib}    # in KiB, in the shell that starts the program");
    raise.permanent[0] = format!(
        "echo '* - as {kib}' >> /etc/security/limits.d/90-hotrow.conf    # in KiB, for those who \
         log in"
    );
    let verdict =
        LimitVerdict::counted("RLIMIT_AS", format!("{soft} bytes"), allows(Some(max), goal), raise);
    let formula = format!(
        "({soft} − {} in use) / {each} bytes: a stack of 2 MiB, guards, a signal stack",
        status.address_space
    );
    Ok(Some(verdict.because(formula, "getrlimit(2); std::thread::Builder").noting(
        "less where threads allocate: glibc keeps 64 MiB of addresses for each of up to 8 arenas \
         per CPU",
    )))
}

/// Stacks count in full only without overcommit.
fn overcommit(limits: &Limits, goal: &Goal) -> ProbeResult<Option<LimitVerdict>> {
    if *read_value(&limits.overcommit)? != 2 {
        return Ok(None);
    }
    let memory = read_value(&limits.memory)?;
    let stack = read_value(&limits.process)?.stack.soft.unwrap_or(STACK_BYTES).max(STACK_BYTES);
    let left = memory.commit_limit.saturating_sub(memory.committed);
    let raise = Commands::sysctl("vm.overcommit_memory", 0);
    let verdict = LimitVerdict::counted(
        "vm.overcommit_memory",
        "2 (never)".to_owned(),
        allows(Some(left / stack), goal),
        raise,
    );
    let formula = format!(
        "({} − {} bytes promised) / {stack} bytes, the stack of a C thread (RLIMIT_STACK) or of \
         Rust's std, if larger",
        memory.commit_limit, memory.committed
    );
    Ok(Some(verdict.because(formula, "Documentation/mm/overcommit-accounting.rst")))
}
