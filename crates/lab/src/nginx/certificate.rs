//! A certificate for measurements of TLS.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{NginxError, Tls};

/// Makes a self-signed certificate for `localhost` and 127.0.0.1 with an ECDSA key on P-256, and writes both into `folder`, which
/// must exist; a pair that is there is replaced. The key is readable by its owner only.
///
/// # Errors
/// When it cannot be made or written.
pub fn self_signed(folder: &Path) -> Result<Tls, NginxError> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let pair = rcgen::generate_simple_self_signed(names).map_err(|e| NginxError::Certificate(e.to_string()))?;
    let tls = Tls::within(folder);
    put(&tls.certificate, &pair.cert.pem(), 0o644)?;
    put(&tls.key, &pair.signing_key.serialize_pem(), 0o600)?;
    Ok(tls)
}

/// Writes a new file: one that is there might be readable by others.
fn put(path: &Path, text: &str, mode: u32) -> Result<(), NginxError> {
    let unwritable = |why| NginxError::Unwritable { path: path.to_owned(), why };
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(unwritable(e)),
        _ => {}
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(unwritable)?;
    file.write_all(text.as_bytes()).map_err(unwritable)
}
