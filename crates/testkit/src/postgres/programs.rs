//! PostgreSQL's programs: their folder, and running them as a user other than root.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::process::{self, run};

/// Debian's folder of all versions.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Returns a command for a program of PostgreSQL, run as a user that the server accepts: it refuses
/// root.
pub fn as_owner(program: &str) -> Command {
    let mut command = Command::new(folder().join(program));
    // Only our own settings: PGHOST and the like would lead elsewhere.
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG"))
    {
        command.env_remove(name);
    }
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group);
    }
    command.current_dir("/").env("LC_ALL", "C");
    command
}

/// Creates a cluster in `data` that accepts every local user.
#[track_caller]
pub fn initdb(data: &Path) {
    let mut initdb = as_owner("initdb");
    initdb.args([
        "--auth=trust",
        "--username=postgres",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
    ]);
    run(initdb.arg("--pgdata").arg(data));
}

/// Returns the cluster that servers are copied from.
#[track_caller]
pub fn template() -> PathBuf {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    let postgres = || Command::new(folder().join("postgres"));
    let create = || process::template("cluster", postgres(), owner(), initdb);
    TEMPLATE.get_or_init(create).clone()
}

/// Gives `path` to the owner of the servers.
pub fn give_to_owner(path: &Path) {
    process::give_to(owner(), path);
}

/// Returns the owner of the servers if we are root.
fn owner() -> Option<(u32, u32)> {
    process::owner("postgres")
}

/// Removes the shared memory of a killed server, named in its lock file.
pub fn remove_shared_memory(data: &Path) {
    let Ok(text) = std::fs::read_to_string(data.join("postmaster.pid")) else { return };
    if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
        // Without ipcrm a few bytes remain until the machine restarts.
        _ = Command::new("ipcrm").args(["-m", id]).output();
    }
}

/// Returns the folder of the newest version in PATH or in Debian's folder.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // PATH may contain links to some programs only; the others are where the links lead.
        let mut linked = std::env::split_paths(&path)
            .filter_map(|folder| folder.join("initdb").canonicalize().ok());
        if let Some(bin) = linked.find_map(|initdb| {
            initdb.parent().filter(|bin| has_all_programs(bin)).map(Path::to_owned)
        }) {
            return bin;
        }
        let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().filter_map(|entry| {
            let entry = entry.ok()?;
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin"))).filter(|(_, bin)| has_all_programs(bin))
        });
        versions.max().map(|(_, bin)| bin).unwrap_or_else(|| {
            panic!(
                "no PostgreSQL: initdb is neither in PATH nor in {DEBIAN}/*/bin; \
                 install postgresql (./test does)"
            )
        })
    })
}

/// Returns whether all programs that tests use are there.
fn has_all_programs(bin: &Path) -> bool {
    ["initdb", "postgres", "psql", "pg_basebackup"]
        .iter()
        .all(|program| bin.join(program).is_file())
}
