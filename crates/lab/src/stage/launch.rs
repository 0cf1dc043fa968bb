//! How a process begins inside its limits: our own program is started in its place, goes into the groups, and only then
//! becomes the program that was asked for. Nothing of that program has run before.
//!
//! What to do comes over standard input, a socket; over the same socket goes back what was wrong. It closes by itself
//! when the other program takes over.

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

/// Longest wait for a program to take over.
const LAUNCH_WAIT: Duration = Duration::from_secs(10);
/// Longest report of what was wrong, in bytes.
const REPORT_BYTES_MAX: u64 = 4096;

/// What to become, and where.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) argv: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) dir: PathBuf,
    /// Files of cgroups to write oneself into.
    pub(super) entrances: Vec<PathBuf>,
    /// CPUs to keep to; all when empty.
    pub(super) cpus: Vec<usize>,
    /// The supervisor.
    pub(super) parent: u32,
}

/// The supervisor's side: starts a process by this order, its output going into `output`.
pub(super) fn launch(order: &Order, output: io::PipeWriter) -> Result<Child, String> {
    let told = |error: io::Error| format!("the system refuses a process: {error}");
    let (mut ours, theirs) = UnixStream::pair().map_err(told)?;
    // The file itself, whatever was put in its place since.
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).arg("--exec").process_group(0);
    let errors = output.try_clone().map_err(told)?;
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).stdout(output).stderr(errors);
    let mut child = command.spawn().map_err(told)?;
    // Ours of the child's ends: while they are open, nothing ends.
    drop(command);
    let report = converse(&mut ours, order);
    match report {
        Ok(report) if report.is_empty() => Ok(child),
        Ok(report) => Err(give_up(&mut child, report)),
        Err(error) => {
            Err(give_up(&mut child, format!("it did not begin within {} s ({error})", LAUNCH_WAIT.as_secs())))
        }
    }
}

fn converse(socket: &mut UnixStream, order: &Order) -> io::Result<String> {
    socket.set_read_timeout(Some(LAUNCH_WAIT))?;
    socket.set_write_timeout(Some(LAUNCH_WAIT))?;
    message::send(&mut *socket, order)?;
    let mut report = String::new();
    socket.take(REPORT_BYTES_MAX).read_to_string(&mut report)?;
    Ok(report)
}

fn give_up(child: &mut Child, why: String) -> String {
    // It has ended, or ends now; either way it is waited for.
    let _ = child.kill();
    let _ = child.wait();
    why
}

/// The other side: `hotrow lab supervise --exec`. Returns only when the program could not take over; the supervisor has
/// been told then.
///
/// # Errors
/// When nobody listens on standard input.
pub fn exec() -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let order: Option<Order> = message::receive(BufReader::new(&socket))?;
    let order = order.ok_or_else(|| io::Error::other("no order came over standard input"))?;
    let why = match enter(&order) {
        Ok(()) => become_program(&order),
        Err(why) => why,
    };
    (&socket).write_all(why.as_bytes())
}

fn enter(order: &Order) -> Result<(), String> {
    // Should the supervisor be killed: the groups are cleared later, but this one process ends at once.
    let told = |error: rustix::io::Errno| format!("the system refuses to tie it to the supervisor: {error}");
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(told)?;
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get().unsigned_abs() != order.parent) {
        return Err("the supervisor is gone".to_owned());
    }
    for entrance in &order.entrances {
        // 0 stands for the writer.
        std::fs::write(entrance, "0").map_err(|error| format!("{} refuses it: {error}", entrance.display()))?;
    }
    if !order.cpus.is_empty() {
        let mut set = CpuSet::new();
        order.cpus.iter().for_each(|cpu| set.set(*cpu));
        sched_setaffinity(None, &set).map_err(|error| format!("it cannot be pinned: {error}"))?;
    }
    Ok(())
}

/// The program's standard input is empty. Returns only with what was wrong.
fn become_program(order: &Order) -> String {
    let Some((program, arguments)) = order.argv.split_first() else { return "no program is named".to_owned() };
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
            format!("{named} was not found in PATH ({})", std::env::var("PATH").unwrap_or_default())
        }
        io::ErrorKind::NotFound if dir.join(program).exists() => {
            format!("{named} exists, but the interpreter that its first line names, or its loader, does not")
        }
        io::ErrorKind::NotFound => format!("{named} does not exist (looked for from {})", dir.display()),
        io::ErrorKind::PermissionDenied => format!("{named} may not be executed: {error}"),
        _ => format!("{named} cannot be executed: {error}"),
    }
}
