//! PostgreSQL's programs: where they are, and how they run as somebody who is not root.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Debian puts each version into a folder of its own.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A program of PostgreSQL, to be run as a user that the server accepts: it refuses root.
pub(super) fn as_owner(program: &str) -> Command {
    let mut command = Command::new(folder().join(program));
    // Nobody's settings but ours: PGHOST and its like would lead elsewhere.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group);
    }
    command.current_dir("/").env("LC_ALL", "C");
    command
}

/// Makes the owner of the servers the owner of `path`.
pub(super) fn give_to_owner(path: &Path) {
    if let Some((user, group)) = owner() {
        chown(path, Some(user), Some(group)).expect("root may give files away");
    }
}

/// Runs a program that must succeed.
#[track_caller]
pub(super) fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A new cluster in `data`, open to everybody on this machine.
#[track_caller]
pub(super) fn initdb(data: &Path) {
    let mut initdb = as_owner("initdb");
    initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    run(initdb.arg("--pgdata").arg(data));
}

/// A cluster that servers are copied from. Made once for a build folder, kept there: it saves a second per test.
#[track_caller]
pub(super) fn template() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let version = Command::new(folder().join("postgres")).arg("--version").output().expect("postgres --version");
        let version: String =
            String::from_utf8_lossy(&version.stdout).chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        let user = owner().map_or("own".to_owned(), |(user, _)| user.to_string());
        let test = std::env::current_exe().expect("the test's own file");
        let shelf = test.parent().expect("a file lies in a folder").join(format!("cluster-{version}-{user}"));
        if shelf.exists() {
            return shelf;
        }
        let folder = tempfile::TempDir::with_prefix("hotrow-pg-").expect("a temporary folder");
        give_to_owner(folder.path());
        let data = folder.path().join("data");
        initdb(&data);
        // Copied under a name of its own, then renamed: another test binary sees all of it or nothing.
        let draft = shelf.with_extension(std::process::id().to_string());
        run(Command::new("cp").arg("-a").arg(&data).arg(&draft));
        if std::fs::rename(&draft, &shelf).is_err() {
            // Somebody else was quicker.
            std::fs::remove_dir_all(&draft).expect("our own draft");
        }
        shelf
    };
    MADE.get_or_init(make).clone()
}

/// Removes the shared memory that a killed server left, which its lock file names.
pub(super) fn forget_shared_memory(data: &Path) {
    let Ok(text) = std::fs::read_to_string(data.join("postmaster.pid")) else { return };
    if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
        // Without ipcrm, a few bytes stay until the next start of the machine.
        _ = Command::new("ipcrm").args(["-m", id]).output();
    }
}

/// The folder of the newest version in PATH or where Debian has it.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // In PATH there may be links to a few of the programs only; where they lead are the others.
        let mut linked = std::env::split_paths(&path).filter_map(|folder| folder.join("initdb").canonicalize().ok());
        if let Some(bin) = linked.find_map(|initdb| initdb.parent().filter(|bin| is_whole(bin)).map(Path::to_owned)) {
            return bin;
        }
        let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().filter_map(|entry| {
            let entry = entry.ok()?;
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin"))).filter(|(_, bin)| is_whole(bin))
        });
        versions.max().map(|(_, bin)| bin).unwrap_or_else(|| {
            panic!("no PostgreSQL: initdb is neither in PATH nor in {DEBIAN}/*/bin; install postgresql (./test does)")
        })
    })
}

/// Whether all programs that tests use are there.
fn is_whole(bin: &Path) -> bool {
    ["initdb", "postgres", "psql", "pg_basebackup"].iter().all(|program| bin.join(program).is_file())
}

/// Whose the servers are: when we are root, `postgres` or, where the packages made no such user, `nobody`.
fn owner() -> Option<(u32, u32)> {
    if !super::is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("root needs a user to give the server to"))
}
