//! Programs of others that the lab asks for their version or to check a file: found on this
//! machine, run for a bounded time.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Folders searched after PATH, which seldom contains `sbin` for unprivileged users.
pub(crate) const FOLDERS: [&str; 4] =
    ["/usr/sbin", "/usr/local/sbin", "/usr/local/nginx/sbin", "/opt/homebrew/bin"];
/// Time limit of one run.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(20);
/// Polling interval for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes of its messages that are kept.
const OUTPUT_BYTES_MAX: u64 = 16 * 1024;

/// Why a program has no output.
pub(crate) enum ToolError {
    /// It cannot be started.
    Start(std::io::Error),
    /// It did not end within [`TIME_MAX`].
    Slow,
}

/// Returns the folders of PATH, then [`FOLDERS`].
pub(crate) fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from)).collect()
}

/// Returns the first file of this name.
pub(crate) fn find(name: &str, folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Runs a program; returns whether it succeeded, and what it printed on both of its outputs.
///
/// # Errors
/// It cannot be started, or does not end.
pub(crate) fn output(binary: &Path, arguments: &[&str]) -> Result<(bool, String), ToolError> {
    let (mut printed, pipe) = std::io::pipe().map_err(ToolError::Start)?;
    let mut command = Command::new(binary);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(pipe.try_clone().map_err(ToolError::Start)?).stderr(pipe);
    let mut child = command.spawn().map_err(ToolError::Start)?;
    // The command has the writing end; the reader waits until all copies are closed.
    drop(command);
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // Messages beyond the limit are discarded, so that the program does not block.
        let _ = printed.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut text);
        let _ = std::io::copy(&mut printed, &mut std::io::sink());
        String::from_utf8_lossy(&text).into_owned()
    });
    let deadline = Instant::now() + TIME_MAX;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(ToolError::Start)? {
            break status;
        }
        if Instant::now() > deadline {
            // It may have ended in between.
            let _ = child.kill();
            let _ = child.wait();
            return Err(ToolError::Slow);
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    Ok((status.success(), reader.join().unwrap_or_default()))
}

/// Parses a version such as `1.22.1` for comparison.
pub(crate) fn version(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    let number = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("1.22.1"), Some([1, 22, 1]));
        assert!(version("1.9.15") < version("1.19.5"));
        for wrong in ["", "1.22", "1.22.1.1", "1.22.x"] {
            assert_eq!(version(wrong), None, "{wrong}");
        }
    }
}
