//! Discovery of the tables of a database, for a first configuration: what the catalogue reports of
//! each table, and what keeps it from being served.
//!
//! An engine lists the tables, the caller chooses the settings of each ([`Configure`]), and the
//! engine runs the checks of a start on these settings. Nothing is written to the database.

use std::time::Duration;

use crate::preflight::Finding;
use crate::spec::CollectionConfig;

/// Most columns of all listed tables together.
pub const COLUMNS_MAX: usize = 100_000;

/// Selection of the tables, and the bounds of a discovery.
#[derive(Clone, Debug)]
pub struct Request {
    /// Schemas to list; empty: those that the engine lists by default.
    pub schemas: Vec<String>,
    /// Tables to list, each by its name or by `schema.name`; empty: all of these schemas.
    pub tables: Vec<String>,
    /// Most tables to list.
    pub tables_max: usize,
    /// Time limit of the listing, and again of the checks, once a server is reached.
    pub timeout: Duration,
    /// What an administrator can set up is a finding about the whole database, for one block of
    /// SQL. Otherwise each table is judged as the account sees it now.
    pub is_for_setup: bool,
    /// Account that will serve, if it is another one than that of the connection string.
    pub role: Option<String>,
}

/// A table, view or other relation as the catalogue lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedTable {
    /// Its schema, or its database on a server that has no schemas. Empty without either.
    pub schema: String,
    /// Its own name.
    pub name: String,
    /// Value of the setting `table` that names it.
    pub table: String,
    /// `table`, `view` and the like.
    pub kind: String,
    /// Number of rows, as the server estimates it.
    pub rows: Option<u64>,
    /// Bytes in the database, without indexes.
    pub bytes: Option<u64>,
    /// Columns in the table's order.
    pub columns: Vec<ListedColumn>,
    /// Unique keys without optional columns, the one that suits the feed best first.
    pub keys: Vec<Vec<String>>,
    /// Foreign keys of one column that refer to it.
    pub children: Vec<ListedChild>,
    /// Number of documents from which the columns are known, where no catalogue has them.
    pub sampled: Option<usize>,
}

/// A foreign key of one column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedChild {
    /// Name of the table that has it.
    pub name: String,
    /// Value of the setting `table` that names it.
    pub table: String,
    /// Its column there.
    pub on: String,
    /// Column that it refers to.
    pub to: String,
}

/// A column as the catalogue lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedColumn {
    /// Its name.
    pub name: String,
    /// Its declared type.
    pub sql_type: String,
    /// The account may read it, as far as the catalogue shows for single columns.
    pub is_readable: bool,
}

/// Chooses the settings of each listed table, in the same order.
pub type Configure<'a> = dyn Fn(&[ListedTable]) -> Vec<CollectionConfig> + 'a;

/// Kind of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// SQLite.
    #[default]
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    Mysql,
    /// MongoDB.
    Mongodb,
}

/// Result of a discovery.
#[derive(Clone, Debug, Default)]
pub struct Discovered {
    /// Kind of the database.
    pub engine: Engine,
    /// Product and database, for people.
    pub database: String,
    /// Tables, ordered by schema and name, byte by byte.
    pub tables: Vec<DiscoveredTable>,
    /// Whether there are more tables than [`Request::tables_max`].
    pub is_cut: bool,
    /// What keeps every table from being served.
    pub findings: Vec<Finding>,
    /// Names of [`Request::tables`] that no table has.
    pub unknown: Vec<String>,
    /// Why changes cannot be followed one by one, so that answers have no positions.
    pub lacks_positions: Option<&'static str>,
}

/// A listed table with the settings chosen for it.
#[derive(Clone, Debug)]
pub struct DiscoveredTable {
    /// The table.
    pub listed: ListedTable,
    /// Settings that were chosen.
    pub config: CollectionConfig,
    /// What keeps it from being served with these settings.
    pub findings: Vec<Finding>,
}

impl Request {
    /// Returns whether a table was asked for by its name.
    pub fn selects(&self, schema: &str, name: &str) -> bool {
        self.tables.is_empty() || self.tables.iter().any(|wanted| names(wanted, schema, name))
    }

    /// Returns the names of tables that none of these has.
    pub fn unknown(&self, tables: &[ListedTable]) -> Vec<String> {
        let is_known =
            |wanted: &&String| tables.iter().any(|table| names(wanted, &table.schema, &table.name));
        self.tables.iter().filter(|wanted| !is_known(wanted)).cloned().collect()
    }
}

/// Returns whether `wanted` is the table's name, or `schema.name`.
fn names(wanted: &str, schema: &str, name: &str) -> bool {
    wanted == name
        || wanted.strip_prefix(schema).and_then(|rest| rest.strip_prefix('.')) == Some(name)
}

/// Notes for each table the foreign keys that refer to it: the place of the table, of the one that
/// has the key, the column there, and the column that it refers to. Only tables with a primary key
/// can be embedded.
pub fn note_children(
    tables: &mut [ListedTable],
    foreign_keys: impl IntoIterator<Item = (usize, usize, String, String)>,
) {
    for (parent, child, on, to) in foreign_keys {
        let Some(of) = tables.get(child).filter(|of| !of.keys.is_empty() && parent != child) else {
            continue;
        };
        let child = ListedChild { name: of.name.clone(), table: of.table.clone(), on, to };
        if let Some(parent) = tables.get_mut(parent) {
            parent.children.push(child);
        }
    }
}

/// Returns the finding for a table whose setting names another one.
fn hidden_by_another(collection: &str, table: &str) -> Finding {
    Finding::new(
        format!(
            "collection `{collection}`: the name `{table}` leads to another table or schema, so \
             this one cannot be named"
        ),
        "rename one of the two",
    )
}

/// Divides the inspected tables into those that can be served, each with the index of its
/// collection, and the findings of each collection. `is_other`: the table of this index is another
/// one than was listed.
pub fn divided<T>(
    inspected: Vec<Result<T, Vec<Finding>>>,
    specs: &[CollectionConfig],
    is_other: impl Fn(usize, &T) -> bool,
) -> (Vec<(usize, T)>, Vec<Vec<Finding>>) {
    let mut findings = vec![Vec::new(); specs.len()];
    let mut served = Vec::new();
    for (i, (table, spec)) in inspected.into_iter().zip(specs).enumerate() {
        match table {
            Ok(table) if is_other(i, &table) => {
                findings[i].push(hidden_by_another(&spec.name, &spec.table));
            }
            Ok(table) => served.push((i, table)),
            Err(problems) => findings[i] = problems,
        }
    }
    (served, findings)
}

/// Joins the listed tables with the settings chosen for them and the findings of each.
pub fn joined(
    listed: Vec<ListedTable>,
    configs: Vec<CollectionConfig>,
    findings: Vec<Vec<Finding>>,
) -> Vec<DiscoveredTable> {
    let parts = listed.into_iter().zip(configs).zip(findings);
    let table = |((listed, config), findings)| DiscoveredTable { listed, config, findings };
    parts.map(table).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_selected_by_their_name_with_or_without_the_schema() {
        let request = |tables: &[&str]| Request {
            schemas: Vec::new(),
            tables: tables.iter().map(ToString::to_string).collect(),
            tables_max: 1,
            timeout: Duration::from_secs(1),
            is_for_setup: false,
            role: None,
        };
        assert!(request(&[]).selects("public", "a"));
        assert!(request(&["a"]).selects("public", "a"));
        assert!(request(&["public.a"]).selects("public", "a"));
        assert!(request(&["x.y"]).selects("public", "x.y"), "a dot may be part of a name");
        for other in ["b", "publi.a", "public.", "publica", "A"] {
            assert!(!request(&[other]).selects("public", "a"), "{other}");
        }
        let table = ListedTable { schema: "s".into(), name: "a".into(), ..ListedTable::default() };
        assert_eq!(request(&["s.a", "a", "t.a"]).unknown(&[table]), ["t.a"]);
    }
}
