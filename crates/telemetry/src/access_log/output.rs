//! Output of the access log: standard output, standard error, or a file that may be rotated.
//!
//! A file is rotated by renaming it: before each write the path is looked at, and a file of its own
//! is opened when the path has none or another one. So no signal is needed, and nothing is lost
//! between. Truncation in place works too, because the file is appended to.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hotrow_config::observability::AccessLogOutput;

use crate::throttle::ACCESS_LOG;

/// Permissions of a new file: its lines may be personal data.
const FILE_MODE: u32 = 0o640;
/// Bytes that a write to a pipe delivers in one piece, so that no other writer's fall into a line.
pub(super) const PIPE_BUF_BYTES: usize = 4096;
/// Pause between attempts if the output is non-blocking and currently full.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Failure to open the output.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be opened.
    #[error(
        "access_log.output {path}: cannot be opened: {source}; name a file in a folder that \
             this process may write to"
    )]
    Open {
        /// The path.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// It is a device, a pipe or a folder.
    #[error(
        "access_log.output {path}: must be a regular file; use \"stdout\" or \"stderr\" for \
             the process's own outputs"
    )]
    NotAFile {
        /// The path.
        path: String,
    },
    /// Standard output or standard error is closed.
    #[error("access_log.output: standard output or standard error cannot be used: {0}")]
    Standard(io::Error),
}

/// An open output.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// `None`: not a file of ours.
    path: Option<PathBuf>,
    /// Most bytes of one write.
    piece_bytes_max: usize,
    /// `true`: a write ended within a line.
    is_within_line: bool,
}

impl Output {
    pub(super) fn open(config: &AccessLogOutput) -> Result<Self, OpenError> {
        let standard = |file: io::Result<std::os::fd::OwnedFd>| {
            let file = File::from(file.map_err(OpenError::Standard)?);
            Ok(Self { file, path: None, piece_bytes_max: PIPE_BUF_BYTES, is_within_line: false })
        };
        // Not the handles of the standard library: their locks would be held while a write blocks.
        match config {
            AccessLogOutput::Stdout => standard(io::stdout().as_fd().try_clone_to_owned()),
            AccessLogOutput::Stderr => standard(io::stderr().as_fd().try_clone_to_owned()),
            AccessLogOutput::File(path) => Ok(Self {
                file: open_file(path)?,
                path: Some(path.clone()),
                piece_bytes_max: usize::MAX,
                is_within_line: false,
            }),
        }
    }

    /// Writes whole lines. Returns the number of those that could not be written.
    pub(super) fn write(&mut self, lines: &[u8]) -> u64 {
        self.follow_rotation();
        let mut rest = lines;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(piece_end(rest, self.piece_bytes_max));
            let written = match self.write_piece(piece) {
                Ok(()) => piece.len(),
                Err((written, error)) => {
                    ACCESS_LOG.warn(|suppressed| {
                        tracing::error!(%error, suppressed, "the access log cannot be written");
                    });
                    let lost = count_lines(rest) - count_lines(&piece[..written]);
                    return lost;
                }
            };
            debug_assert_eq!(written, piece.len());
            rest = after;
        }
        0
    }

    /// Writes a piece of whole lines. An error has the number of bytes that were written.
    fn write_piece(&mut self, piece: &[u8]) -> Result<(), (usize, io::Error)> {
        if self.is_within_line {
            write_all(&mut self.file, b"\n").map_err(|(_, error)| (0, error))?;
            self.is_within_line = false;
        }
        write_all(&mut self.file, piece).inspect_err(|(written, _)| {
            self.is_within_line = *written > 0 && piece[*written - 1] != b'\n';
        })
    }

    /// Opens a file of the path's own if the one in use was renamed or removed. If that fails, the
    /// old one stays in use.
    fn follow_rotation(&mut self) {
        let Some(path) = &self.path else { return };
        let Ok(used) = self.file.metadata() else { return };
        if std::fs::metadata(path).is_ok_and(|present| is_same(&present, &used)) {
            return;
        }
        match open_file(path) {
            Ok(file) => {
                self.file = file;
                self.is_within_line = false;
            }
            Err(error) => ACCESS_LOG.warn(|suppressed| {
                tracing::error!(%error, suppressed, "the access log stays in its renamed file");
            }),
        }
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn open_file(path: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Open { path: path.display().to_string(), source };
    // Without this flag, opening a pipe would wait for its reader.
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let no_file = || OpenError::NotAFile { path: path.display().to_string() };
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(FILE_MODE).custom_flags(no_wait);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(_) if std::fs::metadata(path).is_ok_and(|found| is_special(&found)) => {
            return Err(no_file());
        }
        Err(source) => return Err(failed(source)),
    };
    if file.metadata().map_err(failed)?.is_file() { Ok(file) } else { Err(no_file()) }
}

fn is_special(found: &Metadata) -> bool {
    let kind = found.file_type();
    kind.is_dir() || kind.is_fifo() || kind.is_socket()
}

/// Returns the end of the longest piece of whole lines, or of the first line if that is longer.
fn piece_end(lines: &[u8], bytes_max: usize) -> usize {
    if lines.len() <= bytes_max {
        return lines.len();
    }
    let end = |at: Option<usize>| at.map(|newline| newline + 1);
    end(memchr::memrchr(b'\n', &lines[..bytes_max]))
        .or_else(|| end(memchr::memchr(b'\n', lines)))
        .unwrap_or(lines.len())
}

fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Writes all bytes. An error has the number of those that were written.
fn write_all(output: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(RETRY_PAUSE);
            }
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn open(path: &Path) -> Result<Output, OpenError> {
        Output::open(&AccessLogOutput::File(path.to_owned()))
    }

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_renamed_file_is_followed_by_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let renamed = folder.path().join("access.log.1");
        let mut output = open(&path).unwrap();
        assert_eq!(output.write(b"one\n"), 0);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, FILE_MODE);
        std::fs::rename(&path, &renamed).unwrap();
        assert_eq!(output.write(b"two\n"), 0);
        assert_eq!((text(&renamed), text(&path)), ("one\n".to_owned(), "two\n".to_owned()));
        // As by logrotate's `create`.
        std::fs::rename(&path, &renamed).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(output.write(b"three\n"), 0);
        assert_eq!((text(&renamed), text(&path)), ("two\n".to_owned(), "three\n".to_owned()));
        // As by logrotate's `copytruncate`.
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert_eq!(output.write(b"four\n"), 0);
        assert_eq!(text(&path), "four\n");
    }

    #[test]
    fn without_a_new_file_the_old_one_stays_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs").join("access.log");
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        let mut output = open(&path).unwrap();
        std::fs::rename(folder.path().join("logs"), folder.path().join("gone")).unwrap();
        assert_eq!(output.write(b"one\n"), 0);
        assert_eq!(text(&folder.path().join("gone").join("access.log")), "one\n");
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        assert_eq!(output.write(b"two\n"), 0);
        assert_eq!(text(&path), "two\n");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        for path in [&pipe, folder.path(), Path::new("/dev/null")] {
            let error = open(path).unwrap_err();
            assert!(matches!(error, OpenError::NotAFile { .. }), "{path:?}: {error}");
        }
        let error = open(&folder.path().join("no").join("file")).unwrap_err();
        assert!(matches!(error, OpenError::Open { .. }), "{error}");
    }

    #[test]
    fn a_line_that_was_cut_off_is_ended_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut output = open(&path).unwrap();
        output.is_within_line = true;
        assert_eq!(output.write(b"one\n"), 0);
        assert_eq!(text(&path), "\none\n");
    }

    /// The device that is always full.
    #[test]
    fn lines_that_do_not_fit_on_the_disk_are_counted() {
        let file = File::options().append(true).open("/dev/full").unwrap();
        let mut output =
            Output { file, path: None, piece_bytes_max: usize::MAX, is_within_line: false };
        assert_eq!(output.write(b"one\ntwo\n"), 2);
        assert!(!output.is_within_line);
    }

    #[test]
    fn pieces_are_whole_lines() {
        assert_eq!(piece_end(b"ab\ncd\n", 6), 6);
        assert_eq!(piece_end(b"ab\ncd\n", 5), 3);
        assert_eq!(piece_end(b"abcdef\ncd\n", 3), 7);
    }
}
