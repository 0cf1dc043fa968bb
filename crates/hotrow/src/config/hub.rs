//! `[hub]`: the NATS servers that carry changes from a relay to servers.
//!
//! Reference `configuration`: `[hub]`
//!
//! The NATS servers of [a change hub](hub.md); only with their addresses in the `feed` of one
//! source. Cargo feature `hub` (default).
//!
//! - `stream`: Name of the stream, and first part of the subjects. One for each database.
//! - `user`: With `hub.password`.
//! - `password`: With `hub.user`.
//! - `token`: Instead of user and password.
//! - `credentials`: Instead of both: a JWT and its key.
//! - `ca`: For TLS.
//! - `cert`: Where NATS requires certificates of clients.
//! - `key`: With `hub.cert`.
//! - `storage`: Where NATS keeps the stream that a relay creates.
//! - `replicas`: Servers of NATS that keep it.
//! - `max_age`: Age at which messages are removed.
//! - `max_bytes`: Bytes beyond which the oldest are removed.
//! - `slot`: Relays of PostgreSQL: [a slot that stays](hub.md#a-slot-that-stays), so that a
//!   take-over is no loss.
//! - `slot_failover`: Relays: the slot is created as a fail-over slot; PostgreSQL 17.
//! - `lease`: Relays: silence after which another takes over.

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "hub")]
use hotrow_hub_nats::config::{Credential, HubConfig, Rules, Slot, StreamLimits, is_address};

use super::problem::shown;
use super::reader::Section;
use super::units::{MIB, ms, s};

/// Longest name of a stream in bytes.
const STREAM_BYTES_MAX: usize = 64;
/// Longest name of a slot in bytes (PostgreSQL's NAMEDATALEN less one).
const SLOT_BYTES_MAX: usize = 63;
/// Most servers that store the stream; the bound of NATS.
const REPLICAS_MAX: usize = 5;

/// Settings of the hub as the build can use them.
#[cfg(feature = "hub")]
pub(super) type Hub = HubConfig;
/// Settings of the hub in a build without it.
#[cfg(not(feature = "hub"))]
pub(super) type Hub = ();

/// Reads the section. `feeds`: the addresses of NATS in the `feed` of the sources, and whether the
/// database has slots.
#[cfg_attr(not(feature = "hub"), allow(unused_variables, reason = "keys of the hub are known"))]
pub(super) fn hub(mut section: Section<'_>, feeds: &[(&str, bool)]) -> Option<Hub> {
    let stream = section.text("stream", "\"hotrow\"", "letters, digits, _ and -");
    let user = section.text("user", "none", "a user of NATS").map(|text| text.value);
    let password = section.text("password", "none", "its password").map(|text| text.value);
    let token = section.text("token", "none", "a token of NATS").map(|text| text.value);
    let path = |text: super::reader::Text| PathBuf::from(text.value);
    let credentials = section.text("credentials", "none", "path of a file of nsc").map(path);
    let ca = section.text("ca", "the system's", "path of root certificates in PEM form").map(path);
    let cert = section.text("cert", "none", "path of a certificate in PEM form").map(path);
    let key = section.text("key", "none", "path of its key in PEM form").map(path);
    let in_memory = section.choice("storage", [("file", false), ("memory", true)]);
    let replicas = section.count("replicas", 1, 1..=REPLICAS_MAX);
    let day = Duration::from_hours(24);
    let max_age = section.duration("max_age", s(600), s(10)..=day);
    let max_bytes = section.size("max_bytes", 256 * MIB, 8 * MIB..=1 << 40);
    let slot = section.text("slot", "none", "lower-case letters, digits and _");
    let slot_failover = section.flag("slot_failover", false);
    let lease = section.duration("lease", ms(1_500), ms(200)..=s(60));
    let [(servers, has_slots), others @ ..] = feeds else {
        if section.is_present() {
            section.refuse_whole("has no meaning unless source.feed is an address of NATS");
        }
        section.finish();
        return None;
    };
    if !others.is_empty() {
        section.refuse_whole(
            "carries the changes of one source: of several, one may name NATS in its feed",
        );
    }
    let stream = stream.map_or_else(|| "hotrow".to_owned(), |text| text.value);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if stream.is_empty() || stream.len() > STREAM_BYTES_MAX || !stream.bytes().all(is_plain) {
        let what = format!("must have 1 to {STREAM_BYTES_MAX} letters, digits, _ and -, not");
        section.refuse("stream", format!("{what} {}", shown(&stream)));
    }
    let slot = slot.map(|text| text.value);
    let is_of_slots = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if let Some(name) = slot.as_deref()
        && (name.is_empty() || name.len() > SLOT_BYTES_MAX || !name.bytes().all(is_of_slots))
    {
        let what = format!("must have 1 to {SLOT_BYTES_MAX} of a to z, digits and _, not");
        section.refuse("slot", format!("{what} {}", shown(name)));
    }
    if slot.is_some() && !has_slots {
        let what = "is for PostgreSQL: the relays of other databases find their place in the log \
                    without one";
        section.refuse("slot", what);
    }
    if slot_failover && slot.is_none() {
        section.refuse("slot_failover", "has no meaning without hub.slot");
    }
    if user.is_some() != password.is_some() {
        section.refuse("user", "must be set together with hub.password");
    }
    let ways = [user.is_some(), token.is_some(), credentials.is_some()];
    if ways.iter().filter(|is_set| **is_set).count() > 1 {
        section.refuse_whole("must have one credential: user and password, token or credentials");
    }
    if cert.is_some() != key.is_some() {
        section.refuse("cert", "must be set together with hub.key");
    }
    section.finish();
    #[cfg(feature = "hub")]
    return Some(HubConfig {
        servers: servers.split(',').map(|server| server.trim().to_owned()).collect(),
        stream,
        credential: match (user.zip(password), token, credentials) {
            (Some((user, password)), ..) => Credential::User(user, password),
            (None, Some(token), _) => Credential::Token(token),
            (None, None, Some(file)) => Credential::File(file),
            (None, None, None) => Credential::None,
        },
        ca,
        certificate: cert.zip(key),
        limits: StreamLimits { in_memory, replicas, max_age, max_bytes },
        slot: slot.map(|name| Slot { name, has_failover: slot_failover }),
        resumes_from_stream: false,
        lease,
        rules: Rules::default(),
    });
    #[cfg(not(feature = "hub"))]
    return Some(());
}

/// Checks the addresses in `source.feed`. They may have a password, so no message repeats them.
///
/// # Errors
/// The rule that they break.
pub(super) fn check_servers(servers: &str) -> Result<(), String> {
    const RULE: &str = "must be \"changes\", \"none\", or addresses of NATS servers with commas \
                        between them, such as nats://10.0.0.1:4222 or tls://nats.example";
    let is_of_nats = |server: &str| {
        ["nats://", "tls://"].iter().any(|scheme| server.starts_with(scheme)) && is_address(server)
    };
    if !servers.split(',').all(|server| is_of_nats(server.trim())) {
        return Err(RULE.to_owned());
    }
    if cfg!(feature = "hub") {
        return Ok(());
    }
    let what = "names a change hub, which this build of Hotrow cannot follow; build it with \
                --features hub";
    Err(what.to_owned())
}

#[cfg(not(feature = "hub"))]
fn is_address(_: &str) -> bool {
    true
}

#[cfg(all(test, feature = "hub", feature = "mongodb", feature = "mysql"))]
mod tests {
    use crate::config::{Overrides, parse};

    use super::*;

    fn resolved(url: &str, feed: &str, section: &str) -> Result<Option<HubConfig>, String> {
        let text = format!(
            "[source]\nurl = \"{url}\"\nfeed = \"{feed}\"\n[collections.products]\n{section}"
        );
        parse(&text, "hotrow.toml", &|_| Err(std::env::VarError::NotPresent), &Overrides::default())
            .map(|resolved| resolved.hub)
            .map_err(|error| error.to_string())
    }

    const URL: &str = "postgres://u@h/shop";

    #[test]
    fn an_address_of_nats_turns_it_on() {
        assert!(resolved(URL, "changes", "").unwrap().is_none());
        let hub = resolved(URL, "nats://a:4222, tls://b", "").unwrap().unwrap();
        assert_eq!((hub.servers.len(), &*hub.stream), (2, "hotrow"));
        assert_eq!((hub.credential, hub.limits.replicas), (Credential::None, 1));
        let section = "[hub]\ntoken = \"s3cret\"\nstream = \"shop-1\"\nstorage = \"memory\"";
        let hub = resolved(URL, "nats://a", section).unwrap().unwrap();
        assert_eq!(hub.credential, Credential::Token("s3cret".to_owned()));
        assert!(hub.limits.in_memory && hub.slot.is_none());
        assert_eq!(hub.lease, Duration::from_millis(1_500));
        let section = "[hub]\nslot = \"shop_1\"\nslot_failover = true\nlease = \"500ms\"";
        let hub = resolved(URL, "nats://a", section).unwrap().unwrap();
        assert_eq!(hub.slot, Some(Slot { name: "shop_1".to_owned(), has_failover: true }));
        assert_eq!(hub.lease, Duration::from_millis(500));
        for (feed, section, rule) in [
            ("changes", "[hub]", "hub: has no meaning unless"),
            ("nats://a", "[hub]\nstream = \"a.b\"", "hub.stream: must have 1 to 64"),
            ("nats://a", "[hub]\nuser = \"u\"", "hub.user: must be set together"),
            ("nats://a", "[hub]\ntoken = \"t\"\ncredentials = \"c\"", "one credential"),
            ("nats://a", "[hub]\ncert = \"c\"", "hub.cert: must be set together"),
            ("nats://a", "[hub]\nreplicas = 6", "hub.replicas"),
            ("nats://a", "[hub]\nslot = \"Shop-1\"", "hub.slot: must have 1 to 63"),
            ("nats://a", "[hub]\nslot_failover = true", "hub.slot_failover: has no meaning"),
            ("nats://u:s3cret@a b", "", "source.feed: "),
            ("http://a", "", "source.feed: must be"),
            (
                "nats://a\"\nread_urls = [\"postgres://u@r/shop\"] # \"",
                "",
                "source.read_urls: is not supported with a change hub",
            ),
        ] {
            let error = resolved(URL, feed, section).unwrap_err();
            assert!(error.contains(rule) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn engines_without_a_hub_are_refused_with_a_reason() {
        let error = resolved("sqlite:/tmp/shop.db", "nats://a", "").unwrap_err();
        assert!(error.contains("an SQLite file is on one machine"), "{error}");
        let error = resolved("mongodb://h/shop", "nats://a", "").unwrap_err();
        assert!(error.contains("PostgreSQL, MariaDB and MySQL only"), "{error}");
        let slot = "[hub]\nslot = \"shop\"";
        let error = resolved("mariadb://u@h/shop", "nats://a", slot).unwrap_err();
        assert!(error.contains("hub.slot: is for PostgreSQL"), "{error}");
    }
}
