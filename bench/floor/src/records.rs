//! The answers, each in one piece, in a bounded cache.

use std::rc::Rc;

use quick_cache::unsync::Cache;

/// One complete answer, except for the date.
#[derive(Clone, Debug)]
pub struct Record {
    /// Status line, header fields and, unless it is large, the body.
    pub answer: Box<[u8]>,
    /// Offset of the date's 29 bytes in `answer`.
    pub date_at: usize,
    /// A body of more than [`COPIED_BYTES_MAX`]; otherwise empty.
    pub large_body: Rc<[u8]>,
}

/// Longest answer that is copied. A longer body is sent from where it lies.
const COPIED_BYTES_MAX: usize = 8 << 10;

const DATE_BYTES: usize = 29;

/// Records by id, in the cache's single-threaded form, which needs no lock.
pub struct Records(Cache<u64, Record>);

impl Records {
    /// Reads a file of records, each a line `ID HEAD_BYTES BODY_BYTES DATE_AT`, then head and body,
    /// then a newline.
    ///
    /// # Errors
    /// Returns a message with the byte offset of the error.
    pub fn read(path: &str) -> Result<Self, String> {
        let bytes =
            std::fs::read(path).map_err(|e| format!("cannot read records from {path}: {e}"))?;
        Self::parse(&bytes).map_err(|at| format!("{path} is no file of records: see byte {at}"))
    }

    /// Parses records from memory; the error is the offset of the first invalid record.
    pub fn parse(bytes: &[u8]) -> Result<Self, usize> {
        let mut records = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let (id, record, next) = record(bytes, at).ok_or(at)?;
            records.push((id, record));
            at = next;
        }
        // Twice the room, because the policy may evict before the cache is full, and misses would
        // distort the bound.
        let mut cache = Cache::new(2 * records.len() + 100);
        for (id, record) in records {
            cache.insert(id, record);
        }
        Ok(Self(cache))
    }

    /// Returns the record of an id.
    pub fn get(&self, id: u64) -> Option<&Record> {
        self.0.get(&id)
    }
}

fn record(bytes: &[u8], at: usize) -> Option<(u64, Record, usize)> {
    let line_bytes = bytes[at..].iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&bytes[at..at + line_bytes]).ok()?;
    let mut numbers = line.split(' ').map(|word| word.parse::<u64>().ok());
    let id = numbers.next()??;
    let head = numbers.next()??;
    let body = numbers.next()??;
    let date_at = numbers.next()??;
    let start = at + line_bytes + 1;
    let end = start.checked_add(usize::try_from(head.checked_add(body)?).ok()?)?;
    let whole = bytes.get(start..end)?;
    let copied =
        if whole.len() > COPIED_BYTES_MAX { usize::try_from(head).ok()? } else { whole.len() };
    let (answer, large_body) = whole.split_at_checked(copied)?;
    let date_at = usize::try_from(date_at).ok()?;
    if date_at.checked_add(DATE_BYTES)? > answer.len() || bytes.get(end) != Some(&b'\n') {
        return None;
    }
    Some((id, Record { answer: answer.into(), date_at, large_body: large_body.into() }, end + 1))
}
