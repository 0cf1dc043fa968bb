//! Form of the requests to a target.

use std::path::PathBuf;

use bytes::Bytes;
use hotrow_answer::collections::Collections;
use hotrow_gate::access::wall_clock;
use hotrow_net::file_watch;
use hotrow_net::http_client::{PROGRAM, Whole};
use hotrow_push::{Batch, BatchLimits, Purge};
use hotrow_representation::surrogate_key::SurrogateKeys;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request};
use ring::hmac;
use serde_json::{Value, json};

use hotrow_config::purge::{SECRET_BYTES_MIN, Secret, Target, TargetKind};

/// Field of the keys that Varnish purges.
const XKEY_PURGE: &str = "xkey-purge";
/// Field of the signature of a webhook.
const SIGNATURE: &str = "hotrow-signature";
/// Bounds of one request to Varnish, whose fields have at most 8 KiB by default.
/// Encoded keys are at most three times as long in a field, and begin with the collection's name.
const XKEY_LIMITS: BatchLimits = BatchLimits { entries: 50, key_bytes: 1_000 };
/// A URL is purged by a request of its own.
const URL_LIMITS: BatchLimits = BatchLimits { entries: 1, key_bytes: usize::MAX };
/// Bounds of one webhook.
const WEBHOOK_LIMITS: BatchLimits = BatchLimits { entries: 1_000, key_bytes: 64 << 10 };
/// Most bytes of the file of a secret.
const SECRET_BYTES_MAX: usize = 4 << 10;

/// Reason for which there is no request.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// The values do not fit into a request.
    #[error("the purge cannot be requested: {0}")]
    Http(#[from] http::Error),
    /// The file of the secret cannot be used.
    #[error("{0}")]
    Secret(#[from] SecretError),
}

/// Reason for which the file of a secret cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the file of the secret, {}, {rule}", .path.display())]
pub struct SecretError {
    path: PathBuf,
    rule: String,
}

/// Returns the bounds of one request.
pub(super) fn batch_limits(kind: &TargetKind) -> BatchLimits {
    match kind {
        TargetKind::VarnishXkey => XKEY_LIMITS,
        TargetKind::Urls { .. } => URL_LIMITS,
        TargetKind::Webhook(_) => WEBHOOK_LIMITS,
    }
}

/// Returns the request for a batch; `None`: nothing of it has a key.
pub(crate) fn of(
    target: &Target,
    collections: &Collections,
    batch: &Batch,
) -> Result<Option<Request<Whole>>, RequestError> {
    match &target.kind {
        TargetKind::VarnishXkey => {
            let purges = batch.purges.iter().map(|(purge, _)| purge);
            let keys: Vec<String> = purges.filter_map(|purge| key_of(collections, purge)).collect();
            if keys.is_empty() {
                return Ok(None);
            }
            let request = begun(target, &target.url.target).header(XKEY_PURGE, keys.join(" "));
            Ok(Some(request.body(Whole::default())?))
        }
        TargetKind::Urls { purge_all } => {
            // One entry: see `URL_LIMITS`.
            let purge = batch.purges.first().map(|(purge, _)| purge);
            let Some(path) = purge.and_then(|purge| path_of(collections, purge, purge_all)) else {
                return Ok(None);
            };
            let path = format!("{}{path}", target.url.target.trim_end_matches('/'));
            Ok(Some(begun(target, &path).body(Whole::default())?))
        }
        TargetKind::Webhook(secret) => {
            let sent_at = wall_clock().0;
            let body = webhook(collections, batch, sent_at);
            let mut request = begun(target, &target.url.target)
                .method(Method::POST)
                .header(CONTENT_TYPE, "application/json");
            if let Some(secret) = secret {
                request = request.header(SIGNATURE, signature(&read(secret)?, sent_at, &body));
            }
            Ok(Some(request.body(Whole(Bytes::from(body)))?))
        }
    }
}

/// Begins a request.
fn begun(target: &Target, path: &str) -> http::request::Builder {
    let host = target.host.as_deref().unwrap_or(&target.url.authority);
    Request::builder().method("PURGE").uri(path).header(HOST, host).header(USER_AGENT, PROGRAM)
}

fn keys_of<'a>(collections: &'a Collections, purge: &Purge) -> Option<&'a SurrogateKeys> {
    collections.get(purge.collection()).surrogate_keys.as_ref()
}

/// Returns the surrogate key of what is purged.
fn key_of(collections: &Collections, purge: &Purge) -> Option<String> {
    let keys = keys_of(collections, purge)?;
    match purge {
        Purge::Collection(_) => Some(keys.of_collection().to_owned()),
        Purge::Record(key) => {
            let mut text = Vec::new();
            keys.write_record(key.as_bytes(), &mut text)?;
            String::from_utf8(text).ok()
        }
    }
}

fn path_of(collections: &Collections, purge: &Purge, purge_all: &str) -> Option<String> {
    let keys = keys_of(collections, purge)?;
    match purge {
        Purge::Collection(_) => Some(purge_all.replace("{collection}", keys.of_collection())),
        Purge::Record(key) => keys.path_of(key.as_bytes()),
    }
}

/// Returns the body of a webhook.
fn webhook(collections: &Collections, batch: &Batch, sent_at: u64) -> Vec<u8> {
    let of = |(purge, position): &(Purge, Option<hotrow_types::version::Position>)| {
        let collection = collections.get(purge.collection());
        let id = match purge {
            Purge::Collection(_) => None,
            Purge::Record(key) => collection.schema.id_of(key.as_bytes()),
        };
        json!({
            "collection": collection.name,
            "key": id,
            "surrogate_key": key_of(collections, purge),
            "position": position.map(|position| position.to_string()),
        })
    };
    let purges: Vec<Value> = batch.purges.iter().map(of).collect();
    json!({ "sent_at": sent_at, "purges": purges }).to_string().into_bytes()
}

/// Returns the signature of a body that is sent at this time (Unix seconds).
fn signature(secret: &[u8], sent_at: u64, body: &[u8]) -> String {
    use std::fmt::Write;

    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{sent_at}.").as_bytes());
    context.update(body);
    let mut text = format!("t={sent_at},v1=");
    // Writing to a `String` cannot fail.
    context.sign().as_ref().iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
    text
}

/// Returns a secret; from its file if it has one, because secrets are renewed.
fn read(secret: &Secret) -> Result<Vec<u8>, SecretError> {
    let path = match secret {
        Secret::Text(text) => return Ok(text.clone().into_bytes()),
        Secret::File(path) => path,
    };
    let refuse = |rule: String| SecretError { path: path.clone(), rule };
    let mut bytes = file_watch::read(path, SECRET_BYTES_MAX)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?
        .ok_or_else(|| refuse(format!("is larger than {SECRET_BYTES_MAX} bytes")))?;
    bytes.truncate(bytes.trim_ascii_end().len());
    if bytes.len() < SECRET_BYTES_MIN {
        return Err(refuse(format!("must have at least {SECRET_BYTES_MIN} bytes")));
    }
    Ok(bytes)
}

/// Checks the files of secrets.
///
/// # Errors
/// One that cannot be used.
pub fn check_secrets(targets: &[Target]) -> Result<(), SecretError> {
    for target in targets {
        if let TargetKind::Webhook(Some(secret)) = &target.kind {
            read(secret)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_covers_time_and_body() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac 'a secret of some length'
        assert_eq!(
            signature(b"a secret of some length", 1_700_000_000, b"{}"),
            "t=1700000000,v1=9008b8e96ac884fb56cbbbb39d8c4b578c2c6de7951cbcce7f1f18311f3cd9f2"
        );
    }

    #[test]
    fn a_secret_is_read_without_the_end_of_its_line() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("secret");
        let secret = Secret::File(path.clone());
        assert!(read(&secret).unwrap_err().to_string().contains("cannot be read"));
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        assert_eq!(read(&secret).unwrap(), b"0123456789abcdef");
        std::fs::write(&path, "short\n").unwrap();
        assert!(read(&secret).unwrap_err().to_string().contains("at least 16 bytes"));
        std::fs::write(&path, vec![b'x'; SECRET_BYTES_MAX + 1]).unwrap();
        assert!(read(&secret).unwrap_err().to_string().contains("larger than"));
    }
}
