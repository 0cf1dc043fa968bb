//! What an administrator has to grant before an account can serve the tables, as findings about the
//! whole server, so that one block of SQL is complete.

use mysql_async::{Conn, Error};

use super::super::Finding;
use super::super::catalog_row;
use super::super::inspect::{account, current_user};
use super::super::server::{Flavor, Identity};

/// The server knows no such account.
const NO_ACCOUNT: u16 = 1141;

/// Returns what `role` (`NAME` or `NAME@HOST`) lacks, or the account of the session without one.
/// `databases` are those to serve, `sees_tables` whether it sees one of their tables.
pub(super) async fn findings(
    conn: &mut Conn,
    identity: &Identity,
    role: Option<&str>,
    databases: &[String],
    sees_tables: bool,
) -> Result<Vec<Finding>, Error> {
    let name = match role {
        Some(role) => account(role),
        None => account(&current_user(conn).await?),
    };
    let shown = match role {
        Some(_) => format!("SHOW GRANTS FOR {name}"),
        None => "SHOW GRANTS".to_owned(),
    };
    let mut findings = Vec::new();
    let grants = match catalog_row::rows(conn, shown, |row| row.text(0, "the grants")).await {
        Ok(grants) => grants,
        Err(Error::Server(e)) if e.code == NO_ACCOUNT => {
            findings.push(Finding::new(
                format!("there is no account {name}"),
                format!(
                    "CREATE USER {name} ACCOUNT LOCK;\nthen set its password: ALTER USER {name} \
                     IDENTIFIED BY … ACCOUNT UNLOCK"
                ),
            ));
            Vec::new()
        }
        Err(e) => return Err(e),
    };
    let monitor = match identity.flavor {
        Flavor::MariaDb => "BINLOG MONITOR",
        Flavor::MySql => "REPLICATION CLIENT",
    };
    if !["REPLICATION SLAVE", monitor].iter().all(|needed| is_granted(&grants, needed, "*.*")) {
        findings.push(Finding::new(
            format!("{name} may not follow the binary log"),
            format!("GRANT REPLICATION SLAVE, {monitor} ON *.* TO {name};"),
        ));
    }
    for database in databases.iter().filter(|_| role.is_some() || !sees_tables) {
        let of_database = pattern(database);
        let places = ["*.*".to_owned(), format!("{of_database}.*")];
        let is_readable = places.iter().any(|place| is_granted(&grants, "SELECT", place));
        if !is_readable {
            findings.push(Finding::new(
                format!("{name} may read no table of `{database}`"),
                format!("GRANT SELECT, SHOW VIEW ON {of_database}.* TO {name};"),
            ));
        }
    }
    Ok(findings)
}

/// Returns whether a privilege is granted there. What a role of MySQL grants is not seen.
fn is_granted(grants: &[String], privilege: &str, place: &str) -> bool {
    let place = format!(" ON {place} TO ");
    grants.iter().any(|grant| {
        let privileges = grant.split_once(&place).and_then(|(all, _)| all.strip_prefix("GRANT "));
        privileges.is_some_and(|all| {
            all.split(", ").any(|one| one == "ALL PRIVILEGES" || one == privilege)
        })
    })
}

/// Returns a database as GRANT names it, where `_` and `%` match other characters too.
fn pattern(database: &str) -> String {
    let escaped = database.replace('`', "``").replace('_', "\\_").replace('%', "\\%");
    format!("`{escaped}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_found_where_they_count() {
        let grants = ["GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `a`@`%`"];
        let mut grants = grants.map(str::to_owned);
        assert!(is_granted(&grants, "REPLICATION SLAVE", "*.*"));
        assert!(!is_granted(&grants, "REPLICATION CLIENT", "*.*"));
        grants[0] = grants[0].replace("SLAVE", "SLAVE ADMIN");
        assert!(!is_granted(&grants, "REPLICATION SLAVE", "*.*"), "another privilege");
        let all = ["GRANT ALL PRIVILEGES ON `shop`.* TO `a`@`%`".to_owned()];
        assert!(is_granted(&all, "SELECT", "`shop`.*") && !is_granted(&all, "SELECT", "*.*"));
        assert_eq!(pattern("my_`shop"), "`my\\_``shop`");
    }
}
