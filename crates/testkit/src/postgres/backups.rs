//! Copies of a server's data folder, and recoveries from them.

use std::path::PathBuf;
use std::process::Command;

use super::{Server, Stop, append_settings, programs};
use crate::process::run;

/// A copy of a stopped server's data folder. Removed with the server.
pub struct Backup(PathBuf);

impl Server {
    /// Stops the server, copies its data folder, and starts it again.
    #[track_caller]
    pub fn back_up(&mut self) -> Backup {
        self.stop(Stop::Fast);
        let copy = self.folder.path().join("backup");
        run(Command::new("cp").arg("-a").arg(self.data()).arg(&copy));
        self.restart();
        Backup(copy)
    }

    /// Starts a standby from a copy of another server. The settings say where it streams from.
    #[track_caller]
    pub fn standby_from(backup: &Backup, settings: &[(&str, &str)]) -> Self {
        Self::launch(settings, |data| {
            run(Command::new("cp").arg("-a").arg(&backup.0).arg(data));
            let signal = data.join("standby.signal");
            std::fs::write(&signal, b"").expect("write into the data folder");
            programs::give_to_owner(&signal);
        })
    }

    /// Restores the copy: everything since then is lost, and the log ends where it ended then.
    #[track_caller]
    pub fn restore(&mut self, backup: &Backup) {
        self.replace_data(backup);
        self.restart();
    }

    /// Recovers to a restore point that was set after the copy: the server replays the log up to
    /// there and begins a new timeline.
    #[track_caller]
    pub fn recover_to(&mut self, backup: &Backup, restore_point: &str) {
        let lost = self.replace_data(backup);
        let command = format!("cp {}/pg_wal/%f %p", lost.display());
        let settings = [
            ("restore_command", &*command),
            ("recovery_target_name", restore_point),
            ("recovery_target_action", "promote"),
        ];
        append_settings(&self.data(), settings.into_iter());
        self.write_file("recovery.signal", b"");
        self.restart();
        self.wait("the end of recovery", || self.query("SELECT pg_is_in_recovery()") == "f");
    }

    /// Replaces the data folder by the copy; returns the folder.
    fn replace_data(&mut self, backup: &Backup) -> PathBuf {
        if self.runs() {
            self.stop(Stop::Fast);
        }
        let lost = self.folder.path().join("lost");
        std::fs::rename(self.data(), &lost).expect("the data folder is ours");
        run(Command::new("cp").arg("-a").arg(&backup.0).arg(self.data()));
        lost
    }
}
