//! MariaDB's programs: where they are, and how they run as somebody who is not root.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the packages put what only root has in PATH.
const MORE_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// A program of MariaDB, to be run as a user that the server accepts: it refuses root. It reads no settings but ours.
pub(super) fn as_owner(program: &str) -> Command {
    let mut command = plain(program);
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group);
    }
    command.current_dir("/").env("LC_ALL", "C");
    command
}

/// The SQL client; MySQL's own where there is no other.
pub(super) fn client() -> Command {
    let name = if find("mariadb").is_some() { "mariadb" } else { "mysql" };
    plain(name)
}

fn plain(program: &str) -> Command {
    let path = find(program).unwrap_or_else(|| {
        panic!("{program} is neither in PATH nor in /usr/sbin; install mariadb-server (./test does)")
    });
    let mut command = Command::new(path);
    // Nobody's settings but ours: MYSQL_HOST and its like would lead elsewhere.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MYSQL_")) {
        command.env_remove(name);
    }
    command.arg("--no-defaults");
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}\n{}", String::from_utf8_lossy(&output.stdout));
}

/// A data folder that servers are copied from. Made once for a build folder, kept there: it saves seconds per test.
#[track_caller]
pub(super) fn template() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let version = plain("mariadbd").arg("--version").output().expect("mariadbd --version");
        let version: String =
            String::from_utf8_lossy(&version.stdout).chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        let user = owner().map_or("own".to_owned(), |(user, _)| user.to_string());
        let test = std::env::current_exe().expect("the test's own file");
        let shelf = test.parent().expect("a file lies in a folder").join(format!("mariadb-{version}-{user}"));
        if shelf.exists() {
            return shelf;
        }
        let folder = tempfile::TempDir::with_prefix("hotrow-my-").expect("a temporary folder");
        give_to_owner(folder.path());
        let data = folder.path().join("data");
        install(&data);
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

/// A new data folder whose root needs no password.
#[track_caller]
fn install(data: &Path) {
    let mut install = as_owner("mariadb-install-db");
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
    install.args(super::SMALL_FILES);
    run(install.arg(format!("--datadir={}", data.display())));
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = MORE_FOLDERS.into_iter().map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whose the servers are: when we are root, `mysql` or, where the packages made no such user, `nobody`.
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
    Some(find("mysql").or_else(|| find("nobody")).expect("root needs a user to give the server to"))
}
