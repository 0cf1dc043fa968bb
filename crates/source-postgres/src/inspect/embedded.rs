//! Tables whose rows are embedded in the records of a collection.
//!
//! The children of a record are read by a subquery of its own statement, as an array of rows in
//! binary form, so that their values are written like those of the record. Parent and children are
//! in one snapshot.

use hotrow_source::field_schema::{FieldSchema, JsonForm};
use hotrow_source::spec::EmbedConfig;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::super::config::CollectionConfig;
use super::super::json::{Field, Scalar, Shape};
use super::catalog::{self, Facts, Index};
use super::types::{self, Types};
use super::{Column, KeyColumn, KeyStored, Refused, Select, Served, TableKind};
use super::{keys, of_catalog, quote, rules};
use hotrow_source::preflight::Finding;

/// Children of a collection's records, as needed for reading and following them. Two equal values
/// are read alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Embedded {
    /// Member of the record.
    pub(crate) member: String,
    /// Changes with DROP and CREATE.
    pub(crate) oid: u32,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) kind: TableKind,
    /// Whether the log contains the parent of a row that is changed or deleted.
    pub(crate) old_parent: OldParent,
    /// All columns in the table's order, including those not served.
    pub(crate) columns: Vec<Column>,
    /// Column with the parent's key.
    pub(crate) on: String,
    /// Collation of that column as SQL; `None` if its type has none.
    collation: Option<String>,
    /// Columns by which the children are ordered, with whether greater values come first.
    order: Vec<(String, bool)>,
    limit: u32,
    served: Vec<Served>,
}

/// Whether the old row in the log has the parent's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldParent {
    /// In each change and deletion where it matters.
    Logged,
    /// Not always: then a change concerns every parent.
    Missing,
}

impl Embedded {
    /// Returns the expression that reads the children. `parent` is the key of the collection, of
    /// one column.
    pub(crate) fn sql(&self, parent: &[KeyColumn]) -> String {
        let columns: Vec<String> = self.served.iter().map(|served| served.sql("c")).collect();
        let by = |(name, is_descending): &(String, bool)| {
            format!("c.{}{}", quote(name), if *is_descending { " DESC" } else { "" })
        };
        let order: Vec<String> = self.order.iter().map(by).collect();
        // The child's collation, so that an index on its column is used.
        let collate = self.collation.as_ref().map(|name| format!(" COLLATE {name}"));
        let key = parent.first().map(|key| format!("t.{}", quote(&key.name)));
        format!(
            "ARRAY(SELECT ROW({}) FROM {} AS c WHERE c.{} = {}{} ORDER BY {} LIMIT {})",
            columns.join(", "),
            self.sql_name(),
            quote(&self.on),
            key.unwrap_or_default(),
            collate.unwrap_or_default(),
            order.join(", "),
            self.limit
        )
    }

    /// Returns the member of the record.
    pub(crate) fn field(&self) -> Field {
        let field = |s: &Served| Field::new(&s.name, s.sent_oid(), s.shape.clone());
        let row = Shape::Composite(self.served.iter().map(field).collect());
        Field::new(&self.member, Type::RECORD_ARRAY.oid(), Shape::Array(Box::new(row)))
    }

    /// Returns what the catalogue says about the member.
    pub(crate) fn schema(&self) -> FieldSchema {
        let fields = self.served.iter().map(Served::schema).collect();
        FieldSchema::new(&self.member, JsonForm::Rows { fields, limit: self.limit }, false)
    }

    /// Returns `"schema"."table"`.
    pub(crate) fn sql_name(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.name))
    }
}

/// Inspects the tables embedded in a collection. `key`: its key, as the table stores it;
/// `served`: the names of the columns that its records have.
///
/// # Errors
/// An error of the driver.
pub(super) async fn inspect(
    client: &Client,
    spec: &CollectionConfig,
    key: &[KeyColumn],
    served: &[&catalog::Column],
) -> Result<Result<Vec<Embedded>, Refused>, Error> {
    let mut all = Vec::with_capacity(spec.embed.len());
    let mut findings = Vec::new();
    for embed in &spec.embed {
        if served.iter().any(|column| column.name == embed.name) {
            findings.push(Finding::new(
                format!(
                    "collection `{}`: `embed.{}` has the name of a column that is served",
                    spec.name, embed.name
                ),
                "name it otherwise (`table` names its table), or exclude the column",
            ));
        }
        match one(client, &embed.as_collection(&spec.name), embed, key).await? {
            Ok(embedded) => all.push(embedded),
            Err(more) => findings.extend(more),
        }
    }
    Ok(if findings.is_empty() { Ok(all) } else { Err(findings) })
}

async fn one(
    client: &Client,
    spec: &CollectionConfig,
    embed: &EmbedConfig,
    parent: &[KeyColumn],
) -> Result<Result<Embedded, Refused>, Error> {
    let facts = match catalog::facts(client, spec).await? {
        Ok(facts) => facts,
        Err(missing) => return Ok(Err(vec![missing])),
    };
    let types = types::load(client, facts.columns.iter().map(|c| c.type_oid)).await?;
    Ok(checked(spec, embed, &facts, &types, parent))
}

/// Checks a child's table, and returns what is needed of it.
fn checked(
    spec: &CollectionConfig,
    embed: &EmbedConfig,
    facts: &Facts,
    types: &Types,
    parent: &[KeyColumn],
) -> Result<Embedded, Refused> {
    let finding = |what: String, remedy: &str| {
        Finding::new(format!("collection `{}`: {what}", spec.name), remedy)
    };
    let mut findings = rules::check(spec, facts);
    if facts.relkind == 'v' {
        findings.push(finding(
            format!("`{}` is a view, and only tables can be embedded", spec.table),
            "name the table behind it",
        ));
        return Err(findings);
    }
    let on = keys::columns(spec, facts, types).map_err(|more| findings.extend(more)).ok();
    let (chosen, missing) = spec.chosen_columns(
        facts.columns.iter(),
        |name| facts.column(name),
        |setting, name| facts.no_column(spec, setting, name),
    );
    findings.extend(missing);
    let primary = facts.indexes.iter().find(|index| index.primary);
    let Some(primary) = primary else {
        findings.push(finding(
            format!("`{}` has no primary key, so the order of its rows is not certain", spec.table),
            "add a primary key to the table",
        ));
        return Err(findings);
    };
    let order = embed.total_order(facts.columns_of(primary), |one, other| one == other);
    let mut read = chosen.clone();
    for (name, _) in &order {
        match facts.column(name) {
            Some(column) => read.push(column),
            None => findings.push(facts.no_column(spec, "order_by", name)),
        }
    }
    if let Some([on]) = on.as_deref() {
        findings.extend(reference(spec, on, parent));
        let on = std::slice::from_ref(on);
        findings.extend(keys::check_generated(spec, facts, on));
        findings.extend(rules::check_privileges(spec, facts, on, &read));
    }
    findings.extend(rules::check_names(spec, types, &chosen));
    findings.extend(identity(spec, facts));
    let (Some([on]), true) = (on.as_deref(), findings.is_empty()) else { return Err(findings) };
    let served = chosen.into_iter().map(|column| {
        let mut served = types.served(column);
        if column.number == on.number && on.stored == KeyStored::Bytea {
            served.shape = Shape::Scalar(Scalar::Hex);
        }
        served
    });
    let is_partitioned = facts.relkind == 'p';
    Ok(Embedded {
        member: embed.name.clone(),
        oid: facts.oid,
        schema: facts.schema.clone(),
        name: facts.name.clone(),
        kind: if is_partitioned { TableKind::Partitioned } else { TableKind::Plain },
        old_parent: old_parent(facts, on),
        columns: of_catalog(facts),
        on: on.name.clone(),
        collation: facts.column(&on.name).and_then(|column| column.collation.clone()),
        order: order.iter().map(|(name, is_desc)| ((*name).to_owned(), *is_desc)).collect(),
        limit: embed.limit,
        served: served.collect(),
    })
}

/// Checks that the column refers to the key: of the same type, and equal if and only if the bytes
/// are.
fn reference(spec: &CollectionConfig, on: &KeyColumn, parent: &[KeyColumn]) -> Option<Finding> {
    use KeyStored::{Bytea, Int2, Int4, Int8, Text, Uuid};
    // Without a key there is a finding about it, and the configuration refuses several columns.
    let [key] = parent else { return None };
    let is_same = matches!(
        (key.stored, on.stored),
        (Int2 | Int4 | Int8, Int2 | Int4 | Int8) | (Text, Text) | (Uuid, Uuid) | (Bytea, Bytea)
    );
    (!is_same).then(|| {
        Finding::new(
            format!(
                "collection `{}`: `on` = `{}` is of type {}, and the key of the collection of type \
                 {}: both must be integers, texts that are compared byte by byte, UUIDs, or bytea",
                spec.name, on.name, on.sql_type, key.sql_type
            ),
            "embed by a column of the key's type",
        )
    })
}

/// Checks that changes of the table are logged once it is published: not without any replica
/// identity, with which its UPDATEs and DELETEs would fail.
fn identity(spec: &CollectionConfig, facts: &Facts) -> Vec<Finding> {
    let has_none = |letter: char, has_columns: bool| match letter {
        'f' => false,
        'n' => true,
        _ => !has_columns,
    };
    let finding = |name: &str, table: &str| {
        Finding::new(
            format!(
                "collection `{}`: `{name}` has no replica identity, so its UPDATEs and DELETEs \
                 would fail once it is published",
                spec.name
            ),
            format!("ALTER TABLE {table} REPLICA IDENTITY FULL;"),
        )
    };
    if facts.relkind == 'p' {
        let leaves = facts.leaves.iter();
        let leaves = leaves.filter(|leaf| has_none(leaf.relreplident, !leaf.identity.is_empty()));
        return leaves.map(|leaf| finding(&leaf.name, &leaf.name)).collect();
    }
    let table = format!("{}.{}", quote(&facts.schema), quote(&facts.name));
    match has_none(facts.relreplident, facts.identity_index().is_some()) {
        true => vec![finding(&spec.table, &table)],
        false => Vec::new(),
    }
}

/// Returns whether the log has the parent of an old row. Of a partitioned table the partitions'
/// identities count, while the stream describes that of the whole table.
fn old_parent(facts: &Facts, on: &KeyColumn) -> OldParent {
    let is_logged = match facts.relkind {
        'p' => facts.leaves.iter().all(|leaf| leaf.relreplident == 'f'),
        _ => {
            let is_in = |index: &Index| index.columns.contains(&on.number);
            facts.relreplident == 'f' || facts.identity_index().is_some_and(is_in)
        }
    };
    if is_logged { OldParent::Logged } else { OldParent::Missing }
}

/// Says at the start which changes will cost more than their parents.
pub(crate) fn note_missing_parents(collection: &str, embedded: &[Embedded]) {
    for child in embedded.iter().filter(|child| child.old_parent == OldParent::Missing) {
        tracing::warn!(
            collection,
            table = %child.sql_name(),
            column = %child.on,
            remedy = %format!("ALTER TABLE {} REPLICA IDENTITY FULL;", child.sql_name()),
            "the log does not contain the parent of a child that is changed or deleted: each such \
             change makes every record of the collection stale"
        );
    }
}

impl Served {
    /// Returns the column in a SELECT list. `row` is the alias of its table.
    pub(crate) fn sql(&self, row: &str) -> String {
        let column = format!("{row}.{}", quote(&self.name));
        match self.select {
            Select::Plain => column,
            Select::Text => format!("{column}::text"),
            Select::TextArray => format!("{column}::text[]"),
            Select::ToJson => format!("pg_catalog.to_json({column})"),
        }
    }

    /// Returns the OID of the type that is sent.
    fn sent_oid(&self) -> u32 {
        match self.select {
            Select::Plain => self.type_oid,
            Select::Text => Type::TEXT.oid(),
            Select::TextArray => Type::TEXT_ARRAY.oid(),
            Select::ToJson => Type::JSON.oid(),
        }
    }
}

impl Facts {
    pub(super) fn columns_of<'a>(&'a self, index: &'a Index) -> impl Iterator<Item = &'a str> {
        let column = |number: &i16| self.columns.iter().find(|c| c.number == *number);
        index.columns.iter().filter_map(column).map(|column| column.name.as_str())
    }

    /// Returns the index that is the replica identity.
    fn identity_index(&self) -> Option<&Index> {
        self.indexes.iter().find(|index| match self.relreplident {
            'd' => index.primary,
            'i' => index.replica_identity,
            _ => false,
        })
    }
}
