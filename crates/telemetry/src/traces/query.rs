//! The span of a query: a child of the request that has waited for it longest, with links to the
//! others that it answers.

use std::sync::Arc;

use hotrow_cache::Fills;
use hotrow_measure::clock::Nanos;
use hotrow_otel::context::SpanContext;
use hotrow_otel::span::{Attribute, Span, SpanKind};
use hotrow_source::database_name::DatabaseName;
use hotrow_source::{ReadSet, Row, SourceError};
use hotrow_types::key::{CollectionId, Key};

use super::request::{AwaitedQuery, RequestTrace};
use super::{Tracer, WallClock};

/// Names of the database in spans.
#[derive(Debug)]
pub(super) struct DatabaseTexts {
    system: &'static str,
    operation: &'static str,
    namespace: Option<Arc<str>>,
    /// Table, and name of the span, by collection.
    tables: Vec<(Arc<str>, Arc<str>)>,
}

impl From<DatabaseName> for DatabaseTexts {
    fn from(name: DatabaseName) -> Self {
        let DatabaseName { system, namespace, operation, tables } = name;
        let texts = |table: String| {
            let summary = format!("{operation} {table}");
            (table.into(), summary.into())
        };
        Self {
            system,
            operation,
            namespace: namespace.map(Into::into),
            tables: tables.into_iter().map(texts).collect(),
        }
    }
}

/// A query that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedQuery<'a> {
    /// The collection that it reads.
    pub collection: CollectionId,
    /// Its keys.
    pub keys: &'a [Key],
    /// Time of its begin.
    pub sent_at: Nanos,
    /// Time of its result.
    pub ended_at: Nanos,
    /// Its result.
    pub result: &'a Result<ReadSet, SourceError>,
}

/// The span of a query that traced requests wait for, before its rows are handed out.
#[derive(Debug)]
pub struct QuerySpan {
    collection: CollectionId,
    note: AwaitedQuery,
    parent: SpanContext,
    links: Vec<SpanContext>,
    links_left_out: usize,
    /// Rows that exist.
    rows: usize,
}

impl Tracer {
    /// Reports the end of a query to the traced requests that wait for it. `None`: there is none.
    pub fn query_ended(&self, query: &EndedQuery<'_>) -> Option<QuerySpan> {
        if self.waiting.is_empty() {
            return None;
        }
        let (waiting, links_left_out) = self.waiting.answered_by(query.keys, query.sent_at);
        let first: &Arc<RequestTrace> = waiting.first()?;
        let trace_id = first.span.trace_id;
        let note = AwaitedQuery {
            span: SpanContext { trace_id, span_id: self.ids.span_id() },
            owner: first.span.span_id,
            sent_at: query.sent_at,
            ended_at: query.ended_at,
            keys: query.keys.len(),
            error: query.result.as_ref().err().map(class),
        };
        waiting.iter().for_each(|trace| trace.note_query(note));
        let rows = query.result.iter().flat_map(|read| &read.rows);
        Some(QuerySpan {
            collection: query.collection,
            note,
            parent: first.span,
            links: waiting.iter().skip(1).map(|trace| trace.span).collect(),
            links_left_out,
            rows: rows.filter(|row| is_found(row)).count(),
        })
    }

    /// Records the span of a query whose rows have been handed out.
    pub fn record_query(&self, query: QuerySpan, fills: Fills) {
        let clock = WallClock::read();
        let QuerySpan { note, parent, links, links_left_out, rows, .. } = query;
        let source = self.collections.source(query.collection);
        let database = &self.databases[source.index()];
        let CollectionId(id) = query.collection;
        let table = database.tables.get(usize::from(id));
        let mut attributes = Vec::with_capacity(12);
        attributes.push(Attribute::new("db.system.name", database.system));
        attributes.push(Attribute::new("db.operation.name", database.operation));
        attributes.extend(database.namespace.as_ref().map(|n| Attribute::new("db.namespace", n)));
        if let Some((table, summary)) = table {
            attributes.push(Attribute::new("db.collection.name", table));
            attributes.push(Attribute::new("db.query.summary", summary));
        }
        // By the conventions a batch has two operations or more.
        if note.keys > 1 {
            attributes.push(Attribute::new("db.operation.batch.size", note.keys));
        }
        match note.error {
            Some(error) => attributes.push(Attribute::new("error.type", error)),
            None => attributes.push(Attribute::new("db.response.returned_rows", rows)),
        }
        for (name, count) in [
            ("hotrow.fill.kept", fills.kept),
            ("hotrow.fill.discarded", fills.discarded),
            ("hotrow.fill.not_admitted", fills.not_admitted),
            ("hotrow.fill.repeated", fills.repeated),
        ] {
            if count > 0 {
                attributes.push(Attribute::new(name, count));
            }
        }
        let name = table.map_or(database.operation.into(), |(_, summary)| summary.into());
        self.record(Span {
            context: note.span,
            parent: Some(parent.span_id),
            has_remote_parent: false,
            name,
            kind: SpanKind::Client,
            start_unix_ns: clock.unix_ns(note.sent_at),
            end_unix_ns: clock.unix_ns(note.ended_at),
            attributes,
            links,
            links_dropped: u32::try_from(links_left_out).unwrap_or(u32::MAX),
            is_error: note.error.is_some(),
        });
    }
}

fn is_found(row: &Row) -> bool {
    matches!(row, Row::Found(_) | Row::Uncacheable(Some(_)))
}

/// Returns the class of a failure. Its text may have values of the database.
fn class(error: &SourceError) -> &'static str {
    match error {
        SourceError::Unavailable { .. } => "unavailable",
        SourceError::Timeout { .. } => "timeout",
        SourceError::Broken { .. } => "broken",
        SourceError::Data { .. } => "data",
    }
}
