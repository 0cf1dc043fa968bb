//! Delivery of the log's events to the sink, as changed keys or as flushes of whole collections.
//!
//! The log contains a transaction after its commit, as one *group*: its beginning, the statements
//! with their tables and rows, and its end. The end identifies the transaction on MariaDB. On MySQL
//! the beginning carries its number. Nothing is delivered before the end. A transaction that is
//! only prepared (XA) is held until its commit; on MariaDB until the engine has committed it too
//! ([`Delivery::held_commit`]).
//!
//! After some events tables may differ from the last check of the catalogue: a *recheck* is
//! required. Until it is complete, changes of an unverified table flush its collections.

use std::collections::HashMap;

use hotrow_types::version::{ChangeId, Gtid, Position, Version};

use super::binlog::rows::{Operation, Rows};
use super::binlog::table::TableMap;
use super::binlog::{Begin, DecodeError, Event, Query, Xid};
use super::embedded_rules::EmbeddedRule;
use super::inspect::{Table, TableName};
use super::place::LogPosition;
use hotrow_source::FlushCause;

mod bind;
mod collect;
mod rechecks;
mod statement;
#[cfg(test)]
mod tests;
mod tx_changes;

use self::bind::{Bound, Followed};
use self::collect::{Collected, collect};
use self::rechecks::Rechecks;
use self::statement::{DefinitionKind, Statement};
pub(crate) use self::tx_changes::ChangeReceivers;
use self::tx_changes::{PreparedTransactions, TxChanges};

/// Maximum of tables per statement.
const TABLES_PER_STATEMENT_MAX: usize = 10_000;

/// Origin of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Incarnation number of positions.
    pub(crate) incarnation: u64,
    /// True if table names compare case-insensitively.
    pub(crate) names_any_case: bool,
}

/// Processor of log events that delivers changes to the sink.
pub(crate) struct Delivery<'a> {
    receivers: ChangeReceivers<'a>,
    origin: Origin,
    /// Followed table per collection. None if the collection cannot be served.
    followed: Vec<Option<Followed>>,
    /// Tables of the current statement, by their number in the log.
    bound: HashMap<u64, Bound>,
    group: Option<Group>,
    prepared: PreparedTransactions,
    position: LogPosition,
    /// Point before which everything is delivered.
    delivered: u64,
    /// True within a compressed transaction, whose events have no positions of their own.
    in_payload: bool,
    rechecks: Rechecks,
}

/// Transaction whose end has not arrived.
struct Group {
    stage: Stage,
    gtid: Option<Gtid>,
    changes: TxChanges,
    /// Has rows of embedded tables.
    has_children: bool,
    /// MariaDB: a prepared transaction whose commit waits for the engine's.
    held: Option<Xid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The next statement is the whole group or begins a transaction.
    Statement,
    /// The group ends with its commit, rollback or XA PREPARE.
    Transaction,
}

impl<'a> Delivery<'a> {
    /// Creates a delivery that starts at `position`, the beginning of a group.
    pub(crate) fn new(
        receivers: ChangeReceivers<'a>,
        origin: Origin,
        tables: Vec<Option<Table>>,
        position: LogPosition,
    ) -> Self {
        let mut delivery = Self {
            receivers,
            origin,
            followed: Vec::new(),
            bound: HashMap::new(),
            group: None,
            prepared: PreparedTransactions::default(),
            delivered: position.point(),
            position,
            in_payload: false,
            rechecks: Rechecks::default(),
        };
        delivery.follow(tables, 0);
        delivery
    }

    /// Returns the point before which everything has been delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the end of the last event.
    pub(crate) fn position(&self) -> u64 {
        self.position.point()
    }

    /// Replaces the tables after a catalogue check that began when [`Self::rechecks`] was
    /// `rechecks_before`.
    pub(crate) fn follow(&mut self, tables: Vec<Option<Table>>, rechecks_before: u64) {
        self.followed = tables.into_iter().map(|table| table.map(Followed::new)).collect();
        // Rows of the current statement are bound to outdated tables.
        self.bound.values_mut().for_each(Bound::mark_unverified);
        self.confirm(rechecks_before);
    }

    /// Confirms the tables after a catalogue check that began when [`Self::rechecks`] was
    /// `rechecks_before`.
    pub(crate) fn confirm(&mut self, rechecks_before: u64) {
        // What was required during the check needs another one.
        let is_unverified = self.rechecks.complete(rechecks_before);
        self.followed.iter_mut().flatten().for_each(|f| f.is_unverified = is_unverified);
    }

    /// Returns the number of rechecks that a check sent now completes.
    pub(crate) fn rechecks(&self) -> u64 {
        self.rechecks.seen()
    }

    /// Returns true if rechecks are not complete.
    pub(crate) fn is_unverified(&self) -> bool {
        self.rechecks.is_pending()
    }

    /// Returns true if a check sent now completes rechecks.
    pub(crate) fn needs_check(&self) -> bool {
        self.rechecks.needs_check()
    }

    /// Returns true if a probe is to look whether definitions are visible.
    pub(crate) fn awaits_visibility(&self) -> bool {
        self.rechecks.awaits_visibility()
    }

    /// Records that a read that begins now sees at least `visible`.
    pub(crate) fn mark_visible(&mut self, visible: &Version) {
        self.rechecks.mark_visible(visible);
    }

    /// Sets the position after the current event by its header. `end` is the event's end modulo
    /// 2^32, or 0 for an event that is in no file.
    pub(crate) fn ends_at(&mut self, end: u32) {
        if !self.in_payload {
            self.position.pass(end);
        }
    }

    /// Processes one event. Requires [`Self::ends_at`] for it before.
    ///
    /// # Errors
    /// Fails on an event out of order and on one that proves missing changes.
    pub(crate) fn take(&mut self, event: Event<'_>) -> Result<(), DeliveryError> {
        match event {
            Event::Rotate { file, at } => {
                self.position.rotate(file, at).ok_or(DeliveryError::File)?
            }
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
                self.prepared.add(xid, group.changes);
                self.rechecks.end_group(None);
                self.mark_delivered();
            }
            Event::Table(map) => self.table(&map)?,
            Event::Rows(rows) => self.rows(&rows)?,
            Event::StatementEnd => self.statement_end()?,
            Event::Incident => return Err(DeliveryError::Incident),
            Event::Payload => self.in_payload = true,
            Event::Heartbeat | Event::Stop | Event::Other => {}
        }
        if self.group.is_none() {
            self.mark_delivered();
        }
        Ok(())
    }

    /// Returns the prepared transaction whose commit the last event had, and which is delivered by
    /// [`Self::release`] once the engine has committed it. No event may be processed before.
    pub(crate) fn held_commit(&self) -> Option<&Xid> {
        self.group.as_ref()?.held.as_ref()
    }

    /// Delivers the commit that is held back.
    ///
    /// # Errors
    /// Fails without one.
    pub(crate) fn release(&mut self) -> Result<(), DeliveryError> {
        self.commit()
    }

    /// Flushes every collection for a commit that every read sees from now on.
    pub(crate) fn flush_visible(&self) {
        for schema in self.receivers.schemas {
            self.receivers.sink.flush(schema.collection(), FlushCause::Bulk, None);
        }
    }

    /// Marks everything up to the current position as delivered.
    fn mark_delivered(&mut self) {
        self.in_payload = false;
        self.delivered = self.delivered.max(self.position.point());
    }

    fn begin(&mut self, stage: Stage, gtid: Option<Gtid>) -> Result<(), DeliveryError> {
        if self.group.is_some() {
            return Err(DeliveryError::Unended);
        }
        self.bound.clear();
        self.group = Some(Group {
            stage,
            gtid,
            changes: TxChanges::default(),
            has_children: false,
            held: None,
        });
        Ok(())
    }

    fn group(&mut self, what: &'static str) -> Result<&mut Group, DeliveryError> {
        self.group.as_mut().ok_or(DeliveryError::OutsideGroup(what))
    }

    fn statement(&mut self, query: Query<'_>) -> Result<(), DeliveryError> {
        self.group("a statement")?;
        match Statement::of(query.text) {
            Statement::Begin => self.group("a statement")?.stage = Stage::Transaction,
            Statement::Savepoint => {}
            Statement::End => self.commit()?,
            Statement::XaCommit(xid) => {
                match xid.as_ref().and_then(|xid| self.prepared.remove(xid)) {
                    Some(changes) => self.group("XA COMMIT")?.changes = changes,
                    // Prepared before this session, or dropped beyond the maximum.
                    None => self.flush_all()?,
                }
                let group = self.group("XA COMMIT")?;
                group.held = xid.filter(|_| group.gtid.is_none());
                if group.held.is_none() {
                    self.commit()?;
                }
            }
            Statement::XaRollback(xid) => {
                xid.and_then(|xid| self.prepared.remove(&xid));
                self.group = None;
                self.rechecks.end_group(None);
                self.mark_delivered();
            }
            Statement::Privileges => {
                // The privileges on the tables may have changed.
                self.rechecks.require_for_privileges();
                self.end_of_statement()?;
            }
            Statement::Definition { kind, has_rows } => {
                if has_rows {
                    self.group("a statement")?.stage = Stage::Transaction;
                }
                self.definition(&query, kind)?;
                self.end_of_statement()?;
            }
            Statement::Any => {
                self.flush_all()?;
                self.end_of_statement()?;
            }
        }
        Ok(())
    }

    /// Processes a statement that may have changed the tables that it names.
    fn definition(&mut self, query: &Query<'_>, kind: DefinitionKind) -> Result<(), DeliveryError> {
        for collection in 0..self.followed.len() {
            let Some(followed) = self.followed[collection].as_mut() else {
                // This statement may make the collection servable.
                self.rechecks.require_for_tables();
                continue;
            };
            let parts =
                if self.receivers.rules.has(EmbeddedRule::Statement) { usize::MAX } else { 1 };
            let tables = followed.table.followed().take(parts);
            // A key of a table above may begin or cease to reach the collection.
            let named = tables.flat_map(|table| {
                table.changed_by.iter().map(|above| &above.name).chain([&table.name])
            });
            let view = followed.table.view.iter().map(|view| &view.name);
            let is_named = |of: &TableName| statement::names(query, &of.schema, &of.table);
            if !named.chain(view).any(is_named) {
                continue;
            }
            let cause = match kind {
                DefinitionKind::Truncate => FlushCause::Bulk,
                DefinitionKind::Schema => {
                    followed.is_unverified = true;
                    self.rechecks.require_for_tables();
                    FlushCause::Schema
                }
            };
            self.group("a statement")?.changes.flush(collection, cause);
        }
        Ok(())
    }

    /// Ends the group if it consists of one statement.
    fn end_of_statement(&mut self) -> Result<(), DeliveryError> {
        match self.group("a statement")?.stage {
            Stage::Statement => self.commit(),
            Stage::Transaction => Ok(()),
        }
    }

    fn flush_all(&mut self) -> Result<(), DeliveryError> {
        let count = self.followed.len();
        let group = self.group("a statement")?;
        (0..count).for_each(|collection| group.changes.flush(collection, FlushCause::Bulk));
        Ok(())
    }

    /// Commits the group at the end of the current event.
    fn commit(&mut self) -> Result<(), DeliveryError> {
        let group = self.group.take().ok_or(DeliveryError::OutsideGroup("a commit"))?;
        let end = self.position.point();
        let mut position = Position { incarnation: self.origin.incarnation, at: end };
        let mut gtid = group.gtid;
        if group.has_children && !self.receivers.rules.has(EmbeddedRule::Mark) {
            // A mark that every read contains.
            position.at = 0;
            gtid = gtid.map(|gtid| Gtid { number: 1, ..gtid });
        }
        let mark = gtid.map_or(ChangeId::Commit(position), ChangeId::Gtid);
        group.changes.deliver(self.receivers, mark, end);
        self.rechecks.end_group(Some(mark));
        self.bound.clear();
        self.mark_delivered();
        Ok(())
    }

    fn table(&mut self, map: &TableMap<'_>) -> Result<(), DeliveryError> {
        self.group("a table")?;
        if self.bound.len() >= TABLES_PER_STATEMENT_MAX {
            return Err(DeliveryError::TooManyTables);
        }
        let names_any_case = self.origin.names_any_case;
        let (mut bound, reshaped) =
            Bound::new(map, &mut self.followed, names_any_case, self.receivers.rules);
        bound.is_repeated = self.bound.contains_key(&map.id);
        self.bound.insert(map.id, bound);
        let group = self.group("a table")?;
        for collection in &reshaped {
            group.changes.flush(*collection, FlushCause::Schema);
        }
        if !reshaped.is_empty() {
            self.rechecks.require_for_tables();
        }
        Ok(())
    }

    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), DeliveryError> {
        let group = self.group.as_mut().ok_or(DeliveryError::OutsideGroup("rows"))?;
        let bound =
            self.bound.get_mut(&rows.table).ok_or(DeliveryError::Undescribed(rows.table))?;
        bound.has_rows = true;
        for (collection, ancestor) in &bound.cascades_to {
            if bind::may_cascade(ancestor, rows.operation) {
                group.changes.flush(*collection, FlushCause::Bulk);
            }
        }
        // MySQL's log need not have what foreign keys change, and any table may be an ancestor of
        // an unverified one.
        if group.gtid.is_some() && rows.operation != Operation::Insert {
            for (collection, followed) in self.followed.iter().enumerate() {
                if followed.as_ref().is_some_and(|followed| followed.is_unverified) {
                    group.changes.flush(collection, FlushCause::Bulk);
                }
            }
        }
        for target in &bound.targets {
            let followed = self.followed.get_mut(target.collection).and_then(Option::as_mut);
            let (Some(followed), Some(schema)) =
                (followed, self.receivers.schemas.get(target.collection))
            else {
                continue;
            };
            let collected = match followed.part(target.part) {
                Some(table) if !followed.is_unverified => {
                    group.has_children |= target.part > 0;
                    let out = &mut group.changes;
                    collect(rows, bound, target, table, schema, self.receivers.rules, out)
                }
                _ => Collected::NoParent,
            };
            if collected != Collected::Keys {
                group.changes.flush(target.collection, FlushCause::Bulk);
            }
            if collected == Collected::Mismatch && !rows.is_unreadable() {
                followed.is_unverified = true;
                self.rechecks.require_for_tables();
            }
        }
        if rows.ends_statement {
            self.statement_end()?;
        }
        Ok(())
    }

    /// Discards the tables of the statement.
    fn statement_end(&mut self) -> Result<(), DeliveryError> {
        let group = self.group.as_mut().ok_or(DeliveryError::OutsideGroup("a statement's end"))?;
        for bound in self.bound.values().filter(|bound| bound.may_have_hidden_changes()) {
            bound
                .by_foreign_key
                .iter()
                .for_each(|collection| group.changes.flush(*collection, FlushCause::Bulk));
        }
        self.bound.clear();
        Ok(())
    }
}

/// Reason that an event cannot be processed. It ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeliveryError {
    #[error("an event of the binary log cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("the binary log has {0} outside of a transaction")]
    OutsideGroup(&'static str),
    #[error("the binary log begins a transaction before the end of the previous one")]
    Unended,
    #[error("the binary log has rows of table {0} without a table map")]
    Undescribed(u64),
    #[error("a statement in the binary log has more than {TABLES_PER_STATEMENT_MAX} tables")]
    TooManyTables,
    #[error("the binary log continues in a file whose name has no number")]
    File,
    #[error("the binary log has a transaction without a number: `gtid_mode` must be ON")]
    Anonymous,
    #[error("the server reports that its binary log lacks changes (an incident event)")]
    Incident,
}
