//! Log of a process's output, bounded in size, with its end kept in memory for messages.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

/// Bytes of the end kept in memory.
const TAIL_BYTES: usize = 16 * 1024;
/// Lines of it that are shown: enough for a stack trace.
const TAIL_LINES: usize = 20;
/// Time limit until output that was written is read. Only a machine without free CPU needs it.
const DRAIN_WAIT: Duration = Duration::from_secs(10);
/// Polling interval for the end of output.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A log in progress.
#[derive(Debug)]
pub(super) struct Log {
    tail: Arc<Mutex<Tail>>,
    /// The pipe, to see whether it is empty.
    pipe: Arc<PipeReader>,
    writer: Option<JoinHandle<()>>,
}

/// The end of the output.
#[derive(Debug, Default)]
struct Tail {
    bytes: Vec<u8>,
    /// True if earlier output was dropped.
    is_cut: bool,
}

impl Log {
    /// Truncates the file and writes the pipe's output to it until all writers have closed it, at
    /// most `bytes_max` bytes. Further output is read and dropped, so that the process does not
    /// block.
    pub(super) fn open(path: &Path, from: PipeReader, bytes_max: u64) -> io::Result<Self> {
        let mut file = File::create(path)?;
        let tail = Arc::new(Mutex::new(Tail::default()));
        let pipe = Arc::new(from);
        let (kept, from) = (tail.clone(), pipe.clone());
        let writer = std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            let mut left = Some(bytes_max);
            let mut buffer = vec![0; 64 * 1024];
            while await_output(&from) {
                let count = match read_and_keep(&kept, &from, &mut buffer) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                left = left.and_then(|left| store(&mut file, &buffer[..count], left, bytes_max));
            }
        })?;
        Ok(Self { tail, pipe, writer: Some(writer) })
    }

    /// Waits until all output of ended processes is kept, and for at most `wait` until no process
    /// can write any more.
    pub(super) fn settle(&mut self, wait: Duration) {
        let begun = Instant::now();
        while self.writer.as_ref().is_some_and(|writer| !writer.is_finished()) {
            let waited = begun.elapsed();
            if waited >= DRAIN_WAIT || (waited >= wait && self.is_drained()) {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        if let Some(writer) = self.writer.take_if(|writer| writer.is_finished()) {
            // Only its end matters.
            let _ = writer.join();
        }
    }

    /// Returns whether everything written so far is kept.
    fn is_drained(&self) -> bool {
        // With the lock, no output is between the pipe and the tail.
        let _tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::io::ioctl_fionread(&self.pipe).is_ok_and(|bytes| bytes == 0)
    }

    /// Returns the last lines, each complete; empty without output.
    pub(super) fn last_lines(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail.bytes);
        let text = text.trim_end();
        // The first line that is kept may have lost its beginning.
        let whole = if tail.is_cut { text.split_once('\n').map(|(_, rest)| rest) } else { None };
        let lines: Vec<&str> = whole.unwrap_or(text).lines().collect();
        let shown = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        if tail.is_cut && whole.is_none() { format!("…{shown}") } else { shown }
    }
}

/// Waits until the pipe has output or is closed; returns false on an error.
fn await_output(from: &PipeReader) -> bool {
    loop {
        match poll(&mut [PollFd::new(from, PollFlags::IN)], None) {
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Reads output that is there, and keeps its end.
fn read_and_keep(
    tail: &Mutex<Tail>,
    mut from: &PipeReader,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    let count = from.read(buffer)?;
    tail.bytes.extend_from_slice(&buffer[..count]);
    let surplus = tail.bytes.len().saturating_sub(TAIL_BYTES);
    tail.is_cut |= surplus > 0;
    tail.bytes.drain(..surplus);
    Ok(count)
}

/// Stores bytes; returns the remaining room, or `None` when the file or the disk is full.
fn store(file: &mut File, bytes: &[u8], left: u64, bytes_max: u64) -> Option<u64> {
    let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    let written = file.write_all(&bytes[..count]);
    if written.is_ok() && count == bytes.len() {
        return Some(left - count as u64);
    }
    // On a full disk this line is lost too; the end stays in memory.
    let _ = match written {
        Ok(()) => writeln!(
            file,
            "\n(hotrow: this log is limited to {bytes_max} bytes; further output is dropped)"
        ),
        Err(error) => writeln!(file, "\n(hotrow: {error}; further output is dropped)"),
    };
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    fn logged(bytes_max: u64, chunks: &[&[u8]]) -> (String, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (from, mut to) = io::pipe().unwrap();
        let mut log = Log::open(&path, from, bytes_max).unwrap();
        for chunk in chunks {
            to.write_all(chunk).unwrap();
        }
        drop(to);
        log.settle(WAIT);
        assert!(log.writer.is_none(), "the pipe is closed");
        (std::fs::read_to_string(&path).unwrap(), log.last_lines())
    }

    #[test]
    fn output_is_stored_and_its_end_is_kept_in_memory() {
        let lines: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        let (file, last) = logged(1 << 20, &[lines.as_bytes(), b"the end"]);
        assert_eq!(file, format!("{lines}the end"));
        assert_eq!(last.lines().count(), TAIL_LINES);
        assert!(last.starts_with("line 981\n") && last.ends_with("line 999\nthe end"), "{last}");
        assert_eq!(logged(10, &[]), (String::new(), String::new()));
    }

    #[test]
    fn the_last_lines_are_complete() {
        let long = "y".repeat(TAIL_BYTES - 8);
        let (_, last) = logged(1 << 20, &[b"first\nsecond\n", long.as_bytes(), b"\nlast\n\n\n"]);
        assert_eq!(last, "last", "the long line has lost its beginning");
        let (_, last) = logged(1 << 20, &[b"x", long.as_bytes(), b"0123456789\n"]);
        assert!(last.starts_with("…yyy") && last.ends_with("y0123456789"), "{last}");
    }

    #[test]
    fn all_output_is_kept_although_another_process_may_still_write() {
        let folder = tempfile::tempdir().unwrap();
        let (from, mut to) = io::pipe().unwrap();
        let mut log = Log::open(&folder.path().join("log"), from, 1 << 30).unwrap();
        let lines: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
        to.write_all(lines.as_bytes()).unwrap();
        log.settle(Duration::ZERO);
        assert!(log.writer.is_some(), "the pipe is open");
        assert!(log.last_lines().ends_with("\nline 199999"), "{}", log.last_lines());
        drop(to);
    }

    #[test]
    fn a_full_log_has_a_note_and_does_not_block_the_writer() {
        let flood = vec![b'x'; 300_000];
        let (file, last) = logged(1000, &[&flood, &flood, b"\nwhy it failed"]);
        let note = "\n(hotrow: this log is limited to 1000 bytes; further output is dropped)\n";
        assert_eq!(file, format!("{}{note}", "x".repeat(1000)));
        assert_eq!(last, "why it failed");
        assert_eq!(logged(3, &[b"abc"]).0, "abc", "just full is not too full");
    }

    #[test]
    fn a_full_disk_keeps_the_end_in_memory() {
        let (from, mut to) = io::pipe().unwrap();
        let mut log = Log::open(Path::new("/dev/full"), from, 1000).unwrap();
        to.write_all(b"first\nlast\n").unwrap();
        drop(to);
        log.settle(WAIT);
        assert_eq!(log.last_lines(), "first\nlast");
    }

    #[test]
    fn waiting_for_a_living_writer_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = io::pipe().unwrap();
        let mut log = Log::open(&folder.path().join("log"), from, 10).unwrap();
        log.settle(Duration::from_millis(20));
        assert!(log.writer.is_some());
        drop(to);
        log.settle(WAIT);
        assert!(log.writer.is_none());
    }
}
