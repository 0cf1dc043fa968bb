//! `[collections.NAME.embed.NAME]`: rows of other tables inside each record.
//!
//! Reference `configuration`: `[collections.NAME.embed.NAME]`
//!
//! Up to 8 members of each record that are [rows of another table](embedding.md). Not for MongoDB.
//!
//! - `table`: Table of these rows.
//! - `on`: Its column with the key of the collection, which must be of one column.
//! - `order_by`: Order of the rows. The primary key is appended where it is missing.
//! - `limit`: Most rows of one record.
//! - `columns`: Served columns, in this order.

use hotrow_source::spec::{EmbedConfig, OrderBy};

use super::names::check_identifiers;
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

#[cfg(test)]
mod tests {
    use super::super::{Overrides, parse};
    use super::*;

    /// Returns the settings of the only collection's children, or the problems.
    fn embeds(url: &str, collection: &str) -> Result<Vec<EmbedConfig>, String> {
        let text = format!("[source]\nurl = '{url}'\n[collections.products]\n{collection}");
        let env = |name: &str| std::env::var(name);
        let resolved = parse(&text, "x.toml", &env, &Overrides::default());
        let source = resolved.map_err(|e| e.to_string())?.sources.remove(0);
        Ok(source.collections()[0].embed.clone())
    }

    fn prices(settings: &str) -> Result<Vec<EmbedConfig>, String> {
        embeds("sqlite:x.db", &format!("[collections.products.embed.prices]\n{settings}"))
    }

    #[test]
    fn children_have_defaults() {
        let by = |column: &str, is_descending| OrderBy { column: column.into(), is_descending };
        let all = EmbedConfig {
            name: "prices".into(),
            table: "prices".into(),
            on: "product".into(),
            order_by: Vec::new(),
            limit: 100,
            columns: None,
        };
        assert_eq!(prices("on = 'product'"), Ok(vec![all.clone()]));
        let settings = "on = 'product'\ntable = 'p'\norder_by = ['amount desc', 'region']\n\
                        limit = 1000\ncolumns = ['amount']";
        let set = EmbedConfig {
            table: "p".into(),
            order_by: vec![by("amount", true), by("region", false)],
            limit: 1_000,
            columns: Some(vec!["amount".into()]),
            ..all
        };
        assert_eq!(prices(settings), Ok(vec![set.clone()]));
        let order = set.total_order(["region", "id"], |one, other| one == other);
        assert_eq!(order, [("amount", true), ("region", false), ("id", false)]);
    }

    #[test]
    fn what_cannot_be_embedded_is_refused() {
        for (settings, rule) in [
            ("", "embed.prices.on: is required"),
            ("on = ''", "embed.prices.on: must have 1 to 256 bytes"),
            ("on = 'p'\nlimit = 0", "embed.prices.limit: must be a whole number between 1 and"),
            ("on = 'p'\nlimit = 1001", "between 1 and 1000, not 1001"),
            ("on = 'p'\norder_by = []", "embed.prices.order_by: must name 1 to 8, not 0"),
            ("on = 'p'\norder_by = ['a', 'a desc']", "must not name a column twice"),
            ("on = 'p'\ncolumns = []", "embed.prices.columns: must name 1 to 1600 columns, not 0"),
            ("on = 'p'\nby = 'x'", "embed.prices.by: unknown key"),
        ] {
            let problems = prices(settings).expect_err(settings);
            assert!(problems.contains(rule), "{settings}: {problems}");
        }
        let child = "[collections.products.embed.prices]\non = 'p'";
        for (own, rule) in [
            ("key = ['a', 'b']", "products.embed: needs a key of one column"),
            ("columns = ['id', 'Prices']", "has the name of a column that the collection serves"),
        ] {
            let problems = embeds("sqlite:x.db", &format!("{own}\n{child}")).expect_err(own);
            assert!(problems.contains(rule), "{own}: {problems}");
        }
        let many: String =
            (0..9).map(|n| format!("[collections.products.embed.t{n}]\non = 'p'\n")).collect();
        let problems = embeds("sqlite:x.db", &many).expect_err("nine");
        assert!(
            problems.contains("products.embed: may have at most 8 tables, not 9"),
            "{problems}"
        );
        let problems = embeds("mongodb://h/db", child).expect_err("MongoDB");
        assert!(problems.contains("is not supported for MongoDB"), "{problems}");
        for url in ["postgres://u@h/db", "mysql://u@h/db", "mariadb://u@h/db"] {
            assert_eq!(embeds(url, child).map(|all| all.len()), Ok(1), "{url}");
        }
    }
}
