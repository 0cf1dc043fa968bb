//! Tables whose rows are embedded in the records of a collection.
//!
//! A child is followed like a table of a collection whose key is the column that refers to the
//! parent: the feed finds the parent that a row had and the one that it has.

use hotrow_source::field_schema::{FieldSchema, JsonForm};
use hotrow_source::preflight::Finding;
use hotrow_source::spec::{CollectionConfig, EmbedConfig, KeyTypeName};
use hotrow_types::key::{Collation, KeyType};
use mysql_async::{Conn, Error};

use super::super::keys::KeyColumn;
use super::super::keys::KeyStored;
use super::super::server::Identity;
use super::catalog::{self, Facts};
use super::foreign_keys::{self, ForeignKeys};
use super::{PRIMARY, Refused, Served, Table, keys, quote};

/// Children of a collection's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Embedded {
    /// Member of the record.
    pub(crate) member: String,
    /// The table, whose key is the column with the parent's key.
    pub(crate) table: Table,
    /// Columns of its primary key.
    pub(crate) primary: Vec<String>,
    /// Columns by which the children are ordered, with whether greater values come first.
    order: Vec<(String, bool)>,
    pub(crate) limit: u32,
}

impl Embedded {
    /// Returns the order of the children as SQL. `of` is the alias of their table.
    pub(crate) fn order_sql(&self, of: &str) -> String {
        let by = |(column, is_descending): &(String, bool)| {
            format!("{of}.{}{}", quote(column), if *is_descending { " DESC" } else { "" })
        };
        self.order.iter().map(by).collect::<Vec<_>>().join(", ")
    }

    /// Returns what the catalogue says about the member.
    pub(crate) fn schema(&self) -> FieldSchema {
        let fields = self.table.served.iter().map(Served::schema).collect();
        FieldSchema::new(&self.member, JsonForm::Rows { fields, limit: self.limit }, false)
    }

    /// Returns true if the log names the parent even in a row image of the primary key alone.
    pub(crate) fn has_parent_in_primary(&self) -> bool {
        self.table.key.iter().all(|on| self.primary.contains(&on.name))
    }
}

#[cfg(test)]
impl Embedded {
    /// Returns rows of a table in the order of its column `id`.
    pub(crate) fn of_table(member: &str, table: Table) -> Self {
        let order = vec![("id".to_owned(), false)];
        Self { member: member.into(), table, primary: vec!["id".into()], order, limit: 100 }
    }
}

/// What the inspection of a table depends on.
#[derive(Clone, Copy)]
pub(super) struct InspectionContext<'a> {
    pub(super) identity: &'a Identity,
    /// Database of the connection string.
    pub(super) database: &'a str,
    pub(super) foreign_keys: &'a ForeignKeys,
}

/// Inspects the tables embedded in a collection with this table.
///
/// # Errors
/// Errors of the driver.
pub(super) async fn inspect(
    conn: &mut Conn,
    context: InspectionContext<'_>,
    spec: &CollectionConfig,
    parent: &Table,
) -> Result<Result<Vec<Embedded>, Refused>, Error> {
    let mut all = Vec::with_capacity(spec.embed.len());
    let mut findings = Vec::new();
    for embed in &spec.embed {
        if parent.served.iter().any(|c| !c.is_tenant && c.name == embed.name) {
            findings.push(Finding::new(
                format!(
                    "collection `{}`: `embed.{}` has the name of a column that is served",
                    spec.name, embed.name
                ),
                "name it otherwise (`table` names its table), or exclude the column",
            ));
        }
        match one(conn, context, &embed.as_collection(&spec.name), embed, parent).await? {
            Ok(embedded) => all.push(embedded),
            Err(more) => findings.extend(more),
        }
    }
    Ok(if findings.is_empty() { Ok(all) } else { Err(findings) })
}

async fn one(
    conn: &mut Conn,
    context: InspectionContext<'_>,
    spec: &CollectionConfig,
    embed: &EmbedConfig,
    parent: &Table,
) -> Result<Result<Embedded, Refused>, Error> {
    let wanted = catalog::table_name(spec, context.database, context.identity);
    let facts = match catalog::facts(conn, context.identity, spec, &wanted).await? {
        Ok(facts) => facts,
        Err(missing) => return Ok(Err(vec![missing])),
    };
    let mut findings = super::check(spec, &facts);
    if facts.kind == "VIEW" {
        findings.push(Finding::new(
            format!("collection `{}`: `{}` is a view", spec.name, spec.table),
            "name the table behind it",
        ));
    }
    // Further findings, such as a missing key of a view, would be noise.
    if !findings.is_empty() {
        return Ok(Err(findings));
    }
    findings.extend(catalog::check_privileges(conn, spec, &facts).await?);
    findings.extend(foreign_keys::check(conn, spec, &facts.name, context.foreign_keys).await?);
    Ok(match checked(spec, embed, facts, parent, context.foreign_keys) {
        Ok(embedded) if findings.is_empty() => Ok(embedded),
        Ok(_) => Err(findings),
        Err(more) => {
            findings.extend(more);
            Err(findings)
        }
    })
}

/// Checks the columns of a child's table, and returns what is needed of it.
fn checked(
    spec: &CollectionConfig,
    embed: &EmbedConfig,
    facts: Facts,
    parent: &Table,
    foreign_keys: &ForeignKeys,
) -> Result<Embedded, Refused> {
    let mut findings = Vec::new();
    let on = reference(spec, embed, &facts, parent).map_err(|finding| findings.push(finding)).ok();
    let served = super::served(spec, &facts, on.as_slice())
        .map_err(|more: Refused| findings.extend(more))
        .ok();
    let Some(primary) = facts.unique.iter().find(|index| index.name == PRIMARY) else {
        findings.push(Finding::new(
            format!(
                "collection `{}`: `{}` has no primary key, so the order of its rows is not certain",
                spec.name, spec.table
            ),
            "add a primary key to the table",
        ));
        return Err(findings);
    };
    // The primary key has no expressions.
    let primary: Vec<String> = primary.columns.iter().flatten().cloned().collect();
    let is_same = |one: &str, other: &str| one.to_lowercase() == other.to_lowercase();
    let mut order = Vec::new();
    for (name, is_descending) in embed.total_order(primary.iter().map(String::as_str), is_same) {
        match facts.column(name) {
            Some((_, column)) => order.push((column.name.clone(), is_descending)),
            None => findings.push(facts.no_column(spec, "order_by", name)),
        }
    }
    let (Some(on), Some(served), true) = (on, served, findings.is_empty()) else {
        return Err(findings);
    };
    let index = PRIMARY.to_owned();
    let table = super::of_catalog(parent.collection, facts, foreign_keys, index, vec![on], served);
    Ok(Embedded { member: embed.name.clone(), table, primary, order, limit: embed.limit })
}

/// Returns the column that refers to the key: of the same type, and equal if and only if the bytes
/// are. Only then is the parent that the feed finds the one that a read finds.
fn reference(
    spec: &CollectionConfig,
    embed: &EmbedConfig,
    facts: &Facts,
    parent: &Table,
) -> Result<KeyColumn, Finding> {
    let Some((position, column)) = facts.column(&embed.on) else {
        return Err(facts.no_column(spec, "on", &embed.on));
    };
    let described = |sql_type: &str, collation: Option<&String>| match collation {
        Some(collation) => format!("{sql_type} ({collation})"),
        None => sql_type.to_owned(),
    };
    let refuse = |why: &str, remedy: &str| {
        let of = described(&column.sql_type, column.collation.as_ref());
        let what = format!("collection `{}`: `on` = `{}` is of type {of}", spec.name, column.name);
        Err(Finding::new(format!("{what}{why}"), remedy))
    };
    if column.is_virtual {
        let why = " and generated, and not stored: the log need not contain it";
        return refuse(why, "name a stored column");
    }
    // The configuration refuses several columns.
    let [key] = &parent.key[..] else {
        return refuse(", and the key of the collection has several columns", "use one");
    };
    let key_column = parent.columns.get(key.position);
    let wanted =
        (key.ty == KeyType::Uuid && key.stored != KeyStored::Uuid).then_some(KeyTypeName::Uuid);
    if let Ok(on) = keys::typed(column, position, wanted)
        && refers(&on, key)
        && column.collation == key_column.and_then(|column| column.collation.clone())
    {
        return Ok(on);
    }
    let of_key = key_column.map(|c| described(&c.sql_type, c.collation.as_ref()));
    refuse(
        &format!(
            ", and the key of the collection of type {}: both must be integers, VARCHAR with one \
             collation that compares bytes and does not pad (`…_nopad_bin`, or `…_0900_bin` of \
             MySQL), BINARY of one length, VARBINARY, or UUID",
            of_key.unwrap_or_default()
        ),
        "embed by a column of the key's type",
    )
}

/// Returns true if values of the columns are equal if and only if their bytes are.
fn refers(on: &KeyColumn, key: &KeyColumn) -> bool {
    let is_stored_alike = match (key.stored, on.stored) {
        // Of any size: the key's type says if one is BIGINT UNSIGNED.
        (KeyStored::Integer { .. }, KeyStored::Integer { .. }) => true,
        (KeyStored::Text { padded, .. }, _) if padded => false,
        (key, on) => key == on,
    };
    let is_by_bytes = !matches!(key.ty, KeyType::Text(collation) if collation != Collation::Binary);
    is_stored_alike
        && is_by_bytes
        && key.ty == on.ty
        && key.spelling == on.spelling
        && key.spelling == super::Spelling::One
}
