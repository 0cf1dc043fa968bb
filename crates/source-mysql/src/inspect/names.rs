//! Names of tables, columns and accounts, and their forms in SQL.

use mysql_async::{Conn, Error};

use super::super::catalog_row;

/// Name of a table on the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableName {
    /// Database of the table.
    pub(crate) schema: String,
    pub(crate) table: String,
}

impl TableName {
    /// Returns `` `database`.`table` ``.
    pub(crate) fn sql(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.table))
    }
}

/// Returns `user@host` in the form of a GRANT statement.
pub(crate) fn account(user: &str) -> String {
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    format!("'{}'@'{}'", name.replace('\'', "''"), host.replace('\'', "''"))
}

/// Returns an identifier quoted for SQL.
pub(crate) fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Returns the account of the session as `user@host`.
pub(crate) async fn current_user(conn: &mut Conn) -> Result<String, Error> {
    let row = catalog_row::first(conn, "SELECT CURRENT_USER()").await?;
    row.map_or_else(|| Ok(String::new()), |row| row.text(0, "CURRENT_USER()"))
}

/// Returns a text literal for SQL. Backslashes escape, because `sql_mode` is empty.
pub(crate) fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''").replace('\0', "\\0"))
}
