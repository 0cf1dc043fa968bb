//! `[collections.NAME]`: the tables to serve, each under its name.
//!
//! Reference `configuration`: `[collections.NAME]`
//!
//! 1 to 1,000 collections; `NAME`, formed as above, is the first segment of the URLs. `collections
//! = "auto"` at the beginning of the file, in place of these tables, serves [what the role may
//! read](init.md#without-writing-them-down).
//!
//! - `source`: The source that has the table, of [several](configuration.md#several-databases).
//! - `table`: Table; also a view over one table ([PostgreSQL](postgres.md#views),
//!   [MariaDB](mysql.md#views), [SQLite](sqlite.md#views)).
//! - `key`: Key columns in URL order: `/orders/7,3`. MongoDB: `"_id"`. A view: `"id"`. Required
//!   for a table with a column `id` that is not the primary key.
//! - `key_type`: Where the table declares none: [SQLite](sqlite.md#keys),
//!   [MongoDB](mongodb.md#keys).
//! - `columns`: Served columns, in this order.
//! - `exclude`: Columns not served. Not with `columns`.
//! - `tenant`: Column that names the [tenant](access.md#tenants) of a row. Needs `[access]`.
//! - `hide_existence`: [Every 404](access.md#what-a-404-shows) reads the database. Only with
//!   `tenant`.
//! - `allow_stale`: Accept `cache.when_stale = "stale"`, `cache.stale_if_error` and `source.feed =
//!   "none"` beside `tenant`.
//! - `ttl`: As in `[cache]`.
//! - `negative_ttl`: As in `[cache]`.
//! - `cache_control`: `Cache-Control` of answers.
//! - `compression`: [Compression](http.md#compression) of records. `[]`: none. Never with
//!   `cache.enabled = false`.
//! - `compression_min`: Smaller records are not compressed.
//! - `allow_no_cache`: Honour `Cache-Control: no-cache`: read the database.
//! - `allow_min_position`: Honour `Hotrow-Min-Position`. Not with `source.watch = "none"` or
//!   `source.feed = "none"`.
//! - `strict`: Honour [`Hotrow-Min-Position: now`](consistency.md).
//! - `allow_fields`: Honour [`?fields=`](http.md#fields). Otherwise it gets 400.
//! - `changes`: Its [changes may be followed](changes.md). Not with `tenant`, a change hub,
//!   `source.watch = "none"` or `source.feed = "none"`.
//! - `surrogate_keys`: Answers have [surrogate keys](purging.md#answers), or `no-store`. Needs a
//!   `cache_control` that lets caches keep answers. Not with `[access]`, `cache.enabled = false`,
//!   `source.watch = "none"` or `source.feed = "none"`.
//! - `priority`: Priority of requests that set none.
//! - `allow_high_priority`: `Hotrow-Priority` may raise it.

use hotrow_admission::shed::Priority;
use hotrow_cache::config::CollectionPolicy;
use hotrow_config::{Collection, Tenancy};
use hotrow_source::default_key;
use hotrow_source::spec::CollectionConfig;
use hotrow_types::key::{CollectionId, KEY_PARTS_MAX};
use hotrow_types::source::SourceId;

use super::aliases::{self, NamedAlias};
use super::collection_context::{AccessTraits, CollectionSettings, SourceTraits, Ttl};
use super::compression::compression;
use super::embed;
use super::key_types::key_types;
use super::names::{check_identifiers, check_name, names};
use super::problem::shown;
use super::reader::Section;
use super::source::DEFAULT_NAME;
use super::units::TTL;

/// Most collections of a configuration.
pub(crate) const COLLECTIONS_MAX: usize = 1_000;
const CACHE_CONTROL_BYTES_MAX: usize = 256;

/// Reads the collections, in the order of their numbers.
pub(super) fn collections(
    mut section: Section<'_>,
    defaults: &Ttl,
    sources: &[SourceTraits<'_>],
    access: &AccessTraits,
) -> Vec<CollectionSettings> {
    let tables = section.sections();
    let rule = match tables.len() {
        0 => Some(
            "there must be at least one: write [collections.NAME], for instance \
             [collections.products]"
                .to_owned(),
        ),
        n if n > COLLECTIONS_MAX => {
            Some(format!("there may be at most {COLLECTIONS_MAX}, not {n}"))
        }
        _ => None,
    };
    if let Some(rule) = rule {
        section.refuse_whole(&rule);
    }
    let mut all = Vec::with_capacity(tables.len());
    let mut named = Vec::new();
    for (name, table) in tables.into_iter().take(COLLECTIONS_MAX) {
        let number = CollectionId(all.len() as u16);
        let (settings, aliases) = collection(name, number, table, defaults, sources, access);
        all.push(settings);
        named.extend(aliases);
    }
    // Behind all collections, whose numbers are their places among the names of the file.
    named.into_iter().for_each(|alias| aliases::add(&mut all, alias));
    all
}

fn collection(
    name: String,
    number: CollectionId,
    mut section: Section<'_>,
    defaults: &Ttl,
    sources: &[SourceTraits<'_>],
    access: &AccessTraits,
) -> (CollectionSettings, Vec<NamedAlias>) {
    check_name(&section, "a collection", &name);
    let source = source_of(&mut section, sources);
    let source_traits = &sources[source.index()];
    let table = section
        .text("table", "NAME", "1 to 256 bytes")
        .map_or_else(|| name.clone(), |text| text.value);
    check_identifiers(&section, "table", std::slice::from_ref(&table));
    let key = key(&mut section, &name, source_traits.default_key);
    let key_types = key_types(&mut section, key.len());
    let columns = names(&mut section, "columns", "all");
    let exclude = names(&mut section, "exclude", "none");
    if columns.is_some() && exclude.is_some() {
        section.refuse(
            "exclude",
            "cannot be combined with columns, which already lists the served columns; keep one of \
             the two",
        );
    }
    let (tenant, tenancy) = tenant(&mut section, access, source_traits.stale_by).unzip();
    let has_ttl = defaults.is_set || section.has("ttl");
    let ttl = section.duration_or("ttl", defaults.ttl, "cache.ttl", TTL);
    let negative_ttl = defaults.negative_ttl.min(ttl);
    let words = "cache.negative_ttl, at most ttl";
    let cache = CollectionPolicy {
        ttl,
        negative_ttl: section.duration_or("negative_ttl", negative_ttl, words, TTL),
        has_tenants: tenant.is_some(),
        // `keep_members` sets it where roles are limited, `aliases` where there are aliases.
        has_views: false,
    };
    let cache_control = cache_control(&mut section, access.is_configured);
    let compression = compression(&mut section, access);
    let allow_no_cache = section.flag("allow_no_cache", false);
    let allow_min_position = section.flag("allow_min_position", false);
    let strict = section.flag("strict", true);
    let allow_fields = section.flag("allow_fields", false);
    let priority = section.choice(
        "priority",
        [("normal", Priority::Normal), ("low", Priority::Low), ("high", Priority::High)],
    );
    let allow_high_priority = section.flag("allow_high_priority", false);
    if allow_min_position && !source_traits.has_positions {
        section.refuse(
            "allow_min_position",
            "must not be true with source.watch or source.feed = \"none\": without a change log \
             there are no positions",
        );
    }
    let is_followed = changes(&mut section, source_traits, tenant.is_some());
    let has_surrogate_keys = surrogate_keys(&mut section, source_traits, access, &cache_control);
    let aliases = aliases::aliases(
        &mut section,
        &aliases::Aliased {
            of: number,
            key: &key,
            columns: columns.as_deref(),
            exclude: exclude.as_deref().unwrap_or_default(),
            hides_existence: tenancy.is_some_and(|tenancy| tenancy.hides_existence),
        },
    );
    let embed = embed::embeds(
        &mut section,
        &embed::Parent {
            key: &key,
            columns: columns.as_deref(),
            lacks_embedding: source_traits.lacks_embedding,
        },
    );
    section.finish();
    let server = Collection {
        name: name.clone(),
        source,
        cache_control,
        allow_no_cache,
        allow_min_position,
        strict,
        allow_fields,
        priority,
        allow_high_priority,
        tenancy,
        compression,
        // `purge` sets it.
        surrogates: None,
        is_removed: false,
        alias: None,
    };
    let source = CollectionConfig {
        name,
        table,
        key,
        key_types,
        columns,
        exclude: exclude.unwrap_or_default(),
        tenant,
        is_alias: false,
        embed,
    };
    (
        CollectionSettings { server, cache, source, is_followed, has_surrogate_keys, has_ttl },
        aliases,
    )
}

/// Reads whether changes may be followed.
fn changes(section: &mut Section<'_>, source: &SourceTraits<'_>, has_tenants: bool) -> bool {
    let changes = section.flag("changes", false);
    let why = match changes {
        true if has_tenants => {
            "with tenant: a change names a key, and whose record it was before is not known"
        }
        true if !source.has_positions => {
            "with source.watch or source.feed = \"none\": without a change log there is nothing to \
             follow"
        }
        true if source.is_behind_hub => "with [hub]: following changes is not supported there yet",
        _ => return changes,
    };
    section.refuse("changes", format!("must not be true {why}"));
    changes
}

/// Reads whether answers have surrogate keys. They need caches in front that keep answers, and a
/// feed that reports when to purge them.
fn surrogate_keys(
    section: &mut Section<'_>,
    source: &SourceTraits<'_>,
    access: &AccessTraits,
    cache_control: &str,
) -> bool {
    let surrogate_keys = section.flag("surrogate_keys", false);
    let mut directives = cache_control.split(',').map(|directive| {
        directive.split('=').next().unwrap_or_default().trim().to_ascii_lowercase()
    });
    let keeps_nothing =
        directives.any(|name| matches!(&*name, "no-store" | "no-cache" | "private"));
    let why = match surrogate_keys {
        true if access.is_configured => {
            "with [access]: a cache in front would give answers to clients without the grant"
        }
        true if !access.is_cached => {
            "with cache.enabled = false: what memory does not keep, no cache in front may keep"
        }
        true if !source.has_positions => {
            "with source.watch or source.feed = \"none\": without a change log nothing is purged"
        }
        true if keeps_nothing => {
            "unless cache_control lets caches in front keep answers; for instance \
             \"max-age=0, s-maxage=3600\""
        }
        _ => return surrogate_keys,
    };
    section.refuse("surrogate_keys", format!("must not be true {why}"));
    surrogate_keys
}

/// Reads the tenant's column, if the records belong to tenants, with its settings.
fn tenant(
    section: &mut Section<'_>,
    access: &AccessTraits,
    stale_by: Option<&'static str>,
) -> Option<(String, Tenancy)> {
    let column = section.text("tenant", "none", "a column");
    let hides_existence = section.flag("hide_existence", false);
    let allow_stale = section.flag("allow_stale", false);
    let Some(column) = column else {
        for name in ["hide_existence", "allow_stale"].into_iter().filter(|name| section.has(name)) {
            section.refuse(name, "has no meaning without tenant, the column of the tenant");
        }
        return None;
    };
    check_identifiers(section, "tenant", std::slice::from_ref(&column.value));
    if !access.is_configured {
        section.refuse("tenant", "needs [access]: only a credential names the tenant of a client");
    } else if access.lacks_tenants {
        let what = "needs access.jwt.tenant_claim, or an API key with tenant: no credential names \
                    a tenant, and no client would see a record";
        section.refuse("tenant", what);
    }
    if let Some(setting) = stale_by.filter(|_| !allow_stale) {
        section.refuse(
            "tenant",
            format!(
                "cannot be combined with {setting}: a row that moved to another tenant could still \
                 be served to its old one; set allow_stale = true here to accept that"
            ),
        );
    }
    Some((column.value, Tenancy { hides_existence }))
}

/// Reads the name of the collection's source. The only one of a file need not be named, nor
/// `[source]` beside others.
fn source_of(section: &mut Section<'_>, sources: &[SourceTraits<'_>]) -> SourceId {
    let named = section.text("source", "`[source]`, or the only one", "the name of a source");
    let names = || sources.iter().map(|own| shown(own.name)).collect::<Vec<_>>().join(", ");
    let wanted = named.as_ref().map_or(DEFAULT_NAME, |named| &named.value);
    if let Some((id, _)) = (0..).map(SourceId).zip(sources).find(|(_, own)| own.name == wanted) {
        return id;
    }
    match named {
        Some(named) => {
            let rule =
                format!("must name a source of this file ({}), not {}", names(), named.shown);
            section.refuse("source", rule);
        }
        None if sources.len() > 1 && !section.has("source") => section.refuse(
            "source",
            format!("is required where there are several sources; write one of {}", names()),
        ),
        None => {}
    }
    SourceId::FIRST
}

fn key(section: &mut Section<'_>, name: &str, default: Option<&str>) -> Vec<String> {
    let written = section.texts("key", "the primary key", "a column or a list of 1 to 4");
    let key = written.unwrap_or_else(|| match default {
        Some(default) => vec![default.to_owned()],
        None => section.default_key(name).unwrap_or_else(|| vec![default_key::ID.to_owned()]),
    });
    if !(1..=KEY_PARTS_MAX).contains(&key.len()) {
        section.refuse("key", format!("must name 1 to {KEY_PARTS_MAX} columns, not {}", key.len()));
    }
    check_identifiers(section, "key", &key);
    key
}

/// Reads a header value (RFC 9110, section 5.5): visible ASCII and inner blanks, so that nothing
/// can end the line.
///
/// With `[access]`, no shared cache may keep an answer: it would give it to clients without the
/// grant.
fn cache_control(section: &mut Section<'_>, requires_private: bool) -> String {
    const DEFAULT: &str = "no-cache";
    const PRIVATE_DEFAULT: &str = "private, no-cache";
    let Some(text) =
        section.text("cache_control", "\"no-cache\"", "a header value of 1 to 256 characters")
    else {
        return if requires_private { PRIVATE_DEFAULT } else { DEFAULT }.to_owned();
    };
    let value = text.value;
    let plain = value.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    if value.is_empty() || value.len() > CACHE_CONTROL_BYTES_MAX || !plain || value.trim() != value
    {
        section.refuse(
            "cache_control",
            format!(
                "must be a header value of 1 to {CACHE_CONTROL_BYTES_MAX} visible ASCII characters \
                 without blanks at its ends, not {}",
                text.shown
            ),
        );
    }
    let keeps_private = value.split(',').map(str::trim).any(|directive| {
        directive.eq_ignore_ascii_case("private") || directive.eq_ignore_ascii_case("no-store")
    });
    if requires_private && !keeps_private {
        section.refuse(
            "cache_control",
            format!(
                "must contain private or no-store with [access], or proxies could give answers to \
                 clients without the grant, not {}",
                text.shown
            ),
        );
    }
    value
}
