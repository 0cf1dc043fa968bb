//! `[access.jwt]`: requirements on tokens, and the keys that verify them.
//!
//! Reference `configuration`: `[access.jwt]`
//!
//! [Tokens](access.md#tokens).
//!
//! - `issuer`: One text, which `iss` must equal. Required with a JWKS.
//! - `audience`: `aud` must contain one of them. Required with a JWKS. Without it a token must have
//!   no `aud`.
//! - `jwks_file`: Keys that verify tokens.
//! - `jwks_url`: The same, fetched. `http://` only from localhost, 127.0.0.1 and `[::1]`.
//! - `jwks_ca`: Roots for the server of `jwks_url`, in place of the system's.
//! - `hs256_secret`: Shared secret instead. Not with a JWKS.
//! - `role_claim`: Claim that names roles. A path: `["realm_access", "roles"]`.
//! - `tenant_claim`: Claim that names [tenants](access.md#tenants), one or a list.
//! - `leeway`: Allowed by `exp` and `nbf`, in whole seconds.
//! - `refresh`: Interval of reading the JWKS.
//! - `jwks_max_age`: Tokens get 503 when no JWKS was usable for so long.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hotrow_access::jwks::KeySet;
use hotrow_access::key_refresh::RefreshConfig;
use hotrow_access::verify::TokenPolicy;
use hotrow_config::access::{JwksUrl, TokenKeys, Tokens};

use super::list::{LIST_MAX, list};
use crate::config::reader::Section;
use crate::config::units::{ms, s};

/// First pause after a read of keys that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Default interval of reading a file.
const FILE_REFRESH: Duration = Duration::from_secs(10);
/// Default interval of fetching a URL.
const URL_REFRESH: Duration = Duration::from_mins(5);
/// Least time between two reads of a file because of unknown keys.
const FILE_UNKNOWN_KEY: Duration = Duration::from_secs(5);
/// Least time between two fetches of a URL because of unknown keys.
const URL_UNKNOWN_KEY: Duration = Duration::from_secs(30);

/// Reads the section; `None` if the file has none, or a problem was recorded.
pub(super) fn tokens(mut section: Section<'_>) -> Option<Tokens> {
    let issuer = list(&mut section, "issuer", "none");
    let audiences = list(&mut section, "audience", "none");
    let file = section.text("jwks_file", "none", "path of a JWKS (RFC 7517) with public keys");
    let url = section.text("jwks_url", "none", "https:// and the address of a JWKS");
    let ca = section.text("jwks_ca", "none", "path of root certificates in PEM form");
    let secret = section.text("hs256_secret", "none", "32 to 1024 bytes, random");
    let role_claim = section.texts("role_claim", "\"roles\"", "a claim, or a path of claims");
    let tenant_claim = section.texts("tenant_claim", "none", "a claim, or a path of claims");
    let leeway = section.duration("leeway", s(30), ms(0)..=Duration::from_mins(5));
    let from_url = url.is_some();
    let interval = section.duration_or(
        "refresh",
        if from_url { URL_REFRESH } else { FILE_REFRESH },
        "of a file 10s, of a URL 5m",
        s(1)..=Duration::from_hours(24),
    );
    let day = Duration::from_hours(24);
    let age_max = section.duration("jwks_max_age", day, s(10)..=Duration::from_hours(24 * 365));
    if !section.is_present() {
        return None;
    }
    let role_claim = role_claim.unwrap_or_else(|| vec!["roles".to_owned()]);
    for (name, path) in [("role_claim", Some(&role_claim)), ("tenant_claim", tenant_claim.as_ref())]
    {
        let is_path = |path: &Vec<String>| {
            (1..=LIST_MAX).contains(&path.len()) && !path.iter().any(String::is_empty)
        };
        if !path.is_none_or(is_path) {
            section.refuse(name, format!("must name 1 to {LIST_MAX} claims, none empty"));
        }
    }
    let issuers = issuer.unwrap_or_default();
    if issuers.len() > 1 {
        section.refuse("issuer", format!("must be one text, not {}", issuers.len()));
    }
    let audiences = audiences.unwrap_or_default();
    if ca.is_some() && !from_url {
        section.refuse("jwks_ca", "has no meaning without jwks_url; name the URL");
    }
    let fetched = file.is_some() || from_url;
    if fetched {
        for (name, missing) in [("issuer", issuers.is_empty()), ("audience", audiences.is_empty())]
        {
            if missing {
                let what = "is required with a JWKS: the same keys sign tokens for others";
                section.refuse(name, what);
            }
        }
        if age_max < interval {
            section.refuse("jwks_max_age", "must not be less than access.jwt.refresh");
        }
    }
    let refresh = RefreshConfig {
        interval,
        retry: RETRY,
        unknown_key_interval: if from_url { URL_UNKNOWN_KEY } else { FILE_UNKNOWN_KEY },
        age_max,
    };
    let keys = match (file, url, secret) {
        (Some(file), None, None) => {
            Some(TokenKeys::File { path: PathBuf::from(file.value), refresh })
        }
        (None, Some(url), None) => {
            let parsed = url.value.parse::<JwksUrl>();
            let parsed = parsed.map_err(|why| section.refuse("jwks_url", why)).ok();
            let ca = ca.map(|ca| PathBuf::from(ca.value));
            parsed.map(|url| TokenKeys::Url { url, ca, refresh })
        }
        (None, None, Some(secret)) => {
            for name in ["refresh", "jwks_max_age"].into_iter().filter(|name| section.has(name)) {
                section.refuse(name, "has no meaning with hs256_secret, which is fixed");
            }
            let set = KeySet::from_secret(secret.value.as_bytes());
            let set = set.map_err(|why| section.refuse("hs256_secret", why)).ok();
            set.map(|set| TokenKeys::Secret(Arc::new(set)))
        }
        (None, None, None) => {
            section.refuse_whole(
                "must have jwks_url, jwks_file or hs256_secret: the keys of its tokens",
            );
            None
        }
        (file, _, secret) => {
            let name = if secret.is_some() { "hs256_secret" } else { "jwks_url" };
            let other = if file.is_some() { "jwks_file" } else { "jwks_url" };
            section.refuse(name, format!("cannot be combined with {other}; keep one of the two"));
            None
        }
    };
    let policy = TokenPolicy {
        issuer: issuers.into_iter().next(),
        audiences,
        leeway_s: leeway.as_secs(),
        role_claim,
        tenant_claim: tenant_claim.unwrap_or_default(),
    };
    section.finish();
    keys.map(|keys| Tokens { policy, keys })
}
