//! Frames of MongoDB's wire protocol: OP_MSG, and OP_QUERY for the first hello of a driver.
//!
//! Source: MongoDB's manual, "MongoDB Wire Protocol".

use std::io::{self, Read, Write};

use mongodb::bson::{Bson, Document, RawDocumentBuf};

/// Maximum length of a message, as reported by `hello`.
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2004;
const OP_MSG: i32 = 2013;
const HEAD_BYTES: usize = 16;
const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 1 << 1;

pub struct Request {
    id: i32,
    code: i32,
    pub body: Document,
    /// Document sequences of the message.
    sequences: Vec<(String, Vec<RawDocumentBuf>)>,
    /// True if the client expects no answer.
    pub unanswered: bool,
}

impl Request {
    /// Waits for a command.
    pub fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head)?;
        let field =
            |at: usize| i32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = usize::try_from(field(0)).unwrap_or_default();
        if !(HEAD_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(invalid("a message of a length that none may have"));
        }
        let mut bytes = vec![0; length - HEAD_BYTES];
        stream.read_exact(&mut bytes)?;
        let mut rest = bytes.as_slice();
        let id = field(4);
        let code = field(12);
        let mut request =
            Self { id, code, body: Document::new(), sequences: Vec::new(), unanswered: false };
        match code {
            OP_MSG => request.read_sections(&mut rest)?,
            OP_QUERY => request.read_query(&mut rest)?,
            _ => return Err(invalid("an operation that is neither OP_MSG nor OP_QUERY")),
        }
        Ok(request)
    }

    fn read_sections(&mut self, rest: &mut &[u8]) -> io::Result<()> {
        let flags = u32::from_le_bytes(*chunk(rest)?);
        self.unanswered = flags & MORE_TO_COME != 0;
        if flags & CHECKSUM_PRESENT != 0 {
            *rest = &rest[..rest.len().saturating_sub(4)];
        }
        while let Some((kind, after)) = rest.split_first() {
            *rest = after;
            match kind {
                0 => self.body = parsed(&take_document(rest)?)?,
                1 => {
                    let size = u32::from_le_bytes(*chunk(rest)?) as usize;
                    let (mut section, after) = rest
                        .split_at_checked(size.saturating_sub(4))
                        .ok_or_else(|| invalid("a cut section"))?;
                    *rest = after;
                    let name = take_text(&mut section)?;
                    let mut documents = Vec::new();
                    while !section.is_empty() {
                        documents.push(take_document(&mut section)?);
                    }
                    self.sequences.push((name, documents));
                }
                _ => return Err(invalid("a section of an unknown kind")),
            }
        }
        Ok(())
    }

    /// Reads the form in which older drivers send `hello`; the database is in the collection's
    /// name.
    fn read_query(&mut self, rest: &mut &[u8]) -> io::Result<()> {
        _ = chunk::<4>(rest)?;
        let name = take_text(rest)?;
        _ = chunk::<8>(rest)?;
        self.body = parsed(&take_document(rest)?)?;
        let database = name.split('.').next().unwrap_or_default();
        self.body.insert("$db", database);
        Ok(())
    }

    /// Returns the documents of this name, from a sequence or from the command itself.
    pub fn documents(&self, name: &str) -> Vec<RawDocumentBuf> {
        if let Some((_, documents)) = self.sequences.iter().find(|(other, _)| other == name) {
            return documents.clone();
        }
        let inline = self.body.get_array(name).map(Vec::as_slice).unwrap_or_default();
        let raw = |value: &Bson| RawDocumentBuf::try_from(value.as_document()?).ok();
        inline.iter().filter_map(raw).collect()
    }

    pub fn name(&self) -> &str {
        self.body.keys().next().map_or("", String::as_str)
    }

    pub fn database(&self) -> &str {
        self.body.get_str("$db").unwrap_or("admin")
    }

    pub fn answer(&self, stream: &mut impl Write, answer: &RawDocumentBuf) -> io::Result<()> {
        let mut bytes = vec![0; HEAD_BYTES];
        let code = if self.code == OP_QUERY {
            // No flags, no cursor, from the first, one document.
            bytes.extend([0; 16]);
            bytes.extend(1_i32.to_le_bytes());
            OP_REPLY
        } else {
            bytes.extend([0; 5]);
            OP_MSG
        };
        bytes.extend(answer.as_bytes());
        let length =
            i32::try_from(bytes.len()).map_err(|_| invalid("an answer too long to be sent"))?;
        for (at, field) in [(0, length), (4, 0), (8, self.id), (12, code)] {
            bytes[at..at + 4].copy_from_slice(&field.to_le_bytes());
        }
        stream.write_all(&bytes)
    }
}

fn chunk<'a, const N: usize>(rest: &mut &'a [u8]) -> io::Result<&'a [u8; N]> {
    let (chunk, after) = rest.split_first_chunk().ok_or_else(|| invalid("a cut message"))?;
    *rest = after;
    Ok(chunk)
}

fn take_text(rest: &mut &[u8]) -> io::Result<String> {
    let end =
        rest.iter().position(|byte| *byte == 0).ok_or_else(|| invalid("a text without end"))?;
    let text =
        String::from_utf8(rest[..end].to_vec()).map_err(|_| invalid("a text that is not UTF-8"))?;
    *rest = &rest[end + 1..];
    Ok(text)
}

fn take_document(rest: &mut &[u8]) -> io::Result<RawDocumentBuf> {
    let size = rest.first_chunk().map_or(0, |size| u32::from_le_bytes(*size) as usize);
    let (bytes, after) = rest.split_at_checked(size).ok_or_else(|| invalid("a cut document"))?;
    *rest = after;
    RawDocumentBuf::from_bytes(bytes.to_vec()).map_err(|e| invalid(&e.to_string()))
}

fn parsed(raw: &RawDocumentBuf) -> io::Result<Document> {
    Document::try_from(raw).map_err(|e| invalid(&e.to_string()))
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
