//! Foreign keys that change rows of a collection. The required knowledge differs between the
//! servers.
//!
//! InnoDB applies CASCADE and SET NULL below the level at which rows are logged, so the log has no
//! rows of such changes.
//!
//! MariaDB locks every table that a statement may change by foreign keys for writing, including
//! indirect children and tables of other databases, and describes each locked table before the
//! statement's rows. The delivery therefore sees the collection's table without rows, or a second
//! time beside its own rows. From the catalogue it needs only whether the table has foreign keys at
//! all, to distinguish a table that a trigger locked and did not change. `KEY_COLUMN_USAGE` shows
//! that to an account with SELECT. `REFERENTIAL_CONSTRAINTS` shows nothing to it, and NULL for some
//! names to an account with more privileges. Source: MariaDB, `prepare_fk_prelocking_list` in
//! sql/sql_base.cc; tested on 10.11.
//!
//! MySQL before 9.6 does not describe the children; later versions log their rows. There the
//! catalogue must name all ancestors of the collection's table. It shows the foreign keys of tables
//! on which the account has any privilege, so each ancestor must be visible to it. Source: MySQL
//! 8.0, sql/dd/impl/system_views/referential_constraints.cc; not tested.

use std::collections::BTreeSet;

use mysql_async::{Conn, Error};

use super::super::catalog_row::{self, CatalogRow};
use super::super::server::{Flavor, Identity};
use super::TableName;
use super::catalog::{current_user, text};
use hotrow_source::preflight::Finding;
use hotrow_source::spec::CollectionConfig;

/// Maximum of foreign keys. With more, MySQL's answer is incomplete and refused.
const FOREIGN_KEYS_MAX: usize = 10_000;

/// Foreign key that changes rows of `child` when rows of `parent` change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cascade {
    child: TableName,
    /// None if hidden from the account.
    parent: Option<TableName>,
}

/// Foreign keys that change rows and that must be known by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForeignKeys(Vec<Cascade>);

impl ForeignKeys {
    /// Reads those of the whole server on MySQL, and none on MariaDB.
    ///
    /// # Errors
    /// Errors of the driver, and more foreign keys than [`FOREIGN_KEYS_MAX`].
    pub(super) async fn read(conn: &mut Conn, identity: &Identity) -> Result<Self, Error> {
        if identity.flavor == Flavor::MariaDb {
            return Ok(Self::default());
        }
        let sql = format!(
            "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME \
             FROM information_schema.REFERENTIAL_CONSTRAINTS \
             WHERE UPDATE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT') \
             OR DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT') LIMIT {}",
            FOREIGN_KEYS_MAX + 1
        );
        let cascades = catalog_row::rows(conn, sql, cascade_row).await?;
        if cascades.len() > FOREIGN_KEYS_MAX {
            return Err(Error::Other(
                format!(
                    "the server has more than {FOREIGN_KEYS_MAX} foreign keys with CASCADE or SET \
                     NULL"
                )
                .into(),
            ));
        }
        Ok(Self(cascades))
    }

    /// Returns the tables above `table` in chains of these keys.
    pub(super) fn ancestors(&self, table: &TableName) -> Vec<TableName> {
        let mut found = BTreeSet::new();
        let mut next = vec![table];
        while let Some(child) = next.pop() {
            for parent in
                self.0.iter().filter(|c| c.child == *child).filter_map(|c| c.parent.as_ref())
            {
                if found.insert(parent.clone()) {
                    next.push(parent);
                }
            }
        }
        found.into_iter().collect()
    }

    /// Returns true if the parent of a key of `table` or of its ancestors is hidden from the
    /// account.
    fn has_hidden_parent(&self, table: &TableName, ancestors: &[TableName]) -> bool {
        let is_in_chain = |name: &TableName| name == table || ancestors.contains(name);
        self.0.iter().any(|cascade| cascade.parent.is_none() && is_in_chain(&cascade.child))
    }
}

fn cascade_row(row: &CatalogRow) -> Result<Cascade, Error> {
    let child = TableName {
        schema: row.required(0, "CONSTRAINT_SCHEMA")?,
        table: row.required(1, "TABLE_NAME")?,
    };
    let schema: Option<String> = row.nullable(2, "UNIQUE_CONSTRAINT_SCHEMA")?;
    let table: Option<String> = row.nullable(3, "REFERENCED_TABLE_NAME")?;
    let parent = schema.zip(table).map(|(schema, table)| TableName { schema, table });
    Ok(Cascade { child, parent })
}

/// Returns true if the table has foreign keys. `at` selects its rows of a catalogue table. Also
/// true if the catalogue hides even the table's unique keys, because it hides foreign keys too
/// then.
///
/// # Errors
/// Errors of the driver.
pub(super) async fn exist(conn: &mut Conn, at: &str) -> Result<bool, Error> {
    let sql = format!(
        "SELECT CONSTRAINT_NAME, REFERENCED_TABLE_NAME, POSITION_IN_UNIQUE_CONSTRAINT \
         FROM information_schema.KEY_COLUMN_USAGE WHERE {at}"
    );
    let are_foreign = catalog_row::rows(conn, sql, usage_row).await?;
    Ok(are_foreign.is_empty() || are_foreign.contains(&true))
}

/// Returns true if a row of `KEY_COLUMN_USAGE` belongs to a foreign key. Its referenced names may
/// be hidden, but not its position.
fn usage_row(row: &CatalogRow) -> Result<bool, Error> {
    let referenced: Option<String> = row.nullable(1, "REFERENCED_TABLE_NAME")?;
    let position: Option<u64> = row.nullable(2, "POSITION_IN_UNIQUE_CONSTRAINT")?;
    Ok(referenced.is_some() || position.is_some())
}

/// Returns a finding if ancestors of a collection's table are hidden from the account.
///
/// # Errors
/// Errors of the driver.
pub(super) async fn check(
    conn: &mut Conn,
    spec: &CollectionConfig,
    table: &TableName,
    foreign_keys: &ForeignKeys,
) -> Result<Option<Finding>, Error> {
    let ancestors = foreign_keys.ancestors(table);
    let mut hidden = Vec::new();
    for name in &ancestors {
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.TABLES \
             WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
            text(&name.schema),
            text(&name.table)
        );
        let row = catalog_row::first(conn, sql).await?;
        let count: u64 = row.map_or(Ok(0), |row| row.required(0, "COUNT(*)"))?;
        if count == 0 {
            hidden.push(name.sql());
        }
    }
    if foreign_keys.has_hidden_parent(table, &ancestors) {
        hidden.push("the table that its foreign key references".into());
    }
    if hidden.is_empty() {
        return Ok(None);
    }
    let account = super::account(&current_user(conn).await?);
    Ok(Some(Finding::new(
        format!(
            "collection `{}`: foreign keys change rows of `{}`, and {account} may not see all \
             tables that these keys reference",
            spec.name, spec.table
        ),
        hidden
            .iter()
            .map(|name| format!("GRANT SELECT ON {name} TO {account};"))
            .collect::<Vec<_>>()
            .join("\n"),
    )))
}

#[cfg(test)]
mod tests {
    use mysql_async::Value;

    use super::super::super::catalog_row::tests::survives_hostile_rows;
    use super::*;

    fn name(table: &str) -> TableName {
        TableName { schema: "shop".into(), table: table.into() }
    }

    fn keys(of: &[(&str, Option<&str>)]) -> ForeignKeys {
        let cascade = |(child, parent): &(&str, Option<&str>)| Cascade {
            child: name(child),
            parent: parent.map(name),
        };
        ForeignKeys(of.iter().map(cascade).collect())
    }

    #[test]
    fn keys_are_followed_upwards_through_all_tables() {
        let keys = keys(&[
            ("parent", Some("grand")),
            ("child", Some("parent")),
            ("child", Some("child")),
            ("x", Some("y")),
        ]);
        assert_eq!(keys.ancestors(&name("child")), ["child", "grand", "parent"].map(name));
        assert_eq!(keys.ancestors(&name("grand")), []);
    }

    #[test]
    fn a_hidden_parent_counts_only_in_the_chain() {
        let keys = keys(&[("child", Some("parent")), ("parent", None)]);
        assert!(keys.has_hidden_parent(&name("child"), &keys.ancestors(&name("child"))));
        assert!(!keys.has_hidden_parent(&name("other"), &[]));
    }

    #[test]
    fn hidden_names_are_null_and_do_not_panic() {
        let text = |text: &str| Value::Bytes(text.into());
        survives_hostile_rows(&["shop", "fk2", "shop", "fk1"].map(text), cascade_row);
        survives_hostile_rows(&[text("PRIMARY"), Value::NULL, Value::NULL], usage_row);
        // As on MariaDB for an account with only UPDATE on the child.
        let row = CatalogRow::of(vec![text("shop"), text("fk2"), text("shop"), Value::NULL]);
        assert_eq!(cascade_row(&row).unwrap(), Cascade { child: name("fk2"), parent: None });
        for (row, is_foreign) in [
            ([text("PRIMARY"), Value::NULL, Value::NULL], false),
            ([text("k"), text("fk1"), Value::Int(1)], true),
            ([text("k"), Value::NULL, Value::Int(1)], true),
        ] {
            assert_eq!(usage_row(&CatalogRow::of(row.to_vec())).unwrap(), is_foreign, "{row:?}");
        }
    }
}
