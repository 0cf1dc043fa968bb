//! `[limits.rate]`: identification of clients, and a table per rule.
//!
//! Reference `configuration`: `[limits.rate]`
//!
//! Common to all [rate limits](rate-limits.md).
//!
//! - `keys_max`: Clients or header values per rule; 16 bytes each.
//! - `trusted_proxies`: Proxies whose `client_header` is believed: `["10.0.0.0/8", "::1"]`.
//!   `"unix"`: every peer on the Unix socket.
//! - `client_header`: Field with the client's address.
//! - `ipv6_prefix`: Leading bits of an IPv6 address that are one client.
//! - `headers`: `RateLimit` fields on admitted answers, not only on 429.
//!
//! Reference `configuration`: `[limits.rate.NAME]`
//!
//! At most 16 rules. A `NAME` has 1 to 64 of a to z, 0 to 9, `_` and `-`, a letter first.
//!
//! - `rate`: At most 10,000,000 per second.
//! - `per`: Key of the budgets.
//! - `kind`: [What becomes of the excess](rate-limits.md#kinds).
//! - `burst`: Units admitted at once after a pause. Not for `fixed_window`.
//! - `max_wait`: `leaky_bucket`: a longer delay gets 429.
//! - `warmup`: Rate and burst grow from a third after the start. Not for `fixed_window`.
//! - `batch_cost`: A batch costs its distinct ids, or 1.
//! - `collections`: Collections that share the budgets.
//! - `classes`: [Rate classes](access.md#rate-classes) to which it applies.

use std::time::Duration;

use hotrow_access::grant::{RATE_CLASSES_MAX, RateClasses};
use hotrow_admission::rate::limit::{Kind, Setting};
use hotrow_admission::rate::value::Rate;
use hotrow_config::rate::{BURST_MAX, BatchCost, ClientHeader, Network, Per, RateLimits, RateRule};

use super::names::{NAME_BYTES_MAX, check_name, name_is_valid};
use super::problem::shown;
use super::reader::Section;
use super::units::{ms, s};

/// Most rules: each request is checked against every rule that applies to it.
const RULES_MAX: usize = 16;
const PROXIES_MAX: usize = 64;
/// Most keys of a rule, 16 bytes each: 1.6 GB.
const KEYS_MAX: usize = 100_000_000;
/// Most classes of a rule.
const CLASSES_MAX: usize = 16;
const PER_RULE: &str =
    "\"client\" or \"identity\" or \"header:NAME\" or \"collection\" or \"global\"";
const RATE_RANGE: &str = "a number per second, minute or hour, such as \"100/s\"";

/// Kind of a limiter before its `max_wait` is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KindName {
    TokenBucket,
    LeakyBucket,
    FixedWindow,
}

pub(super) fn rate(mut section: Section<'_>, collections: &[&str]) -> RateLimits {
    let keys_max = section.count("keys_max", 65_536, 8..=KEYS_MAX);
    let trusted = trusted_proxies(&mut section);
    let mut limits = RateLimits {
        classes: Vec::new(),
        rules: Vec::new(),
        keys_max,
        trusted_proxies: trusted.networks,
        trusts_unix: trusted.unix,
        client_header: section.choice(
            "client_header",
            [
                ("none", None),
                ("forwarded", Some(ClientHeader::Forwarded)),
                ("x-forwarded-for", Some(ClientHeader::XForwardedFor)),
            ],
        ),
        // The range fits.
        ipv6_prefix: section.count("ipv6_prefix", 64, 1..=128) as u8,
        headers: section.flag("headers", false),
    };
    let trusts_none = limits.trusted_proxies.is_empty() && !limits.trusts_unix;
    if limits.client_header.is_some() && trusts_none {
        let what = "has no meaning without trusted_proxies, because only trusted proxies may name \
            the client; name their networks";
        section.refuse("client_header", what);
    }
    if limits.client_header.is_none() && !trusts_none {
        let what = "has no meaning without client_header; set the field in which the proxies name \
            the client";
        section.refuse("trusted_proxies", what);
    }
    for (i, (name, table)) in section.finish_with_sections().into_iter().enumerate() {
        if i >= RULES_MAX {
            table
                .refuse_whole(&format!("there may be at most {RULES_MAX} rules; this is one more"));
            break;
        }
        limits.rules.extend(rule(name, table, collections, &mut limits.classes));
    }
    limits
}

/// Peers that a list names.
pub(super) struct Peers {
    pub(super) networks: Vec<Network>,
    /// `true`: the list contains `unix`.
    pub(super) unix: bool,
}

/// Reads a list of addresses and networks; `unix` is every peer on the Unix socket.
fn trusted_proxies(section: &mut Section<'_>) -> Peers {
    const RANGE: &str = "a list of up to 64 addresses, networks and \"unix\"";
    let words = section.texts("trusted_proxies", "none", RANGE).unwrap_or_default();
    let (unix, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word == "unix");
    Peers { networks: networks(section, "trusted_proxies", &words), unix: !unix.is_empty() }
}

/// Parses addresses and networks, the value of the key `name`.
pub(super) fn networks(section: &Section<'_>, name: &str, words: &[String]) -> Vec<Network> {
    if words.len() > PROXIES_MAX {
        section
            .refuse(name, format!("must name at most {PROXIES_MAX} networks, not {}", words.len()));
    }
    let mut networks = Vec::with_capacity(words.len());
    for word in words {
        match word.parse() {
            Ok(network) => networks.push(network),
            Err(()) => section.refuse(
                name,
                format!(
                    "must be addresses and networks such as \"10.0.0.0/8\" or \"::1\", with no \
                     bits beyond the prefix, not {}",
                    shown(word)
                ),
            ),
        }
    }
    networks
}

/// Reads a rule; `None` only if a problem was recorded.
fn rule(
    name: String,
    mut section: Section<'_>,
    collections: &[&str],
    all_classes: &mut Vec<String>,
) -> Option<RateRule> {
    check_name(&section, "a rule", &name);
    let rate = rate_of(&mut section);
    let per = section.parsed::<Per>("per", "client", PER_RULE);
    let kind = section.choice(
        "kind",
        [
            ("token_bucket", KindName::TokenBucket),
            ("leaky_bucket", KindName::LeakyBucket),
            ("fixed_window", KindName::FixedWindow),
        ],
    );
    let default_burst = match (kind, rate) {
        (KindName::LeakyBucket, _) | (_, None) => 1,
        (_, Some(rate)) => rate.units(),
    };
    let words = "the number in rate; 1 for a leaky bucket";
    let burst =
        section.count_or("burst", default_burst as usize, words, 1..=BURST_MAX as usize) as u32;
    let max_wait = section.duration("max_wait", s(1), ms(1)..=Duration::from_mins(1));
    let warm_up = section.duration("warmup", ms(0), ms(0)..=Duration::from_hours(1));
    let batch_cost =
        section.choice("batch_cost", [("ids", BatchCost::Ids), ("request", BatchCost::Request)]);
    let collections = names(&mut section, collections);
    let classes = classes(&mut section, all_classes);
    check_kind(&section, kind);
    section.finish();
    let kind = match kind {
        KindName::TokenBucket => Kind::TokenBucket,
        KindName::LeakyBucket => Kind::LeakyBucket { max_wait },
        KindName::FixedWindow => Kind::FixedWindow,
    };
    Some(RateRule {
        name,
        per: per?,
        setting: Setting { kind, rate: rate?, burst, warm_up },
        batch_cost,
        collections,
        classes,
    })
}

fn rate_of(section: &mut Section<'_>) -> Option<Rate> {
    let Some(text) = section.text("rate", "required", RATE_RANGE) else {
        if !section.has("rate") {
            section.refuse("rate", format!("is required: {RATE_RANGE}"));
        }
        return None;
    };
    text.value
        .parse()
        .map_err(|why| section.refuse("rate", format!("{why}, not {}", text.shown)))
        .ok()
}

fn check_kind(section: &Section<'_>, kind: KindName) {
    if section.has("max_wait") && kind != KindName::LeakyBucket {
        section
            .refuse("max_wait", "is for kind = \"leaky_bucket\": the other kinds refuse at once");
    }
    for name in ["burst", "warmup"]
        .into_iter()
        .filter(|name| section.has(name) && kind == KindName::FixedWindow)
    {
        section.refuse(name, "has no meaning with kind = \"fixed_window\", which has a rate alone");
    }
}

/// Reads the collections that the rule applies to; `None` for all.
fn names(section: &mut Section<'_>, collections: &[&str]) -> Option<Vec<String>> {
    let names = section.texts("collections", "all", "a list of collections")?;
    if names.is_empty() {
        section
            .refuse("collections", "must name at least one collection; leave the key out for all");
    }
    for name in names.iter().filter(|name| !collections.contains(&name.as_str())) {
        section.refuse(
            "collections",
            format!("must name collections of this file, not {}", shown(name)),
        );
    }
    Some(names)
}

/// Reads the rate classes that the rule applies to; `None` for all. `all`: the names so far, whose
/// places are their numbers.
fn classes(section: &mut Section<'_>, all: &mut Vec<String>) -> Option<RateClasses> {
    const RANGE: &str = "a list of names, for roles with such a rate_class";
    let names = section.texts("classes", "all", RANGE)?;
    if !(1..=CLASSES_MAX).contains(&names.len()) || !names.iter().all(|name| name_is_valid(name)) {
        section.refuse(
            "classes",
            format!(
                "must be 1 to {CLASSES_MAX} names of a letter a to z and at most \
                 {NAME_BYTES_MAX} of a to z, 0 to 9, _ and -"
            ),
        );
        return None;
    }
    let mut classes = RateClasses::default();
    for name in names {
        let number = all.iter().position(|known| *known == name).unwrap_or_else(|| {
            all.push(name);
            all.len() - 1
        });
        if number >= RATE_CLASSES_MAX {
            section.refuse(
                "classes",
                format!("all rules together may name at most {RATE_CLASSES_MAX} classes"),
            );
            return None;
        }
        classes = classes.union(RateClasses::single(number));
    }
    Some(classes)
}

#[cfg(test)]
mod tests;
