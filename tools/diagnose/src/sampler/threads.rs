//! The threads of one process, from sample to sample. Their files stay open; the folder is listed
//! again only when its link count shows started or ended threads, or when a thread's file cannot be
//! read.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use super::open_file;
use crate::probe::task::{self, THREADS_MAX, Task};
use crate::root::{ProbeError, ProbeErrorKind, ProbeResult, Root};

/// Links of a folder besides its subfolders: its name and its own `.`.
const LINKS_OF_ITSELF: u64 = 2;

/// Samples the threads of a process.
#[derive(Debug)]
pub(super) struct ThreadSampler {
    pid: u32,
    folder: String,
    threads: Vec<Thread>,
    /// Number of threads when last listed; at most [`THREADS_MAX`] of them are kept.
    listed: u64,
    /// Maximum number of open files, because a generator needs open files.
    open_max: usize,
}

#[derive(Debug)]
struct Thread {
    tid: u32,
    /// Its name when last listed: most threads are named right after they start.
    name: String,
    source: CpuTimeSource,
}

/// The source of its CPU time.
#[derive(Debug)]
enum CpuTimeSource {
    /// Its `schedstat`, kept open.
    Open(File),
    /// Its `schedstat`, opened each time.
    Closed,
    /// Its `stat`, opened each time: this kernel has no `schedstat`.
    Ticks,
}

impl ThreadSampler {
    pub(super) fn new(pid: u32, open_max: usize) -> Self {
        Self { pid, folder: format!("proc/{pid}/task"), threads: Vec::new(), listed: 0, open_max }
    }

    /// Returns the CPU times so far. With `renamed`, names are read again.
    pub(super) fn sample_once(
        &mut self,
        root: &Root,
        buffer: &mut Vec<u8>,
        renamed: bool,
    ) -> ProbeResult<Vec<Task>> {
        let folder = std::fs::metadata(root.path(&self.folder));
        let folder = folder.map_err(|error| ProbeError {
            file: self.folder.clone(),
            why: ProbeErrorKind::of(&error),
        })?;
        if renamed || folder.nlink() != LINKS_OF_ITSELF + self.listed {
            self.list(root, renamed)?;
        }
        let tasks = self.read(root, buffer);
        if tasks.len() == self.threads.len() {
            return Ok(tasks);
        }
        // One thread has ended, and another may have started.
        self.list(root, renamed)?;
        Ok(self.read(root, buffer))
    }

    fn list(&mut self, root: &Root, renamed: bool) -> Result<(), ProbeError> {
        let mut tids = task::ids(root, self.pid)?;
        self.listed = tids.len() as u64;
        tids.truncate(THREADS_MAX);
        let mut before: Vec<Thread> = std::mem::take(&mut self.threads);
        before.retain(|thread| tids.binary_search(&thread.tid).is_ok());
        let mut open =
            before.iter().filter(|thread| matches!(thread.source, CpuTimeSource::Open(_))).count();
        let mut before = before.into_iter().peekable();
        for tid in tids {
            // Both are sorted by id.
            let known = before.next_if(|thread| thread.tid == tid);
            let name = || {
                Some(root.parse(&self.file(tid, "stat"), |text| task::parse(tid, text)).ok()?.name)
            };
            let thread = match known {
                Some(known) if renamed => name().map(|name| Thread { name, ..known }),
                Some(known) => Some(known),
                None => name().map(|name| Thread {
                    tid,
                    name,
                    source: self.source(root, tid, &mut open),
                }),
            };
            self.threads.extend(thread);
        }
        Ok(())
    }

    fn source(&self, root: &Root, tid: u32, open: &mut usize) -> CpuTimeSource {
        let Ok(file) = File::open(root.path(&self.file(tid, "schedstat"))) else {
            return CpuTimeSource::Ticks;
        };
        if *open >= self.open_max {
            return CpuTimeSource::Closed;
        }
        *open += 1;
        CpuTimeSource::Open(file)
    }

    /// Returns the living threads: the file of an ended one cannot be read.
    fn read(&self, root: &Root, buffer: &mut Vec<u8>) -> Vec<Task> {
        self.threads.iter().filter_map(|thread| self.task(thread, root, buffer)).collect()
    }

    fn task(&self, thread: &Thread, root: &Root, buffer: &mut Vec<u8>) -> Option<Task> {
        let times = match &thread.source {
            CpuTimeSource::Open(file) => {
                task::parse_schedstat(str::from_utf8(open_file::read(file, buffer).ok()?).ok()?)?
            }
            CpuTimeSource::Closed => {
                root.parse(&self.file(thread.tid, "schedstat"), task::parse_schedstat).ok()?
            }
            CpuTimeSource::Ticks => {
                return root
                    .parse(&self.file(thread.tid, "stat"), |text| task::parse(thread.tid, text))
                    .ok();
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
