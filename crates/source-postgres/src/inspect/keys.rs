//! Key columns of a table: their types, their uniqueness, and whether the feed reports them for a
//! deleted row.

use hotrow_types::key::{CanonicalForm, Collation, KEY_PARTS_MAX, KeyType};

use super::super::config::{CollectionConfig, KeyTypeName};
use super::catalog::{Column, Facts, Index};
use super::types::{StoredType, Types};
use super::{KeyColumn, KeyStored, Refused, listed, quote};
use hotrow_source::default_key;
use hotrow_source::preflight::Finding;

/// Returns the key columns with their types.
pub(super) fn columns(
    spec: &CollectionConfig,
    facts: &Facts,
    types: &Types,
) -> Result<Vec<KeyColumn>, Refused> {
    let refuse = |what: String, remedy: &str| {
        Err(vec![Finding::new(format!("collection `{}`: {what}", spec.name), remedy)])
    };
    if spec.key.is_empty() {
        return Err(vec![default_key::none(spec)]);
    }
    let wanted = spec.key.len();
    if !(1..=KEY_PARTS_MAX).contains(&wanted) {
        return refuse(
            format!("`key` names {wanted} columns"),
            &format!("name one to {KEY_PARTS_MAX}"),
        );
    }
    if !spec.key_types.is_empty() && spec.key_types.len() != wanted {
        let got = spec.key_types.len();
        return refuse(
            format!("`key_type` has {got} entries for {wanted} key columns"),
            "name one per column, or none",
        );
    }
    let mut key = Vec::<KeyColumn>::new();
    let mut findings = Vec::new();
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
    spec: &CollectionConfig,
    column: &Column,
    types: &Types,
    wanted: Option<KeyTypeName>,
) -> Result<KeyColumn, Finding> {
    let declared = types.name(column.type_oid);
    let stored_type = types.stored(column.type_oid);
    let refuse = |rule: &str, remedy: &str| {
        let what = format!(
            "collection `{}`: key column `{}` is of type {declared}: {rule}",
            spec.name, column.name
        );
        Err(Finding::new(what, remedy))
    };
    let other = "use a key of another type; docs/postgres.md lists those that are served";
    let name_of = |t: StoredType<'_>| (t.of_system, t.name.to_owned());
    let stored = match stored_type
        .map(name_of)
        .as_ref()
        .map(|(of_system, name)| (*of_system, name.as_str()))
    {
        Some((true, "int2")) => KeyStored::Int2,
        Some((true, "int4")) => KeyStored::Int4,
        Some((true, "int8")) => KeyStored::Int8,
        Some((true, "text" | "varchar" | "bpchar")) if !column.deterministic => KeyStored::Folded,
        Some((true, "text" | "varchar")) => KeyStored::Text,
        Some((true, "bpchar")) => KeyStored::Bpchar,
        Some((true, "uuid")) => KeyStored::Uuid,
        Some((true, "bytea")) => KeyStored::Bytea,
        Some((true, "bool")) => KeyStored::Boolean,
        Some((true, "numeric")) => KeyStored::Numeric,
        Some((true, "date")) => KeyStored::Date,
        Some((true, "timestamp")) => KeyStored::Timestamp,
        Some((true, "timestamptz")) => KeyStored::TimestampTz,
        Some((false, _)) if stored_type.is_some_and(|t| t.is_enum) => KeyStored::Enum,
        Some((false, "citext")) => KeyStored::Folded,
        Some((true, "float4" | "float8")) => {
            return refuse(
                "the same number prints differently by the settings of a session, and 0 equals -0",
                other,
            );
        }
        Some((true, "interval")) => {
            return refuse("equal intervals print differently (`1 day`, `24:00:00`)", other);
        }
        _ => return refuse("its values have no unique spelling that is known here", other),
    };
    let (ty, name) = match stored {
        KeyStored::Int2 | KeyStored::Int4 | KeyStored::Int8 => {
            (KeyType::Integer, KeyTypeName::Integer)
        }
        KeyStored::Text | KeyStored::Enum => (KeyType::Text(Collation::Binary), KeyTypeName::Text),
        KeyStored::Folded => (KeyType::Text(Collation::Database), KeyTypeName::Text),
        KeyStored::Bpchar => (KeyType::Text(Collation::RightTrim), KeyTypeName::Text),
        KeyStored::Boolean => (KeyType::Canonical(CanonicalForm::Boolean), KeyTypeName::Text),
        KeyStored::Numeric => (KeyType::Canonical(CanonicalForm::Decimal), KeyTypeName::Text),
        KeyStored::Date => (KeyType::Canonical(CanonicalForm::Date), KeyTypeName::Text),
        KeyStored::Timestamp => (KeyType::Canonical(CanonicalForm::Timestamp), KeyTypeName::Text),
        KeyStored::TimestampTz => {
            (KeyType::Canonical(CanonicalForm::TimestampUtc), KeyTypeName::Text)
        }
        KeyStored::Uuid => (KeyType::Uuid, KeyTypeName::Uuid),
        KeyStored::Bytea => (KeyType::Bytes, KeyTypeName::Bytes),
    };
    if wanted.is_some_and(|wanted| wanted != name) {
        return refuse(
            "`key_type` says otherwise",
            "leave `key_type` out: the type is that of the column",
        );
    }
    let sql_type =
        stored_type.map(|t| format!("{}.{}", quote(t.schema), quote(t.name))).unwrap_or_default();
    let labels = stored_type.map(|t| t.labels.to_vec()).unwrap_or_default();
    Ok(KeyColumn { name: column.name.clone(), number: column.number, ty, stored, sql_type, labels })
}

/// Returns a finding for each key column that the feed does not contain.
pub(super) fn check_generated(
    spec: &CollectionConfig,
    facts: &Facts,
    key: &[KeyColumn],
) -> impl Iterator<Item = Finding> {
    let of_key = |c: &&Column| c.generated && key.iter().any(|k| k.number == c.number);
    facts.columns.iter().filter(of_key).map(|column| {
        let what = "is generated, and the feed contains no generated columns";
        let what = format!("collection `{}`: key column `{}` {what}", spec.name, column.name);
        Finding::new(what, "use an ordinary column").of_feed()
    })
}

/// Checks that an alias is unique. The feed reports the value that a changed row has, whatever the
/// replica identity is, and the value that it had is not needed.
pub(super) fn check_alias(
    spec: &CollectionConfig,
    facts: &Facts,
    columns: &[KeyColumn],
) -> Vec<Finding> {
    let names = columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
    let finding =
        |what: String, remedy: &str| Finding::new(format!("alias `{}`: {what}", spec.name), remedy);
    let mut findings = Vec::new();
    if !facts.indexes.iter().any(|index| is_on(index, columns)) {
        let faulty = match &facts.faulty_indexes[..] {
            [] => String::new(),
            some => format!(" ({})", some.join("; ")),
        };
        findings.push(finding(
            format!(
                "({names}) is not unique in `{}`: it needs a valid unique index without WHERE, on \
                 exactly these columns and no expression, that is not deferrable{faulty}",
                spec.table
            ),
            "create such an index, or remove the alias",
        ));
    }
    let of_table = |c: &KeyColumn| facts.columns.iter().find(|own| own.number == c.number);
    let nullable = columns.iter().filter_map(of_table).find(|column| !column.not_null);
    if let (Some(column), true) = (nullable, columns.len() > 1) {
        findings.push(finding(
            format!("its column `{}` may be null, and then nothing is unique", column.name),
            "declare all columns of an alias of several NOT NULL",
        ));
    }
    findings
}

/// Checks that the key is unique and that the feed reports it for every changed row.
pub(super) fn check_identity(
    spec: &CollectionConfig,
    facts: &Facts,
    key: &[KeyColumn],
) -> Vec<Finding> {
    if !matches!(facts.relkind, 'r' | 'p' | 'm') {
        return Vec::new();
    }
    let table = format!("{}.{}", quote(&facts.schema), quote(&facts.name));
    let names = key.iter().map(|k| k.name.as_str()).collect::<Vec<_>>().join(", ");
    let columns = key.iter().map(|k| quote(&k.name)).collect::<Vec<_>>().join(", ");
    let finding = |what: String, remedy: String| {
        Finding::new(format!("collection `{}`: {what}", spec.name), remedy)
    };
    let on_key: Vec<&Index> = facts.indexes.iter().filter(|index| is_on(index, key)).collect();
    let Some(index) = on_key.first() else {
        let unique: Vec<String> = facts.indexes.iter().map(|index| facts.names(index)).collect();
        let remedy = if facts.indexes.iter().any(|index| index.primary) {
            format!("set `key` to unique columns ({})", listed(&unique))
        } else if facts.relkind == 'm' {
            format!("CREATE UNIQUE INDEX ON {table} ({columns});")
        } else {
            format!("ALTER TABLE {table} ADD PRIMARY KEY ({columns});")
        };
        return vec![finding(
            format!(
                "({names}) is not unique in `{}`: it needs a primary key or a unique index \
                 without WHERE on exactly these columns",
                spec.table
            ),
            remedy,
        )];
    };
    let mut findings = Vec::new();
    let reports_key = match facts.relreplident {
        'f' => true,
        'd' => on_key.iter().any(|index| index.primary),
        'i' => on_key.iter().any(|index| index.replica_identity),
        _ => false,
    };
    // In a partitioned table the replica identity of each partition counts, not its own.
    if !reports_key && facts.relkind == 'r' {
        let not_null =
            key.iter().all(|k| facts.columns.iter().any(|c| c.number == k.number && c.not_null));
        let remedy = match () {
            () if index.primary => format!("ALTER TABLE {table} REPLICA IDENTITY DEFAULT;"),
            () if not_null => {
                format!("ALTER TABLE {table} REPLICA IDENTITY USING INDEX {};", quote(&index.name))
            }
            () => format!("ALTER TABLE {table} REPLICA IDENTITY FULL;"),
        };
        let why = match facts.relreplident {
            'n' => "has REPLICA IDENTITY NOTHING, so its UPDATEs and DELETEs would fail \
                    once it is published"
                .into(),
            _ => format!(
                "has a replica identity other than ({names}), \
                 so the log does not identify deleted rows"
            ),
        };
        findings.push(finding(format!("`{}` {why}", spec.table), remedy).of_feed());
    }
    findings.extend(facts.leaves.iter().filter(|leaf| leaf.relreplident != 'f').filter_map(
        |leaf| {
            let same = leaf.identity.len() == key.len()
                && key.iter().all(|k| leaf.identity.contains(&k.name));
            (!same).then(|| {
                finding(
                    format!(
                        "the log of partition `{}` does not contain ({names}) of a deleted row",
                        leaf.name
                    ),
                    format!(
                        "ALTER TABLE {} REPLICA IDENTITY {};",
                        leaf.name,
                        if index.primary { "DEFAULT" } else { "FULL" }
                    ),
                )
                .of_feed()
            })
        },
    ));
    findings
}

fn is_on(index: &Index, key: &[KeyColumn]) -> bool {
    index.columns.len() == key.len() && key.iter().all(|k| index.columns.contains(&k.number))
}

impl Facts {
    fn names(&self, index: &Index) -> String {
        let name = |number: &i16| {
            self.columns.iter().find(|c| c.number == *number).map_or("?", |c| c.name.as_str())
        };
        index.columns.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}
