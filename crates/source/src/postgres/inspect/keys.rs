//! Which columns name a row, whether they do so uniquely, whether the feed tells them of a deleted row, and of which type
//! their ids are.

use hotrow_cache::key::{Collation, KEY_PARTS_MAX, KeyType};

use super::super::config::{CollectionSpec, KeyTypeName};
use super::super::error::Finding;
use super::catalog::{Column, Facts, Index};
use super::types::Types;
use super::{KeyColumn, KeyStored, Refused, listed, quote};

/// The key columns with their types.
pub(super) fn columns(spec: &CollectionSpec, facts: &Facts, types: &Types) -> Result<Vec<KeyColumn>, Refused> {
    let refuse =
        |what: String, mend: &str| Err(vec![Finding::new(format!("collection `{}`: {what}", spec.name), mend)]);
    let wanted = spec.key.len();
    if !(1..=KEY_PARTS_MAX).contains(&wanted) {
        return refuse(format!("`key` names {wanted} columns"), &format!("name one to {KEY_PARTS_MAX}"));
    }
    if !spec.key_types.is_empty() && spec.key_types.len() != wanted {
        let got = spec.key_types.len();
        return refuse(
            format!("`key_types` has {got} entries for {wanted} key columns"),
            "name one per column, or none",
        );
    }
    let (mut key, mut findings) = (Vec::<KeyColumn>::new(), Vec::new());
    for (i, name) in spec.key.iter().enumerate() {
        let Some(column) = facts.column(name) else {
            findings.push(facts.no_column(spec, "key", name));
            continue;
        };
        if key.iter().any(|k| k.number == column.number) {
            return refuse(format!("`key` names column `{name}` twice"), "name each column once");
        }
        match typed(spec, column, types, spec.key_types.get(i).copied()) {
            Ok(column) => key.push(column),
            Err(finding) => findings.push(finding),
        }
    }
    if findings.is_empty() { Ok(key) } else { Err(findings) }
}

fn typed(
    spec: &CollectionSpec,
    column: &Column,
    types: &Types,
    wanted: Option<KeyTypeName>,
) -> Result<KeyColumn, Finding> {
    let declared = types.name(column.type_oid);
    let refuse = |rule: &str, mend: &str| {
        let what = format!("collection `{}`: key column `{}` is of type {declared}: {rule}", spec.name, column.name);
        Err(Finding::new(what, mend))
    };
    let other = "use a key of integers, text, varchar, uuid or bytea";
    let stored = match types.base_name(column.type_oid) {
        Some("int2") => KeyStored::Int2,
        Some("int4") => KeyStored::Int4,
        Some("int8") => KeyStored::Int8,
        Some("text" | "varchar") => KeyStored::Text,
        Some("uuid") => KeyStored::Uuid,
        Some("bytea") => KeyStored::Bytea,
        Some("bpchar") => {
            return refuse(
                "blanks at its end do not count when it is compared, so an id has several spellings",
                "make it `text` or `varchar`",
            );
        }
        Some("numeric" | "float4" | "float8") => return refuse("a number with a fraction has no one spelling", other),
        _ => return refuse("its values have no one spelling that is known here", other),
    };
    if stored == KeyStored::Text && !column.deterministic {
        return refuse(
            "its collation is not deterministic, so different texts name one row",
            "use a deterministic collation",
        );
    }
    if column.generated {
        return refuse("it is generated, and the feed does not tell generated columns", "use an ordinary column");
    }
    let (ty, name) = match stored {
        KeyStored::Int2 | KeyStored::Int4 | KeyStored::Int8 => (KeyType::Integer, KeyTypeName::Integer),
        KeyStored::Text => (KeyType::Text(Collation::Binary), KeyTypeName::Text),
        KeyStored::Uuid => (KeyType::Uuid, KeyTypeName::Uuid),
        KeyStored::Bytea => (KeyType::Bytes, KeyTypeName::Bytes),
    };
    if wanted.is_some_and(|wanted| wanted != name) {
        return refuse("`key_types` says otherwise", "leave `key_types` out: the database tells the type");
    }
    Ok(KeyColumn { name: column.name.clone(), number: column.number, ty, stored })
}

/// Whether the key is unique, and whether the feed tells it of every changed row.
pub(super) fn check_identity(spec: &CollectionSpec, facts: &Facts, key: &[KeyColumn]) -> Vec<Finding> {
    if !matches!(facts.relkind, 'r' | 'p') {
        return Vec::new();
    }
    let table = format!("{}.{}", quote(&facts.schema), quote(&facts.name));
    let names = key.iter().map(|k| k.name.as_str()).collect::<Vec<_>>().join(", ");
    let columns = key.iter().map(|k| quote(&k.name)).collect::<Vec<_>>().join(", ");
    let finding = |what: String, mend: String| Finding::new(format!("collection `{}`: {what}", spec.name), mend);
    let on_key: Vec<&Index> = facts.indexes.iter().filter(|index| is_on(index, key)).collect();
    let Some(index) = on_key.first() else {
        let unique: Vec<String> = facts.indexes.iter().map(|index| facts.names(index)).collect();
        let mend = if facts.indexes.iter().any(|index| index.primary) {
            format!("set `key` to unique columns ({})", listed(&unique))
        } else {
            format!("ALTER TABLE {table} ADD PRIMARY KEY ({columns});")
        };
        return vec![finding(
            format!(
                "({names}) is not unique in `{}`: it needs a primary key or a unique index without WHERE on exactly these columns",
                spec.table
            ),
            mend,
        )];
    };
    let mut findings = Vec::new();
    let told = match facts.relreplident {
        'f' => true,
        'd' => on_key.iter().any(|index| index.primary),
        'i' => on_key.iter().any(|index| index.replica_identity),
        _ => false,
    };
    // Of a partitioned table the identity of each partition counts, not its own.
    if !told && facts.relkind == 'r' {
        let not_null = key.iter().all(|k| facts.columns.iter().any(|c| c.number == k.number && c.not_null));
        let mend = match () {
            () if index.primary => format!("ALTER TABLE {table} REPLICA IDENTITY DEFAULT;"),
            () if not_null => format!("ALTER TABLE {table} REPLICA IDENTITY USING INDEX {};", quote(&index.name)),
            () => format!("ALTER TABLE {table} REPLICA IDENTITY FULL;"),
        };
        let why = match facts.relreplident {
            'n' => "has REPLICA IDENTITY NOTHING, so its UPDATEs and DELETEs would fail once it is published".into(),
            _ => format!("has a replica identity other than ({names}), so the log does not tell which row was deleted"),
        };
        findings.push(finding(format!("`{}` {why}", spec.table), mend));
    }
    findings.extend(facts.leaves.iter().filter(|leaf| leaf.relreplident != 'f').filter_map(|leaf| {
        let same = leaf.identity.len() == key.len() && key.iter().all(|k| leaf.identity.contains(&k.name));
        (!same).then(|| {
            finding(
                format!("the log of partition `{}` does not tell ({names}) of a deleted row", leaf.name),
                format!(
                    "ALTER TABLE {} REPLICA IDENTITY {};",
                    leaf.name,
                    if index.primary { "DEFAULT" } else { "FULL" }
                ),
            )
        })
    }));
    findings
}

fn is_on(index: &Index, key: &[KeyColumn]) -> bool {
    index.columns.len() == key.len() && key.iter().all(|k| index.columns.contains(&k.number))
}

impl Facts {
    fn names(&self, index: &Index) -> String {
        let name = |number: &i16| self.columns.iter().find(|c| c.number == *number).map_or("?", |c| c.name.as_str());
        index.columns.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}
