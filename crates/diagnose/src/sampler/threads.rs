//! The threads of one process, from sample to sample: their files stay open, and the folder is read again only when its number
//! of links tells that threads have begun or ended, or a file that its thread has.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use super::open;
use crate::probe::task::{self, THREADS_MAX, Task};
use crate::root::{Root, Seen, Unseen, Why};

/// Links of a folder that are not folders in it: its name and its own `.`.
const LINKS_OF_ITSELF: u64 = 2;

/// The threads of a process.
#[derive(Debug)]
pub(super) struct Threads {
    pid: u32,
    folder: String,
    threads: Vec<Thread>,
    /// All that there were when they were last listed; at most [`THREADS_MAX`] of them are kept.
    listed: u64,
    /// Files that may stay open, for open files are what a generator needs.
    open_max: usize,
}

#[derive(Debug)]
struct Thread {
    tid: u32,
    /// When it was last listed: most are named right after their beginning.
    name: String,
    source: Source,
}

/// Where its CPU time is read.
#[derive(Debug)]
enum Source {
    /// In its `schedstat`, which is open still.
    Open(File),
    /// There, but opened each time.
    Closed,
    /// In its `stat`, opened each time: this kernel has no other.
    Ticks,
}

impl Threads {
    pub(super) fn new(pid: u32, open_max: usize) -> Self {
        Self { pid, folder: format!("proc/{pid}/task"), threads: Vec::new(), listed: 0, open_max }
    }

    /// What they had used until now. With `renamed`, their names are read anew.
    pub(super) fn look(&mut self, root: &Root, buffer: &mut Vec<u8>, renamed: bool) -> Seen<Vec<Task>> {
        let folder = std::fs::metadata(root.path(&self.folder));
        let folder = folder.map_err(|error| Unseen { file: self.folder.clone(), why: Why::of(&error) })?;
        if renamed || folder.nlink() != LINKS_OF_ITSELF + self.listed {
            self.list(root, renamed)?;
        }
        let tasks = self.read(root, buffer);
        if tasks.len() == self.threads.len() {
            return Ok(tasks);
        }
        // One has ended, and another may have begun.
        self.list(root, renamed)?;
        Ok(self.read(root, buffer))
    }

    fn list(&mut self, root: &Root, renamed: bool) -> Result<(), Unseen> {
        let mut tids = task::ids(root, self.pid)?;
        self.listed = tids.len() as u64;
        tids.truncate(THREADS_MAX);
        let mut before: Vec<Thread> = std::mem::take(&mut self.threads);
        before.retain(|thread| tids.binary_search(&thread.tid).is_ok());
        let mut open = before.iter().filter(|thread| matches!(thread.source, Source::Open(_))).count();
        let mut before = before.into_iter().peekable();
        for tid in tids {
            // Both are in the order of ids.
            let known = before.next_if(|thread| thread.tid == tid);
            let name = || Some(root.parse(&self.file(tid, "stat"), |text| task::parse(tid, text)).ok()?.name);
            let thread = match known {
                Some(known) if renamed => name().map(|name| Thread { name, ..known }),
                Some(known) => Some(known),
                None => name().map(|name| Thread { tid, name, source: self.source(root, tid, &mut open) }),
            };
            self.threads.extend(thread);
        }
        Ok(())
    }

    fn source(&self, root: &Root, tid: u32, open: &mut usize) -> Source {
        let Ok(file) = File::open(root.path(&self.file(tid, "schedstat"))) else { return Source::Ticks };
        if *open >= self.open_max {
            return Source::Closed;
        }
        *open += 1;
        Source::Open(file)
    }

    /// Those that live: a file of one that has ended cannot be read.
    fn read(&self, root: &Root, buffer: &mut Vec<u8>) -> Vec<Task> {
        self.threads.iter().filter_map(|thread| self.task(thread, root, buffer)).collect()
    }

    fn task(&self, thread: &Thread, root: &Root, buffer: &mut Vec<u8>) -> Option<Task> {
        let times = match &thread.source {
            Source::Open(file) => task::parse_schedstat(str::from_utf8(open::read(file, buffer).ok()?).ok()?)?,
            Source::Closed => root.parse(&self.file(thread.tid, "schedstat"), task::parse_schedstat).ok()?,
            Source::Ticks => {
                return root.parse(&self.file(thread.tid, "stat"), |text| task::parse(thread.tid, text)).ok();
            }
        };
        let (cpu, waited) = times;
        Some(Task { tid: thread.tid, name: thread.name.clone(), cpu, waited: Some(waited) })
    }

    fn file(&self, tid: u32, name: &str) -> String {
        format!("{}/{tid}/{name}", self.folder)
    }
}

#[cfg(test)]
mod tests;
