//! Carriers of requests beside plain TCP, which the data and the admin address configure alike: a
//! Unix socket, and TLS.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hotrow_config::transport::{ClientCertificates, Tls, UnixSocket};
use hotrow_net::listen::unix::PATH_BYTES_MAX;

use super::problem::shown;
use super::reader::Section;

/// Reads the Unix socket of an address.
pub(super) fn unix(section: &mut Section<'_>) -> Option<UnixSocket> {
    let path = section.text("unix", "none", "an absolute path").map(|text| text.value);
    let mode = mode(section);
    let has_mode = section.has("unix_mode");
    let Some(path) = path.map(PathBuf::from) else {
        if has_mode {
            section.refuse("unix_mode", "has no meaning without unix; name the socket's path");
        }
        return None;
    };
    check_socket_path(section, "unix", &path);
    Some(UnixSocket { path, mode })
}

/// Checks the path of a socket that is listened on.
pub(super) fn check_socket_path(section: &Section<'_>, name: &str, path: &Path) {
    let bytes = path.as_os_str().as_bytes().len();
    if !path.is_absolute() || path.file_name().is_none() {
        let what = "must be an absolute path such as \"/run/hotrow/data.sock\", not";
        section.refuse(name, format!("{what} {}", shown(&path.to_string_lossy())));
    } else if bytes > PATH_BYTES_MAX {
        section.refuse(name, format!("must have at most {PATH_BYTES_MAX} bytes, not {bytes}"));
    }
}

/// Reads permissions in octal digits, as `chmod` takes them.
fn mode(section: &mut Section<'_>) -> u32 {
    const DEFAULT: u32 = 0o660;
    let Some(text) = section.text("unix_mode", "none", "octal permissions") else {
        return DEFAULT;
    };
    let mode = u32::from_str_radix(&text.value, 8).ok().filter(|mode| *mode <= 0o777);
    if mode.is_none() {
        let what = "must be permissions in octal digits such as \"0660\", not";
        section.refuse("unix_mode", format!("{what} {}", text.shown));
    }
    mode.unwrap_or(DEFAULT)
}

/// Reads the names of the files of TLS, which are read at the start.
pub(super) fn tls(mut section: Section<'_>) -> Option<Tls> {
    const PATH: &str = "a path";
    let mut path = |name, default| section.text(name, default, PATH).map(|text| text.value.into());
    let certificate: Option<PathBuf> = path("cert", "required");
    let key: Option<PathBuf> = path("key", "required");
    let client_ca: Option<PathBuf> = path("client_ca", "none");
    let clients = client_certificates(&mut section, client_ca);
    let tls = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Tls { certificate, key, clients }),
        (certificate, _) if section.is_present() => {
            let missing = if certificate.is_none() { "cert" } else { "key" };
            if !section.has(missing) {
                let what = "is required for TLS; name a file in PEM form";
                section.refuse(missing, what);
            }
            None
        }
        _ => None,
    };
    section.finish();
    tls
}

fn client_certificates(section: &mut Section<'_>, roots: Option<PathBuf>) -> ClientCertificates {
    const RANGE: &str = "\"required\" or \"optional\"";
    let auth = section.text("client_auth", "none", RANGE);
    match (roots, auth.as_ref().map(|auth| &*auth.value)) {
        (None, None) => ClientCertificates::Ignored,
        (None, Some(_)) => {
            let what = "has no meaning without client_ca; name the file of the roots";
            section.refuse("client_auth", what);
            ClientCertificates::Ignored
        }
        (Some(roots), None | Some("required")) => ClientCertificates::Required(roots),
        (Some(roots), Some("optional")) => ClientCertificates::Optional(roots),
        (Some(roots), Some(other)) => {
            section.refuse("client_auth", format!("must be {RANGE}, not {}", shown(other)));
            ClientCertificates::Required(roots)
        }
    }
}
