//! The servers' programs: their location, and how to run them as an unprivileged user.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;

use super::Flavor;
use crate::process::{self, run};

/// Folders of programs that only root has in PATH.
const ROOT_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// Returns a command for the server. It runs as the owner of the servers, because they refuse to
/// run as root.
pub fn server(flavor: Flavor) -> Command {
    as_owner(match flavor {
        Flavor::MariaDb => plain("mariadbd"),
        Flavor::MySql => Command::new(mysqld()),
    })
}

fn as_owner(mut command: Command) -> Command {
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group);
    }
    command.current_dir("/").env("LC_ALL", "C");
    command
}

/// Returns a command for the SQL client, which is MariaDB's for both servers.
pub fn client() -> Command {
    plain("mariadb")
}

/// Returns the path of MySQL's server, which is fetched if it is missing.
fn mysqld() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/mysql-server");
        let output = Command::new(script).output().expect("scripts/mysql-server");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "MySQL cannot be had: {error}");
        Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("mysqld")
    })
}

fn plain(program: &str) -> Command {
    let path = find(program).unwrap_or_else(|| {
        panic!(
            "{program} is neither in PATH nor in /usr/sbin; install mariadb-server (./test does)"
        )
    });
    let mut command = Command::new(path);
    // Without the environment's settings: MYSQL_HOST and the like would lead to another server.
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MYSQL_"))
    {
        command.env_remove(name);
    }
    command.arg("--no-defaults");
    command
}

/// Returns the data folder that servers are copied from.
#[track_caller]
pub fn template(flavor: Flavor) -> PathBuf {
    static TEMPLATES: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    let create = || match flavor {
        Flavor::MariaDb => process::template("mariadb", plain("mariadbd"), owner(), install),
        Flavor::MySql => process::template("mysql", Command::new(mysqld()), owner(), initialize),
    };
    TEMPLATES[flavor as usize].get_or_init(create).clone()
}

/// Gives `path` to the owner of the servers.
pub fn give_to_owner(path: &Path) {
    process::give_to(owner(), path);
}

/// Returns the owner of the servers if we are root.
fn owner() -> Option<(u32, u32)> {
    process::owner("mysql")
}

/// Creates MariaDB's data folder. Its root account needs no password.
#[track_caller]
fn install(data: &Path) {
    let mut install = as_owner(plain("mariadb-install-db"));
    install.args([
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
    ]);
    install.args(Flavor::MariaDb.small_files());
    run(install.arg(format!("--datadir={}", data.display())));
}

/// Creates MySQL's data folder. Its root account needs no password.
#[track_caller]
fn initialize(data: &Path) {
    let first = data.with_extension("sql");
    std::fs::write(&first, "RENAME USER root@localhost TO root@'%';\n").expect("write a file");
    let mut initialize = server(Flavor::MySql);
    initialize.args(Flavor::MySql.small_files()).arg("--initialize-insecure");
    initialize.arg(format!("--init-file={}", first.display()));
    run(initialize.arg(format!("--datadir={}", data.display())));
    // It has the server's UUID, which the first start creates.
    std::fs::remove_file(data.join("auto.cnf")).expect("the file with the UUID");
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ROOT_FOLDERS.into_iter().map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Running statements in a separate session, which ends when this is dropped.
pub struct Running {
    pub child: Child,
    pub writer: std::thread::JoinHandle<()>,
}

impl Running {
    /// Waits for the end of the statements.
    ///
    /// # Errors
    /// Error output of the client.
    pub fn outcome(self) -> Result<String, String> {
        let output = self.child.wait_with_output().expect("the SQL client ends");
        self.writer.join().expect("no panics there");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Returns true until the statements have ended.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_none()
    }

    /// Kills the client.
    pub fn kill(mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
