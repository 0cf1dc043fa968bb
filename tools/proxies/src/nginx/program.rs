//! The nginx binary: discovery and configuration check.

use std::path::{Path, PathBuf};

use super::{NginxError, NginxProxy};
use crate::tool::{self, ToolError};

/// Oldest supported version (option `-e`).
pub const VERSION_MIN: &str = "1.19.5";

/// Finds nginx on this machine, with its version.
///
/// # Errors
/// It is missing (with the package to install), cannot be started, or is older than
/// [`VERSION_MIN`].
pub fn find() -> Result<(PathBuf, String), NginxError> {
    find_in(tool::folders().into_iter())
}

fn find_in(folders: impl Iterator<Item = PathBuf>) -> Result<(PathBuf, String), NginxError> {
    let binary = tool::find("nginx", folders);
    let binary = binary.ok_or_else(|| NginxError::Missing(tool::FOLDERS.join(", ")))?;
    let (_, output) = output(&binary, &["-v"], Path::new("-v"))?;
    let version = output.trim().rsplit_once("nginx/").map(|(_, rest)| rest);
    let version = version.and_then(|rest| rest.split_whitespace().next()).map(str::to_owned);
    let Some((version, number)) = version.and_then(|v| Some((v.clone(), tool::version(&v)?)))
    else {
        return Err(NginxError::Version { binary, output });
    };
    if Some(number) < tool::version(VERSION_MIN) {
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

/// Runs nginx; returns whether it succeeded, and its messages.
fn output(binary: &Path, arguments: &[&str], file: &Path) -> Result<(bool, String), NginxError> {
    tool::output(binary, arguments).map_err(|error| match error {
        ToolError::Start(why) => NginxError::Start { binary: binary.to_owned(), why },
        ToolError::Slow => {
            let (binary, file) = (binary.to_owned(), file.to_owned());
            NginxError::Slow { binary, file, limit_s: tool::TIME_MAX.as_secs() }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use hotrow_testkit::process::write_script;

    use super::*;

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
