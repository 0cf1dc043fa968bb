//! A file that stays open from sample to sample.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::root::{READ_BYTES_MAX, Root, Seen, Unseen, Why};

/// Room for most files at once; larger ones make it grow.
const BUFFER_BYTES: usize = 16 << 10;

/// A file of `/proc`; its text is made anew at each read from its beginning.
#[derive(Debug)]
pub(super) struct Open {
    name: Cow<'static, str>,
    file: Option<File>,
    /// Files that are not there are not looked for again: a kernel does not grow them.
    missing: bool,
}

impl Open {
    pub(super) fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), file: None, missing: false }
    }

    /// What a parser makes of it now.
    pub(super) fn parse<T>(
        &mut self,
        root: &Root,
        buffer: &mut Vec<u8>,
        parser: impl FnOnce(&str) -> Option<T>,
    ) -> Seen<T> {
        let name = &self.name;
        let unseen = |why| Unseen { file: name.clone().into_owned(), why };
        if self.missing {
            return Err(unseen(Why::Missing));
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(root.path(name)).map_err(|error| {
                let why = Why::of(&error);
                self.missing = why == Why::Missing;
                unseen(why)
            })?,
        };
        let bytes = read(&file, buffer).map_err(|error| unseen(Why::of(&error)))?;
        self.file = Some(file);
        // Names of devices may hold any bytes.
        let text = String::from_utf8_lossy(bytes);
        parser(&text).ok_or_else(|| unseen(Why::garbled(&text)))
    }
}

/// From the beginning to the end: the kernel hands long files out in parts.
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
