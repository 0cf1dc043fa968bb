//! Transactions that a writer names: whether the server that is read has committed them.

use std::sync::atomic::Ordering;

use hotrow_source::SourceError;
use hotrow_source::attempts::Fault;
use hotrow_types::writer_token::WriterToken;
use mysql_async::{Conn, Error};
use tokio::time::Instant;

use super::MysqlSource;
use super::catalog_row;
use super::pool;
use super::server::Flavor;

impl MysqlSource {
    /// Asks the server, on a connection of the readers. A token of the other database was committed
    /// by none.
    pub(super) async fn ask_committed(&self, token: WriterToken) -> Result<bool, SourceError> {
        let deadline = Instant::now() + self.read_timeout;
        let plan = self.shared.published.plan().map_err(|why| SourceError::unavailable(&*why))?;
        let lease = self.lease(&plan, deadline).await?;
        self.shared.queries.fetch_add(1, Ordering::Relaxed);
        let flavor = plan.identity.flavor;
        let asked =
            pool::run(lease, Box::new(move |conn| Box::pin(ask(conn, flavor, token))), deadline);
        asked.await.map_err(|fault| match fault {
            Fault::Gone(e) | Fault::Query(e) | Fault::Stale(e) => e,
        })
    }
}

async fn ask(conn: &mut Conn, flavor: Flavor, token: WriterToken) -> Result<bool, Error> {
    match (flavor, token) {
        (Flavor::MySql, WriterToken::MySqlGtid(gtid)) => {
            let sql = format!("SELECT GTID_SUBSET('{gtid}', @@GLOBAL.gtid_executed)");
            let row = catalog_row::first(conn, &sql).await?;
            let committed: Option<i64> =
                row.map(|row| row.required(0, "GTID_SUBSET")).transpose()?;
            Ok(committed == Some(1))
        }
        (Flavor::MariaDb, WriterToken::MariaDbGtid { domain, sequence, .. }) => {
            let sql = "SELECT @@GLOBAL.gtid_current_pos";
            let row = catalog_row::first(conn, sql).await?;
            let position = row.map(|row| row.text(0, "gtid_current_pos")).transpose()?;
            Ok(reaches(&position.unwrap_or_default(), domain, sequence))
        }
        _ => Ok(false),
    }
}

/// Returns whether a position of MariaDB, the last number of each domain, has reached this number.
/// Source: MariaDB documentation, "Global Transaction ID", `gtid_current_pos`.
fn reaches(position: &str, domain: u32, sequence: u64) -> bool {
    position.split(',').any(|part| {
        let mut numbers = part.trim().split('-').map(str::parse::<u64>);
        let own = numbers.next().and_then(Result::ok);
        let last = numbers.nth(1).and_then(Result::ok);
        own == Some(domain.into()) && last.is_some_and(|last| last >= sequence)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reaches_the_numbers_of_its_domains() {
        let position = "0-1-234,7-2-9";
        assert!(reaches(position, 0, 234) && reaches(position, 0, 1) && reaches(position, 7, 9));
        assert!(!reaches(position, 0, 235) && !reaches(position, 7, 10));
        assert!(!reaches(position, 1, 1) && !reaches("", 0, 1) && !reaches("x-y-z", 0, 1));
    }
}
