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
//! MySQL before 9.6 does not describe the children; later versions log their rows, unless
//! `innodb_native_foreign_keys` is ON. There the catalogue must name all ancestors of the
//! collection's table. It shows the foreign keys of tables on which the account has any privilege,
//! so each ancestor must be visible to it. Source: MySQL 8.0,
//! sql/dd/impl/system_views/referential_constraints.cc; tested on 9.7.

use std::collections::{BTreeMap, BTreeSet};

use mysql_async::{Conn, Error};

use super::super::catalog_row::{self, CatalogRow};
use super::super::server::{Flavor, Identity};
use super::names::{TableName, account, current_user, text};
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
    on_delete: Effect,
    on_update: Effect,
}

/// Effect of a change of a parent on its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Update,
    Delete,
}

/// Table whose changes can change rows of another one by foreign keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ancestor {
    pub(crate) name: TableName,
    /// Deleted rows can.
    pub(crate) by_delete: bool,
    /// Updated rows can.
    pub(crate) by_update: bool,
}

/// Foreign keys that change rows and that must be known by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForeignKeys(Vec<Cascade>);

impl ForeignKeys {
    /// Reads those of the whole server on MySQL, and none where the log has the rows.
    ///
    /// # Errors
    /// Errors of the driver, and more foreign keys than [`FOREIGN_KEYS_MAX`].
    pub(super) async fn read(conn: &mut Conn, identity: &Identity) -> Result<Self, Error> {
        if identity.flavor == Flavor::MariaDb || are_logged(conn).await? {
            return Ok(Self::default());
        }
        let sql = format!(
            "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, \
             REFERENCED_TABLE_NAME, DELETE_RULE, UPDATE_RULE \
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

    /// Returns the tables above `table` in chains of these keys, along which some change of them
    /// reaches it: a key that sets NULL updates its child, and that may reach the next child by its
    /// rule for updates only.
    pub(super) fn ancestors(&self, table: &TableName) -> Vec<Ancestor> {
        let mut found: BTreeMap<&TableName, Ancestor> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut next = vec![(table, Effect::Delete), (table, Effect::Update)];
        while let Some((child, change)) = next.pop() {
            for cascade in self.0.iter().filter(|cascade| cascade.child == *child) {
                let Some(parent) = &cascade.parent else { continue };
                let new = || Ancestor { name: parent.clone(), by_delete: false, by_update: false };
                let ancestor = found.entry(parent).or_insert_with(new);
                for (rule, by, is_by) in [
                    (cascade.on_delete, Effect::Delete, &mut ancestor.by_delete),
                    (cascade.on_update, Effect::Update, &mut ancestor.by_update),
                ] {
                    if rule == change && seen.insert((parent, by == Effect::Delete)) {
                        *is_by = true;
                        next.push((parent, by));
                    }
                }
            }
        }
        found.retain(|_, ancestor| ancestor.by_delete || ancestor.by_update);
        found.into_values().collect()
    }

    /// Returns true if the parent of a key of `table` or of its ancestors is hidden from the
    /// account.
    fn has_hidden_parent(&self, table: &TableName, ancestors: &[Ancestor]) -> bool {
        let is_in_chain =
            |name: &TableName| name == table || ancestors.iter().any(|above| above.name == *name);
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
    let on_delete = match row.text(4, "DELETE_RULE")?.as_str() {
        "CASCADE" => Effect::Delete,
        "SET NULL" | "SET DEFAULT" => Effect::Update,
        _ => Effect::None,
    };
    let on_update = match row.text(5, "UPDATE_RULE")?.as_str() {
        "CASCADE" | "SET NULL" | "SET DEFAULT" => Effect::Update,
        _ => Effect::None,
    };
    Ok(Cascade { child, parent, on_delete, on_update })
}

/// Returns true if the server, and not InnoDB, applies the keys: then the log has the rows. Only
/// MySQL 9.6 and later versions have the choice, at the start of the server.
async fn are_logged(conn: &mut Conn) -> Result<bool, Error> {
    let sql = "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'";
    let row = catalog_row::rows(conn, sql, catalog_row::name_and_value).await?;
    Ok(row.first().is_some_and(|(_, value)| value == "OFF"))
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
    for Ancestor { name, .. } in &ancestors {
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
    let account = account(&current_user(conn).await?);
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

    /// Returns keys of children, their parents, and the effects of deletes and updates.
    fn keys(of: &[(&str, Option<&str>, Effect, Effect)]) -> ForeignKeys {
        let cascade = |&(child, parent, on_delete, on_update): &(&str, Option<&str>, _, _)| {
            Cascade { child: name(child), parent: parent.map(name), on_delete, on_update }
        };
        ForeignKeys(of.iter().map(cascade).collect())
    }

    fn above(table: &str, by_delete: bool, by_update: bool) -> Ancestor {
        Ancestor { name: name(table), by_delete, by_update }
    }

    #[test]
    fn keys_are_followed_upwards_through_all_tables() {
        let keys = keys(&[
            ("parent", Some("grand"), Effect::Delete, Effect::Update),
            ("child", Some("parent"), Effect::Delete, Effect::None),
            ("child", Some("child"), Effect::Update, Effect::None),
            ("x", Some("y"), Effect::Delete, Effect::None),
        ]);
        let expected = [
            above("child", true, false),
            above("grand", true, false),
            above("parent", true, false),
        ];
        assert_eq!(keys.ancestors(&name("child")), expected);
        assert_eq!(keys.ancestors(&name("grand")), []);
    }

    #[test]
    fn a_key_that_sets_null_goes_on_by_the_rule_for_updates() {
        for (of_child, expected) in [(Effect::None, false), (Effect::Update, true)] {
            let keys = keys(&[
                ("parent", Some("grand"), Effect::Update, Effect::None),
                ("child", Some("parent"), Effect::Delete, of_child),
            ]);
            let grand = above("grand", expected, false);
            let parent = above("parent", true, expected);
            let found = keys.ancestors(&name("child"));
            assert!(found.contains(&parent), "{found:?}");
            assert_eq!(found.contains(&grand), expected, "{found:?}");
        }
    }

    #[test]
    fn a_hidden_parent_counts_only_in_the_chain() {
        let keys = keys(&[
            ("child", Some("parent"), Effect::Delete, Effect::None),
            ("parent", None, Effect::Delete, Effect::None),
        ]);
        assert!(keys.has_hidden_parent(&name("child"), &keys.ancestors(&name("child"))));
        assert!(!keys.has_hidden_parent(&name("other"), &[]));
    }

    #[test]
    fn hidden_names_are_null_and_do_not_panic() {
        let text = |text: &str| Value::Bytes(text.into());
        let row = ["shop", "fk2", "shop", "fk1", "SET NULL", "NO ACTION"].map(text);
        survives_hostile_rows(&row, cascade_row);
        survives_hostile_rows(&[text("PRIMARY"), Value::NULL, Value::NULL], usage_row);
        // As on MariaDB for an account with only UPDATE on the child.
        let [shop, child, rule] = ["shop", "fk2", "CASCADE"].map(text);
        let row = vec![shop.clone(), child, shop, Value::NULL, rule.clone(), rule];
        assert_eq!(
            cascade_row(&CatalogRow::of(row)).unwrap(),
            Cascade {
                child: name("fk2"),
                parent: None,
                on_delete: Effect::Delete,
                on_update: Effect::Update
            }
        );
        for (row, is_foreign) in [
            ([text("PRIMARY"), Value::NULL, Value::NULL], false),
            ([text("k"), text("fk1"), Value::Int(1)], true),
            ([text("k"), Value::NULL, Value::Int(1)], true),
        ] {
            assert_eq!(usage_row(&CatalogRow::of(row.to_vec())).unwrap(), is_foreign, "{row:?}");
        }
    }
}
