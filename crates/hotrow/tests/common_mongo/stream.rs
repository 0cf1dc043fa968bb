//! A change stream: from a place in the oplog on, through the pipeline that the reader asked for.

use mongodb::bson::{Bson, Document, RawDocumentBuf};

use super::event::{Full, Of, Place, Token, event, invalidate};
use super::failure::Failure;
use super::filter::takes;
use super::shape::project;
use super::store::{Entry, Ns, Store, What, number};
use super::value::canonical;
use super::writes::parsed;

/// Lines of the oplog that one answer looks at.
const LINES_MAX: usize = 20_000;
/// Events in one answer where the reader does not say.
const BATCH_MAX: usize = 1_000;

/// What a stream is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Everything,
    Database(String),
    Collection(Ns),
}

/// An open change stream.
pub(super) struct Stream {
    scope: Scope,
    /// Everything up to here was looked at.
    place: Place,
    /// Anything was looked at.
    begun: bool,
    /// The last event that was given out.
    last: Option<Document>,
    pipeline: Vec<Document>,
    full: Full,
    /// The end of the stream was told.
    closed: bool,
}

impl Stream {
    /// Opens a stream by its `$changeStream` stage and the stages after it.
    pub(super) fn open(store: &mut Store, scope: Scope, stages: &[Document]) -> Result<Self, Failure> {
        let (first, pipeline) = stages.split_first().ok_or_else(|| Failure::bad_value("no stage"))?;
        let options = first.get_document("$changeStream").map_err(|_| Failure::bad_value("$changeStream of what?"))?;
        if let Some(stage) = pipeline.iter().find(|stage| !STAGES.contains(&name(stage))) {
            let text = format!("{} is not permitted in a $changeStream pipeline of the stand-in", name(stage));
            return Err(Failure::new(20, "IllegalOperation", &text));
        }
        let scope = if options.get_bool("allChangesForCluster").unwrap_or(false) { Scope::Everything } else { scope };
        let full = match options.get_str("fullDocument") {
            Err(_) | Ok("default") => Full::Default,
            Ok("updateLookup") => Full::Lookup,
            Ok(other) => return Err(Failure::bad_value(&format!("fullDocument: {other}"))),
        };
        let place = beginning(store, options)?;
        Ok(Self { scope, place, begun: false, last: None, pipeline: pipeline.to_vec(), full, closed: false })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Goes on to the oplog's end or to the end of a batch.
    pub(super) fn next_batch(
        &mut self,
        store: &mut Store,
        size: Option<usize>,
    ) -> Result<Vec<RawDocumentBuf>, Failure> {
        if self.place < Place::end_of(store.pruned_to()) {
            return Err(Failure::new(
                136,
                "CappedPositionLost",
                "CollectionScan died due to position in capped collection being deleted",
            ));
        }
        let mut batch = Vec::new();
        let size = size.unwrap_or(BATCH_MAX).min(BATCH_MAX);
        let end = store.now();
        let lines: Vec<&Entry> = store.after((self.place.at, self.place.index)).take(LINES_MAX).collect();
        let whole = lines.len() < LINES_MAX;
        for entry in lines {
            if batch.len() >= size {
                return Ok(batch);
            }
            self.place = Place { at: entry.at, index: entry.index };
            self.begun = true;
            if !self.concerns(entry) {
                continue;
            }
            let newest = entry.id.as_ref().and_then(|id| store.newest(&entry.ns, &canonical(id)));
            let looked_up = newest.filter(|_| self.full == Full::Lookup);
            self.pass(event(entry, looked_up.map(AsRef::as_ref))?, &mut batch)?;
            if self.ends_with(entry) {
                self.pass(invalidate(entry)?, &mut batch)?;
                self.closed = true;
                return Ok(batch);
            }
        }
        if whole && batch.len() < size {
            self.place = Place::end_of(end);
            self.begun = true;
        }
        Ok(batch)
    }

    /// The token of an answer: of the last event, where nothing later was looked at; in the middle of a transaction, of an
    /// event too; else a watermark. As in a server, a stream that begins at a time has that time as its first watermark,
    /// although what happened at it is still to come.
    pub(super) fn token(&self) -> Document {
        let last = self.last.as_ref().and_then(|last| Some((last, Token::parse(last).ok()?)));
        match last {
            Some((last, token)) if self.closed || token.place.at >= self.place.at => last.clone(),
            _ if !self.begun => Token::watermark(self.place.at + 1).document(&[0; 16]),
            _ if self.place == Place::end_of(self.place.at) => Token::watermark(self.place.at).document(&[0; 16]),
            // In the middle of a transaction.
            _ => Token { place: self.place, of: Of::Event }.document(&[0; 16]),
        }
    }

    fn concerns(&self, entry: &Entry) -> bool {
        match &self.scope {
            Scope::Everything => true,
            Scope::Database(name) => entry.ns.0 == *name,
            Scope::Collection(ns) => {
                entry.ns == *ns
                    || matches!(entry.what, What::DropDatabase) && entry.ns.0 == ns.0
                    || matches!(&entry.what, What::Rename(to) if to == ns)
            }
        }
    }

    fn ends_with(&self, entry: &Entry) -> bool {
        matches!(
            (&self.scope, &entry.what),
            (Scope::Collection(_), What::Drop | What::Rename(_) | What::DropDatabase)
                | (Scope::Database(_), What::DropDatabase)
        )
    }

    /// Through the reader's stages into the batch.
    fn pass(&mut self, event: RawDocumentBuf, batch: &mut Vec<RawDocumentBuf>) -> Result<(), Failure> {
        let token = parsed(&event)?.get_document("_id").cloned().unwrap_or_default();
        let mut event = event;
        for stage in &self.pipeline {
            let Some((name, operand)) = stage.iter().next() else { continue };
            let Some(next) = through(name, operand, event)? else { return Ok(()) };
            event = next;
        }
        if parsed(&event)?.get_document("_id").ok() != Some(&token) {
            let text =
                "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline.";
            return Err(Failure::new(280, "ChangeStreamFatalError", text).labelled("NonResumableChangeStreamError"));
        }
        self.last = Some(token);
        batch.push(event);
        Ok(())
    }
}

const STAGES: [&str; 5] = ["$match", "$project", "$unset", "$changeStreamSplitLargeEvent", ""];

/// A stage's name.
pub(super) fn name(stage: &Document) -> &str {
    stage.keys().next().map_or("", String::as_str)
}

/// One document through one stage; `None`: it does not get through.
pub(super) fn through(name: &str, operand: &Bson, raw: RawDocumentBuf) -> Result<Option<RawDocumentBuf>, Failure> {
    let operands = || operand.as_document().ok_or_else(|| Failure::bad_value(&format!("{name} needs a document")));
    Ok(match name {
        "$match" => takes(operands()?, &parsed(&raw)?)?.then_some(raw),
        "$project" => Some(project(&raw, operands()?)?),
        "$unset" => {
            let paths: Vec<&str> = match operand {
                Bson::String(path) => vec![path],
                Bson::Array(paths) => paths.iter().filter_map(Bson::as_str).collect(),
                _ => return Err(Failure::bad_value("$unset needs names")),
            };
            Some(project(&raw, &paths.into_iter().map(|path| (path.to_owned(), Bson::Int32(0))).collect())?)
        }
        _ => Some(raw),
    })
}

/// Where a stream begins.
fn beginning(store: &mut Store, options: &Document) -> Result<Place, Failure> {
    let place = if let Ok(token) = options.get_document("resumeAfter") {
        let token = Token::parse(token)?;
        if token.of == Of::Invalidate {
            let text = "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification.";
            return Err(Failure::new(260, "InvalidResumeToken", text));
        }
        token.place
    } else if let Ok(token) = options.get_document("startAfter") {
        Token::parse(token)?.place
    } else if let Ok(time) = options.get_timestamp("startAtOperationTime") {
        // What happened at that time is part of it.
        Place::end_of(number(time).saturating_sub(1))
    } else {
        return Ok(Place::end_of(store.now()));
    };
    if place.at > store.now() {
        return Err(Failure::bad_value("startAtOperationTime or a resume token lies in the future"));
    }
    // A time that lies in what is gone, or just before it.
    if store.pruned_to() > 0 && place < Place::end_of(store.pruned_to()) {
        return Err(Failure::history_lost());
    }
    Ok(place)
}
