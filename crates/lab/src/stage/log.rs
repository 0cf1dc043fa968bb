//! Log of a process's output, bounded in size, with its end kept in memory for messages.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of the end kept in memory.
const TAIL_BYTES: usize = 4096;
/// Lines of it that are shown.
const TAIL_LINES: usize = 10;
/// Polling interval for the end of output.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A log in progress.
#[derive(Debug)]
pub(super) struct Log {
    tail: Arc<Mutex<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
}

impl Log {
    /// Truncates the file and writes the pipe's output to it until all writers have closed it, at
    /// most `bytes_max` bytes. Further output is read and dropped, so that the process does not
    /// block.
    pub(super) fn open(path: &Path, mut from: PipeReader, bytes_max: u64) -> io::Result<Self> {
        let mut file = File::create(path)?;
        let tail = Arc::new(Mutex::new(Vec::new()));
        let kept = tail.clone();
        let writer = std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            let mut left = Some(bytes_max);
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let count = match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                keep(&kept, &buffer[..count]);
                left = left.and_then(|left| store(&mut file, &buffer[..count], left, bytes_max));
            }
        })?;
        Ok(Self { tail, writer: Some(writer) })
    }

    /// Waits, for at most `wait`, until all output has arrived; a living descendant may still
    /// write.
    pub(super) fn settle(&mut self, wait: Duration) {
        let until = Instant::now() + wait;
        while self.writer.as_ref().is_some_and(|writer| !writer.is_finished())
            && Instant::now() < until
        {
            std::thread::sleep(POLL_INTERVAL);
        }
        if let Some(writer) = self.writer.take_if(|writer| writer.is_finished()) {
            // Only its end matters.
            let _ = writer.join();
        }
    }

    /// Returns the last lines; empty without output.
    pub(super) fn last_lines(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

fn keep(tail: &Mutex<Vec<u8>>, bytes: &[u8]) {
    let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    tail.extend_from_slice(bytes);
    let surplus = tail.len().saturating_sub(TAIL_BYTES);
    tail.drain(..surplus);
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
        assert!(last.starts_with("line 991\n") && last.ends_with("line 999\nthe end"), "{last}");
        assert_eq!(logged(10, &[]), (String::new(), String::new()));
    }

    #[test]
    fn a_full_log_has_a_note_and_does_not_block_the_writer() {
        let flood = vec![b'x'; 300_000];
        let (file, last) = logged(1000, &[&flood, &flood, b"\nwhy it failed"]);
        let note = "\n(hotrow: this log is limited to 1000 bytes; further output is dropped)\n";
        assert_eq!(file, format!("{}{note}", "x".repeat(1000)));
        assert!(last.ends_with("\nwhy it failed"), "{last}");
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
