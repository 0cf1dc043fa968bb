//! Waiting for the next commit: the kernel reports when the log file is touched.

use std::path::PathBuf;
use std::time::Duration;

use inotify::{EventMask, Inotify, WatchMask};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Reason for which a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The file was touched; a commit may be about to become visible.
    Touched,
    Timeout,
}

/// Watch on one file by its path; the file may not exist yet and may be replaced.
pub(crate) struct Wake {
    target: PathBuf,
    /// `None` if the system has no watch left: then only the poll interval counts.
    inotify: Option<Inotify>,
    watching: bool,
}

impl Wake {
    pub(crate) fn new(target: PathBuf) -> Self {
        let inotify = Inotify::init()
            .inspect_err(
                |e| tracing::warn!(error = %e, "no inotify; changes are found by polling alone"),
            )
            .ok();
        Self { target, inotify, watching: false }
    }

    /// Returns whether a touch of the file will be noticed.
    pub(crate) fn is_watching(&self) -> bool {
        self.watching
    }

    /// Waits until the file is touched, at most for `time`.
    pub(crate) fn wait(&mut self, time: Duration) -> Woken {
        let Some(inotify) = &mut self.inotify else {
            std::thread::sleep(time);
            return Woken::Timeout;
        };
        if !self.watching {
            // ATTRIB reports an unlink while a connection keeps the file alive. No descriptor of
            // the file is opened.
            let mask = WatchMask::MODIFY
                | WatchMask::ATTRIB
                | WatchMask::MOVE_SELF
                | WatchMask::DELETE_SELF;
            self.watching = inotify.watches().add(&self.target, mask).is_ok();
        }
        // Nanoseconds of a second fit.
        let time = Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let mut fds = [PollFd::new(inotify, PollFlags::IN)];
        if !matches!(poll(&mut fds, Some(&time)), Ok(1..)) {
            return Woken::Timeout;
        }
        let mut buffer = [0; 4096];
        let mut woken = Woken::Timeout;
        while let Ok(events) = inotify.read_events(&mut buffer) {
            for event in events {
                woken = Woken::Touched;
                if event.mask != EventMask::MODIFY {
                    // The name may belong to another file now, so the watch is added again.
                    self.watching = false;
                }
            }
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_write_wakes_also_after_the_file_came_late_and_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut wake = Wake::new(path.clone());
        assert_eq!(wake.wait(Duration::from_millis(1)), Woken::Timeout);
        std::fs::write(&path, "a").unwrap();
        assert_eq!(wake.wait(Duration::from_millis(1)), Woken::Timeout);
        std::fs::write(&path, "b").unwrap();
        assert_eq!(wake.wait(LONG), Woken::Touched);
        std::fs::write(dir.path().join("new"), "").unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        assert_eq!(wake.wait(LONG), Woken::Touched);
        while wake.wait(Duration::from_millis(1)) == Woken::Touched {}
        std::fs::write(&path, "c").unwrap();
        assert_eq!(wake.wait(LONG), Woken::Touched);
    }
}
