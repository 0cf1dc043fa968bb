//! Access traces: the requested keys in order.
//!
//! Two formats: a file that ends in `.xz` holds one big-endian 32-bit key per request, as published
//! traces do; any other file holds one whole number per line.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// Largest content of a trace, in bytes: 268 million requests in the binary format.
pub const TRACE_BYTES_MAX: u64 = 1 << 30;

/// One access trace in memory.
#[derive(Debug)]
pub struct Trace {
    /// File name without its endings.
    pub name: String,
    /// The key of each request, in order.
    pub keys: Vec<u32>,
    /// Number of different keys.
    pub unique: usize,
}

impl Trace {
    /// Reads a trace; `.xz` with the `xz` tool.
    ///
    /// # Errors
    /// Returns a message: the file is missing, too large, empty or in another format, or `xz`
    /// failed.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: String| format!("trace {}: {why}", path.display());
        let compressed = path.extension().is_some_and(|extension| extension == "xz");
        let keys = if compressed {
            binary(&unpacked(path).map_err(wrong)?)
        } else {
            lines(&content(path).map_err(wrong)?)
        };
        let keys = keys.map_err(wrong)?;
        if keys.is_empty() {
            return Err(wrong("it has no request".to_owned()));
        }
        let unique = keys.iter().collect::<HashSet<_>>().len();
        Ok(Self { name: name(path), keys, unique })
    }

    /// Returns the entries of a cache for `percent` % of the unique keys, rounded to the nearest,
    /// at least 1.
    pub fn capacity_entries(&self, percent: f64) -> usize {
        ((self.unique as f64 * percent / 100.0).round() as usize).max(1)
    }

    /// Returns the share of `hits` in its requests, in %.
    pub fn percent(&self, hits: u64) -> f64 {
        100.0 * hits as f64 / self.keys.len() as f64
    }
}

/// Returns a file's name without its endings: `web12` for `web12.trace.xz`.
fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').find(|part| !part.is_empty()).unwrap_or_default().to_owned()
}

fn content(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|e| format!("it cannot be read: {e}"))?;
    bounded(file).map_err(|e| format!("it cannot be read: {e}"))
}

fn unpacked(path: &Path) -> Result<Vec<u8>, String> {
    if !path.is_file() {
        return Err("it is missing".to_owned());
    }
    let mut command = Command::new("xz");
    command.arg("-dc").arg("--").arg(path).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child =
        command.spawn().map_err(|e| format!("xz cannot be started: {e}; install xz-utils"))?;
    let bytes = child.stdout.take().map_or_else(|| Ok(Vec::new()), bounded);
    // With its output closed, xz ends.
    let status = child.wait().map_err(|e| format!("xz is lost: {e}"))?;
    let bytes = bytes.map_err(|e| e.to_string())?;
    if !status.success() {
        return Err(format!("xz failed ({status}); is it an xz file?"));
    }
    Ok(bytes)
}

fn bounded(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(TRACE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TRACE_BYTES_MAX {
        return Err(std::io::Error::other(format!("it has more than {TRACE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn binary(bytes: &[u8]) -> Result<Vec<u32>, String> {
    let (words, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(format!("it holds {} bytes, no multiple of 4", bytes.len()));
    }
    Ok(words.iter().map(|word| u32::from_be_bytes(*word)).collect())
}

fn lines(bytes: &[u8]) -> Result<Vec<u32>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is neither text nor .xz".to_owned())?;
    let key = |(at, line): (usize, &str)| {
        let most = u32::MAX;
        line.trim().parse().map_err(|_| {
            format!("line {}: {line:?} is not a whole number from 0 to {most}", at + 1)
        })
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        assert_eq!(binary(&[0, 0, 1, 2, 255, 255, 255, 255]), Ok(vec![258, u32::MAX]));
        assert!(binary(&[0; 7]).is_err_and(|why| why.contains("7 bytes")));
        assert_eq!(lines(b"7\n 8 \n\n7\r\n"), Ok(vec![7, 8, 7]));
        assert!(lines(b"7\nx\n").is_err_and(|why| why.contains("line 2")));
        assert!(lines(&[255]).is_err());
    }

    #[test]
    fn a_trace_knows_its_keys_and_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.trace.txt");
        std::fs::write(&path, "1\n2\n1\n3\n").unwrap();
        let trace = Trace::read(&path).unwrap();
        assert_eq!((trace.name.as_str(), trace.unique), ("shop", 3));
        assert_eq!((trace.capacity_entries(50.0), trace.capacity_entries(0.1)), (2, 1));
        assert_eq!(trace.percent(1), 25.0);
        std::fs::write(&path, "\n").unwrap();
        assert!(Trace::read(&path).is_err_and(|why| why.contains("no request")));
        assert!(Trace::read(&folder.path().join("none")).is_err());
    }
}
