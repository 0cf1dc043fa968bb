//! The nginx binary: discovery and configuration check.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{NginxError, NginxProxy};

/// Oldest supported version (option `-e`).
pub const VERSION_MIN: &str = "1.19.5";
/// Folders searched after PATH, which seldom contains `sbin` for unprivileged users.
const FOLDERS: [&str; 4] =
    ["/usr/sbin", "/usr/local/sbin", "/usr/local/nginx/sbin", "/opt/homebrew/bin"];
/// Time limit for a configuration check and for the version.
const CHECK_TIME_MAX: Duration = Duration::from_secs(20);
/// Polling interval for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes of its messages that are kept.
const OUTPUT_BYTES_MAX: u64 = 16 * 1024;

/// Finds nginx on this machine, with its version.
///
/// # Errors
/// It is missing (with the package to install), cannot be started, or is older than
/// [`VERSION_MIN`].
pub fn find() -> Result<(PathBuf, String), NginxError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from)))
}

fn find_in(folders: impl Iterator<Item = PathBuf>) -> Result<(PathBuf, String), NginxError> {
    let mut files = folders.map(|folder| folder.join("nginx")).filter(|file| file.is_file());
    let binary = files.next().ok_or_else(|| NginxError::Missing(FOLDERS.join(", ")))?;
    let (_, output) = output(&binary, &["-v"], Path::new("-v"))?;
    let version = output.trim().rsplit_once("nginx/").map(|(_, rest)| rest);
    let version = version.and_then(|rest| rest.split_whitespace().next()).map(str::to_owned);
    let Some((version, number)) = version.and_then(|v| Some((v.clone(), number(&v)?))) else {
        return Err(NginxError::Version { binary, output });
    };
    if Some(number) < self::number(VERSION_MIN) {
        return Err(NginxError::Old { binary, version });
    }
    Ok((binary, version))
}

/// Writes a configuration to the path that [`super::argv`] uses, creating the folder.
///
/// # Errors
/// Either cannot be written.
pub fn write(proxy: &NginxProxy, text: &str) -> Result<PathBuf, NginxError> {
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        move |why| NginxError::Unwritable { path, why }
    };
    std::fs::create_dir_all(&proxy.folder).map_err(unwritable(&proxy.folder))?;
    let file = proxy.file();
    std::fs::write(&file, text).map_err(unwritable(&file))?;
    Ok(file)
}

/// Checks a configuration with nginx.
///
/// # Errors
/// The messages of nginx.
pub fn check(binary: &Path, file: &Path) -> Result<(), NginxError> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let (folder, name) = (folder.to_string_lossy(), file.to_string_lossy());
    let (good, output) =
        output(binary, &["-t", "-q", "-e", "stderr", "-p", &folder, "-c", &name], file)?;
    if good {
        Ok(())
    } else {
        Err(NginxError::Refused { file: file.to_owned(), output: output.trim_end().to_owned() })
    }
}

/// Runs nginx; returns whether it succeeded, and its standard error.
fn output(binary: &Path, arguments: &[&str], file: &Path) -> Result<(bool, String), NginxError> {
    let cannot = |why| NginxError::Start { binary: binary.to_owned(), why };
    let mut command = Command::new(binary);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    let stderr = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            // Messages beyond the limit are discarded, so that nginx does not block.
            let _ = stderr.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut text);
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let deadline = Instant::now() + CHECK_TIME_MAX;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            break status;
        }
        if Instant::now() > deadline {
            // It may have ended in between.
            let _ = child.kill();
            let _ = child.wait();
            let (binary, file) = (binary.to_owned(), file.to_owned());
            return Err(NginxError::Slow { binary, file, limit_s: CHECK_TIME_MAX.as_secs() });
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    Ok((status.success(), reader.join().unwrap_or_default()))
}

/// Parses a version such as `1.22.1` for comparison.
fn number(version: &str) -> Option<[u32; 3]> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    let number = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(number)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use hotrow_testkit::process::write_script;

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
    fn unusable_binaries_are_refused() {
        let found = |script: Option<&str>, mode: u32| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("nginx");
            if let Some(script) = script {
                write_script(&file, &format!("#!/bin/sh\n{script}\n"));
                std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            }
            find_in([PathBuf::from("/nonexistent"), folder.path().to_owned()].into_iter())
                .map(|(binary, version)| (binary == file, version))
                .map_err(|e| e.to_string())
        };
        let says = |version: &str| format!("echo 'nginx version: nginx/{version}' >&2");
        assert_eq!(found(Some(&says("1.22.1")), 0o755), Ok((true, "1.22.1".to_owned())));
        assert_eq!(found(Some(&says("1.27.3 (Ubuntu)")), 0o755), Ok((true, "1.27.3".to_owned())));
        for (script, mode, why) in [
            (
                Some(says("1.14.2")),
                0o755,
                "is nginx 1.14.2; 1.19.5 is the oldest supported version",
            ),
            (
                Some("echo apache >&2".to_owned()),
                0o755,
                "says \"apache\\n\", which is not a version of nginx",
            ),
            (Some(says("1.22.1")), 0o644, "cannot be started: Permission denied"),
            (None, 0, "nginx is missing: it is neither in PATH nor in /usr/sbin,"),
        ] {
            let error = found(script.as_deref(), mode).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
