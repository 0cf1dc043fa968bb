//! `[collections.NAME.by.NAME]`: other unique columns by which records are looked up.
//!
//! Each becomes a collection of its own behind those of the file (`hotrow_cache::alias`).
//!
//! Reference `configuration`: `[collections.NAME.by.NAME]`
//!
//! Up to 8 [aliases](aliases.md), by other unique columns than the key. Their names are formed as
//! above.
//!
//! - `columns`: Unique columns, in URL order, that the collection serves.
//! - `key_type`: MongoDB: type of the values, where a sample of the documents has several.

use hotrow_cache::config::CollectionPolicy;
use hotrow_config::{Alias, Collection};
use hotrow_source::spec::{CollectionConfig, KeyTypeName};
use hotrow_types::key::{CollectionId, KEY_PARTS_MAX};

use super::collection_context::CollectionSettings;
use super::key_types::key_types;
use super::names::{check_identifiers, check_name};
use super::problem::shown;
use super::reader::Section;

/// Most aliases of one collection.
const ALIASES_MAX: usize = 8;

/// An alias with its name, such as `email`.
pub(super) struct NamedAlias {
    name: String,
    of: CollectionId,
    columns: Vec<String>,
    key_types: Vec<KeyTypeName>,
}

/// Settings of a collection that the rules for its aliases depend on.
pub(super) struct Aliased<'a> {
    pub(super) of: CollectionId,
    pub(super) key: &'a [String],
    pub(super) columns: Option<&'a [String]>,
    pub(super) exclude: &'a [String],
    pub(super) hides_existence: bool,
}

/// Reads the aliases of a collection.
pub(super) fn aliases(section: &mut Section<'_>, of: &Aliased<'_>) -> Vec<NamedAlias> {
    let mut by = section.section("by");
    let tables = by.sections();
    if tables.len() > ALIASES_MAX {
        by.refuse_whole(&format!("may have at most {ALIASES_MAX} tables, not {}", tables.len()));
    }
    if of.hides_existence && !tables.is_empty() {
        by.refuse_whole(
            "cannot be combined with hide_existence: a record that is found by another value than \
             its key takes two reads, and one that does not exist one",
        );
    }
    tables.into_iter().take(ALIASES_MAX).map(|(name, table)| alias(name, table, of)).collect()
}

fn alias(name: String, mut section: Section<'_>, of: &Aliased<'_>) -> NamedAlias {
    check_name(&section, "an alias", &name);
    let columns = section.texts("columns", "required", "a column or a list of 1 to 4");
    if columns.is_none() && !section.has("columns") {
        section.refuse("columns", "is required: the unique columns by which records are looked up");
    }
    let columns = columns.unwrap_or_default();
    if section.has("columns") && !(1..=KEY_PARTS_MAX).contains(&columns.len()) {
        let count = columns.len();
        section.refuse("columns", format!("must name 1 to {KEY_PARTS_MAX} columns, not {count}"));
    }
    check_identifiers(&section, "columns", &columns);
    let is_same = |one: &String, other: &String| one.eq_ignore_ascii_case(other);
    for column in &columns {
        let is_in = |list: &[String]| list.iter().any(|other| is_same(column, other));
        let is_served = of.columns.is_none_or(is_in) && !is_in(of.exclude);
        if !is_served && !is_in(of.key) {
            section.refuse(
                "columns",
                format!(
                    "must name columns that the collection serves, by which a record confirms that \
                     it has the value: columns or exclude leaves {} out",
                    shown(column)
                ),
            );
        }
    }
    let is_key = columns.len() == of.key.len()
        && columns.iter().all(|column| of.key.iter().any(|key| is_same(column, key)));
    if is_key && !columns.is_empty() {
        section.refuse("columns", "must not be those of the key: records are looked up by it");
    }
    let key_types = key_types(&mut section, columns.len());
    section.finish();
    NamedAlias { name, of: of.of, columns, key_types }
}

/// Adds an alias as a collection behind the others.
pub(super) fn add(all: &mut Vec<CollectionSettings>, alias: NamedAlias) {
    let NamedAlias { name, of, columns, key_types } = alias;
    let own = &mut all[usize::from(of.0)];
    let name = format!("{}/by/{name}", own.server.name);
    let server = Collection {
        name: name.clone(),
        alias: Some(Alias {
            of,
            of_name: own.server.name.clone(),
            columns: columns.clone(),
            key_columns: own.source.key.len(),
        }),
        ..own.server.clone()
    };
    let cache = CollectionPolicy { has_tenants: false, has_views: false, ..own.cache.clone() };
    // A record confirms an alias by its members.
    own.cache.has_views = true;
    let has_ttl = own.has_ttl;
    let key = &own.source.key;
    let others =
        columns.iter().filter(|column| !key.iter().any(|key| key.eq_ignore_ascii_case(column)));
    let source = CollectionConfig {
        name,
        table: own.source.table.clone(),
        columns: Some(key.iter().chain(others).cloned().collect()),
        key: columns,
        key_types,
        exclude: Vec::new(),
        tenant: None,
        is_alias: true,
        embed: Vec::new(),
    };
    all.push(CollectionSettings {
        server,
        cache,
        source,
        is_followed: false,
        has_surrogate_keys: false,
        has_ttl,
    });
}
