//! Views whose rows depend on one row of one table each, which are served by the changes of that
//! table.
//!
//! Two witnesses must agree. The first is the text, by the grammar of [`ViewText`]. The second is
//! SQLite: a database with nothing but a table of the same columns must have all that the view
//! reads, and its authorizer must report one SELECT, that table, and accepted functions.

use std::sync::Arc;

use hotrow_source::view_text::{Dialect, Output, ViewText};
use hotrow_types::key::CollectionId;
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, OptionalExtension};

use super::super::config::{CollectionConfig, Watch};
use super::super::error::{Fault, OpenError, fault};
use super::super::names::quote;
use super::{
    Column, Facts, Inspected, KeyColumn, Refused, Relation, Rowid, Table, embedded, find_relation,
    keys, served, uniques,
};

/// View through which a table's rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Name as the database spells it.
    pub(crate) name: String,
    /// Names that the key's columns have in the view.
    pub(crate) key: Vec<String>,
    /// Definition, for comparison.
    sql: String,
}

/// Number of SELECTs in a statement that reads a view: its own and the view's.
const SELECTS: usize = 2;

/// Inspects a view and the table behind it.
pub(super) fn inspect(
    conn: &Connection,
    id: CollectionId,
    spec: &CollectionConfig,
    name: String,
    watch: Watch,
) -> Inspected<Table> {
    let refuse = |detail: String| refused(spec, detail);
    let sql = text(conn, &name)?;
    let parsed =
        ViewText::parse(&sql, &Dialect::SQLITE).map_err(|fault| refuse(fault.to_string()))?;
    let base = Facts::read(conn, base(conn, spec, &parsed)?)?;
    let outputs = outputs(&parsed, &base).map_err(refuse)?;
    if let Err(why) = witness(&name, &sql, &base) {
        return Err(refuse(why));
    }
    let facts = of_view(conn, spec, name, &base, &outputs)?;
    let mut view_key = Vec::with_capacity(spec.key.len());
    let mut base_key = Vec::with_capacity(spec.key.len());
    for key in &spec.key {
        let column = facts.column_or_refuse(spec, "key", key)?;
        let at = facts.columns.iter().position(|c| c.name == column.name);
        let Some(passed) = at.and_then(|at| outputs.get(at)).copied().flatten() else {
            return Err(refuse(format!(
                "computes its key column `{key}`, which must be a column of the table as it is"
            )));
        };
        view_key.push(column.name.clone());
        base_key.push(passed.name.clone());
    }
    let base_spec = CollectionConfig { table: base.name.clone(), key: base_key, ..spec.clone() };
    let key_columns = keys::columns(&base_spec, &base)?;
    let index = keys::unique_index(&base_spec, &base, &key_columns)?;
    let key = keys::typed(&base_spec, &base, &key_columns, index)?;
    let shown = view_key.iter().zip(&key);
    let shown: Vec<KeyColumn> =
        shown.map(|(name, key)| KeyColumn { name: name.clone(), ..key.clone() }).collect();
    let served = served(spec, &facts, &shown)?;
    let uniques = match watch {
        Watch::Triggers => uniques(&base_spec, &base, index, index.is_none())?,
        Watch::None => Vec::new(),
    };
    let view = Some(View { name: facts.name, key: view_key, sql });
    let mut table =
        Table { collection: id, name: base.name, served, key, uniques, embedded: Vec::new(), view };
    table.embedded = embedded::inspect(conn, id, spec, &table, watch)?;
    Ok(table)
}

fn refused(spec: &CollectionConfig, detail: String) -> Refused {
    let collection = spec.name.clone();
    OpenError::View { collection, view: spec.table.clone(), detail }.into()
}

fn text(conn: &Connection, name: &str) -> rusqlite::Result<String> {
    let sql: Option<Option<String>> = conn
        .query_row(
            "SELECT sql FROM main.sqlite_schema WHERE type = 'view' AND name = ?1",
            [name],
            |r| r.get(0),
        )
        .optional()?;
    Ok(sql.flatten().unwrap_or_default())
}

/// Finds the table behind a view.
fn base(conn: &Connection, spec: &CollectionConfig, parsed: &ViewText) -> Inspected<String> {
    if parsed.schema.as_ref().is_some_and(|schema| !schema.eq_ignore_ascii_case("main")) {
        return Err(refused(spec, "selects from another database".to_owned()));
    }
    let base_spec = CollectionConfig { table: parsed.table.clone(), ..spec.clone() };
    match find_relation(conn, &base_spec)? {
        Relation::Table(name) => Ok(name),
        Relation::View(_) => Err(refused(spec, "selects from another view".to_owned())),
    }
}

/// Returns for each column of the view the table's column that it passes through, if any.
fn outputs<'a>(parsed: &ViewText, base: &'a Facts) -> Result<Vec<Option<&'a Column>>, String> {
    // A name that is no column of the table may be the rowid, an alias, or a text.
    let known = |name: &str| {
        let missing = || {
            let table = &base.name;
            format!("uses `{name}`, which is not the name of a column of `{table}`")
        };
        base.column(name).ok_or_else(missing)
    };
    for name in &parsed.used {
        known(name)?;
    }
    let mut outputs = Vec::new();
    for output in &parsed.outputs {
        match output {
            Output::Passed(name) => outputs.push(Some(known(name)?)),
            Output::Computed => outputs.push(None),
            Output::All => outputs.extend(base.columns.iter().map(Some)),
        }
    }
    Ok(outputs)
}

/// Makes SQLite compile a read of the view where nothing exists but a table with the columns of its
/// table, and checks what it reports.
pub(crate) fn witness(view: &str, sql: &str, base: &Facts) -> Result<(), String> {
    let columns: Vec<String> = base.columns.iter().map(|column| quote(&column.name)).collect();
    let table = format!("CREATE TABLE {}({})", quote(&base.name), columns.join(","));
    let seen = Arc::new(Mutex::new(AuthorizerReport::default()));
    let compile = || -> rusqlite::Result<()> {
        let mut conn = Connection::open_in_memory()?;
        // A name in double quotes must be one.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        conn.prepare(&table)?.raw_execute()?;
        conn.prepare(sql)?.raw_execute()?;
        let names = Expected {
            view: view.to_owned(),
            table: base.name.clone(),
            columns: base.columns.iter().map(|column| column.name.clone()).collect(),
        };
        let reported = Arc::clone(&seen);
        conn.authorizer(Some(move |context: AuthContext<'_>| {
            let mut seen = reported.lock();
            match names.allows(&context, &mut seen) {
                true => Authorization::Allow,
                false => {
                    seen.refused = Some(format!("{:?}", context.action));
                    Authorization::Deny
                }
            }
        }))?;
        conn.prepare(&format!("SELECT * FROM main.{}", quote(view)))?;
        Ok(())
    };
    let compiled = compile();
    let seen = seen.lock();
    match (compiled, &seen.refused) {
        (_, Some(action)) => Err(format!("does more than read columns of its table: {action}")),
        (Err(e), None) => Err(format!("cannot be compiled with its table alone: {e}")),
        (Ok(()), None) if seen.selects != SELECTS => Err("contains a subquery".to_owned()),
        (Ok(()), None) => Ok(()),
    }
}

/// What the authorizer reported.
#[derive(Default)]
struct AuthorizerReport {
    selects: usize,
    refused: Option<String>,
}

/// What a read of an accepted view may use.
struct Expected {
    view: String,
    table: String,
    columns: Vec<String>,
}

impl Expected {
    fn allows(&self, context: &AuthContext<'_>, seen: &mut AuthorizerReport) -> bool {
        match context.action {
            AuthAction::Select => {
                seen.selects += 1;
                true
            }
            AuthAction::Read { table_name, .. } if table_name == self.view => true,
            AuthAction::Read { table_name, column_name } => {
                table_name == self.table && self.columns.iter().any(|name| name == column_name)
            }
            AuthAction::Function { function_name } => {
                let function = function_name.to_ascii_lowercase();
                Dialect::SQLITE.functions().contains(&function.as_str())
            }
            _ => false,
        }
    }
}

/// Returns the facts about a view's columns.
fn of_view(
    conn: &Connection,
    spec: &CollectionConfig,
    name: String,
    base: &Facts,
    outputs: &[Option<&Column>],
) -> Inspected<Facts> {
    let names = || -> rusqlite::Result<Vec<String>> {
        // For instance a collation that only another program defines.
        conn.prepare(&format!("SELECT * FROM main.{}", quote(&name)))?;
        let mut statement =
            conn.prepare("SELECT name FROM pragma_table_xinfo(?1, 'main') ORDER BY cid")?;
        let names = statement.query_map([&name], |r| r.get(0))?;
        names.collect()
    };
    let names = match names() {
        Ok(names) => names,
        Err(e) if fault(&e) == Fault::Statement => {
            return Err(refused(spec, format!("cannot be read: {e}")));
        }
        Err(e) => return Err(e.into()),
    };
    if names.len() != outputs.len() {
        let detail = format!("has {} columns, and its text has {}", names.len(), outputs.len());
        return Err(refused(spec, detail));
    }
    let mut rowid = Rowid::None;
    let mut columns = Vec::with_capacity(names.len());
    for (name, passed) in names.into_iter().zip(outputs) {
        if let (Rowid::Column(of_base), Some(passed)) = (&base.rowid, passed)
            && *of_base == passed.name
        {
            rowid = Rowid::Column(name.clone());
        }
        columns.push(Column {
            name,
            declared: passed.map(|column| column.declared.clone()).unwrap_or_default(),
            not_null: passed.is_some_and(|column| column.not_null),
            default: None,
        });
    }
    Ok(Facts { name, columns, indexes: Vec::new(), rowid, strict: base.strict })
}
