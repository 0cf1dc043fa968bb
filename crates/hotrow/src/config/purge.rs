//! `[purge]`: surrogate keys, and the caches in front that are asked to purge answers.
//!
//! Reference `configuration`: `[purge]`
//!
//! [Purges of caches in front](purging.md), for collections with `surrogate_keys`.
//!
//! - `header`: Header field of the keys.
//! - `repeat_after`: From a change to its second purge. Longer than a fetch of the cache and
//!   `cache.max_staleness`.
//! - `queue_records`: Records that wait for a target. Of more, a whole collection is purged.
//! - `queue_bytes`: Their memory.
//!
//! Reference `configuration`: `[purge.targets.NAME]`
//!
//! Up to 16 targets; `NAME` is formed as that of a collection.
//!
//! - `kind`: Form of its requests: several keys in one, one URL each, or JSON.
//! - `url`: Where they go. For `"purge"` the paths of records are appended.
//! - `host`: `Host` of the requests.
//! - `purge_all`: Path that purges a collection. Required for `"purge"`, and only there.
//! - `secret`: [Signs](purging.md#cdns-by-webhook) webhooks.
//! - `secret_file`: File of the secret, instead.
//! - `ca_file`: For `https://`; without it those of the system.
//! - `timeout`: Longest time of a request.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use hotrow_config::Collection;
use hotrow_config::http_url::HttpUrl;
use hotrow_config::purge::{
    KeyField, Purge, SECRET_BYTES_MIN, Secret, Surrogates, Target, TargetKind,
};
use hotrow_types::key::CollectionId;

use super::names::check_name;
use super::problem::shown;
use super::reader::Section;
use super::units::{KIB, MIB, ms, s};

/// Most targets; each has a task and a queue.
const TARGETS_MAX: usize = 16;
const REPEAT_AFTER: RangeInclusive<Duration> = ms(100)..=Duration::from_hours(1);
const TIMEOUT: RangeInclusive<Duration> = ms(10)..=Duration::from_mins(1);

/// Reads the section. `purged`: collections whose answers have surrogate keys; their settings are
/// completed in `collections`, with those of their aliases.
pub(super) fn purge(
    mut section: Section<'_>,
    purged: Vec<CollectionId>,
    collections: &mut [Collection],
    max_staleness: Duration,
) -> Purge {
    let field = section.choice(
        "header",
        [("surrogate-key", KeyField::SurrogateKey), ("cache-tag", KeyField::CacheTag)],
    );
    let repeat_after = section.duration("repeat_after", s(10), REPEAT_AFTER);
    let queue_records = section.count("queue_records", 10_000, 1..=1_000_000);
    let queue_bytes = section.size_in_memory("queue_bytes", 8 * MIB, 64 * KIB..=1 << 30);
    let mut table = section.section("targets");
    let named = table.sections();
    if named.len() > TARGETS_MAX {
        let rule = format!("there may be at most {TARGETS_MAX}, not {}", named.len());
        table.refuse_whole(&rule);
    }
    let read = |(name, section)| target(name, section);
    let targets: Vec<Target> = named.into_iter().take(TARGETS_MAX).filter_map(read).collect();
    if !targets.is_empty() && purged.is_empty() {
        table.refuse_whole("has no meaning without a collection with surrogate_keys = true");
    }
    if !targets.is_empty() && repeat_after <= max_staleness {
        section.refuse(
            "repeat_after",
            "must be longer than cache.max_staleness: until then another instance may answer with \
             what was before the change",
        );
    }
    section.finish();
    let purge =
        Purge { collections: purged, field, repeat_after, queue_records, queue_bytes, targets };
    let surrogates = Surrogates { field, needs_canonical_url: purge.purges_urls() };
    for (number, collection) in (0..).zip(collections) {
        let of = collection.alias.as_ref().map_or(CollectionId(number), |alias| alias.of);
        collection.surrogates = purge.collections.contains(&of).then_some(surrogates);
    }
    purge
}

/// Reads one target.
fn target(name: String, mut section: Section<'_>) -> Option<Target> {
    check_name(&section, "a target", &name);
    const KINDS: &str = "\"varnish_xkey\", \"purge\" or \"webhook\"";
    let kind = section.text("kind", "required", KINDS);
    let url = section.text("url", "required", "a URL");
    let host = section.text("host", "that of the URL", "a host, with its port if it has one");
    let purge_all = section.text("purge_all", "none", "a path with {collection}");
    let secret = section.text("secret", "none", "at least 16 bytes");
    let secret_file = section.text("secret_file", "none", "a path");
    let ca_file = section.text("ca_file", "none", "path of root certificates in PEM form");
    let timeout = section.duration("timeout", s(5), TIMEOUT);
    let missing = |name: &str, what: &str| {
        if !section.has(name) {
            section.refuse(name, format!("is required; {what}"));
        }
    };
    let kind = match kind.as_ref().map(|kind| &*kind.value) {
        Some("varnish_xkey") => Some(TargetKind::VarnishXkey),
        Some("purge") => {
            let what = "for instance \"/purge-all/{collection}\": after a loss of the feed a whole \
                        collection is purged";
            missing("purge_all", what);
            let purge_all = purge_all.as_ref().map(|path| path.value.clone()).unwrap_or_default();
            Some(TargetKind::Urls { purge_all })
        }
        Some("webhook") => Some(TargetKind::Webhook(match (&secret, &secret_file) {
            (Some(secret), _) => Some(Secret::Text(secret.value.clone())),
            (None, Some(path)) => Some(Secret::File(PathBuf::from(&path.value))),
            (None, None) => None,
        })),
        Some(other) => {
            section.refuse("kind", format!("must be {KINDS}, not {}", shown(other)));
            None
        }
        None => {
            missing("kind", &format!("write {KINDS}"));
            None
        }
    };
    let is_webhook = matches!(kind, Some(TargetKind::Webhook(_)));
    let is_url = matches!(kind, Some(TargetKind::Urls { .. }));
    if let Some(path) = purge_all {
        check_purge_all(&section, &path.value, is_url);
    }
    for name in ["secret", "secret_file"].into_iter().filter(|name| section.has(name)) {
        if kind.is_some() && !is_webhook {
            section.refuse(name, "has no meaning unless kind is \"webhook\"");
        }
    }
    if secret.as_ref().is_some_and(|secret| secret.value.len() < SECRET_BYTES_MIN) {
        section.refuse("secret", format!("must have at least {SECRET_BYTES_MIN} bytes"));
    }
    if secret.is_some() && secret_file.is_some() {
        section.refuse("secret_file", "cannot be combined with secret; keep one of the two");
    }
    let host = host.map(|host| host.value);
    if host.as_ref().is_some_and(|host| !is_host(host)) {
        section.refuse("host", "must be a host such as \"shop.example\" or \"shop.example:8080\"");
    }
    let url = address(&section, url.map(|url| url.value), ca_file.is_some());
    missing("url", "for instance \"http://10.0.0.5:6081/\"");
    section.finish();
    let ca_file = ca_file.map(|path| PathBuf::from(path.value));
    Some(Target { name, kind: kind?, url: url?, host, ca_file, timeout })
}

/// Checks the path that purges a collection.
fn check_purge_all(section: &Section<'_>, path: &str, has_meaning: bool) {
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
    if !has_meaning {
        section.refuse("purge_all", "has no meaning unless kind is \"purge\"");
    } else if !path.starts_with('/') || !is_plain || !path.contains("{collection}") {
        section.refuse(
            "purge_all",
            format!("must be a path with {{collection}}, not {}", shown(path)),
        );
    }
}

/// Checks the URL, which may have a credential, so that no message repeats it.
fn address(section: &Section<'_>, text: Option<String>, has_ca: bool) -> Option<HttpUrl> {
    let url: HttpUrl = match text?.parse() {
        Ok(url) => url,
        Err(why) => {
            section.refuse("url", why);
            return None;
        }
    };
    if has_ca && !url.is_tls {
        section.refuse("ca_file", "has no meaning unless url begins with https://");
    }
    Some(url)
}

/// Returns whether the field `Host` may have this value.
fn is_host(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use crate::config::{Overrides, parse};

    use super::*;

    const COLLECTION: &str = "[collections.products]\nsurrogate_keys = true\n\
        cache_control = \"max-age=0, s-maxage=3600\"\n";
    const VARNISH: &str = "[purge.targets.edge]\nkind = \"varnish_xkey\"\n\
        url = \"http://10.0.0.5:6081/\"\n";
    const URLS: &str = "[purge.targets.proxy]\nkind = \"purge\"\n\
        url = \"http://10.0.0.6\"\n";
    const HOOK: &str = "[purge.targets.hook]\nkind = \"webhook\"\n\
        url = \"https://hooks.example/purge\"\n";

    fn resolved(rest: &str) -> Result<hotrow_config::Config, String> {
        let text = format!("[source]\nurl = \"sqlite:/tmp/shop.db\"\nwatch = \"triggers\"\n{rest}");
        parse(&text, "hotrow.toml", &|_| Err(std::env::VarError::NotPresent), &Overrides::default())
            .map(|resolved| resolved.server)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn targets_have_their_kinds() {
        let plain = resolved("[collections.products]").unwrap();
        assert!(plain.purge.purged().is_empty() && plain.collections[0].surrogates.is_none());
        let keys_only = resolved(COLLECTION).unwrap();
        assert!(keys_only.purge.purged().is_empty());
        assert!(keys_only.collections[0].surrogates.is_some());
        let all = resolved(&format!(
            "[collections.orders]\n{COLLECTION}[purge]\nheader = \"cache-tag\"\n{VARNISH}\
             host = \"shop.example\"\n{URLS}purge_all = \"/all/{{collection}}\"\n{HOOK}\
             secret = \"0123456789abcdef\"\ntimeout = \"1s\""
        ))
        .unwrap();
        assert_eq!(all.purge.purged(), [CollectionId(1)]);
        assert_eq!(all.collections[0].surrogates, None);
        let expected = Surrogates { field: KeyField::CacheTag, needs_canonical_url: true };
        assert_eq!(all.collections[1].surrogates, Some(expected));
        let [edge, hook, proxy] = &all.purge.targets[..] else { panic!("{:?}", all.purge) };
        assert!(matches!(edge.kind, TargetKind::VarnishXkey));
        assert_eq!(edge.host.as_deref(), Some("shop.example"));
        assert!(matches!(&hook.kind, TargetKind::Webhook(Some(Secret::Text(_)))));
        assert_eq!(hook.timeout, s(1));
        assert!(matches!(&proxy.kind, TargetKind::Urls { purge_all } if purge_all.len() > 5));
        assert!(!format!("{hook:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn what_could_not_be_kept_fresh_is_refused() {
        let column = "[collections.products]\nsurrogate_keys = true\n";
        for (bad, rule) in [
            (column.to_owned(), "unless cache_control lets caches"),
            (format!("{column}cache_control = \"private, max-age=5\""), "unless cache_control"),
            (format!("{COLLECTION}[access]\nanonymous_role = \"r\"\n[access.roles.r]"), "[access]"),
            (format!("{COLLECTION}[cache]\nenabled = false"), "cache.enabled = false"),
            (format!("[collections.a]\n{VARNISH}"), "purge.targets: has no meaning without"),
            (format!("{COLLECTION}{URLS}"), "purge.targets.proxy.purge_all: is required"),
            (format!("{COLLECTION}{URLS}purge_all = \"/all\""), "must be a path with {collection}"),
            (format!("{COLLECTION}{VARNISH}purge_all = \"/{{collection}}\""), "kind is \"purge\""),
            (format!("{COLLECTION}{VARNISH}secret = \"s3cret\""), "kind is \"webhook\""),
            (format!("{COLLECTION}{HOOK}secret = \"s3cret\""), "at least 16 bytes"),
            (format!("{COLLECTION}{VARNISH}ca_file = \"ca.pem\""), "url begins with https://"),
            (format!("{COLLECTION}{VARNISH}host = \"a b\""), "edge.host: must be a host"),
            (format!("{COLLECTION}[purge.targets.a]\nkind = \"ftp\""), "a.kind: must be"),
            (format!("{COLLECTION}[purge.targets.a]"), "a.kind: is required"),
            (format!("{COLLECTION}[purge.targets.A]"), "the name of a target"),
            (format!("{COLLECTION}[purge]\nrepeat_after = \"500ms\"\n{VARNISH}"), "repeat_after"),
        ] {
            let error = resolved(&bad).unwrap_err();
            assert!(error.contains(rule) && !error.contains("s3cret"), "{bad}: {error}");
        }
    }
}
