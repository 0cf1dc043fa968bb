//! Views whose rows depend on one row of one table each, which are served by the changes of that
//! table.
//!
//! The catalogue has a view's text alone. It is parsed by the grammar of [`ViewText`], and the
//! server must call the view updatable, which it does of no view with a temporary table. A result
//! may depend on settings of the session only as far as every session of this engine has the same:
//! see [`super::super::connect`].

use hotrow_source::preflight::Finding;
use hotrow_source::spec::CollectionConfig;
use hotrow_source::view_text::{Dialect, Output, ViewText};
use hotrow_types::key::CollectionId;
use mysql_async::{Conn, Error};

use super::super::catalog_row::{self, CatalogRow};
use super::super::keys::KeyColumn;
use super::super::server::Identity;
use super::catalog::{self, Column, Facts};
use super::foreign_keys::{self, ForeignKeys};
use super::names::{TableName, account, current_user, text};
use super::{Refused, Table, check, keys, of_catalog, served};

/// Types of columns that expressions may use. Not TIME and YEAR: the comparison of a TIME with a
/// DATETIME depends on the day.
const IN_EXPRESSIONS: [&str; 19] = [
    "tinyint",
    "smallint",
    "mediumint",
    "int",
    "bigint",
    "decimal",
    "float",
    "double",
    "char",
    "varchar",
    "tinytext",
    "text",
    "mediumtext",
    "longtext",
    "enum",
    "set",
    "date",
    "datetime",
    "timestamp",
];

/// View through which a table's rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) name: TableName,
    /// Names that the key's columns have in the view.
    pub(crate) key: Vec<String>,
    /// Its text, for comparison.
    definition: String,
}

#[cfg(test)]
impl View {
    pub(crate) fn named(name: TableName, key: &str) -> Self {
        Self { name, key: vec![key.to_owned()], definition: String::new() }
    }
}

impl Table {
    /// Returns the name of the table or view that is read.
    pub(crate) fn read_name(&self) -> &TableName {
        self.view.as_ref().map_or(&self.name, |view| &view.name)
    }

    /// Returns the key's columns with the names that they have there.
    pub(crate) fn read_key(&self) -> Vec<KeyColumn> {
        match &self.view {
            Some(view) => renamed(&view.key, &self.key),
            None => self.key.clone(),
        }
    }
}

fn renamed(names: &[String], key: &[KeyColumn]) -> Vec<KeyColumn> {
    let columns = names.iter().zip(key);
    columns.map(|(name, key)| KeyColumn { name: name.clone(), ..key.clone() }).collect()
}

/// Inspects a view and the table behind it.
///
/// # Errors
/// Errors of the driver.
pub(super) async fn inspect(
    conn: &mut Conn,
    identity: &Identity,
    collection: CollectionId,
    spec: &CollectionConfig,
    mut facts: Facts,
    foreign_keys: &ForeignKeys,
) -> Result<Result<Table, Refused>, Error> {
    let (definition, is_updatable) = definition(conn, &facts.name).await?;
    if definition.is_empty() {
        let account = account(&current_user(conn).await?);
        return Ok(Err(vec![Finding::new(
            format!(
                "collection `{}`: {account} may not see the text of the view `{}`",
                spec.name, spec.table
            ),
            format!("GRANT SELECT, SHOW VIEW ON {} TO {account};", facts.name.sql()),
        )]));
    }
    let refuse = |why: &str| Ok(Err(vec![finding(spec, why)]));
    if !spec.embed.is_empty() {
        return refuse("cannot have embedded rows");
    }
    let parsed = match ViewText::parse(&definition, &Dialect::MYSQL) {
        Ok(parsed) => parsed,
        Err(fault) => return refuse(&fault.to_string()),
    };
    if parsed.schema.as_ref() != Some(&facts.name.schema) {
        return refuse("selects from a table of another database");
    }
    let table = format!("{}.{}", facts.name.schema, parsed.table);
    let of_base = CollectionConfig { table, ..spec.clone() };
    let wanted = TableName { schema: facts.name.schema.clone(), table: parsed.table.clone() };
    let base = match catalog::facts(conn, identity, &of_base, &wanted).await? {
        Ok(base) if base.kind == "VIEW" => return refuse("selects from another view"),
        Ok(base) => base,
        Err(missing) => return Ok(Err(vec![missing])),
    };
    let passed = match passed(&parsed, &facts, &base) {
        Ok(passed) => passed,
        Err(why) => return refuse(&why),
    };
    if !is_updatable {
        return refuse("is not updatable, so it may not read the rows of one table alone");
    }
    let (view_key, base_key) = match key_names(spec, &facts, &passed) {
        Ok(names) => names,
        Err(findings) => return Ok(Err(findings)),
    };
    let of_base = CollectionConfig { key: base_key, ..of_base };
    let is_json = |c: &&Column| base.json.contains(&c.name);
    let json = facts.columns.iter().zip(&passed);
    let json = json.filter(|(_, passed)| passed.as_ref().is_some_and(is_json));
    facts.json = json.map(|(column, _)| column.name.clone()).collect();
    let mut findings = check(&of_base, &base);
    let mut note = |result: Result<_, Refused>| result.map_err(|more| findings.extend(more)).ok();
    let key = note(keys::columns(&of_base, &base));
    let shown = key.as_ref().map(|(_, key)| renamed(&view_key, key)).unwrap_or_default();
    let served = served(spec, &facts, &shown).map_err(|more| findings.extend(more)).ok();
    findings.extend(catalog::check_privileges(conn, spec, &facts).await?);
    findings.extend(catalog::check_privileges(conn, &of_base, &base).await?);
    findings.extend(foreign_keys::check(conn, &of_base, &base.name, foreign_keys).await?);
    let (Some((index, key)), Some(served), true) = (key, served, findings.is_empty()) else {
        return Ok(Err(findings));
    };
    let mut table = of_catalog(collection, base, foreign_keys, index, key, served);
    table.view = Some(View { name: facts.name, key: view_key, definition });
    Ok(Ok(table))
}

fn finding(spec: &CollectionConfig, why: &str) -> Finding {
    Finding::new(
        format!("collection `{}`: the view `{}` {why}", spec.name, spec.table),
        "serve the table behind it, or a view whose rows depend on one row of one table each",
    )
}

/// Reads the text of a view, empty if the account may not see it, and whether it is updatable.
async fn definition(conn: &mut Conn, name: &TableName) -> Result<(String, bool), Error> {
    let sql = format!(
        "SELECT VIEW_DEFINITION, IS_UPDATABLE FROM information_schema.VIEWS \
         WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
        text(&name.schema),
        text(&name.table)
    );
    let row = catalog_row::first(conn, sql).await?;
    row.as_ref().map_or_else(|| Ok(Default::default()), definition_row)
}

fn definition_row(row: &CatalogRow) -> Result<(String, bool), Error> {
    Ok((row.text(0, "VIEW_DEFINITION")?, row.text(1, "IS_UPDATABLE")? == "YES"))
}

/// Returns for each column of the view the table's column that it passes through, if any.
fn passed<'a>(
    parsed: &ViewText,
    facts: &Facts,
    base: &'a Facts,
) -> Result<Vec<Option<&'a Column>>, String> {
    let known = |name: &str| {
        let missing = || {
            let table = base.name.sql();
            format!("uses `{name}`, and {table} has no such column, or the account may not see it")
        };
        base.column(name).map(|(_, column)| column).ok_or_else(missing)
    };
    for name in &parsed.used {
        let column = known(name)?;
        if !IN_EXPRESSIONS.contains(&column.data_type.as_str()) {
            return Err(format!(
                "uses `{name}` of type {} in an expression, whose result may depend on settings \
                 or on the day; pass the column through as it is",
                column.data_type
            ));
        }
    }
    let mut passed = Vec::with_capacity(parsed.outputs.len());
    for output in &parsed.outputs {
        match output {
            Output::Passed(name) => passed.push(Some(known(name)?)),
            Output::Computed => passed.push(None),
            Output::All => passed.extend(base.columns.iter().map(Some)),
        }
    }
    // Columns and text are of two queries, and an invalid view has no columns.
    let names = facts.columns.iter().map(|column| Some(&column.name));
    if !parsed.labels.iter().map(Option::as_ref).eq(names) {
        return Err(
            "is invalid or was just replaced: its columns in the catalogue are not those of \
                    its text"
                .to_owned(),
        );
    }
    Ok(passed)
}

/// Returns the names of the key's columns in the view and in its table.
fn key_names(
    spec: &CollectionConfig,
    facts: &Facts,
    passed: &[Option<&Column>],
) -> Result<(Vec<String>, Vec<String>), Refused> {
    let mut findings = Vec::new();
    let mut view_key = Vec::with_capacity(spec.key.len());
    let mut base_key = Vec::with_capacity(spec.key.len());
    for name in &spec.key {
        let Some((at, column)) = facts.column(name) else {
            findings.push(facts.no_column(spec, "key", name));
            continue;
        };
        match passed.get(at).copied().flatten() {
            Some(passed) => {
                view_key.push(column.name.clone());
                base_key.push(passed.name.clone());
            }
            None => findings.push(Finding::new(
                format!(
                    "collection `{}`: the view `{}` computes its key column `{name}`",
                    spec.name, spec.table
                ),
                "let it pass a column of the table through as it is",
            )),
        }
    }
    if findings.is_empty() { Ok((view_key, base_key)) } else { Err(findings) }
}

#[cfg(test)]
mod tests {
    use mysql_async::Value;

    use super::super::super::catalog_row::tests::survives_hostile_rows;
    use super::*;

    #[test]
    fn unexpected_nulls_do_not_panic() {
        let row = ["select 1 AS `1`", "YES"].map(|text| Value::Bytes(text.into()));
        survives_hostile_rows(&row, definition_row);
    }
}
