//! Tables whose rows are embedded in the records of a collection.
//!
//! A child is watched by its column with the parent's key, as a table is by its key: its triggers
//! log the parent that a row had and the one that it has. So the log contains changes of parents.

use hotrow_source::spec::EmbedConfig;
use hotrow_types::key::{Collation, CollectionId, KeyType};
use rusqlite::Connection;

use super::super::config::{CollectionConfig, KeyTypeName, Watch};
use super::super::error::OpenError;
use super::super::names::quote;
use super::{Facts, IndexColumn, Inspected, Refused, Rowid, Table};
use super::{find_table, keys, served, uniques};

/// Children of a collection's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Embedded {
    /// Member of the record.
    pub(crate) member: String,
    /// The table, whose key is the column with the parent's key.
    pub(crate) table: Table,
    /// Columns by which the children are ordered, with whether greater values come first.
    order: Vec<(String, bool)>,
    pub(crate) limit: u32,
}

impl Embedded {
    /// Returns the statement that reads the children of one parent, whose key is its parameter.
    pub(crate) fn sql(&self) -> String {
        let name = |column: &str| format!("c.{}", quote(column));
        let columns: Vec<String> = self.table.served.iter().map(|c| name(&c.name)).collect();
        let by = |(column, is_descending): &(String, bool)| {
            format!("{}{}", name(column), if *is_descending { " DESC" } else { "" })
        };
        let order: Vec<String> = self.order.iter().map(by).collect();
        let on: Vec<String> = self.table.key.iter().map(|key| name(&key.name)).collect();
        let is_text = self.table.key.iter().any(|key| matches!(key.ty, KeyType::Text(_)));
        format!(
            "SELECT {} FROM main.{} AS c WHERE {} = ?1{} ORDER BY {} LIMIT {}",
            columns.join(", "),
            quote(&self.table.name),
            on.join(", "),
            if is_text { " COLLATE BINARY" } else { "" },
            order.join(", "),
            self.limit
        )
    }
}

/// Inspects the tables embedded in a collection with these columns and this key.
pub(super) fn inspect(
    conn: &Connection,
    collection: CollectionId,
    spec: &CollectionConfig,
    parent: &Table,
    watch: Watch,
) -> Inspected<Vec<Embedded>> {
    let mut all = Vec::with_capacity(spec.embed.len());
    for embed in &spec.embed {
        if parent.served.iter().any(|c| !c.is_tenant && c.name == embed.name) {
            let detail = format!(
                "`embed.{}` has the name of a column that is served; name it otherwise (`table` \
                 names its table), or exclude the column",
                embed.name
            );
            return Err(refused(spec, detail));
        }
        all.push(one(conn, collection, (spec, embed), parent, watch)?);
    }
    Ok(all)
}

fn refused(spec: &CollectionConfig, detail: String) -> Refused {
    OpenError::Embedded { collection: spec.name.clone(), detail }.into()
}

/// Says of a column that refers to a key why it cannot. The remedies of a key do not apply: it has
/// the key's type, and no setting of its own.
fn of_another_type(
    refused: Refused,
    spec: &CollectionConfig,
    (key, by): (&str, KeyTypeName),
) -> Refused {
    let Refused::Rule(OpenError::KeyType { column, declared, .. }) = refused else {
        return refused;
    };
    let by = match by {
        KeyTypeName::Integer => "integers",
        KeyTypeName::Text => "texts",
        KeyTypeName::Uuid => "UUIDs",
        KeyTypeName::Bytes => "bytes",
        KeyTypeName::ObjectId => "ObjectIds",
    };
    let detail = format!(
        "`on` names `{column}`, which is declared `{declared}`; the keys of the collection \
         (`{key}`) are {by}, and this column cannot hold their equals byte by byte: declare both \
         alike"
    );
    self::refused(spec, detail)
}

fn one(
    conn: &Connection,
    collection: CollectionId,
    (of, embed): (&CollectionConfig, &EmbedConfig),
    parent: &Table,
    watch: Watch,
) -> Inspected<Embedded> {
    let mut spec = embed.as_collection(&of.name);
    let facts = Facts::read(conn, find_table(conn, &spec)?)?;
    let [parent_key] = &parent.key[..] else {
        return Err(refused(&spec, "the key of the collection has several columns".into()));
    };
    let by = match parent_key.ty {
        KeyType::Integer => KeyTypeName::Integer,
        KeyType::Text(Collation::Binary) => KeyTypeName::Text,
        KeyType::Uuid => KeyTypeName::Uuid,
        KeyType::Bytes => KeyTypeName::Bytes,
        KeyType::Text(_) | KeyType::Unsigned | KeyType::ObjectId | KeyType::Canonical(_) => {
            return Err(refused(
                &spec,
                format!(
                    "the key `{}` of the collection is not compared byte by byte, as it must be \
                     for records with children; give it the collation BINARY",
                    parent_key.name
                ),
            ));
        }
    };
    // The same rules as for a key: an id finds a row if and only if its value makes the same key.
    spec.key_types = vec![by];
    let on = keys::columns(&spec, &facts)?;
    let key = keys::typed(&spec, &facts, &on, None)
        .map_err(|refused| of_another_type(refused, &spec, (&parent_key.name, by)))?;
    let primary = primary_key(&facts);
    if primary.is_empty() {
        let detail = format!(
            "`{}` has no primary key, so the order of its rows is not certain; add one",
            spec.table
        );
        return Err(refused(&spec, detail));
    }
    let mut order = Vec::new();
    for (name, is_descending) in
        embed.total_order(primary, |one, other| one.eq_ignore_ascii_case(other))
    {
        let is_rowid = matches!(&facts.rowid, Rowid::Named(rowid) if *rowid == name);
        let column = match is_rowid {
            true => name,
            false => &facts.column_or_refuse(&spec, "order_by", name)?.name,
        };
        order.push((column.to_owned(), is_descending));
    }
    let uniques = match watch {
        // The rowid too: a REPLACE evicts a child by it.
        Watch::Triggers => uniques(&spec, &facts, None, false)?,
        Watch::None => Vec::new(),
    };
    let served = served(&spec, &facts, &key)?;
    let name = facts.name;
    let table = Table { collection, name, served, key, uniques, embedded: Vec::new(), view: None };
    let embedded = Embedded { member: embed.name.clone(), table, order, limit: embed.limit };
    // An order by a collation that another program defines cannot be read here.
    if let Err(e) = conn.prepare(&embedded.sql()) {
        return Err(refused(&spec, format!("its rows cannot be read in this order: {e}")));
    }
    Ok(embedded)
}

/// Returns the primary key, and the rowid behind it where it has a name: a primary key other than
/// the rowid may contain NULL several times. Empty without a primary key.
fn primary_key(facts: &Facts) -> Vec<&str> {
    if let Rowid::Column(name) = &facts.rowid {
        return vec![name];
    }
    let Some(index) = facts.indexes.iter().find(|index| index.primary_key) else {
        return Vec::new();
    };
    let mut key: Vec<&str> = Vec::with_capacity(index.columns.len() + 1);
    for column in &index.columns {
        if let IndexColumn::Column { name, .. } = column {
            key.push(name);
        }
    }
    if let Rowid::Named(rowid) = facts.rowid {
        key.push(rowid);
    }
    key
}
