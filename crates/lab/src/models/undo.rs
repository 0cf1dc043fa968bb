//! What a run of the models must undo when it is broken off at once: limits of the kernel that it raised, and a program that it
//! counts with, which would outlive it.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// Shared by the run and by who breaks it off.
#[derive(Clone, Debug, Default)]
pub struct Undo(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Files that were written, and what they held.
    raised: Vec<(PathBuf, String)>,
    /// A group of processes that runs.
    group: Option<Pid>,
    /// Broken off: nothing may begin any more.
    over: bool,
}

impl Undo {
    /// Undoes all of it, and lets nothing begin that would have to be undone.
    pub fn run(&self) {
        let mut state = self.lock();
        state.over = true;
        state.set_back();
        if let Some(group) = state.group.take() {
            // That it has gone already is as good.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Writes a file, and keeps what it held.
    pub(super) fn raise(&self, file: &Path, to: u64) -> io::Result<()> {
        let mut state = self.lock();
        state.may_begin()?;
        let was = std::fs::read_to_string(file)?;
        std::fs::write(file, to.to_string())?;
        state.raised.push((file.to_owned(), was));
        Ok(())
    }

    /// What was raised, with what it was before.
    pub(super) fn raised(&self) -> Vec<(PathBuf, String)> {
        self.lock().raised.clone()
    }

    /// Sets back what was raised.
    pub(super) fn set_back(&self) {
        self.lock().set_back();
    }

    /// Starts a program in a process group of its own.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut state = self.lock();
        state.may_begin()?;
        let child = command.process_group(0).spawn()?;
        state.group = Some(Pid::from_child(&child));
        Ok(child)
    }

    /// That program has ended.
    pub(super) fn ended(&self) {
        self.lock().group = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn may_begin(&self) -> io::Result<()> {
        if self.over { Err(io::Error::other("the run is broken off")) } else { Ok(()) }
    }

    fn set_back(&mut self) {
        for (file, was) in self.raised.drain(..) {
            // It could be written a moment ago; if it cannot now, there is nobody to tell but the user who looks.
            let _ = std::fs::write(file, was);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn what_is_broken_off_is_undone_and_nothing_begins_after_it() {
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
