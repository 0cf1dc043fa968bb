//! Binary form of messages and nonces.
//!
//! Numbers are big-endian and of fixed length, texts and lists have their length before them. The
//! first byte is the version of the form: a reader that meets another one refuses the message, so
//! relays and servers of different forms do not work together by accident.

use std::sync::Arc;

use hotrow_types::landmark::{CommitId, CommitMark, Landmark};
use hotrow_types::version::{Gtid, GtidSet, Snapshot, SourceId};

use crate::message::{
    ANSWERS_MAX, Beginning, Body, COLLECTIONS_MAX, Event, FlushReason, GTIDS_BYTES_MAX, Generation,
    HIDDEN_MAX, Loss, MESSAGE_BYTES_MAX, Mark, Message, Nonce, Predecessor, RUNNING_MAX,
    TEXT_BYTES_MAX, Visible, Watermark, cut,
};
use crate::tag::Tag;
pub use error::{DecodeError, FORM};
use reader::Reader;
use writer::Writer;

mod error;
mod reader;
mod writer;

/// Length of a nonce in bytes.
pub const NONCE_BYTES: usize = 25;
/// Most events in a message: each takes two bytes at least.
const EVENTS_MAX: usize = MESSAGE_BYTES_MAX / 2;

/// Returns the binary form of a message.
pub fn encode(message: &Message) -> Vec<u8> {
    let mut writer = Writer::new();
    let kind = match message.body {
        Body::Beginning(_) => 0,
        Body::Changes(_) => 1,
        Body::Watermark(_) => 2,
        Body::Loss(_) => 3,
    };
    writer.byte(FORM);
    writer.byte(kind);
    generation(&mut writer, message.generation);
    writer.number(message.counter);
    writer.number(message.complete);
    writer.option(message.landmark.as_ref(), write_landmark);
    match &message.body {
        Body::Beginning(beginning) => {
            writer.option(beginning.predecessor.as_ref(), |writer, predecessor| {
                generation(writer, predecessor.generation);
                writer.number(predecessor.counter);
            });
            writer.option(beginning.resumed_at.as_ref(), |writer, at| writer.number(*at));
            writer.option(beginning.watched.as_ref(), |writer, digest| writer.number(*digest));
            writer.text(&cut(&beginning.origin));
            writer.text(&cut(&beginning.reason));
        }
        Body::Changes(events) => changes(&mut writer, events),
        Body::Watermark(watermark) => write_watermark(&mut writer, watermark),
        Body::Loss(loss) => {
            writer.byte(loss.cause);
            writer.text(&cut(&loss.detail));
        }
    }
    writer.bytes
}

/// Returns the message of these bytes.
///
/// # Errors
/// The rule that they break.
pub fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(DecodeError::TooLong(bytes.len()));
    }
    let mut reader = Reader::new(bytes);
    let form = reader.byte()?;
    if form != FORM {
        return Err(DecodeError::Form(form));
    }
    let kind = reader.byte()?;
    let generation = read_generation(&mut reader)?;
    let counter = reader.number()?;
    let complete = reader.number()?;
    let landmark = reader.option(read_landmark)?;
    let body = match kind {
        0 => Body::Beginning(Beginning {
            predecessor: reader.option(|reader| {
                let generation = read_generation(reader)?;
                Ok(Predecessor { generation, counter: reader.number()? })
            })?,
            resumed_at: reader.option(Reader::number)?,
            watched: reader.option(Reader::number)?,
            origin: reader.text(TEXT_BYTES_MAX)?,
            reason: reader.text(TEXT_BYTES_MAX)?,
        }),
        1 => Body::Changes(read_changes(&mut reader)?),
        2 => Body::Watermark(Box::new(read_watermark(&mut reader)?)),
        3 => Body::Loss(Loss { cause: reader.byte()?, detail: reader.text(TEXT_BYTES_MAX)? }),
        _ => return Err(DecodeError::Damaged("it is of an unknown kind")),
    };
    reader.end()?;
    Ok(Message { generation, counter, complete, landmark, body })
}

/// Returns the binary form of a nonce.
pub fn encode_nonce(nonce: Nonce) -> [u8; NONCE_BYTES] {
    let mut bytes = [FORM; NONCE_BYTES];
    bytes[1..9].copy_from_slice(&nonce.instance.to_be_bytes());
    bytes[9..].copy_from_slice(&nonce.question.to_be_bytes());
    bytes
}

/// Returns the nonce of these bytes; `None` if they are none.
pub fn decode_nonce(bytes: &[u8]) -> Option<Nonce> {
    let (form, rest) = bytes.split_first()?;
    let (instance, rest) = rest.split_first_chunk::<8>()?;
    let (question, rest) = rest.split_first_chunk::<16>()?;
    (*form == FORM && rest.is_empty()).then(|| Nonce {
        instance: u64::from_be_bytes(*instance),
        question: u128::from_be_bytes(*question),
    })
}

fn generation(writer: &mut Writer, generation: Generation) {
    writer.number(generation.number);
    writer.number(generation.identity);
}

fn read_generation(reader: &mut Reader<'_>) -> Result<Generation, DecodeError> {
    Ok(Generation { number: reader.number()?, identity: reader.number()? })
}

fn write_landmark(writer: &mut Writer, landmark: &Landmark) {
    writer.number(landmark.at);
    writer.number(landmark.file_created_s.into());
    writer.option(landmark.commit.as_ref(), |writer, commit| {
        match commit.gtid {
            CommitId::MariaDb(domain, server, sequence) => {
                writer.byte(0);
                writer.number(domain.into());
                writer.number(server.into());
                writer.number(sequence);
            }
            CommitId::MySql(gtid) => {
                writer.byte(1);
                write_gtid(writer, gtid);
            }
        }
        writer.number(commit.end);
    });
}

fn read_landmark(reader: &mut Reader<'_>) -> Result<Landmark, DecodeError> {
    const TOO_LARGE: DecodeError = DecodeError::Damaged("a number of its landmark is too large");
    let short = |number: u64| u32::try_from(number).map_err(|_| TOO_LARGE);
    Ok(Landmark {
        at: reader.number()?,
        file_created_s: short(reader.number()?)?,
        commit: reader.option(|reader| {
            let gtid = match reader.byte()? {
                0 => {
                    let domain = short(reader.number()?)?;
                    let server = short(reader.number()?)?;
                    CommitId::MariaDb(domain, server, reader.number()?)
                }
                1 => CommitId::MySql(read_gtid(reader)?),
                _ => return Err(DecodeError::Damaged("its landmark has an unknown number")),
            };
            Ok(CommitMark { gtid, end: reader.number()? })
        })?,
    })
}

/// Writes events behind a table of the collections that they name.
fn changes(writer: &mut Writer, events: &[Event]) {
    let mut tags: Vec<Tag> = Vec::new();
    let indices: Vec<u16> = events
        .iter()
        .map(|event| {
            let tag = event.collection();
            let index = tags.iter().position(|known| *known == tag).unwrap_or_else(|| {
                tags.push(tag);
                tags.len() - 1
            });
            // At most `COLLECTIONS_MAX`.
            index as u16
        })
        .collect();
    writer.list(&tags, |writer, tag| writer.tag(*tag));
    writer.count(events.len());
    for (event, index) in events.iter().zip(indices) {
        match event {
            Event::Change { key, mark, .. } => {
                writer.byte(0);
                writer.short(index);
                write_mark(writer, *mark);
                writer.blob(key);
            }
            Event::Flush { cause, mark, .. } => {
                writer.byte(1);
                writer.short(index);
                writer.byte(*cause as u8);
                writer.option(mark.as_ref(), |writer, mark| write_mark(writer, *mark));
            }
            Event::OpenGap { detail, .. } => {
                writer.byte(2);
                writer.short(index);
                writer.text(&cut(detail));
            }
            Event::CloseGap { .. } => {
                writer.byte(3);
                writer.short(index);
            }
        }
    }
}

fn read_changes(reader: &mut Reader<'_>) -> Result<Vec<Event>, DecodeError> {
    let tags = reader.list(COLLECTIONS_MAX, Reader::tag)?;
    reader.list(EVENTS_MAX, |reader| {
        let kind = reader.byte()?;
        let collection = *tags
            .get(usize::from(reader.short()?))
            .ok_or(DecodeError::Damaged("it names a collection that it does not list"))?;
        Ok(match kind {
            0 => {
                let mark = read_mark(reader)?;
                Event::Change { collection, key: reader.blob()?.into(), mark }
            }
            1 => {
                let cause = match reader.byte()? {
                    0 => FlushReason::Bulk,
                    1 => FlushReason::Schema,
                    2 => FlushReason::Unlisted,
                    _ => return Err(DecodeError::Damaged("it has an unknown reason to flush")),
                };
                Event::Flush { collection, cause, mark: reader.option(read_mark)? }
            }
            2 => Event::OpenGap { collection, detail: reader.text(TEXT_BYTES_MAX)? },
            3 => Event::CloseGap { collection },
            _ => return Err(DecodeError::Damaged("it has an unknown event")),
        })
    })
}

fn write_watermark(writer: &mut Writer, watermark: &Watermark) {
    writer.list(&watermark.answers, |writer, question| writer.wide(*question));
    writer.number(watermark.end);
    writer.option(watermark.visible.as_ref(), |writer, visible| match visible {
        Visible::Snapshot(snapshot) => {
            writer.byte(0);
            writer.number(snapshot.xmin);
            writer.number(snapshot.xmax);
            writer.list(&snapshot.running, |writer, xid| writer.number(*xid));
        }
        Visible::Through(at) => {
            writer.byte(1);
            writer.number(*at);
        }
        Visible::Gtids(set) => {
            writer.byte(2);
            writer.text(&set.to_string());
        }
    });
    writer.option(watermark.hidden.as_ref(), |writer, hidden| {
        writer.list(hidden, |writer, mark| write_mark(writer, *mark));
    });
    writer.list(&watermark.gaps, |writer, tag| writer.tag(*tag));
    writer.list(&watermark.collections, |writer, tag| writer.tag(*tag));
    writer.option(watermark.watched.as_ref(), |writer, digest| writer.number(*digest));
    writer.text(&cut(&watermark.origin));
}

fn read_watermark(reader: &mut Reader<'_>) -> Result<Watermark, DecodeError> {
    Ok(Watermark {
        answers: reader.list(ANSWERS_MAX, Reader::wide)?,
        end: reader.number()?,
        visible: reader.option(|reader| match reader.byte()? {
            0 => {
                let xmin = reader.number()?;
                let xmax = reader.number()?;
                let running = reader.list(RUNNING_MAX, Reader::number)?;
                if !running.is_sorted() {
                    return Err(DecodeError::Damaged(
                        "the transactions of a snapshot are unsorted",
                    ));
                }
                Ok(Visible::Snapshot(Snapshot { xmin, xmax, running }))
            }
            1 => reader.number().map(Visible::Through),
            2 => {
                let set = GtidSet::parse(&reader.text(GTIDS_BYTES_MAX)?);
                let damaged = |_| DecodeError::Damaged("its set of GTIDs cannot be read");
                set.map(|set| Visible::Gtids(Arc::new(set))).map_err(damaged)
            }
            _ => Err(DecodeError::Damaged("it has an unknown kind of visibility")),
        })?,
        hidden: reader.option(|reader| reader.list(HIDDEN_MAX, read_mark))?,
        gaps: reader.list(COLLECTIONS_MAX, Reader::tag)?,
        collections: reader.list(COLLECTIONS_MAX, Reader::tag)?,
        watched: reader.option(Reader::number)?,
        origin: reader.text(TEXT_BYTES_MAX)?,
    })
}

fn write_mark(writer: &mut Writer, mark: Mark) {
    match mark {
        Mark::Transaction(number) => {
            writer.byte(0);
            writer.number(number);
        }
        Mark::Commit(number) => {
            writer.byte(1);
            writer.number(number);
        }
        Mark::Gtid(gtid) => {
            writer.byte(2);
            write_gtid(writer, gtid);
        }
    }
}

fn read_mark(reader: &mut Reader<'_>) -> Result<Mark, DecodeError> {
    match reader.byte()? {
        0 => reader.number().map(Mark::Transaction),
        1 => reader.number().map(Mark::Commit),
        2 => read_gtid(reader).map(Mark::Gtid),
        _ => Err(DecodeError::Damaged("it has an unknown kind of change")),
    }
}

fn write_gtid(writer: &mut Writer, gtid: Gtid) {
    writer.tag(Tag(gtid.source.server));
    writer.text(gtid.source.tag());
    writer.number(gtid.number);
}

fn read_gtid(reader: &mut Reader<'_>) -> Result<Gtid, DecodeError> {
    const TAG_BYTES_MAX: usize = 32;
    let Tag(server) = reader.tag()?;
    let source = SourceId::new(server, &reader.text(TAG_BYTES_MAX)?);
    let source = source.map_err(|_| DecodeError::Damaged("a GTID has no valid tag"))?;
    Ok(Gtid { source, number: reader.number()? })
}

impl Event {
    /// Returns the collection that the event is about.
    pub fn collection(&self) -> Tag {
        match self {
            Self::Change { collection, .. }
            | Self::Flush { collection, .. }
            | Self::OpenGap { collection, .. }
            | Self::CloseGap { collection } => *collection,
        }
    }

    /// Returns whether a table changed its shape.
    pub fn is_of_schema(&self) -> bool {
        matches!(self, Self::Flush { cause: FlushReason::Schema, .. })
    }

    /// Returns an upper bound of its encoded length, its collection included.
    pub fn bytes_max(&self) -> usize {
        const FIXED: usize = 39;
        FIXED
            + match self {
                Self::Change { key, mark, .. } => key.len() + mark.bytes_max(),
                Self::OpenGap { .. } => TEXT_BYTES_MAX,
                Self::Flush { mark, .. } => mark.as_ref().map_or(0, Mark::bytes_max),
                Self::CloseGap { .. } => 0,
            }
    }
}

#[cfg(test)]
mod tests;
