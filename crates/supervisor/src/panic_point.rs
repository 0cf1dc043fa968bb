//! Test-only panics in a named thread, set by a failpoint.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of times a panic point acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanicMode {
    /// At the next turn of the thread's loop, and never again.
    Once,
    /// At every turn.
    Always,
}

/// Panic in the supervised thread of that name.
#[derive(Debug)]
pub struct PanicPoint {
    thread: String,
    mode: PanicMode,
    /// File whose existence arms the panic point.
    trigger: Option<PathBuf>,
    has_acted: AtomicBool,
}

impl PanicPoint {
    /// Creates a panic point for the thread of that name.
    #[must_use]
    pub fn new(thread: &str, mode: PanicMode) -> Self {
        Self { thread: thread.to_owned(), mode, trigger: None, has_acted: AtomicBool::new(false) }
    }

    /// Restricts the panic point to the time after `trigger` exists.
    #[must_use]
    pub fn when_exists(self, trigger: PathBuf) -> Self {
        Self { trigger: Some(trigger), ..self }
    }

    /// Returns whether `thread` must panic now.
    pub(super) fn acts_on(&self, thread: &str) -> bool {
        if self.thread != thread || !self.trigger.as_ref().is_none_or(|file| file.exists()) {
            return false;
        }
        let has_acted = self.has_acted.swap(true, Ordering::Relaxed);
        self.mode == PanicMode::Always || !has_acted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_acts_on_its_thread_alone_once_or_always() {
        let once = PanicPoint::new("a", PanicMode::Once);
        let always = PanicPoint::new("a", PanicMode::Always);
        assert!(!once.acts_on("b") && !always.acts_on("b"));
        assert_eq!([once.acts_on("a"), once.acts_on("a")], [true, false]);
        assert_eq!([always.acts_on("a"), always.acts_on("a")], [true, true]);
    }

    #[test]
    fn a_point_with_a_trigger_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("now");
        let point = PanicPoint::new("a", PanicMode::Once).when_exists(file.clone());
        assert!(!point.acts_on("a"));
        std::fs::write(file, "").unwrap();
        assert_eq!([point.acts_on("a"), point.acts_on("a")], [true, false]);
    }
}
