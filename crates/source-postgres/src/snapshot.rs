//! Queries of one read. Those of a snapshot batch are one transaction: rows of several tables in
//! one snapshot.
//!
//! Each statement reads the snapshot and the end of the log beside its rows. The snapshot is that
//! of the transaction, opened by the first statement, which reads the end after it: what committed
//! later is in neither.

use hotrow_types::key::CollectionId;
use hotrow_types::version::Version;
use tokio_postgres::Error;

use super::PostgresSource;
use super::json::JsonError;
use super::pool::Connection;
use super::reader::Part;
use super::shared::Plan;
use hotrow_source::{ReadSet, Room, RowBudget};

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

impl PostgresSource {
    /// Reads the parts, up to the first without room for its rows. `reached`: place of the part
    /// that is read.
    pub(super) async fn queries(
        &self,
        connection: &mut Connection,
        plan: &Plan,
        parts: &[Part<'_>],
        budget: &RowBudget,
        reached: &mut usize,
    ) -> Result<Result<(ReadSet, Room), JsonError>, Error> {
        if parts.len() > 1 {
            // Until its end a drop of the lease closes the connection.
            connection.is_in_transaction = true;
            connection.session.client.batch_execute(BEGIN).await?;
        }
        let mut all = ReadSet { version: Version::Unknown, position: None, rows: Vec::new() };
        for (place, part) in parts.iter().enumerate() {
            *reached = place;
            // Collections are numbered with 16 bits.
            let collection = CollectionId(part.index as u16);
            self.hooks.before_read(collection, part.keys);
            let read = self.query(connection, plan, part, budget).await;
            self.hooks.after_read(collection, part.keys);
            let (set, room) = match read? {
                Ok(read) => read,
                Err(shape) => return Ok(Err(shape)),
            };
            match place {
                0 => all = set,
                _ => all.rows.extend(set.rows),
            }
            if room != Room::Taken {
                return Ok(Ok((all, room)));
            }
        }
        if parts.len() > 1 {
            connection.session.client.batch_execute("COMMIT").await?;
            connection.is_in_transaction = false;
        }
        Ok(Ok((all, Room::Taken)))
    }
}
