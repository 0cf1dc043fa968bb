//! Self-signed certificate for TLS measurements.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{NginxError, Tls};

/// Creates a self-signed certificate for `localhost` and 127.0.0.1 with an ECDSA P-256 key, and
/// writes both into `folder`, which must exist; existing files are replaced. Only the owner can
/// read the key.
///
/// # Errors
/// Failure to create or write them.
pub fn self_signed(folder: &Path) -> Result<Tls, NginxError> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let pair = rcgen::generate_simple_self_signed(names)
        .map_err(|e| NginxError::Certificate(e.to_string()))?;
    let tls = Tls::within(folder);
    write_new(&tls.certificate, &pair.cert.pem(), 0o644)?;
    write_new(&tls.key, &pair.signing_key.serialize_pem(), 0o600)?;
    Ok(tls)
}

/// Writes a new file; an existing one might be readable by others.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), NginxError> {
    let unwritable = |why| NginxError::Unwritable { path: path.to_owned(), why };
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(unwritable(e)),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(unwritable)?;
    file.write_all(text.as_bytes()).map_err(unwritable)
}
