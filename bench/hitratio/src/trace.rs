//! Traces: xz files with one big-endian signed 32-bit key per request.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

/// One access trace in memory.
#[derive(Debug)]
pub struct Trace {
    /// File name without its endings.
    pub name: &'static str,
    /// The key of each request, in order.
    pub keys: Vec<u32>,
    /// Number of different keys.
    pub unique: usize,
}

impl Trace {
    /// Reads `DIR/NAME.trace.xz` with the `xz` tool.
    ///
    /// # Errors
    /// Returns a message: the file is missing, `xz` failed, or the length is no multiple of four.
    pub fn read(dir: &Path, name: &'static str) -> Result<Self, String> {
        let path = dir.join(format!("{name}.trace.xz"));
        if !path.is_file() {
            return Err(format!(
                "trace {} is missing: give the folder that holds it with --traces DIR or \
                 HOTROW_TRACES",
                path.display()
            ));
        }
        let out = Command::new("xz").arg("-dc").arg(&path).output().map_err(|e| {
            format!("cannot run `xz -dc {}`: {e}; install xz-utils", path.display())
        })?;
        if !out.status.success() {
            return Err(format!(
                "`xz -dc {}` failed: {}",
                path.display(),
                String::from_utf8_lossy(&out.stderr).trim()
            ));
        }
        let (words, rest) = out.stdout.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(format!(
                "{} holds {} bytes, no multiple of 4",
                path.display(),
                out.stdout.len()
            ));
        }
        let keys: Vec<u32> = words.iter().map(|word| u32::from_be_bytes(*word)).collect();
        let unique = keys.iter().collect::<HashSet<_>>().len();
        Ok(Self { name, keys, unique })
    }

    /// Returns the entries of a cache for `percent` % of the unique keys, rounded to the nearest,
    /// at least 1.
    pub fn capacity_entries(&self, percent: f64) -> usize {
        ((self.unique as f64 * percent / 100.0).round() as usize).max(1)
    }
}
