//! SQL of the writers. The statements of the engines differ in few words.

use super::{Change, ChangeKind, Rows, StoredRow, Table, TableRole, Tables};
use crate::row::{KeyType, MARK, PAYLOAD, VERSION, payload};

/// Dialect of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
    Mysql,
}

/// Tables with the names for SQL.
pub(super) struct SqlTables {
    records: SqlTable,
    children: Option<SqlTable>,
}

/// A table with its names, quoted.
struct SqlTable {
    dialect: Dialect,
    is_of_children: bool,
    name: String,
    key: String,
    key_type: KeyType,
    reference: Option<(String, KeyType)>,
    /// Index on the reference of children.
    index: String,
}

impl SqlTables {
    pub(super) fn new(tables: &Tables, dialect: Dialect) -> Self {
        let table = |table: &Table, is_of_children| SqlTable::new(table, dialect, is_of_children);
        Self {
            records: table(&tables.records, false),
            children: tables.children.as_ref().map(|children| table(children, true)),
        }
    }

    fn table(&self, role: TableRole) -> &SqlTable {
        match (role, &self.children) {
            (TableRole::Children, Some(children)) => children,
            // Without children their table is not named.
            (TableRole::Children, None) | (TableRole::Records, _) => &self.records,
        }
    }

    /// Returns the statements that create the missing tables.
    pub(super) fn create(&self) -> Vec<String> {
        [&self.records].into_iter().chain(&self.children).flat_map(SqlTable::create).collect()
    }

    /// Returns the query for all rows of a table, or the row of a key, for [`Self::decode`].
    pub(super) fn query(&self, role: TableRole, key: Option<u32>) -> String {
        self.table(role).query(key)
    }

    /// Returns the statements of a change.
    pub(super) fn change(&self, change: &Change) -> Vec<String> {
        self.table(change.table).change(change)
    }

    /// Adds a row of [`Self::query`], whose cells are texts.
    pub(super) fn decode(
        &self,
        role: TableRole,
        cell: impl Fn(usize) -> Option<String>,
        rows: &mut Rows,
    ) {
        let table = self.table(role);
        let key = cell(0).and_then(|text| table.key_type.parse(&text));
        let version = cell(1).and_then(|text| text.parse().ok());
        let kind = table.reference.as_ref().map(|(_, kind)| *kind);
        let text = cell(3);
        let reference = text.as_deref().zip(kind).and_then(|(text, kind)| kind.parse(text));
        let is_ours = cell(2).as_deref() == Some(MARK) && text.is_some() == reference.is_some();
        match (key, version) {
            (Some(key), Some(version)) if is_ours => {
                rows.rows.insert(key, StoredRow { version, reference });
            }
            _ => rows.foreign += 1,
        }
    }
}

impl SqlTable {
    fn new(table: &Table, dialect: Dialect, is_of_children: bool) -> Self {
        let quote = |name: &str| quoted(name, dialect);
        let last = table.name.rsplit('.').next().unwrap_or_default();
        let reference = table.reference.as_ref();
        let column = reference.map_or("", |reference| &reference.column);
        Self {
            dialect,
            is_of_children,
            name: quote(&table.name),
            key: quote(&table.key),
            key_type: table.key_type,
            reference: reference.map(|found| (quote(&found.column), found.key_type)),
            index: quote(&format!("{last}_{column}").replace('.', "_")),
        }
    }

    fn create(&self) -> Vec<String> {
        let Self { dialect, name, key, index, .. } = self;
        let type_name = |kind: KeyType| match (dialect, kind) {
            (Dialect::Sqlite, KeyType::Integer) => "INTEGER",
            (_, KeyType::Integer) => "BIGINT",
            // Case and accents are significant, so that k1 and K1 differ.
            (Dialect::Mysql, KeyType::Text) => "VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin",
            (_, KeyType::Text) => "TEXT",
        };
        let key_type = type_name(self.key_type);
        let version = type_name(KeyType::Integer);
        // In SQLite only this exact form is the row's number.
        let not_null = match (dialect, self.key_type) {
            (Dialect::Sqlite, KeyType::Integer) => "",
            _ => " NOT NULL",
        };
        let mut columns = format!(
            "{key} {key_type}{not_null} PRIMARY KEY, {VERSION} {version} NOT NULL, \
             {PAYLOAD} TEXT NOT NULL"
        );
        let mut statements = Vec::new();
        if let Some((column, kind)) = &self.reference {
            let (rule, kind) =
                (if self.is_of_children { "NOT NULL" } else { "UNIQUE" }, type_name(*kind));
            columns.push_str(&format!(", {column} {kind} {rule}"));
            match dialect {
                _ if !self.is_of_children => {}
                Dialect::Mysql => columns.push_str(&format!(", INDEX {index} ({column})")),
                Dialect::Sqlite | Dialect::Postgres => statements
                    .push(format!("CREATE INDEX IF NOT EXISTS {index} ON {name}({column})")),
            }
        }
        // Other engines of MySQL than InnoDB have no transactions.
        let engine = if *dialect == Dialect::Mysql { " ENGINE=InnoDB" } else { "" };
        statements.insert(0, format!("CREATE TABLE IF NOT EXISTS {name}({columns}){engine}"));
        statements
    }

    fn query(&self, key: Option<u32>) -> String {
        let text = if self.dialect == Dialect::Mysql { "CHAR" } else { "TEXT" };
        let cell = |value: &str| format!("CAST({value} AS {text})");
        let reference = self.reference.as_ref().map_or("NULL", |(column, _)| column);
        let cells = [
            cell(&self.key),
            cell(VERSION),
            cell(&format!("substr({PAYLOAD}, 1, {})", MARK.len())),
            cell(reference),
        ];
        let filter =
            key.map_or(String::new(), |key| format!(" WHERE {} = {}", self.key, self.id(key)));
        format!("SELECT {} FROM {}{filter}", cells.join(", "), self.name)
    }

    fn id(&self, key: u32) -> String {
        literal(self.key_type, Some(key))
    }

    fn change(&self, change: &Change) -> Vec<String> {
        let Self { dialect, name, key, .. } = self;
        let id = self.id(change.key);
        let mut columns = vec![VERSION, PAYLOAD];
        let mut values =
            vec![change.version.to_string(), format!("'{}'", payload(change.key, change.version))];
        if let Some((column, kind)) = &self.reference {
            columns.push(column);
            values.push(literal(*kind, change.reference));
        }
        let insert = |verb: &str| {
            let (columns, values) = (columns.join(", "), values.join(", "));
            format!("{verb} INTO {name} ({key}, {columns}) VALUES ({id}, {values})")
        };
        let delete = || format!("DELETE FROM {name} WHERE {key} = {id}");
        let set = |value: &dyn Fn(&str) -> String| {
            let assignments: Vec<String> =
                columns.iter().map(|column| format!("{column} = {}", value(column))).collect();
            assignments.join(", ")
        };
        match (change.kind, dialect) {
            (ChangeKind::Delete, _) => vec![delete()],
            (ChangeKind::Replace, Dialect::Sqlite) => vec![insert("INSERT OR REPLACE")],
            (ChangeKind::Replace, Dialect::Postgres) => vec![delete(), insert("INSERT")],
            (ChangeKind::Replace, Dialect::Mysql) => vec![insert("REPLACE")],
            (ChangeKind::Upsert, Dialect::Mysql) => {
                let set = set(&|column| format!("VALUES({column})"));
                vec![format!("{} ON DUPLICATE KEY UPDATE {set}", insert("INSERT"))]
            }
            (ChangeKind::Upsert, Dialect::Sqlite | Dialect::Postgres) => {
                let set = set(&|column| format!("excluded.{column}"));
                vec![format!("{} ON CONFLICT ({key}) DO UPDATE SET {set}", insert("INSERT"))]
            }
        }
    }
}

fn literal(key_type: KeyType, number: Option<u32>) -> String {
    match (number, key_type) {
        (None, _) => "NULL".to_owned(),
        (Some(number), KeyType::Integer) => number.to_string(),
        (Some(number), KeyType::Text) => format!("'{}'", key_type.text(number)),
    }
}

/// Quotes a name, part by part if it contains a dot.
fn quoted(name: &str, dialect: Dialect) -> String {
    let quote = if dialect == Dialect::Mysql { '`' } else { '"' };
    let part =
        |part: &str| format!("{quote}{}{quote}", part.replace(quote, &format!("{quote}{quote}")));
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Reference;

    #[test]
    fn each_dialect_has_its_words() {
        let records = Table {
            name: "s.t`\"".to_owned(),
            key: "id".to_owned(),
            key_type: KeyType::Integer,
            reference: Some(Reference { column: "handle".to_owned(), key_type: KeyType::Text }),
        };
        let tables = Tables { records, children: None };
        let change = Change {
            table: TableRole::Records,
            key: 7,
            version: 5,
            reference: Some(3),
            kind: ChangeKind::Upsert,
        };
        let sql = |dialect| SqlTables::new(&tables, dialect).change(&change).join(";");
        let values = format!("(7, 5, '{}', 'k3')", payload(7, 5));
        let columns = r#""id", version, payload, "handle""#;
        let insert = format!(r#"INSERT INTO "s"."t`""" ({columns}) VALUES {values}"#);
        let set = "version = excluded.version, payload = excluded.payload";
        let update = format!(r#"DO UPDATE SET {set}, "handle" = excluded."handle""#);
        assert_eq!(sql(Dialect::Postgres), format!(r#"{insert} ON CONFLICT ("id") {update}"#));
        assert!(sql(Dialect::Mysql).starts_with("INSERT INTO `s`.`t``\"` (`id`, version"));
        let free = Change { reference: None, kind: ChangeKind::Replace, ..change };
        let sqlite = SqlTables::new(&tables, Dialect::Sqlite);
        assert!(sqlite.change(&free)[0].ends_with("', NULL)"));
        let mut rows = Rows::default();
        for cells in [["7", "5", MARK, "k3"], ["7", "5", "x", "k3"], ["8", "5", MARK, "3"]] {
            let cell = |at: usize| Some(cells[at].to_owned());
            sqlite.decode(TableRole::Records, cell, &mut rows);
        }
        assert_eq!(rows.foreign, 2);
        assert_eq!(rows.rows, [(7, StoredRow { version: 5, reference: Some(3) })].into());
    }
}
