//! From the log's events to the sink: whose record changed, or that a whole collection must go.
//!
//! The log tells a transaction when it commits, all of it at once, as a *group*: its beginning, statements with the tables
//! they concern and their rows, and its end, which is what identifies it (MariaDB) or carries the number it began with
//! (MySQL). Nothing is handed on before that end. A transaction that is only prepared (XA) is held until its commit.

use std::collections::{HashMap, HashSet};

use hotrow_cache::key::KeySchema;
use hotrow_cache::version::{Gtid, Mark, Position};

use super::binlog::rows::{Operation, Rows};
use super::binlog::table::TableMap;
use super::binlog::{Begin, DecodeError, Event, Query};
use super::inspect::{Table, TableName};
use super::keys::{self, LogKey};
use super::place::Place;
use super::shared::Recent;
use crate::{FlushCause, Sink};

mod bind;
mod statement;
#[cfg(test)]
mod tests;
mod told;

use self::bind::{Bound, Followed};
use self::statement::{Shape, Statement};
use self::told::{Held, Told};

/// More different keys of one collection in one transaction are not listed: the collection is flushed.
pub(crate) const KEYS_PER_TRANSACTION_MAX: usize = 10_000;
/// Most tables in one statement.
const TABLES_PER_STATEMENT_MAX: usize = 10_000;

/// Where the log is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The number that positions carry.
    pub(crate) incarnation: u64,
    /// Whether names of tables are the same in upper and lower case.
    pub(crate) names_any_case: bool,
}

/// Whom to tell.
#[derive(Clone, Copy)]
pub(crate) struct Out<'a> {
    pub(crate) schemas: &'a [KeySchema],
    pub(crate) sink: &'a dyn Sink,
    /// Told before the sink is.
    pub(crate) recent: &'a Recent,
}

/// Takes events in and tells the sink.
pub(crate) struct Delivery<'a> {
    out: Out<'a>,
    origin: Origin,
    /// Per collection; none where it cannot be served.
    followed: Vec<Option<Followed>>,
    /// Tables of the running statement.
    bound: HashMap<u64, Bound>,
    group: Option<Group>,
    held: Held,
    place: Place,
    /// Everything before this is delivered.
    delivered: u64,
    /// Whether what follows is from within a compressed transaction, whose events have no place of their own.
    in_payload: bool,
    /// Counts what makes the catalogue's last state doubtful.
    doubts: u64,
    /// How many of these the last look came after.
    settled: u64,
}

/// A transaction on its way.
struct Group {
    stage: Stage,
    gtid: Option<Gtid>,
    told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The next statement is all of it, or begins it.
    Statement,
    /// Until it ends.
    Transaction,
}

impl<'a> Delivery<'a> {
    /// A delivery from `place` on, where a group begins.
    pub(crate) fn new(out: Out<'a>, origin: Origin, tables: Vec<Option<Table>>, place: Place) -> Self {
        let mut delivery = Self {
            out,
            origin,
            followed: Vec::new(),
            bound: HashMap::new(),
            group: None,
            held: Held::default(),
            delivered: place.point(),
            place,
            in_payload: false,
            doubts: 0,
            settled: 0,
        };
        delivery.follow(tables, 0);
        delivery
    }

    /// Everything before this point has been delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The catalogue says so now: it was looked at after [`Self::doubts`] was `asked_at`.
    pub(crate) fn follow(&mut self, tables: Vec<Option<Table>>, asked_at: u64) {
        self.followed = tables.into_iter().map(|table| table.map(Followed::new)).collect();
        // Rows of a statement that is under way are bound to what is no more.
        self.bound.values_mut().for_each(Bound::doubt);
        self.confirm(asked_at);
    }

    /// The catalogue is as it was when it was looked at after [`Self::doubts`] was `asked_at`.
    pub(crate) fn confirm(&mut self, asked_at: u64) {
        self.settled = asked_at;
        // What came up while somebody looked needs another look.
        let is_doubtful = self.is_doubtful();
        self.followed.iter_mut().flatten().for_each(|f| f.is_doubtful = is_doubtful);
    }

    /// How often something happened since the start after which tables may look otherwise.
    pub(crate) fn doubts(&self) -> u64 {
        self.doubts
    }

    /// Whether somebody should look at the catalogue.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.settled < self.doubts
    }

    /// The place of the next event, from the header of this one: `end` is where it ends, modulo 2^32; 0 where the event is
    /// in no file.
    pub(crate) fn ends_at(&mut self, end: u32) {
        if !self.in_payload {
            self.place.pass(end);
        }
    }

    /// Takes one event in. Its end has been told by [`Self::ends_at`].
    ///
    /// # Errors
    /// When it comes where it cannot, or means that changes are missing.
    pub(crate) fn take(&mut self, event: Event<'_>) -> Result<(), DeliveryError> {
        match event {
            Event::Rotate { file, at } => self.place.rotate(file, at).ok_or(DeliveryError::File)?,
            Event::MariaGtid(Begin::Transaction) => self.begin(Stage::Transaction, None)?,
            Event::MariaGtid(Begin::Standalone) => self.begin(Stage::Statement, None)?,
            Event::Gtid(gtid) => self.begin(Stage::Statement, Some(gtid))?,
            Event::AnonymousGtid => return Err(DeliveryError::Anonymous),
            Event::Query(query) => self.statement(query)?,
            Event::OpaqueQuery => {
                self.flush_all()?;
                self.end_of_statement()?;
            }
            Event::Commit => self.commit()?,
            Event::Prepare { is_one_phase: true, .. } => self.commit()?,
            Event::Prepare { xid, is_one_phase: false } => {
                let group = self.group.take().ok_or(DeliveryError::OutsideGroup("XA PREPARE"))?;
                self.held.hold(xid, group.told);
                self.passed();
            }
            Event::Table(map) => self.table(&map)?,
            Event::Rows(rows) => self.rows(&rows)?,
            Event::StatementEnd => self.statement_end()?,
            Event::Incident => return Err(DeliveryError::Incident),
            Event::Payload => self.in_payload = true,
            Event::Heartbeat | Event::Stop | Event::Other => {}
        }
        if self.group.is_none() {
            self.passed();
        }
        Ok(())
    }

    /// Everything up to here is with the sink.
    fn passed(&mut self) {
        self.in_payload = false;
        self.delivered = self.delivered.max(self.place.point());
    }

    fn begin(&mut self, stage: Stage, gtid: Option<Gtid>) -> Result<(), DeliveryError> {
        if self.group.is_some() {
            return Err(DeliveryError::Unended);
        }
        self.bound.clear();
        self.group = Some(Group { stage, gtid, told: Told::default() });
        Ok(())
    }

    fn group(&mut self, what: &'static str) -> Result<&mut Group, DeliveryError> {
        self.group.as_mut().ok_or(DeliveryError::OutsideGroup(what))
    }

    fn statement(&mut self, query: Query<'_>) -> Result<(), DeliveryError> {
        self.group("a statement")?;
        match Statement::of(query.text) {
            Statement::Begin => self.group("a statement")?.stage = Stage::Transaction,
            Statement::Mark => {}
            Statement::End => self.commit()?,
            Statement::XaCommit(xid) => {
                match xid.and_then(|xid| self.held.release(&xid)) {
                    Some(told) => self.group("XA COMMIT")?.told = told,
                    // Prepared before this session, or one too many to be held.
                    None => self.flush_all()?,
                }
                self.commit()?;
            }
            Statement::XaRollback(xid) => {
                xid.and_then(|xid| self.held.release(&xid));
                self.group = None;
                self.passed();
            }
            Statement::Definition { shape, is_first } => {
                if is_first {
                    self.group("a statement")?.stage = Stage::Transaction;
                }
                self.definition(query.text, shape)?;
                self.end_of_statement()?;
            }
            Statement::Any => {
                self.flush_all()?;
                self.end_of_statement()?;
            }
        }
        Ok(())
    }

    /// A statement that may have changed the tables that it names.
    fn definition(&mut self, text: &[u8], shape: Shape) -> Result<(), DeliveryError> {
        for collection in 0..self.followed.len() {
            let Some(followed) = self.followed[collection].as_mut() else {
                // It may be this statement that makes it servable.
                self.doubts += 1;
                continue;
            };
            let TableName { schema, table } = &followed.table.name;
            if !statement::names(text, schema, table) {
                continue;
            }
            let cause = match shape {
                Shape::Same => FlushCause::Bulk,
                Shape::Changed => {
                    followed.is_doubtful = true;
                    self.doubts += 1;
                    FlushCause::Schema
                }
            };
            self.group("a statement")?.told.flush(collection, cause);
        }
        Ok(())
    }

    /// Where one statement is the whole group, the group ends with it.
    fn end_of_statement(&mut self) -> Result<(), DeliveryError> {
        match self.group("a statement")?.stage {
            Stage::Statement => self.commit(),
            Stage::Transaction => Ok(()),
        }
    }

    fn flush_all(&mut self) -> Result<(), DeliveryError> {
        let count = self.followed.len();
        let group = self.group("a statement")?;
        (0..count).for_each(|collection| group.told.flush(collection, FlushCause::Bulk));
        Ok(())
    }

    /// The group is committed with the event that ends here.
    fn commit(&mut self) -> Result<(), DeliveryError> {
        let group = self.group.take().ok_or(DeliveryError::OutsideGroup("a commit"))?;
        let end = self.place.point();
        let position = Position { incarnation: self.origin.incarnation, at: end };
        let mark = group.gtid.map_or(Mark::Commit(position), Mark::Gtid);
        group.told.tell(self.out, mark, end);
        self.bound.clear();
        self.passed();
        Ok(())
    }

    fn table(&mut self, map: &TableMap<'_>) -> Result<(), DeliveryError> {
        self.group("a table")?;
        if self.bound.len() >= TABLES_PER_STATEMENT_MAX {
            return Err(DeliveryError::TooManyTables);
        }
        let (bound, reshaped) = Bound::new(map, &mut self.followed, self.origin.names_any_case);
        self.bound.insert(map.id, bound);
        let group = self.group("a table")?;
        for collection in &reshaped {
            group.told.flush(*collection, FlushCause::Schema);
        }
        self.doubts += reshaped.len() as u64;
        Ok(())
    }

    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), DeliveryError> {
        let group = self.group.as_mut().ok_or(DeliveryError::OutsideGroup("rows"))?;
        let bound = self.bound.get_mut(&rows.table).ok_or(DeliveryError::Undescribed(rows.table))?;
        bound.has_rows = true;
        if rows.operation != Operation::Insert {
            bound.cascades_to.iter().for_each(|collection| group.told.flush(*collection, FlushCause::Bulk));
        }
        for target in &bound.targets {
            let followed = self.followed.get_mut(target.collection).and_then(Option::as_mut);
            let (Some(followed), Some(schema)) = (followed, self.out.schemas.get(target.collection)) else { continue };
            if followed.is_doubtful || !collect(rows, bound, target, &followed.table, schema, &mut group.told) {
                group.told.flush(target.collection, FlushCause::Bulk);
                if !followed.is_doubtful && !rows.is_unreadable() {
                    followed.is_doubtful = true;
                    self.doubts += 1;
                }
            }
        }
        if rows.ends_statement {
            self.statement_end()?;
        }
        Ok(())
    }

    /// A statement's tables are done with.
    fn statement_end(&mut self) -> Result<(), DeliveryError> {
        let group = self.group.as_mut().ok_or(DeliveryError::OutsideGroup("a statement's end"))?;
        for bound in self.bound.values().filter(|bound| !bound.has_rows) {
            // It was to be written to: by a foreign key, perhaps, which shows no rows.
            bound.by_foreign_key.iter().for_each(|collection| group.told.flush(*collection, FlushCause::Bulk));
        }
        self.bound.clear();
        Ok(())
    }
}

/// Lists the keys of rows. False when it cannot be told which they are.
fn collect(
    rows: &Rows<'_>,
    bound: &Bound,
    target: &bind::Target,
    table: &Table,
    schema: &KeySchema,
    told: &mut Told,
) -> bool {
    let (Some(columns), Some(places)) = (&bound.columns, &target.places) else { return false };
    let (mut found, mut is_whole) = (HashSet::new(), true);
    let read = rows.keys(columns, places, |cells| {
        let values: Option<Vec<_>> = cells.iter().map(Option::as_ref).collect();
        match values.map(|values| keys::of_log(table, schema, &values)) {
            Some(LogKey::Key(key)) => drop(found.insert(key)),
            // No URL can name such a row.
            Some(LogKey::Unaskable) => {}
            Some(LogKey::Mismatch) | None => is_whole = false,
        }
    });
    if read.is_err() || !is_whole {
        return false;
    }
    told.list(target.collection, found);
    true
}

/// Why events cannot be taken in: the session must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeliveryError {
    #[error("an event of the binary log cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("the binary log has {0} outside of a transaction")]
    OutsideGroup(&'static str),
    #[error("a transaction begins in the binary log before the one before has ended")]
    Unended,
    #[error("the binary log has rows of a table ({0}) that it had not described")]
    Undescribed(u64),
    #[error("a statement in the binary log has more than {TABLES_PER_STATEMENT_MAX} tables")]
    TooManyTables,
    #[error("the binary log names a next file whose name has no number")]
    File,
    #[error("the binary log has a transaction without a number: `gtid_mode` must be ON")]
    Anonymous,
    #[error("the server says that its binary log lacks changes (an incident event)")]
    Incident,
}
