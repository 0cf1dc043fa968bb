//! Keys of tokens from a file or a URL: read at the start, and again at an interval or when a token
//! names an unknown key. A set that cannot be used leaves the earlier keys in force until they are
//! too old.

pub(crate) mod fetch;

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use hotrow_access::jwks::KeySet;
use hotrow_measure::clock::Nanos;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};

use super::key_source::{KeySource, KeySourceError};
use super::keys::TokenAccess;

/// Starts the thread that reads the keys until everything must end.
pub fn start(
    tokens: Arc<TokenAccess>,
    source: KeySource,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    supervisor.spawn_until_end("jwks", shutdown, move |shutdown| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::select! {
                () = shutdown.ending() => {}
                never = keep_current(&tokens, &source) => match never {},
            }
        });
        // A resolution of a name that hangs must not delay the end.
        runtime.shutdown_background();
        Ok(())
    })
}

async fn keep_current(tokens: &TokenAccess, source: &KeySource) -> Infallible {
    let mut in_force = None;
    loop {
        tokens.due().await;
        supervisor::turn();
        let read = reread(tokens, source, &mut in_force).await;
        if let Err(error) = &read {
            tracing::warn!(
                %source,
                %error,
                "the keys of tokens were not read; earlier ones are used until access.jwt.\
                 jwks_max_age"
            );
        }
        tokens.was_read(read.is_ok(), Nanos::now(), random_share());
    }
}

/// Returns a random number from 0 to 1. The standard library seeds its hashers from the system.
fn random_share() -> f64 {
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

/// Reads the source and puts its keys in force if they are not those of `in_force`, its last text.
async fn reread(
    tokens: &TokenAccess,
    source: &KeySource,
    in_force: &mut Option<Vec<u8>>,
) -> Result<(), KeySourceError> {
    let text = source.read().await?;
    let now = Nanos::now();
    if in_force.as_ref() == Some(&text) {
        tokens.confirm(now);
        return Ok(());
    }
    let keys = parse(source, &text)?;
    let count = keys.len();
    tokens.replace(Arc::new(keys), now);
    *in_force = Some(text);
    tracing::info!(%source, keys = count, "the keys of tokens are in force");
    Ok(())
}

fn parse(source: &KeySource, text: &[u8]) -> Result<KeySet, KeySourceError> {
    let parsed = KeySet::from_jwks(text)?;
    for skipped in &parsed.skipped {
        let (index, kid) = (skipped.index, skipped.kid.as_deref().unwrap_or("none"));
        let why = skipped.why;
        tracing::warn!(%source, index, kid, why, "a key of the JWKS is not used");
    }
    if parsed.keys.is_empty() { Err(KeySourceError::NoKeys) } else { Ok(parsed.keys) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use hotrow_access::jwks::JWKS_BYTES_MAX;
    use hotrow_access::key_refresh::RefreshConfig;
    use hotrow_access::verify::TokenPolicy;
    use hotrow_testkit::tokens::{SigningKey, jwks};

    use super::super::keys::KeysInForce;
    use super::*;
    use hotrow_config::access::{TokenKeys, Tokens};

    fn tokens(path: &Path) -> TokenAccess {
        let hour = Duration::from_hours(1);
        let refresh = RefreshConfig {
            interval: hour,
            retry: hour,
            unknown_key_interval: hour,
            age_max: hour,
        };
        let policy = TokenPolicy {
            issuer: None,
            audiences: Vec::new(),
            leeway_s: 0,
            role_claim: Vec::new(),
            tenant_claim: Vec::new(),
        };
        let keys = TokenKeys::File { path: path.to_owned(), refresh };
        TokenAccess::new(&Tokens { policy, keys }, Nanos::now())
    }

    #[test]
    fn only_a_usable_file_changes_the_keys() {
        let path = std::env::temp_dir().join(format!("hotrow-{}-unit.jwks", std::process::id()));
        let tokens = tokens(&path);
        let source = KeySource::File(path.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut text, mut keys) = (None, KeysInForce::default());
        let mut read = |content: Option<&str>| {
            match content {
                Some(content) => std::fs::write(&path, content).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let is_good = runtime.block_on(reread(&tokens, &source, &mut text)).is_ok();
            tokens.update(&mut keys);
            (is_good, keys.generation, keys.set.len())
        };
        let (one, two) = (SigningKey::ed25519("a", 1), SigningKey::ed25519("b", 2));
        assert_eq!(read(Some("")), (false, 0, 0));
        assert_eq!(read(Some(&jwks(&[&one]))), (true, 1, 1));
        assert_eq!(read(Some(&jwks(&[&one]))), (true, 1, 1), "unchanged");
        let private = SigningKey::secret(&[1; 32]);
        let large = format!("{{\"keys\":[]}}{}", " ".repeat(JWKS_BYTES_MAX));
        for broken in ["", "{}", "{\"keys\":[]}", &jwks(&[&one, &private]), &large] {
            assert_eq!(read(Some(broken)), (false, 1, 1), "{:.60}", broken);
        }
        assert_eq!(read(None), (false, 1, 1));
        assert_eq!(read(Some(&jwks(&[&one, &two]))), (true, 2, 2));
        let _ = std::fs::remove_file(&path);
    }
}
