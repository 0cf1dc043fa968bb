//! A server under an account without privileges, as it should run in production.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::server::binary;
use super::{Config, Ended, Server};
use crate::process::copy_program;

/// User id of the system's unprivileged account, which owns no files.
const UNPRIVILEGED_UID: u32 = 65_534;

/// An account other than root. Only root can switch to it, so tests without privileges have none.
pub struct Account {
    program: PathBuf,
    folder: TempDir,
}

impl Account {
    /// Returns the account; `None` if the tests do not run as root.
    pub fn unprivileged() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can start a server under another account");
            return None;
        }
        let folder =
            tempfile::Builder::new().prefix("hotrow-account-").tempdir().expect("a folder");
        set_mode(folder.path(), 0o755);
        // The account may have no access to the build folder.
        let program = folder.path().join("hotrow");
        copy_program(&binary(), &program);
        Some(Self { program, folder })
    }

    /// Gives a folder and all files in it to the account, with these modes.
    pub fn own(&self, folder: &Path, folder_mode: u32, file_mode: u32) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            chown(&path, Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).expect("root may");
            set_mode(&path, file_mode);
        }
        chown(folder, Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).expect("root may");
        set_mode(folder, folder_mode);
    }

    /// Starts a server on `config` and waits until it is ready.
    #[track_caller]
    pub fn start(&self, config: &Config) -> Server {
        let server = Server::start_command(self.serve(config));
        server.await_ready();
        server
    }

    /// Runs `serve` on a configuration that must not work.
    #[track_caller]
    pub fn refused(&self, config: &Config, within: Duration) -> Ended {
        Ended::run_command(self.serve(config), within)
    }

    fn serve(&self, config: &Config) -> Command {
        let file = self.folder.path().join("hotrow.toml");
        std::fs::write(&file, config.text()).expect("write the configuration");
        set_mode(&file, 0o644);
        let mut command = self.command();
        command.arg("serve").arg("--config").arg(file);
        command
    }

    /// Runs the binary with these arguments until it ends by itself.
    #[track_caller]
    pub fn run(&self, arguments: &[&str], within: Duration) -> Ended {
        let mut command = self.command();
        command.args(arguments);
        Ended::run_command(command, within)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // Without root's groups too.
        command.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID).stdin(Stdio::null());
        command
    }
}

/// `chmod`.
pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("root may");
}
