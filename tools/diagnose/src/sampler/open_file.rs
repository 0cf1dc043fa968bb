//! A file that stays open from sample to sample.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::root::{ProbeError, ProbeErrorKind, ProbeResult, READ_BYTES_MAX, Root};

/// Initial buffer size; larger files make it grow.
const BUFFER_BYTES: usize = 16 << 10;

/// A file of `/proc`; each read from its beginning generates its text anew.
#[derive(Debug)]
pub(super) struct OpenFile {
    name: Cow<'static, str>,
    file: Option<File>,
    /// Missing files are not looked for again: a running kernel does not add them.
    missing: bool,
}

impl OpenFile {
    pub(super) fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), file: None, missing: false }
    }

    /// Reads and parses the file.
    pub(super) fn parse<T>(
        &mut self,
        root: &Root,
        buffer: &mut Vec<u8>,
        parser: impl FnOnce(&str) -> Option<T>,
    ) -> ProbeResult<T> {
        let name = &self.name;
        let probe_error = |why| ProbeError { file: name.clone().into_owned(), why };
        if self.missing {
            return Err(probe_error(ProbeErrorKind::Missing));
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(root.path(name)).map_err(|error| {
                let why = ProbeErrorKind::of(&error);
                self.missing = why == ProbeErrorKind::Missing;
                probe_error(why)
            })?,
        };
        let bytes = read(&file, buffer).map_err(|error| probe_error(ProbeErrorKind::of(&error)))?;
        self.file = Some(file);
        // Device names may contain any bytes.
        let text = String::from_utf8_lossy(bytes);
        parser(&text).ok_or_else(|| probe_error(ProbeErrorKind::malformed(&text)))
    }
}

/// Reads the whole file: the kernel returns long files in parts.
pub(super) fn read<'a>(file: &File, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    if buffer.is_empty() {
        buffer.resize(BUFFER_BYTES, 0);
    }
    let mut filled = 0;
    loop {
        if filled == buffer.len() {
            if filled as u64 >= READ_BYTES_MAX {
                break;
            }
            buffer.resize(filled * 2, 0);
        }
        match file.read_at(&mut buffer[filled..], filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(&buffer[..filled])
}
