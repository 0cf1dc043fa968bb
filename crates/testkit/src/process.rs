//! What servers of every engine need: an unprivileged owner, a port, signals, a copied data folder.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// Ports of one engine: the same number for each.
const PORTS: u32 = 6_000;

/// Returns a free port below the range of outgoing connections, so that it stays free for a
/// restarted server. The engines' ranges, each of [`PORTS`] ports from `first`, must not overlap.
pub fn free_port(first: u16) -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let seed = std::process::id().wrapping_mul(97);
    for _ in 0..1000 {
        let step = seed.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = first + (step % PORTS) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on 127.0.0.1 from {first}");
}

/// Appends a line for a server that starts to the file that the environment variable names, so that
/// the starts of a run can be counted: `HOTROW_TEST_STARTS=/tmp/starts ./test`.
pub fn note_start(engine: &str) {
    let Some(path) = std::env::var_os("HOTROW_TEST_STARTS") else { return };
    let file = std::fs::File::options().create(true).append(true).open(path);
    writeln!(file.expect("the file of starts"), "{engine}").expect("write to the file of starts");
}

/// Returns whether the servers of this run have settings that sessions must not inherit:
/// `HOTROW_TEST_GLOBALS=perturbed cargo test …`.
pub fn is_perturbed() -> bool {
    std::env::var_os("HOTROW_TEST_GLOBALS").is_some_and(|value| value == "perturbed")
}

/// Sends a signal. A process that has ended is not an error.
pub fn signal(pid: u32, what: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        _ = kill_process(pid, what);
    }
}

/// Returns the state letter of /proc/PID/stat; `None` if there is no such process.
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // It follows the name, which is in parentheses and may contain anything.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns whether this process may switch to another user.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Returns user and group of the servers if we are root, because servers refuse to run as root: the
/// user `name`, or the system's user without privileges if the packages created no such user.
pub fn owner(name: &str) -> Option<(u32, u32)> {
    const UNPRIVILEGED: &str = "nobody";
    if !is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(find(name).or_else(|| find(UNPRIVILEGED)).expect("root needs another user for the server"))
}

/// Gives `path` to the owner of the servers.
pub fn give_to(owner: Option<(u32, u32)>, path: &Path) {
    if let Some((user, group)) = owner {
        chown(path, Some(user), Some(group)).expect("root may change the owner of files");
    }
}

/// Runs a program that must succeed.
#[track_caller]
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?}: {stderr}\n{stdout}");
}

/// Puts the program `from` at `to`, as a link or as a copy.
///
/// A copy is written by another process: a child that another thread has just forked would keep a
/// file of this process open, and an open file cannot be executed.
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    if std::fs::hard_link(from, to).is_err() {
        run(Command::new("cp").arg(from).arg(to));
    }
}

/// Writes a script that can be executed at once; by another process, as in [`copy_program`].
#[track_caller]
pub fn write_script(path: &Path, text: &str) {
    let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
    run(Command::new("/bin/sh").args(["-c", write, "sh", text]).arg(path));
}

/// Returns a data folder to copy servers from, which saves seconds per test: `create` makes it once
/// per build folder, version and owner.
#[track_caller]
pub fn template(
    prefix: &str,
    mut version: Command,
    owner: Option<(u32, u32)>,
    create: impl FnOnce(&Path),
) -> PathBuf {
    let output = version.arg("--version").output().expect("the server's --version");
    let version: String = String::from_utf8_lossy(&output.stdout)
        .chars()
        .filter(|c| c.is_ascii_alphanumeric())
        .collect();
    let user = owner.map_or("own".to_owned(), |(user, _)| user.to_string());
    let test = std::env::current_exe().expect("the test's own file");
    let shared =
        test.parent().expect("a file lies in a folder").join(format!("{prefix}-{version}-{user}"));
    if shared.exists() {
        return shared;
    }
    let folder = tempfile::TempDir::with_prefix("hotrow-").expect("a temporary folder");
    give_to(owner, folder.path());
    let data = folder.path().join("data");
    create(&data);
    // Copied under a unique name, then renamed: other test binaries see all of it or nothing.
    let copy = shared.with_extension(std::process::id().to_string());
    run(Command::new("cp").arg("-a").arg(&data).arg(&copy));
    if std::fs::rename(&copy, &shared).is_err() {
        // Another test binary was faster.
        std::fs::remove_dir_all(&copy).expect("our own copy");
    }
    shared
}
