//! The database as a file: which one it is, and whether it still looks like a database.
//!
//! Nothing here opens the file. POSIX drops all locks that a process holds on a file as soon as the process closes *any*
//! descriptor of it, so an own descriptor on the database would take the locks from under SQLite, and another process
//! could then remove the write-ahead log while we read. The header is read through SQLite's descriptor instead.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

/// Which file it is: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// The file at `path` now, links followed.
pub(crate) fn identify(path: &Path) -> rustix::io::Result<FileId> {
    let stat = rustix::fs::stat(path)?;
    Ok(FileId { dev: stat.st_dev, ino: stat.st_ino })
}

/// The file beside the database with this ending.
pub(crate) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// The first 100 bytes of the database, as far as they are watched.
/// Source: SQLite documentation, "Database File Format", section 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    page_bytes: u64,
    change_counter: u32,
    /// Size in pages; none where an old writer did not keep it.
    pages: Option<u64>,
    /// Size of the file, in bytes.
    file_bytes: u64,
}

const HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

impl Header {
    /// Reads the header of the file that the connection has open.
    ///
    /// # Errors
    /// A text that says what is wrong with the file.
    pub(crate) fn read(conn: &Connection) -> Result<Self, String> {
        let (bytes, file_bytes) = raw::read_start(conn)?;
        Self::parse(&bytes, file_bytes)
    }

    fn parse(bytes: &[u8; HEADER_BYTES], file_bytes: u64) -> Result<Self, String> {
        if file_bytes < 512 {
            return Err(format!("it has only {file_bytes} bytes"));
        }
        if !bytes.starts_with(MAGIC) {
            return Err("its header is not that of a database".into());
        }
        let u32_at = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let page_bytes = match u16::from_be_bytes([bytes[16], bytes[17]]) {
            1 => 65_536,
            n => u64::from(n),
        };
        let change_counter = u32_at(24);
        let pages = (u32_at(92) == change_counter && u32_at(28) > 0).then(|| u64::from(u32_at(28)));
        Ok(Self { page_bytes, change_counter, pages, file_bytes })
    }

    /// Whether the file holds all pages that it claims. A checkpoint writes the first page before it lengthens the file,
    /// so a short file alone is no damage; see [`Header::follows`].
    pub(crate) fn is_complete(&self) -> bool {
        self.pages.is_none_or(|pages| pages * self.page_bytes <= self.file_bytes)
    }

    /// Whether this can be a later state of the database whose header was `before`.
    ///
    /// # Errors
    /// A text that says why not.
    pub(crate) fn follows(&self, before: &Self) -> Result<(), String> {
        if self.page_bytes != before.page_bytes {
            return Err("it was overwritten by one with another page size".into());
        }
        // The counter wraps, and each writer adds one: a step of half its range is a step back.
        if self.change_counter.wrapping_sub(before.change_counter) > u32::MAX / 2 {
            return Err("it was overwritten by an older one".into());
        }
        if self.file_bytes < before.file_bytes && !self.is_complete() {
            return Err(format!("it was cut from {} to {} bytes", before.file_bytes, self.file_bytes));
        }
        Ok(())
    }
}

#[allow(
    unsafe_code,
    reason = "SQLite gives its file only through its C interface, and an own descriptor would cost its locks"
)]
mod raw {
    use std::ffi::c_void;

    use rusqlite::{Connection, ffi};

    use super::HEADER_BYTES;

    /// The first bytes and the size of the main database file, through SQLite's own descriptor.
    pub(super) fn read_start(conn: &Connection) -> Result<([u8; HEADER_BYTES], u64), String> {
        let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
        let mut bytes = [0_u8; HEADER_BYTES];
        let mut size: ffi::sqlite3_int64 = 0;
        // SAFETY: the connection is open and `&Connection` is not `Sync`, so nobody else uses or closes it during the
        // call. FILE_POINTER stores a pointer that is valid as long as the connection has its file open; the methods
        // come from SQLite's own table, are checked for null, and get a buffer of the size they are told.
        let (read, sized) = unsafe {
            let rc = ffi::sqlite3_file_control(
                conn.handle(),
                c"main".as_ptr(),
                ffi::SQLITE_FCNTL_FILE_POINTER,
                (&raw mut file).cast::<c_void>(),
            );
            if rc != ffi::SQLITE_OK || file.is_null() || (*file).pMethods.is_null() {
                return Err("the connection has no file".into());
            }
            let methods = &*(*file).pMethods;
            let (Some(x_read), Some(x_size)) = (methods.xRead, methods.xFileSize) else {
                return Err("the file cannot be read".into());
            };
            (x_read(file, bytes.as_mut_ptr().cast::<c_void>(), HEADER_BYTES as i32, 0), x_size(file, &raw mut size))
        };
        if sized != ffi::SQLITE_OK {
            return Err("its size cannot be read".into());
        }
        if read != ffi::SQLITE_OK && read != ffi::SQLITE_IOERR_SHORT_READ {
            return Err(format!("its header cannot be read (SQLite error {read})"));
        }
        Ok((bytes, u64::try_from(size).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(page_bytes: u16, counter: u32, pages: u32, file_bytes: u64) -> Result<Header, String> {
        let mut bytes = [0_u8; HEADER_BYTES];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..18].copy_from_slice(&page_bytes.to_be_bytes());
        bytes[24..28].copy_from_slice(&counter.to_be_bytes());
        bytes[28..32].copy_from_slice(&pages.to_be_bytes());
        bytes[92..96].copy_from_slice(&counter.to_be_bytes());
        Header::parse(&bytes, file_bytes)
    }

    #[test]
    fn growth_and_honest_shrinking_are_no_damage() {
        let before = header(4096, 7, 10, 40_960).unwrap();
        assert_eq!(header(4096, 7, 10, 40_960).unwrap().follows(&before), Ok(()));
        // A checkpoint in flight: the first page is there, the rest is not yet.
        assert_eq!(header(4096, 8, 20, 40_960).unwrap().follows(&before), Ok(()));
        // VACUUM.
        assert_eq!(header(4096, 9, 5, 20_480).unwrap().follows(&before), Ok(()));
        let wrapped = header(4096, u32::MAX, 10, 40_960).unwrap();
        assert_eq!(header(4096, 1, 10, 40_960).unwrap().follows(&wrapped), Ok(()));
        assert!(header(1, 1, 1, 65_536).unwrap().is_complete());
    }

    #[test]
    fn damage_is_seen() {
        let before = header(4096, 7, 10, 40_960).unwrap();
        assert!(header(4096, 7, 10, 20_480).unwrap().follows(&before).is_err());
        assert!(header(4096, 6, 10, 40_960).unwrap().follows(&before).is_err());
        assert!(header(512, 8, 10, 40_960).unwrap().follows(&before).is_err());
        assert!(header(4096, 7, 10, 0).is_err());
        assert!(Header::parse(&[b'x'; HEADER_BYTES], 40_960).is_err());
    }
}
