//! Change stream: from a position in the oplog through the pipeline of the request.

use mongodb::bson::{Bson, Document, RawDocumentBuf};

use super::event::{FullDocument, StreamPosition, Token, TokenForm, TokenKind, event, invalidate};
use super::failure::Failure;
use super::filter::filter_matches;
use super::shape::project;
use super::store::{Entry, Ns, Operation, Store, number};
use super::value::canonical;
use super::writes::parsed;

/// Maximum number of oplog entries processed for one answer.
const LINES_MAX: usize = 20_000;
/// Maximum number of events in one answer, and the default.
const BATCH_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Database(String),
    Collection(Ns),
}

pub struct Stream {
    scope: Scope,
    /// Position up to which all entries are processed.
    position: StreamPosition,
    /// True after the first processed entry.
    has_processed: bool,
    /// Token of the last event sent.
    last: Option<Document>,
    pipeline: Vec<Document>,
    full: FullDocument,
    form: TokenForm,
    /// True after the invalidating event was sent.
    closed: bool,
}

impl Stream {
    pub fn open(store: &mut Store, scope: Scope, stages: &[Document]) -> Result<Self, Failure> {
        let (first, pipeline) =
            stages.split_first().ok_or_else(|| Failure::bad_value("no stage"))?;
        let options = first
            .get_document("$changeStream")
            .map_err(|_| Failure::bad_value("$changeStream of what?"))?;
        if let Some(stage) = pipeline.iter().find(|stage| !STAGES.contains(&name(stage))) {
            let text = format!(
                "{} is not permitted in a $changeStream pipeline of the stand-in",
                name(stage)
            );
            return Err(Failure::new(20, "IllegalOperation", &text));
        }
        let scope = if options.get_bool("allChangesForCluster").unwrap_or(false) {
            Scope::Everything
        } else {
            scope
        };
        let full = match options.get_str("fullDocument") {
            Err(_) | Ok("default") => FullDocument::Default,
            Ok("updateLookup") => FullDocument::Lookup,
            Ok(other) => return Err(Failure::bad_value(&format!("fullDocument: {other}"))),
        };
        let position = beginning(store, options)?;
        Ok(Self {
            scope,
            position,
            has_processed: false,
            last: None,
            pipeline: pipeline.to_vec(),
            full,
            form: store.token_form,
            closed: false,
        })
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Continues to the oplog's end or to the end of a batch.
    pub fn next_batch(
        &mut self,
        store: &mut Store,
        size: Option<usize>,
    ) -> Result<Vec<RawDocumentBuf>, Failure> {
        if self.position < StreamPosition::end_of(store.pruned_to()) {
            return Err(Failure::new(
                136,
                "CappedPositionLost",
                "CollectionScan died due to position in capped collection being deleted",
            ));
        }
        let mut batch = Vec::new();
        let size = size.unwrap_or(BATCH_MAX).min(BATCH_MAX);
        let end = store.now();
        let lines: Vec<&Entry> =
            store.after((self.position.at, self.position.index)).take(LINES_MAX).collect();
        let reached_end = lines.len() < LINES_MAX;
        for entry in lines {
            if batch.len() >= size {
                return Ok(batch);
            }
            self.position = StreamPosition { at: entry.at, index: entry.index };
            self.has_processed = true;
            if !self.concerns(entry) {
                continue;
            }
            let newest = entry.id.as_ref().and_then(|id| store.newest(&entry.ns, &canonical(id)));
            let looked_up = newest.filter(|_| self.full == FullDocument::Lookup);
            self.pass(event(entry, looked_up.map(AsRef::as_ref), self.form)?, &mut batch)?;
            if self.ends_with(entry) {
                self.pass(invalidate(entry, self.form)?, &mut batch)?;
                self.closed = true;
                return Ok(batch);
            }
        }
        if reached_end && batch.len() < size {
            self.position = StreamPosition::end_of(end);
            self.has_processed = true;
        }
        Ok(batch)
    }

    /// Returns the token of an answer: that of the last event, if no later entry was processed;
    /// within a transaction also that of an event; otherwise a watermark. As on a real server, a
    /// stream that begins at a time has that time as its first watermark, although it has yet to
    /// send the events of that time.
    pub fn token(&self) -> Document {
        let last = self.last.as_ref().and_then(|last| Some((last, Token::parse(last).ok()?)));
        match last {
            Some((last, token)) if self.closed || token.position.at >= self.position.at => {
                last.clone()
            }
            _ => self.own_token().document(&[0; 16], self.form),
        }
    }

    /// Returns the token of the position, at which no event was sent.
    fn own_token(&self) -> Token {
        if !self.has_processed {
            return Token::watermark(self.position.at + 1);
        }
        if self.position == StreamPosition::end_of(self.position.at) {
            return Token::watermark(self.position.at);
        }
        // In the middle of a transaction.
        Token { position: self.position, kind: TokenKind::Event }
    }

    fn concerns(&self, entry: &Entry) -> bool {
        match &self.scope {
            Scope::Everything => true,
            Scope::Database(name) => entry.ns.0 == *name,
            Scope::Collection(ns) => {
                entry.ns == *ns
                    || matches!(entry.operation, Operation::DropDatabase) && entry.ns.0 == ns.0
                    || matches!(&entry.operation, Operation::Rename(to) if to == ns)
            }
        }
    }

    fn ends_with(&self, entry: &Entry) -> bool {
        matches!(
            (&self.scope, &entry.operation),
            (
                Scope::Collection(_),
                Operation::Drop | Operation::Rename(_) | Operation::DropDatabase
            ) | (Scope::Database(_), Operation::DropDatabase)
        )
    }

    /// Passes an event through the stages of the request into the batch.
    fn pass(
        &mut self,
        event: RawDocumentBuf,
        batch: &mut Vec<RawDocumentBuf>,
    ) -> Result<(), Failure> {
        let token = parsed(&event)?.get_document("_id").cloned().unwrap_or_default();
        let mut event = event;
        for stage in &self.pipeline {
            let Some((name, operand)) = stage.iter().next() else { continue };
            let Some(next) = through(name, operand, event)? else { return Ok(()) };
            event = next;
        }
        if parsed(&event)?.get_document("_id").ok() != Some(&token) {
            let text = "Encountered an event whose _id field, which contains the resume token, \
                        was modified by the pipeline.";
            return Err(Failure::new(280, "ChangeStreamFatalError", text)
                .labelled("NonResumableChangeStreamError"));
        }
        self.last = Some(token);
        batch.push(event);
        Ok(())
    }
}

const STAGES: [&str; 5] = ["$match", "$project", "$unset", "$changeStreamSplitLargeEvent", ""];

pub fn name(stage: &Document) -> &str {
    stage.keys().next().map_or("", String::as_str)
}

/// Passes one document through one stage; `None` if the stage removes it.
pub fn through(
    name: &str,
    operand: &Bson,
    raw: RawDocumentBuf,
) -> Result<Option<RawDocumentBuf>, Failure> {
    let operands = || {
        operand.as_document().ok_or_else(|| Failure::bad_value(&format!("{name} needs a document")))
    };
    Ok(match name {
        "$match" => filter_matches(operands()?, &parsed(&raw)?)?.then_some(raw),
        "$project" => Some(project(&raw, operands()?)?),
        "$unset" => {
            let paths: Vec<&str> = match operand {
                Bson::String(path) => vec![path],
                Bson::Array(paths) => paths.iter().filter_map(Bson::as_str).collect(),
                _ => return Err(Failure::bad_value("$unset needs names")),
            };
            Some(project(
                &raw,
                &paths.into_iter().map(|path| (path.to_owned(), Bson::Int32(0))).collect(),
            )?)
        }
        _ => Some(raw),
    })
}

fn beginning(store: &mut Store, options: &Document) -> Result<StreamPosition, Failure> {
    let position = if let Ok(token) = options.get_document("resumeAfter") {
        let token = Token::parse(token)?;
        if token.kind == TokenKind::Invalidate {
            let text = "Attempting to resume a change stream using 'resumeAfter' is not allowed \
                        from an invalidate notification.";
            return Err(Failure::new(260, "InvalidResumeToken", text));
        }
        token.position
    } else if let Ok(token) = options.get_document("startAfter") {
        Token::parse(token)?.position
    } else if let Ok(time) = options.get_timestamp("startAtOperationTime") {
        // Entries at that time are included.
        StreamPosition::end_of(number(time).saturating_sub(1))
    } else {
        return Ok(StreamPosition::end_of(store.now()));
    };
    if position.at > store.now() {
        return Err(Failure::bad_value(
            "startAtOperationTime or a resume token lies in the future",
        ));
    }
    // The time lies in the deleted part of the oplog, or just before it.
    if store.pruned_to() > 0 && position < StreamPosition::end_of(store.pruned_to()) {
        return Err(Failure::history_lost());
    }
    Ok(position)
}
