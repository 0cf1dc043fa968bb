//! Possible holders of a table lock, for messages while the catalogue cannot be read.
//!
//! A schema change locks its table exclusively while it waits for a transaction that has changed
//! rows. A prepared transaction (XA) holds its locks without a session. Catalogue queries wait
//! behind both.

use mysql_async::{Conn, Error};

use super::catalog_row::{self, CatalogRow};

/// Maximum of prepared transactions, and of sessions, in a message.
const LISTED_MAX: usize = 5;
/// Maximum characters of a statement in a message.
const STATEMENT_CHARS_MAX: usize = 80;
/// First words of statements that lock a table. Others may contain values and are not shown.
const SHOWN: [&str; 8] =
    ["ALTER", "CREATE", "DROP", "LOCK", "OPTIMIZE", "RENAME", "REPAIR", "TRUNCATE"];

/// Returns true for an error of waiting too long, usually for a lock: the time limits of both
/// servers, and the lock wait timeouts of InnoDB and the dictionary.
pub(crate) fn is_wait(e: &Error) -> bool {
    matches!(e, Error::Server(server) if [1969, 3024, 1205].contains(&server.code))
}

/// Returns the possible lock holders and the queries that show all of them to a privileged account.
pub(crate) async fn describe(conn: &mut Conn) -> String {
    // Without the privilege, the answer is an error or empty. Neither proves anything.
    let prepared =
        catalog_row::rows(conn, "XA RECOVER FORMAT='SQL'", prepared_row).await.unwrap_or_default();
    let sql = "SELECT ID, USER, HOST, TIME, INFO FROM information_schema.PROCESSLIST \
               WHERE ID <> CONNECTION_ID() AND INFO IS NOT NULL ORDER BY TIME DESC LIMIT 100";
    let sessions = catalog_row::rows(conn, sql, session_row).await.unwrap_or_default();
    text(&prepared, &sessions.into_iter().flatten().collect::<Vec<_>>())
}

/// Returns the name of a prepared transaction in the form of `XA COMMIT`.
fn prepared_row(row: &CatalogRow) -> Result<String, Error> {
    row.required(3, "data")
}

/// Returns the session if its statement may lock a table.
fn session_row(row: &CatalogRow) -> Result<Option<String>, Error> {
    let id: u64 = row.required(0, "ID")?;
    let user = row.text(1, "USER")?;
    let host = row.text(2, "HOST")?;
    let time_s: Option<i64> = row.nullable(3, "TIME")?;
    let statement = row.text(4, "INFO")?;
    let first = statement.split_whitespace().next().unwrap_or_default().to_uppercase();
    let shown: String = statement.chars().take(STATEMENT_CHARS_MAX).collect();
    let time_s = time_s.unwrap_or_default();
    Ok(SHOWN
        .contains(&first.as_str())
        .then(|| format!("session {id} of {user}@{host}, for {time_s} s: {shown}")))
}

fn text(prepared: &[String], sessions: &[String]) -> String {
    let listed =
        |all: &[String]| all.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join("; ");
    let mut parts = vec!["a table of a collection is locked".to_owned()];
    if !prepared.is_empty() {
        let names = listed(prepared);
        parts.push(format!(
            "prepared transactions that may hold it (end each by XA COMMIT or XA ROLLBACK): {names}"
        ));
    }
    if !sessions.is_empty() {
        parts.push(format!("statements that may hold it or wait for it: {}", listed(sessions)));
    }
    parts.push(
        "`SHOW FULL PROCESSLIST` and `XA RECOVER` show all to an account with PROCESS".to_owned(),
    );
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use mysql_async::Value;

    use super::super::catalog_row::tests::survives_hostile_rows;
    use super::*;

    #[test]
    fn a_message_names_what_is_known_and_what_to_ask() {
        let row = |statement: &str| {
            let text = |text: &str| Value::Bytes(text.into());
            vec![text("7"), text("root"), text("h"), text("3"), text(statement)]
        };
        let session = session_row(&CatalogRow::of(row("drop table t"))).unwrap().unwrap();
        assert_eq!(session, "session 7 of root@h, for 3 s: drop table t");
        // Row values must not appear in the log.
        assert_eq!(
            session_row(&CatalogRow::of(row("INSERT INTO t VALUES ('secret')"))).unwrap(),
            None
        );
        survives_hostile_rows(&row("DROP TABLE t"), session_row);
        let known = text(&["X'7031',X'',1".into()], &[session]);
        for expected in
            ["XA ROLLBACK): X'7031',X'',1;", "it: session 7 of root@h", "SHOW FULL PROCESSLIST"]
        {
            assert!(known.contains(expected), "{expected}: {known}");
        }
        assert!(!text(&[], &[]).contains("XA ROLLBACK"));
    }
}
