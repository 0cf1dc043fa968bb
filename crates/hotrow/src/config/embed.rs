//! `[collections.NAME.embed.NAME]`: rows of other tables inside each record.

use hotrow_source::spec::{EmbedConfig, OrderBy};

use super::collections::check_identifiers;
use super::problem::shown;
use super::reader::Section;

/// Most embedded tables of one collection: each is one more subquery of every read.
const EMBEDS_MAX: usize = 8;
/// Most columns of an order.
const ORDER_COLUMNS_MAX: usize = 8;
/// Most children of one record.
const CHILDREN_MAX: usize = 1_000;
const CHILDREN_DEFAULT: usize = 100;
/// Most columns of a child: those of one row value of PostgreSQL.
const COLUMNS_MAX: usize = 1_600;

/// Settings of a collection that the rules for its children depend on.
pub(super) struct Parent<'a> {
    pub(super) key: &'a [String],
    pub(super) columns: Option<&'a [String]>,
    /// Why collections of the source can have none.
    pub(super) lacks_embedding: Option<&'static str>,
}

/// Reads the embedded tables of a collection.
pub(super) fn embeds(section: &mut Section<'_>, parent: &Parent<'_>) -> Vec<EmbedConfig> {
    let mut embed = section.section("embed");
    let tables = embed.sections();
    if tables.len() > EMBEDS_MAX {
        embed.refuse_whole(&format!("may have at most {EMBEDS_MAX} tables, not {}", tables.len()));
    }
    if let (Some(why), false) = (parent.lacks_embedding, tables.is_empty()) {
        embed.refuse_whole(why);
    }
    if parent.key.len() > 1 && !tables.is_empty() {
        embed.refuse_whole(&format!(
            "needs a key of one column, to which a column of the children refers, not of {}",
            parent.key.len()
        ));
    }
    tables.into_iter().take(EMBEDS_MAX).map(|(name, table)| one(name, table, parent)).collect()
}

fn one(name: String, mut section: Section<'_>, parent: &Parent<'_>) -> EmbedConfig {
    let is_member = |column: &String| column.eq_ignore_ascii_case(&name);
    if parent.columns.is_some_and(|columns| columns.iter().any(is_member)) {
        section.refuse_whole(&format!(
            "has the name of a column that the collection serves, {}; name it otherwise, and its \
             table in table",
            shown(&name)
        ));
    }
    let table = section
        .text("table", "NAME", "1 to 256 bytes")
        .map_or_else(|| name.clone(), |text| text.value);
    check_identifiers(&section, "table", std::slice::from_ref(&table));
    let on = section.text("on", "required", "a column").map(|text| text.value);
    if on.is_none() && !section.has("on") {
        section.refuse("on", "is required: the column of the children that has the record's key");
    }
    let on = on.unwrap_or_default();
    if section.has("on") {
        check_identifiers(&section, "on", std::slice::from_ref(&on));
    }
    let order_by = order_by(&mut section);
    let limit = section.count("limit", CHILDREN_DEFAULT, 1..=CHILDREN_MAX);
    let columns = section.texts("columns", "all", "a list of 1 to 1600 columns");
    if let Some(columns) = &columns {
        let count = columns.len();
        if !(1..=COLUMNS_MAX).contains(&count) {
            let rule = format!("must name 1 to {COLUMNS_MAX} columns, not {count}");
            section.refuse("columns", rule);
        }
        check_identifiers(&section, "columns", columns);
    }
    section.finish();
    // At most `CHILDREN_MAX`.
    EmbedConfig { name, table, on, order_by, limit: limit as u32, columns }
}

/// Reads columns, each with ` desc` behind it if greater values come first.
fn order_by(section: &mut Section<'_>) -> Vec<OrderBy> {
    let range = "a column or a list of 1 to 8, each with \" desc\" for the greatest first";
    let Some(words) = section.texts("order_by", "the child's primary key", range) else {
        return Vec::new();
    };
    if !(1..=ORDER_COLUMNS_MAX).contains(&words.len()) {
        let count = words.len();
        section.refuse("order_by", format!("must name 1 to {ORDER_COLUMNS_MAX}, not {count}"));
    }
    let by = |word: &String| match word.strip_suffix(" desc") {
        Some(column) => OrderBy { column: column.to_owned(), is_descending: true },
        None => OrderBy { column: word.clone(), is_descending: false },
    };
    let order: Vec<OrderBy> = words.iter().map(by).collect();
    let columns: Vec<String> = order.iter().map(|by| by.column.clone()).collect();
    check_identifiers(section, "order_by", &columns);
    order
}
