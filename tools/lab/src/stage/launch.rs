//! Start of a process inside its limits: this program is started in its place, joins the groups,
//! and only then executes the requested program, none of which has run before.
//!
//! The order arrives on standard input, a socket, and errors return on the same socket. It closes
//! by itself when the requested program takes over.

use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::message;

/// Time limit until the requested program runs.
const LAUNCH_WAIT: Duration = Duration::from_secs(10);
/// Longest error report, in bytes.
const REPORT_BYTES_MAX: u64 = 4096;

/// Report of a successful start without a program.
const NO_PROGRAM: &str = "no program given";

/// A program to execute, and its environment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaunchOrder {
    pub(super) argv: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) dir: PathBuf,
    /// cgroup files through which it joins its groups.
    pub(super) procs_files: Vec<PathBuf>,
    /// CPUs to pin it to; all if empty.
    pub(super) cpus: Vec<usize>,
    /// Process id of the supervisor.
    pub(super) parent: u32,
}

/// Supervisor's side: starts a process; its output goes to `output`.
pub(super) fn launch(order: &LaunchOrder, output: io::PipeWriter) -> Result<Child, String> {
    let refused = |error: io::Error| format!("the system refuses a process: {error}");
    let (mut ours, theirs) = UnixStream::pair().map_err(refused)?;
    // The running file itself, even if it was replaced since.
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).arg("--exec").process_group(0);
    let errors = output.try_clone().map_err(refused)?;
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).stdout(output).stderr(errors);
    let mut child = command.spawn().map_err(refused)?;
    // The supervisor's copies of the child's ends; while they are open, no end-of-file occurs.
    drop(command);
    let report = exchange(&mut ours, order);
    match report {
        Ok(report) if report.is_empty() => Ok(child),
        Ok(report) => Err(abandon(&mut child, report)),
        Err(error) => Err(abandon(
            &mut child,
            format!("it did not begin within {} s ({error})", LAUNCH_WAIT.as_secs()),
        )),
    }
}

/// Tests whether a process can join a group: a trial process joins and exits.
pub(super) fn try_join(procs_file: PathBuf) -> Result<(), String> {
    let order = LaunchOrder {
        argv: Vec::new(),
        env: Vec::new(),
        dir: PathBuf::from("/"),
        procs_files: vec![procs_file],
        cpus: Vec::new(),
        parent: std::process::id(),
    };
    let (_, output) = io::pipe().map_err(|error| error.to_string())?;
    match launch(&order, output) {
        Err(why) if why == NO_PROGRAM => Ok(()),
        Err(why) => Err(why),
        Ok(mut child) => Err(abandon(&mut child, "it did not report".to_owned())),
    }
}

fn exchange(socket: &mut UnixStream, order: &LaunchOrder) -> io::Result<String> {
    socket.set_read_timeout(Some(LAUNCH_WAIT))?;
    socket.set_write_timeout(Some(LAUNCH_WAIT))?;
    message::send(&mut *socket, order)?;
    let mut report = String::new();
    socket.take(REPORT_BYTES_MAX).read_to_string(&mut report)?;
    Ok(report)
}

fn abandon(child: &mut Child, why: String) -> String {
    // It has ended or ends now; either way it must be reaped.
    let _ = child.kill();
    let _ = child.wait();
    why
}

/// The other side: `hotrow-lab supervise --exec`. Returns only if the program could not be
/// executed, after reporting to the supervisor.
///
/// # Errors
/// Standard input is closed.
pub fn exec() -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let order: Option<LaunchOrder> = message::receive(BufReader::new(&socket))?;
    let order = order.ok_or_else(|| io::Error::other("no order came over standard input"))?;
    let why = match enter(&order) {
        Ok(()) => become_program(&order),
        Err(why) => why,
    };
    (&socket).write_all(why.as_bytes())
}

fn enter(order: &LaunchOrder) -> Result<(), String> {
    // If the supervisor is killed, this process ends at once; its groups are cleared later.
    let refused = |error: rustix::io::Errno| {
        format!("the system refuses to tie it to the supervisor: {error}")
    };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(refused)?;
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get().unsigned_abs() != order.parent) {
        return Err("the supervisor has exited".to_owned());
    }
    for procs_file in &order.procs_files {
        // 0 means the writing process.
        std::fs::write(procs_file, "0")
            .map_err(|error| format!("{} rejects it: {error}", procs_file.display()))?;
    }
    if !order.cpus.is_empty() {
        let mut set = CpuSet::new();
        order.cpus.iter().for_each(|cpu| set.set(*cpu));
        sched_setaffinity(None, &set).map_err(|error| format!("it cannot be pinned: {error}"))?;
    }
    Ok(())
}

/// Executes the program with an empty standard input. Returns only with an error.
fn become_program(order: &LaunchOrder) -> String {
    let Some((program, arguments)) = order.argv.split_first() else { return NO_PROGRAM.to_owned() };
    let mut command = Command::new(program);
    let envs = order.env.iter().map(|(name, value)| (name, value));
    command.args(arguments).envs(envs).current_dir(&order.dir).stdin(Stdio::null());
    let error = command.exec();
    explain(program, &order.dir, &error)
}

fn explain(program: &str, dir: &Path, error: &io::Error) -> String {
    let named = format!("program {program:?}");
    match error.kind() {
        io::ErrorKind::NotFound if !program.contains('/') => {
            format!(
                "{named} was not found in any folder of PATH; install it, or give its full path"
            )
        }
        io::ErrorKind::NotFound if dir.join(program).exists() => {
            format!(
                "{named} exists, but the interpreter that its first line names, or its loader, \
                 does not"
            )
        }
        io::ErrorKind::NotFound => {
            format!("{named} does not exist (relative to {})", dir.display())
        }
        io::ErrorKind::PermissionDenied => format!("{named} is not executable: {error}"),
        _ => format!("{named} cannot be executed: {error}"),
    }
}
