//! The real nginx: where it is, what it says of a configuration.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Front, NginxError};

/// The oldest that knows all that is used here (`-e`).
pub const VERSION_MIN: &str = "1.19.5";
/// Where it may be besides PATH, which seldom has `sbin` for users who are not root.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/local/sbin", "/usr/local/nginx/sbin", "/opt/homebrew/bin"];
/// How long it may take to check a configuration or to tell its version.
const LIMIT: Duration = Duration::from_secs(20);
/// How often is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes of its messages that are kept.
const SAID_MAX: u64 = 16 * 1024;

/// The nginx of this machine, and its version.
///
/// # Errors
/// When there is none (what to install), it cannot be started, or is older than [`VERSION_MIN`].
pub fn find() -> Result<(PathBuf, String), NginxError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from)))
}

fn find_in(folders: impl Iterator<Item = PathBuf>) -> Result<(PathBuf, String), NginxError> {
    let mut files = folders.map(|folder| folder.join("nginx")).filter(|file| file.is_file());
    let binary = files.next().ok_or_else(|| NginxError::Missing(FOLDERS.join(", ")))?;
    let (_, said) = said(&binary, &["-v"], Path::new("-v"))?;
    let version = said.trim().rsplit_once("nginx/").map(|(_, rest)| rest);
    let version = version.and_then(|rest| rest.split_whitespace().next()).map(str::to_owned);
    let Some((version, number)) = version.and_then(|v| Some((v.clone(), number(&v)?))) else {
        return Err(NginxError::Version { binary, said });
    };
    if Some(number) < self::number(VERSION_MIN) {
        return Err(NginxError::Old { binary, version });
    }
    Ok((binary, version))
}

/// Writes a configuration to where [`super::argv`] expects it, and makes the folder.
///
/// # Errors
/// When either cannot be written.
pub fn write(front: &Front, text: &str) -> Result<PathBuf, NginxError> {
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        move |why| NginxError::Unwritable { path, why }
    };
    std::fs::create_dir_all(&front.folder).map_err(unwritable(&front.folder))?;
    let file = front.file();
    std::fs::write(&file, text).map_err(unwritable(&file))?;
    Ok(file)
}

/// Has nginx check a configuration.
///
/// # Errors
/// What it says against it.
pub fn check(binary: &Path, file: &Path) -> Result<(), NginxError> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let (folder, name) = (folder.to_string_lossy(), file.to_string_lossy());
    let (good, said) = said(binary, &["-t", "-q", "-e", "stderr", "-p", &folder, "-c", &name], file)?;
    if good { Ok(()) } else { Err(NginxError::Refused { file: file.to_owned(), said: said.trim_end().to_owned() }) }
}

/// Whether it ended well, and what it wrote to standard error.
fn said(binary: &Path, arguments: &[&str], file: &Path) -> Result<(bool, String), NginxError> {
    let cannot = |why| NginxError::Start { binary: binary.to_owned(), why };
    let mut command = Command::new(binary);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    let stderr = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            // What could be read is told; the rest is read too, or nginx would wait for room.
            let _ = stderr.by_ref().take(SAID_MAX).read_to_end(&mut text);
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            break status;
        }
        if Instant::now() > deadline {
            // It may have ended meanwhile, which is as good.
            let _ = child.kill();
            let _ = child.wait();
            let (binary, file) = (binary.to_owned(), file.to_owned());
            return Err(NginxError::Slow { binary, file, limit_s: LIMIT.as_secs() });
        }
        std::thread::sleep(LOOK);
    };
    Ok((status.success(), reader.join().unwrap_or_default()))
}

/// `1.22.1` as numbers that can be compared.
fn number(version: &str) -> Option<[u32; 3]> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    let number = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(number("1.22.1"), Some([1, 22, 1]));
        assert!(number("1.9.15") < number(VERSION_MIN));
        assert!(number("1.30.0") > number(VERSION_MIN));
        for wrong in ["", "1.22", "1.22.1.1", "1.22.x"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wrong_nginx_is_told_from_a_right_one() {
        let found = |script: Option<&str>, mode: u32| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("nginx");
            if let Some(script) = script {
                // Written by another process: a child that this one forks meanwhile would hold the file open, and an open file
                // cannot be executed.
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod \"$3\" \"$2\"", "sh", script]);
                assert!(shell.arg(&file).arg(format!("{mode:o}")).status().unwrap().success());
            }
            find_in([PathBuf::from("/nonexistent"), folder.path().to_owned()].into_iter())
                .map(|(binary, version)| (binary == file, version))
                .map_err(|e| e.to_string())
        };
        let says = |version: &str| format!("echo 'nginx version: nginx/{version}' >&2");
        assert_eq!(found(Some(&says("1.22.1")), 0o755), Ok((true, "1.22.1".to_owned())));
        assert_eq!(found(Some(&says("1.27.3 (Ubuntu)")), 0o755), Ok((true, "1.27.3".to_owned())));
        for (script, mode, why) in [
            (Some(says("1.14.2")), 0o755, "is nginx 1.14.2; 1.19.5 is the oldest that will do"),
            (Some("echo apache >&2".to_owned()), 0o755, "says \"apache\\n\", which is no version of nginx"),
            (Some(says("1.22.1")), 0o644, "cannot be started: Permission denied"),
            (None, 0, "nginx is missing: it is neither in PATH nor in /usr/sbin,"),
        ] {
            let error = found(script.as_deref(), mode).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
