//! Cleanup of an interrupted run of the models: raised kernel limits, and the process group of a
//! counting program that would outlive the run.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// Cleanup state, shared by the run and the signal handling.
#[derive(Clone, Debug, Default)]
pub struct Undo(Arc<Mutex<UndoState>>);

#[derive(Debug, Default)]
struct UndoState {
    /// Written files, and their former contents.
    raised: Vec<(PathBuf, String)>,
    /// A running process group.
    group: Option<Pid>,
    /// True if the run was aborted; nothing may start any more.
    aborted: bool,
}

impl Undo {
    /// Undoes everything and prevents further changes.
    pub fn run(&self) {
        let mut state = self.lock();
        state.aborted = true;
        state.restore();
        if let Some(group) = state.group.take() {
            // The group may have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Writes a file, remembering its former content.
    pub(super) fn raise(&self, file: &Path, to: u64) -> io::Result<()> {
        let mut state = self.lock();
        state.check_not_aborted()?;
        let was = std::fs::read_to_string(file)?;
        std::fs::write(file, to.to_string())?;
        state.raised.push((file.to_owned(), was));
        Ok(())
    }

    /// Returns the raised files with their former contents.
    pub(super) fn raised(&self) -> Vec<(PathBuf, String)> {
        self.lock().raised.clone()
    }

    /// Restores the raised files.
    pub(super) fn restore(&self) {
        self.lock().restore();
    }

    /// Starts a program in a process group of its own.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut state = self.lock();
        state.check_not_aborted()?;
        let child = command.process_group(0).spawn()?;
        state.group = Some(Pid::from_child(&child));
        Ok(child)
    }

    /// Records the end of that program.
    pub(super) fn ended(&self) {
        self.lock().group = None;
    }

    fn lock(&self) -> MutexGuard<'_, UndoState> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UndoState {
    fn check_not_aborted(&self) -> io::Result<()> {
        if self.aborted { Err(io::Error::other("the run was aborted")) } else { Ok(()) }
    }

    fn restore(&mut self) {
        for (file, was) in self.raised.drain(..) {
            // It was writable a moment ago. If it no longer is, there is no channel left to report
            // on.
            let _ = std::fs::write(file, was);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn an_abort_undoes_all_changes_and_prevents_further_ones() {
        let sys = tempfile::tempdir().unwrap();
        let file = sys.path().join("max_map_count");
        std::fs::write(&file, "65530\n").unwrap();
        let undo = Undo::default();
        undo.raise(&file, 210_000).unwrap();
        let mut program = Command::new("sleep");
        let mut child = undo.spawn(program.arg("60")).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "210000");
        undo.clone().run();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "65530\n");
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(undo.raise(&file, 210_000).is_err() && undo.spawn(&mut program).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "65530\n");
    }
}
